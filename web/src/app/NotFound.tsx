import { Button } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { Compass } from "lucide-react";
import { useTranslation } from "react-i18next";

import { EmptyState, Page } from "../ui/kit";

export function NotFound() {
  const { t } = useTranslation();
  return (
    <Page title={t("notFound.title")}>
      <EmptyState
        icon={Compass}
        title={t("notFound.text")}
        action={
          <Button variant="default" component={Link} to="/">
            {t("nav.overview")}
          </Button>
        }
      />
    </Page>
  );
}
