/** Actions on a run, with their dialogs. */

import { ActionIcon, Button, Checkbox, Menu, Select } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { Ban, Ellipsis, GitCompareArrows, Pause, Play, RadioTower, RotateCcw } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { lastSuccessOfRun } from "../../api/compare";
import type { RunStep, WorkflowRun } from "../../api/schema";
import { cancelRun, pauseRun, resumeRun, retryRun, workflowQuery } from "../../api/workflows";
import { isRunEnded } from "../../lib/runs";
import { Allowed } from "../../ui/Allowed";
import { runAction, notify } from "../../ui/notify";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { useRequestKey } from "../../ui/useRequestKey";
import { WatchButton } from "../../ui/WatchButton";
import { StartDialog } from "../workflows/StartDialog";
import { EventDialog } from "./EventDialog";

type Dialog = "pause" | "cancel" | "retry" | "start" | "event";

export function RunActions({ run, steps }: { run: WorkflowRun; steps: readonly RunStep[] }) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const [open, setOpen] = useState<Dialog | null>(null);
  const close = () => setOpen(null);
  const { id, status, namespace, workflow: name, workflow_id: workflowId } = run;
  const isOver = isRunEnded(status);
  const compare = async () => {
    const success = await runAction(() => lastSuccessOfRun(run));
    if (success === null) notify(t("compare.noSuccess"));
    else if (success) void navigate({ to: "/compare", search: { a: success, b: id } });
  };
  return (
    <>
      {!isOver && (
        <WatchButton target={{ kind: "runs", id, name: run.number > 0 ? `${name} #${run.number}` : name }} />
      )}
      <Allowed verb="operate" on="runs" in={namespace}>
        {isOver ? (
          <Button leftSection={<RotateCcw size={14} />} onClick={() => setOpen("retry")}>
            {t("run.retry")}
          </Button>
        ) : (
          <>
            {status === "paused" ? (
              <Button
                variant="default"
                leftSection={<Play size={14} />}
                onClick={() => void runAction(() => resumeRun(id), t("run.resumed", { name }))}
              >
                {t("schedule.resume")}
              </Button>
            ) : (
              <Button
                variant="default"
                leftSection={<Pause size={14} />}
                disabled={status !== "running" && status !== "retrying"}
                onClick={() => setOpen("pause")}
              >
                {t("schedule.pause")}
              </Button>
            )}
            <Button variant="default" leftSection={<Ban size={14} />} onClick={() => setOpen("cancel")}>
              {t("run.cancel")}
            </Button>
          </>
        )}
      </Allowed>
      <Menu>
        <Menu.Target>
          <ActionIcon variant="default" aria-label={t("schedule.more")}>
            <Ellipsis size={16} />
          </ActionIcon>
        </Menu.Target>
        <Menu.Dropdown>
          <Allowed verb="operate" on="runs" in={namespace}>
            <Menu.Item
              leftSection={<Play size={14} />}
              onClick={() => setOpen("start")}
              disabled={!workflowId}
            >
              {t("run.startLike")}
            </Menu.Item>
          </Allowed>
          <Menu.Item
            leftSection={<GitCompareArrows size={14} />}
            onClick={() => void compare()}
            disabled={!workflowId}
          >
            {t("compare.withSuccess")}
          </Menu.Item>
          <Allowed verb="operate" on="runs" in={namespace}>
            <Menu.Item
              leftSection={<RadioTower size={14} />}
              onClick={() => setOpen("event")}
              disabled={isOver}
            >
              {t("run.sendEvent")}
            </Menu.Item>
          </Allowed>
        </Menu.Dropdown>
      </Menu>
      {open === "pause" && <PauseDialog run={run} onClose={close} />}
      {open === "cancel" && <CancelDialog run={run} onClose={close} />}
      {open === "retry" && <RetryDialog run={run} steps={steps} onClose={close} />}
      {open === "start" && workflowId && (
        <StartSimilarDialog run={run} workflow={workflowId} onClose={close} />
      )}
      {open === "event" && <EventDialog run={run} onClose={close} />}
    </>
  );
}

export function PauseDialog({ run, onClose }: { run: WorkflowRun; onClose: () => void }) {
  const { t } = useTranslation();
  const { id, workflow: name } = run;
  return (
    <ConfirmDialog
      title={t("schedule.pauseTitle", { name })}
      text={t("run.pauseText")}
      field={{ label: t("queue.note") }}
      confirm={t("schedule.pause")}
      onConfirm={(note) => pauseRun(id, note)}
      done={t("schedule.pausedDone", { name })}
      onClose={onClose}
    />
  );
}

export function CancelDialog({ run, onClose }: { run: WorkflowRun; onClose: () => void }) {
  const { t } = useTranslation();
  const [skipFinally, setSkipFinally] = useState(false);
  const { id, workflow: name } = run;
  return (
    <ConfirmDialog
      title={t("job.cancelTitle", { name })}
      text={t("run.cancelText")}
      field={{ label: t("job.reason") }}
      confirm={t("run.cancel")}
      red
      onConfirm={(reason) => cancelRun(id, reason, skipFinally)}
      done={t("job.cancelled", { name })}
      onClose={onClose}
    >
      <Checkbox
        mt="md"
        label={t("run.skipFinally")}
        description={t("run.skipFinallyHint")}
        checked={skipFinally}
        onChange={(event) => setSkipFinally(event.currentTarget.checked)}
      />
    </ConfirmDialog>
  );
}

interface RetryProps {
  run: WorkflowRun;
  steps: readonly RunStep[];
  /** Step to start from; the failed steps by default. */
  from?: string;
  onClose: () => void;
}

export function RetryDialog({ run, steps, from: first, onClose }: RetryProps) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const [from, setFrom] = useState<string | null>(first ?? null);
  const requestKey = useRequestKey();
  const retry = async (note: string) => {
    const created = await retryRun(run.id, from, note, requestKey(JSON.stringify([from, note])));
    notify(t("run.retried", { name: created.workflow, number: created.number }));
    void navigate({ to: "/runs/$id", params: { id: created.id } });
  };
  return (
    <ConfirmDialog
      title={t("run.retryTitle", { name: run.workflow })}
      text={t("run.retryText")}
      field={{ label: t("workflow.note") }}
      confirm={t("run.retry")}
      onConfirm={retry}
      onClose={onClose}
    >
      <Select
        mt="md"
        label={t("run.from")}
        placeholder={t("run.fromFailed")}
        value={from}
        onChange={setFrom}
        data={steps.filter(({ section }) => section === "steps").map(({ name }) => name)}
        limit={200}
        searchable
        clearable
      />
    </ConfirmDialog>
  );
}

/** Starts another run of the current workflow; its parameters are prefilled with those of this run. */
function StartSimilarDialog({
  run,
  workflow,
  onClose,
}: {
  run: WorkflowRun;
  workflow: string;
  onClose: () => void;
}) {
  const { data } = useQuery(workflowQuery(workflow));
  if (!data) return null;
  return <StartDialog workflow={data} values={run.parameters} onClose={onClose} />;
}
