/** Actions on an alert: acknowledge, resolve, silence. */

import { ActionIcon, Button, Tooltip } from "@mantine/core";
import { BellOff, Check, type LucideIcon, UserCheck } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { actOnAlert, type AlertAction } from "../../api/alerts";
import type { Alert } from "../../api/schema";
import { alertSentence, isOpen, mayResolve, subjectName } from "../../lib/alerts";
import { Allowed } from "../../ui/Allowed";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { SilenceDialog } from "./SilenceDialog";

const ICONS: Record<AlertAction | "silence", LucideIcon> = {
  acknowledge: UserCheck,
  resolve: Check,
  silence: BellOff,
};

/** `inRow`: buttons with icons only. */
export function Actions({ alert, inRow }: { alert: Alert; inRow?: boolean }) {
  const { t } = useTranslation();
  const [asked, setAsked] = useState<AlertAction | "silence" | null>(null);
  if (!isOpen(alert)) return null;
  const name = subjectName(alert, t);
  const offered = (["acknowledge", "resolve", "silence"] as const).filter(
    (action) =>
      (action !== "acknowledge" || alert.status === "firing") && (action !== "resolve" || mayResolve(alert)),
  );
  return (
    <Allowed verb="operate" on="alerts" in={alert.namespace}>
      {offered.map((action) => {
        const Icon = ICONS[action];
        const word = action === "silence" ? t("silence.silence") : t(`alert.act.${action}`);
        const label = action === "silence" ? t("silence.of", { name }) : t(`alert.actOn.${action}`, { name });
        const ask = () => setAsked(action);
        return inRow ? (
          <Tooltip key={action} label={word}>
            <ActionIcon aria-label={label} onClick={ask}>
              <Icon size={15} />
            </ActionIcon>
          </Tooltip>
        ) : (
          <Button key={action} variant="default" leftSection={<Icon size={14} />} onClick={ask}>
            {word}
          </Button>
        );
      })}
      {asked === "silence" && (
        <SilenceDialog
          namespace={alert.namespace}
          rule={alert.rule}
          subject={alert.subject.name}
          onClose={() => setAsked(null)}
        />
      )}
      {asked && asked !== "silence" && (
        <ActDialog alert={alert} action={asked} onClose={() => setAsked(null)} />
      )}
    </Allowed>
  );
}

function ActDialog(props: { alert: Alert; action: AlertAction; onClose: () => void }) {
  const { t } = useTranslation();
  const { alert, action, onClose } = props;
  return (
    <ConfirmDialog
      title={t(`alert.act.${action}`)}
      text={t(`alert.actText.${action}`)}
      field={{ label: t("alert.comment") }}
      confirm={t(`alert.act.${action}`)}
      onConfirm={(comment) => actOnAlert(alert, action, comment)}
      done={t(`alert.acted.${action}`)}
      onClose={onClose}
    >
      <p>
        <strong>{subjectName(alert, t)}</strong>
        {t("common.colon")}
        {alertSentence(alert, t)}
      </p>
    </ConfirmDialog>
  );
}
