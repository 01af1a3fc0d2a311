/** Sets the state of a failure group, with an optional note. */

import { useTranslation } from "react-i18next";

import { setFailureState } from "../../api/failures";
import type { FailureGroup, FailureState } from "../../api/schema";
import { ConfirmDialog } from "../../ui/ConfirmDialog";

interface StateDialogProps {
  group: FailureGroup;
  state: FailureState;
  onClose: () => void;
}

export function StateDialog({ group, state, onClose }: StateDialogProps) {
  const { t } = useTranslation();
  return (
    <ConfirmDialog
      title={t(`failureGroup.mark.${state}`)}
      text={t(`failureGroup.markText.${state}`)}
      // An open group has no note.
      field={state === "open" ? undefined : { label: t("failureGroup.note"), value: group.note ?? "" }}
      confirm={t(`failureGroup.mark.${state}`)}
      onConfirm={(note) => setFailureState(group, state, note)}
      done={t(`failureGroup.marked.${state}`)}
      onClose={onClose}
    />
  );
}
