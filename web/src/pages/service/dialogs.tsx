/** Dialogs for actions on a service. */

import { NumberInput, Select } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import type { Service } from "../../api/schema";
import {
  deleteService,
  promoteRollout,
  restartService,
  revisionsQuery,
  rollbackService,
  scaleService,
} from "../../api/services";
import { ConfirmDialog } from "../../ui/ConfirmDialog";

interface DialogProps {
  service: Service;
  onClose: () => void;
}

const REPLICAS_MAX = 1_000;

export function ScaleDialog({ service: { id, name, replicas, spec }, onClose }: DialogProps) {
  const { t } = useTranslation();
  const [value, setValue] = useState<string | number>(replicas);
  const next = Number(value);
  return (
    <ConfirmDialog
      title={t("service.scaleTitle", { name })}
      text={spec?.replicas == null ? t("service.scaleText") : t("service.scaleAppliedText")}
      confirm={t("service.scale")}
      disabled={value === "" || next === replicas}
      onConfirm={() => scaleService(id, next)}
      done={t("service.scaled", { name, count: next })}
      onClose={onClose}
    >
      <NumberInput
        mt="md"
        label={t("service.replicas")}
        value={value}
        onChange={setValue}
        min={0}
        max={REPLICAS_MAX}
        allowDecimal={false}
        data-autofocus
      />
    </ConfirmDialog>
  );
}

export function RestartDialog({ service: { id, name }, onClose }: DialogProps) {
  const { t } = useTranslation();
  return (
    <ConfirmDialog
      title={t("service.restartTitle", { name })}
      text={t("service.restartText")}
      confirm={t("service.restart")}
      onConfirm={() => restartService(id)}
      done={t("service.restarted", { name })}
      onClose={onClose}
    />
  );
}

/** Rolls back to a revision: to `revision`, or to one that the user chooses. */
export function RollbackDialog(props: DialogProps & { revision?: number }) {
  const { t } = useTranslation();
  const { service, onClose } = props;
  const { id, name, rollout } = service;
  const revisions = useQuery(revisionsQuery(id)).data?.items ?? [];
  const earlier = revisions.filter(({ number }) => number !== rollout.revision);
  const [chosen, setChosen] = useState<string | null>(props.revision?.toString() ?? null);
  return (
    <ConfirmDialog
      title={t("service.rollbackTitle", { name })}
      text={t("service.rollbackText")}
      confirm={t("service.rollback")}
      onConfirm={() => rollbackService(id, chosen === null ? null : Number(chosen))}
      done={t("service.rolledBack", { name })}
      onClose={onClose}
    >
      <Select
        mt="md"
        label={t("service.revision")}
        placeholder={t("service.lastStable")}
        value={chosen}
        onChange={setChosen}
        data={earlier.map(({ number }) => ({
          value: String(number),
          label: t("service.revisionNumber", { revision: number }),
        }))}
        clearable
      />
    </ConfirmDialog>
  );
}

export function PromoteDialog({ service: { id, name }, onClose }: DialogProps) {
  const { t } = useTranslation();
  return (
    <ConfirmDialog
      title={t("service.promoteTitle", { name })}
      text={t("service.promoteText")}
      confirm={t("service.promote")}
      onConfirm={() => promoteRollout(id)}
      done={t("service.promoted", { name })}
      onClose={onClose}
    />
  );
}

export function DeleteDialog({ service: { id, name }, onClose }: DialogProps) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  return (
    <ConfirmDialog
      title={t("schedule.deleteTitle", { name })}
      text={t("service.deleteText")}
      confirm={t("schedule.delete")}
      red
      onConfirm={async () => {
        await deleteService(id);
        void navigate({ to: "/services" });
      }}
      done={t("service.deleted", { name })}
      onClose={onClose}
    />
  );
}
