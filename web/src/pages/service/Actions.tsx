/** Actions on a service. */

import { ActionIcon, Button, Menu } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import {
  CheckCheck,
  Copy,
  Ellipsis,
  FilePen,
  History,
  ListChecks,
  Pause,
  Play,
  RotateCw,
  Scaling,
  Trash2,
} from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import type { Service } from "../../api/schema";
import { pauseRollout, resumeRollout } from "../../api/services";
import { rolloutActions } from "../../lib/services";
import { Allowed, AllowedSomewhere } from "../../ui/Allowed";
import { runAction } from "../../ui/notify";
import { DeleteDialog, PromoteDialog, RestartDialog, RollbackDialog, ScaleDialog } from "./dialogs";

type Dialog = "scale" | "restart" | "rollback" | "promote" | "delete";

export function Actions({ service }: { service: Service }) {
  const { t } = useTranslation();
  const [open, setOpen] = useState<Dialog | null>(null);
  const close = () => setOpen(null);
  const { id, name, namespace, rollout, deleting = false } = service;
  const { canPause, canResume, canPromote } = rolloutActions(rollout);
  const edit = { to: "/services/$namespace/$name/edit", params: { namespace, name } } as const;
  return (
    <>
      {!deleting && (
        <>
          <Allowed verb="operate" on="services" in={namespace}>
            {canPromote && (
              <Button leftSection={<CheckCheck size={14} />} onClick={() => setOpen("promote")}>
                {t("service.promote")}
              </Button>
            )}
            {canResume && (
              <Button
                leftSection={<Play size={14} />}
                onClick={() => void runAction(() => resumeRollout(id), t("service.resumed", { name }))}
              >
                {t("service.resume")}
              </Button>
            )}
            {!service.spec?.per_worker && !service.spec?.scaling && (
              <Button
                variant={canPromote || canResume ? "default" : undefined}
                leftSection={<Scaling size={14} />}
                onClick={() => setOpen("scale")}
              >
                {t("service.scale")}
              </Button>
            )}
            <Button
              variant="default"
              leftSection={<RotateCw size={14} />}
              onClick={() => setOpen("restart")}
              visibleFrom="sm"
            >
              {t("service.restart")}
            </Button>
          </Allowed>
          <Allowed verb="change" on="services" in={namespace}>
            <Button
              renderRoot={(props) => <Link {...edit} {...props} />}
              variant="default"
              leftSection={<FilePen size={14} />}
              visibleFrom="sm"
            >
              {t("schedule.edit")}
            </Button>
          </Allowed>
        </>
      )}
      <Menu>
        <Menu.Target>
          <ActionIcon variant="default" aria-label={t("schedule.more")}>
            <Ellipsis size={16} />
          </ActionIcon>
        </Menu.Target>
        <Menu.Dropdown>
          {!deleting && (
            <>
              <Allowed verb="change" on="services" in={namespace}>
                <Menu.Item
                  renderRoot={(props) => <Link {...edit} {...props} />}
                  leftSection={<FilePen size={14} />}
                  hiddenFrom="sm"
                >
                  {t("schedule.edit")}
                </Menu.Item>
              </Allowed>
              <Allowed verb="operate" on="services" in={namespace}>
                <Menu.Item
                  leftSection={<RotateCw size={14} />}
                  onClick={() => setOpen("restart")}
                  hiddenFrom="sm"
                >
                  {t("service.restart")}
                </Menu.Item>
                <Menu.Item
                  leftSection={<History size={14} />}
                  onClick={() => setOpen("rollback")}
                  disabled={rollout.revision === 1}
                >
                  {t("service.rollback")}
                </Menu.Item>
                {canPause && (
                  <Menu.Item
                    leftSection={<Pause size={14} />}
                    onClick={() => void runAction(() => pauseRollout(id), t("service.paused", { name }))}
                  >
                    {t("service.pause")}
                  </Menu.Item>
                )}
              </Allowed>
            </>
          )}
          <Menu.Item
            leftSection={<ListChecks size={14} />}
            renderRoot={(props) => <Link to="/jobs" search={{ service: id }} {...props} />}
          >
            {t("service.allJobs")}
          </Menu.Item>
          <AllowedSomewhere verb="change" on="services">
            <Menu.Item
              leftSection={<Copy size={14} />}
              renderRoot={(props) => <Link to="/services/new" search={{ from: id }} {...props} />}
            >
              {t("schedule.duplicate")}
            </Menu.Item>
          </AllowedSomewhere>
          {!deleting && (
            <Allowed verb="delete" on="services" in={namespace}>
              <Menu.Divider />
              <Menu.Item leftSection={<Trash2 size={14} />} color="red" onClick={() => setOpen("delete")}>
                {t("schedule.delete")}
              </Menu.Item>
            </Allowed>
          )}
        </Menu.Dropdown>
      </Menu>
      {open === "scale" && <ScaleDialog service={service} onClose={close} />}
      {open === "restart" && <RestartDialog service={service} onClose={close} />}
      {open === "rollback" && <RollbackDialog service={service} onClose={close} />}
      {open === "promote" && <PromoteDialog service={service} onClose={close} />}
      {open === "delete" && <DeleteDialog service={service} onClose={close} />}
    </>
  );
}
