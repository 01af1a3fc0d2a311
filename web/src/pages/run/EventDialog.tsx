/** Sends an event to a run. */

import { Autocomplete, Button, Group, Modal, Textarea } from "@mantine/core";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import type { WorkflowRun } from "../../api/schema";
import { type EventPayload, sendEvent } from "../../api/workflows";
import { SECTIONS } from "../../lib/dag/graph";
import { runAction, notify } from "../../ui/notify";
import style from "./run.module.css";

export function EventDialog({ run, onClose }: { run: WorkflowRun; onClose: () => void }) {
  const { t } = useTranslation();
  const eventNames = awaitedEvents(run);
  const [event, setEvent] = useState(eventNames.length === 1 ? (eventNames[0] ?? "") : "");
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const payload = parsePayload(text);
  const send = async () => {
    if (payload === undefined) return;
    setBusy(true);
    const steps = await runAction(() => sendEvent(run.id, event.trim(), payload as EventPayload));
    setBusy(false);
    if (steps === undefined) return;
    notify(t("run.eventAccepted", { count: steps, event: event.trim() }));
    onClose();
  };
  return (
    <Modal opened onClose={onClose} title={t("run.sendEvent")} size={440}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void send();
        }}
      >
        <Autocomplete
          label={t("run.event")}
          value={event}
          onChange={setEvent}
          data={eventNames}
          data-autofocus
        />
        <Textarea
          mt="sm"
          label={t("run.payload")}
          placeholder={`${t("common.optional")}: {"amount": 3}`}
          error={payload === undefined ? t("run.noJson") : undefined}
          classNames={{ input: style.code }}
          autosize
          minRows={3}
          maxRows={10}
          value={text}
          onChange={(event) => setText(event.currentTarget.value)}
        />
        <Group justify="flex-end" mt="md" gap="xs">
          <Button variant="default" onClick={onClose}>
            {t("common.back")}
          </Button>
          <Button type="submit" loading={busy} disabled={event.trim() === "" || payload === undefined}>
            {t("run.send")}
          </Button>
        </Group>
      </form>
    </Modal>
  );
}

/** Parses the payload: null for an empty text, undefined for invalid JSON. */
function parsePayload(text: string): unknown {
  if (text.trim() === "") return null;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Returns the names of the events that the run's steps wait for. */
function awaitedEvents({ spec }: WorkflowRun): string[] {
  const steps = SECTIONS.flatMap((section) => spec?.[section] ?? []);
  return [
    ...new Set(
      steps.flatMap(({ wait }) => {
        const event: unknown = wait && "event" in wait ? wait.event : null;
        if (typeof event === "string") return [event];
        const { name } = (event ?? {}) as { name?: unknown };
        return typeof name === "string" ? [name] : [];
      }),
    ),
  ];
}
