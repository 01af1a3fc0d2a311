/** Actions on a monitor: ping by hand, and delete. */

import { ActionIcon, Button, Tooltip } from "@mantine/core";
import { Radio, Trash2 } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { deleteMonitor, pingMonitor } from "../../api/monitors";
import { useCan } from "../../ui/Allowed";
import { ConfirmDialog } from "../../ui/ConfirmDialog";

interface Props {
  name: string;
  namespace: string;
  /** Called after the deletion. */
  onDeleted?: () => void;
}

export function MonitorDelete({ name, namespace, onDeleted }: Props) {
  const { t } = useTranslation();
  const [asking, setAsking] = useState(false);
  if (!useCan()("delete", "alerts", namespace)) return null;
  return (
    <>
      <Tooltip label={t("monitor.delete")}>
        <ActionIcon aria-label={t("monitor.deleteOf", { name })} onClick={() => setAsking(true)}>
          <Trash2 size={14} />
        </ActionIcon>
      </Tooltip>
      {asking && (
        <ConfirmDialog
          title={t("monitor.deleteTitle", { name })}
          text={t("monitor.deleteText")}
          confirm={t("monitor.delete")}
          red
          onConfirm={async () => {
            await deleteMonitor(name, namespace);
            onDeleted?.();
          }}
          done={t("monitor.deleted", { name })}
          onClose={() => setAsking(false)}
        />
      )}
    </>
  );
}

/** Reports a success by hand, for example after the job was run by hand. */
export function PingButton({ name, namespace }: Props) {
  const { t } = useTranslation();
  const [asking, setAsking] = useState(false);
  if (!useCan()("operate", "alerts", namespace)) return null;
  return (
    <>
      <Button variant="default" leftSection={<Radio size={14} />} onClick={() => setAsking(true)}>
        {t("ping.send")}
      </Button>
      {asking && (
        <ConfirmDialog
          title={t("ping.sendTitle", { name })}
          text={t("ping.sendText")}
          confirm={t("ping.send")}
          onConfirm={() => pingMonitor(name, namespace, "success")}
          done={t("ping.sent", { name })}
          onClose={() => setAsking(false)}
        />
      )}
    </>
  );
}
