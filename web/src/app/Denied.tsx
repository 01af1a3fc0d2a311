/** Shown instead of a page that the caller may not open. */

import { Button } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { KeyRound, Lock, LogOut } from "lucide-react";
import { useTranslation } from "react-i18next";

import { signOut } from "../api/auth";
import type { Denial } from "../lib/rights";
import { EmptyState, Page } from "../ui/kit";

export function Denied({ denial }: { denial: Denial }) {
  const { t } = useTranslation();
  if (denial === "noRole") {
    return (
      <Page title={t("denied.noRole")}>
        <EmptyState
          icon={KeyRound}
          title={t("denied.askForRole")}
          action={
            <Button variant="default" leftSection={<LogOut size={13} />} onClick={() => void signOut()}>
              {t("settings.signOut")}
            </Button>
          }
        >
          <p>{t("denied.noRoleText")}</p>
        </EmptyState>
      </Page>
    );
  }
  const [verb, resource] = denial;
  return (
    <Page title={t("denied.title")}>
      <EmptyState
        icon={Lock}
        title={t("denied.text")}
        action={
          <Button variant="default" component={Link} to="/">
            {t("nav.overview")}
          </Button>
        }
      >
        <p>{t("denied.hint", { permission: `${verb} ${resource}` })}</p>
      </EmptyState>
    </Page>
  );
}
