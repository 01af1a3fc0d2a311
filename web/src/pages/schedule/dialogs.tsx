/** Confirmation dialogs for actions on a schedule. */

import { useNavigate } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";

import { deleteSchedule, pauseSchedule, triggerSchedule } from "../../api/schedules";
import type { Schedule } from "../../api/schema";
import { notify } from "../../ui/notify";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { useRequestKey } from "../../ui/useRequestKey";

interface DialogProps {
  schedule: Schedule;
  onClose: () => void;
}

export function PauseDialog({ schedule: { id, name }, onClose }: DialogProps) {
  const { t } = useTranslation();
  return (
    <ConfirmDialog
      title={t("schedule.pauseTitle", { name })}
      text={t("schedule.pauseText")}
      field={{ label: t("queue.note") }}
      confirm={t("schedule.pause")}
      onConfirm={(note) => pauseSchedule(id, note)}
      done={t("schedule.pausedDone", { name })}
      onClose={onClose}
    />
  );
}

export function TriggerDialog({ schedule: { id, name }, onClose }: DialogProps) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const requestKey = useRequestKey();
  const trigger = async (reason: string) => {
    const result = await triggerSchedule(id, reason, requestKey(reason));
    const { job_id: job, run_id: run } = result;
    notify(
      t(`outcome.${result.outcome}`),
      job
        ? {
            label: t("schedule.showRun"),
            run: () => void navigate({ to: "/jobs/$id", params: { id: job } }),
          }
        : run
          ? {
              label: t("schedule.showRun"),
              run: () => void navigate({ to: "/runs/$id", params: { id: run } }),
            }
          : null,
    );
  };
  return (
    <ConfirmDialog
      title={t("schedule.triggerTitle", { name })}
      text={t("schedule.triggerText")}
      field={{ label: t("schedule.reason") }}
      confirm={t("schedule.trigger")}
      onConfirm={trigger}
      onClose={onClose}
    />
  );
}

export function DeleteDialog({ schedule: { id, name }, onClose }: DialogProps) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  return (
    <ConfirmDialog
      title={t("schedule.deleteTitle", { name })}
      text={t("schedule.deleteText")}
      confirm={t("schedule.delete")}
      red
      onConfirm={async () => {
        await deleteSchedule(id);
        void navigate({ to: "/schedules" });
      }}
      done={t("schedule.deleted", { name })}
      onClose={onClose}
    />
  );
}
