/** Confirms the pause of a queue. */

import { useTranslation } from "react-i18next";

import { pauseQueue } from "../../api/actions";
import { ConfirmDialog } from "../../ui/ConfirmDialog";

export function PauseDialog({ name, onClose }: { name: string; onClose: () => void }) {
  const { t } = useTranslation();
  return (
    <ConfirmDialog
      title={t("queue.pauseTitle", { name })}
      text={t("queue.pauseText")}
      field={{ label: t("queue.note") }}
      confirm={t("queue.pause")}
      onConfirm={(note) => pauseQueue(name, note)}
      done={t("queue.pausedDone", { name })}
      onClose={onClose}
    />
  );
}
