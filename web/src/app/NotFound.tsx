import { Button } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { Compass } from "lucide-react";
import { useTranslation } from "react-i18next";

import { Empty } from "../ui/kit";

export function NotFound() {
  const { t } = useTranslation();
  return (
    <Empty
      icon={Compass}
      title={t("notFound.title")}
      action={
        <Button variant="default" component={Link} to="/">
          {t("nav.overview")}
        </Button>
      }
    >
      {t("notFound.text")}
    </Empty>
  );
}
