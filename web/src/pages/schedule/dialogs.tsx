/** What is asked before something is done to a schedule. */

import { Button, Group, Modal, TextInput } from "@mantine/core";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { deleteSchedule, pauseSchedule, triggerSchedule } from "../../api/schedules";
import type { Schedule } from "../../api/schema";
import { act, say } from "../../ui/act";

interface AskProps {
  title: string;
  text: string;
  /** What is asked for; nothing where absent. */
  field?: { label: string };
  confirm: string;
  red?: boolean;
  onConfirm: (text: string) => Promise<void>;
  onClose: () => void;
}

function Ask({ title, text, field, confirm, red, onConfirm, onClose }: AskProps) {
  const { t } = useTranslation();
  const [value, setValue] = useState("");
  const [busy, setBusy] = useState(false);
  const go = async () => {
    setBusy(true);
    await onConfirm(value.trim());
    onClose();
  };
  return (
    <Modal opened onClose={onClose} title={title} size={420}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void go();
        }}
      >
        <p className="quiet">{text}</p>
        {field && (
          <TextInput
            mt="md"
            label={field.label}
            placeholder={t("common.optional")}
            value={value}
            onChange={(event) => setValue(event.currentTarget.value)}
            data-autofocus
          />
        )}
        <Group justify="flex-end" mt="md" gap="xs">
          <Button variant="default" onClick={onClose}>
            {t("common.back")}
          </Button>
          <Button type="submit" loading={busy} color={red ? "red" : undefined}>
            {confirm}
          </Button>
        </Group>
      </form>
    </Modal>
  );
}

interface DialogProps {
  schedule: Schedule;
  onClose: () => void;
}

export function PauseDialog({ schedule: { id, name }, onClose }: DialogProps) {
  const { t } = useTranslation();
  return (
    <Ask
      title={t("schedule.pauseTitle", { name })}
      text={t("schedule.pauseText")}
      field={{ label: t("queue.note") }}
      confirm={t("schedule.pause")}
      onConfirm={async (note) =>
        void (await act(() => pauseSchedule(id, note), t("schedule.pausedDone", { name })))
      }
      onClose={onClose}
    />
  );
}

export function TriggerDialog({ schedule: { id, name }, onClose }: DialogProps) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const trigger = async (reason: string) => {
    const done = await act(() => triggerSchedule(id, reason));
    if (!done) return;
    const job = done.job_id;
    say(
      t(`outcome.${done.outcome}`),
      !job
        ? null
        : {
            label: t("schedule.showRun"),
            run: () => void navigate({ to: "/jobs/$id", params: { id: job } }),
          },
    );
  };
  return (
    <Ask
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
    <Ask
      title={t("schedule.deleteTitle", { name })}
      text={t("schedule.deleteText")}
      confirm={t("schedule.delete")}
      red
      onConfirm={async () => {
        const done = await act(
          async () => {
            await deleteSchedule(id);
            return true;
          },
          t("schedule.deleted", { name }),
        );
        if (done) void navigate({ to: "/schedules" });
      }}
      onClose={onClose}
    />
  );
}
