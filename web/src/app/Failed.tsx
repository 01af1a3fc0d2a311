/** A page that could not be shown: why, and what to do. The frame around it stays. */

import { Button } from "@mantine/core";
import { type ErrorComponentProps, useRouter } from "@tanstack/react-router";
import { useEffect } from "react";
import { useTranslation } from "react-i18next";

import { feed } from "../api/feed";
import { Refusal } from "../api/problem";
import { Page, ProblemBox } from "../ui/kit";
import { forgetFailures, NotLoaded } from "./lazyPage";
import { mayReload } from "./reloads";

/**
 * Reloads the whole page if the server answers: then the code of the page is not there because the server was
 * upgraded. The address of this module names the build.
 */
async function reloadAfterUpgrade({ message }: NotLoaded): Promise<void> {
  const answer = await fetch("/livez", { cache: "no-store" }).catch(() => null);
  if (answer?.ok && mayReload(sessionStorage, import.meta.url, message)) location.reload();
}

export function Failed({ error, reset }: ErrorComponentProps) {
  const { t } = useTranslation();
  const router = useRouter();
  const isNotLoaded = error instanceof NotLoaded;

  useEffect(() => {
    if (!isNotLoaded) return;
    void reloadAfterUpgrade(error);
    const stop = feed.onStatus(() => {
      if (feed.status.state !== "live") return;
      // Before the page is shown again: it would fail at once with what failed before.
      forgetFailures();
      reset();
    });
    return () => {
      stop();
      forgetFailures();
    };
  }, [error, isNotLoaded, reset]);

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
