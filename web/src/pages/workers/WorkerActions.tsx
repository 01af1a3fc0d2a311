/** Worker actions: cordon, uncordon, drain, delete. */

import { ActionIcon, Button, Group, Menu, Modal } from "@mantine/core";
import { CircleSlash, Ellipsis, LogOut, Play, Trash2 } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { actOnWorker, deleteWorker } from "../../api/actions";
import type { Worker } from "../../api/schema";
import { runAction } from "../../ui/notify";

type PendingAction = "drain" | "delete";

export function WorkerActions({ worker }: { worker: Worker }) {
  const { t } = useTranslation();
  const [pendingAction, setPendingAction] = useState<PendingAction | null>(null);
  const { id, name } = worker;
  return (
    <>
      <Menu>
        <Menu.Target>
          <ActionIcon variant="default" aria-label={t("worker.actions", { name })}>
            <Ellipsis size={16} />
          </ActionIcon>
        </Menu.Target>
        <Menu.Dropdown>
          {worker.admission === "open" ? (
            <Menu.Item
              leftSection={<CircleSlash size={14} />}
              onClick={() => void runAction(() => actOnWorker(id, "cordon"), t("worker.cordoned", { name }))}
            >
              {t("worker.cordon")}
            </Menu.Item>
          ) : (
            <Menu.Item
              leftSection={<Play size={14} />}
              onClick={() =>
                void runAction(() => actOnWorker(id, "uncordon"), t("worker.uncordoned", { name }))
              }
            >
              {t("worker.uncordon")}
            </Menu.Item>
          )}
          {worker.admission !== "draining" && (
            <Menu.Item leftSection={<LogOut size={14} />} onClick={() => setPendingAction("drain")}>
              {t("worker.drain")}
            </Menu.Item>
          )}
          {worker.status === "lost" && (
            <Menu.Item
              color="red"
              leftSection={<Trash2 size={14} />}
              onClick={() => setPendingAction("delete")}
            >
              {t("worker.delete")}
            </Menu.Item>
          )}
        </Menu.Dropdown>
      </Menu>
      {pendingAction && (
        <ConfirmActionDialog
          pendingAction={pendingAction}
          worker={worker}
          onClose={() => setPendingAction(null)}
        />
      )}
    </>
  );
}

/** Confirms the drain or the removal of a worker. */
export function ConfirmActionDialog({
  pendingAction,
  worker,
  onClose,
}: {
  pendingAction: PendingAction;
  worker: Worker;
  onClose: () => void;
}) {
  const { t } = useTranslation();
  const [busy, setBusy] = useState(false);
  const { id, name } = worker;
  const confirm = async () => {
    setBusy(true);
    await runAction(
      () => (pendingAction === "drain" ? actOnWorker(id, "drain") : deleteWorker(id)),
      t(`worker.${pendingAction}Done`, { name }),
    );
    onClose();
  };
  return (
    <Modal opened onClose={onClose} title={t(`worker.${pendingAction}Title`, { name })} size={420}>
      <p className="quiet">{t(`worker.${pendingAction}Text`, { count: worker.allocated.executions })}</p>
      <Group justify="flex-end" mt="md" gap="xs">
        <Button variant="default" onClick={onClose}>
          {t("common.back")}
        </Button>
        <Button color="red" loading={busy} onClick={() => void confirm()}>
          {t(`worker.${pendingAction}`)}
        </Button>
      </Group>
    </Modal>
  );
}
