/** Worker actions: cordon, uncordon, drain, delete. */

import { ActionIcon, Menu } from "@mantine/core";
import { CircleSlash, Ellipsis, LogOut, Play, Trash2 } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { actOnWorker, deleteWorker } from "../../api/actions";
import type { Worker } from "../../api/schema";
import { useCan } from "../../ui/Allowed";
import { runAction } from "../../ui/notify";
import { ConfirmDialog } from "../../ui/ConfirmDialog";

type PendingAction = "drain" | "delete";

export function WorkerActions({ worker }: { worker: Worker }) {
  const { t } = useTranslation();
  const [pendingAction, setPendingAction] = useState<PendingAction | null>(null);
  const { id, name } = worker;
  const can = useCan();
  const canOperate = can("operate", "workers");
  const canDelete = worker.status === "lost" && can("delete", "workers");
  if (!canOperate && !canDelete) return null;
  return (
    <>
      <Menu>
        <Menu.Target>
          <ActionIcon variant="default" aria-label={t("worker.actions", { name })}>
            <Ellipsis size={16} />
          </ActionIcon>
        </Menu.Target>
        <Menu.Dropdown>
          {canOperate &&
            (worker.admission === "open" ? (
              <Menu.Item
                leftSection={<CircleSlash size={14} />}
                onClick={() =>
                  void runAction(() => actOnWorker(id, "cordon"), t("worker.cordoned", { name }))
                }
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
            ))}
          {canOperate && worker.admission !== "draining" && (
            <Menu.Item leftSection={<LogOut size={14} />} onClick={() => setPendingAction("drain")}>
              {t("worker.drain")}
            </Menu.Item>
          )}
          {canDelete && (
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
  const { id, name } = worker;
  return (
    <ConfirmDialog
      title={t(`worker.${pendingAction}Title`, { name })}
      text={t(`worker.${pendingAction}Text`, { count: worker.allocated.executions })}
      confirm={t(`worker.${pendingAction}`)}
      red
      onConfirm={() => (pendingAction === "drain" ? actOnWorker(id, "drain") : deleteWorker(id))}
      done={t(`worker.${pendingAction}Done`, { name })}
      onClose={onClose}
    />
  );
}
