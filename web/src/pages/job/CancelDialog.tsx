/** Confirms the cancellation of a job. */

import { useTranslation } from "react-i18next";

import { cancelJob } from "../../api/actions";
import type { Job } from "../../api/schema";
import { ConfirmDialog } from "../../ui/ConfirmDialog";

export function CancelDialog({ job, onClose }: { job: Job; onClose: () => void }) {
  const { t } = useTranslation();
  const { id, name, status } = job;
  return (
    <ConfirmDialog
      title={t("job.cancelTitle", { name })}
      text={status === "running" ? t("job.cancelRunning") : t("job.cancelWaiting")}
      field={{ label: t("job.reason") }}
      confirm={t("job.cancel")}
      red
      onConfirm={(reason) => cancelJob(id, reason)}
      done={t("job.cancelled", { name })}
      onClose={onClose}
    >
      {job.replica && <p className="quiet">{t("job.replica.restarts")}</p>}
    </ConfirmDialog>
  );
}
