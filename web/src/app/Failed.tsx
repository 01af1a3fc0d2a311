/** A page that could not be shown: why, and what to do. The frame around it stays. */

import { Button } from "@mantine/core";
import { type ErrorComponentProps, useRouter } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";

import { Refusal } from "../api/problem";
import { Page, ProblemBox } from "../ui/kit";
import { forgetFailures, NotLoaded } from "./lazyPage";
import { useLoadAgain } from "./useLoadAgain";

export function Failed({ error, reset }: ErrorComponentProps) {
  const { t } = useTranslation();
  const router = useRouter();
  const isNotLoaded = error instanceof NotLoaded;
  useLoadAgain(error, reset);

  const retry = () => {
    forgetFailures();
    reset();
    void router.invalidate();
  };
  const known = isNotLoaded ? new Refusal("not_loaded", 0, error.message) : Refusal.from(error);
  return (
    <Page title={isNotLoaded ? t("failed.notLoaded") : t("failed.title")}>
      <ProblemBox error={known} onRetry={retry} />
      <div>
        <Button variant="default" onClick={() => location.reload()}>
          {t("failed.reload")}
        </Button>
      </div>
    </Page>
  );
}
