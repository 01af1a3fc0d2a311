/** Error page: the error of a page that failed, and what to do. The navigation stays visible. */

import { Button } from "@mantine/core";
import { type ErrorComponentProps, useRouter } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";

import { ApiError } from "../api/errors";
import { Page, ErrorBox } from "../ui/kit";
import { resetFailedLoads, ChunkLoadError } from "./lazyPage";
import { useChunkReload } from "./useChunkReload";

export function ErrorPage({ error, reset }: ErrorComponentProps) {
  const { t } = useTranslation();
  const router = useRouter();
  const isChunkError = error instanceof ChunkLoadError;
  useChunkReload(error, reset);

  const retry = () => {
    resetFailedLoads();
    reset();
    void router.invalidate();
  };
  const apiError = isChunkError ? new ApiError("not_loaded", 0, error.message) : ApiError.from(error);
  return (
    <Page title={isChunkError ? t("failed.notLoaded") : t("failed.title")}>
      <ErrorBox error={apiError} onRetry={retry} />
      <div>
        <Button variant="default" onClick={() => location.reload()}>
          {t("failed.reload")}
        </Button>
      </div>
    </Page>
  );
}
