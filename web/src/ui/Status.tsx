/** Status badges: always an icon, a text and a colour, so that none of them is needed alone. */

import {
  Ban,
  BellOff,
  CalendarClock,
  Check,
  CircleDashed,
  CircleHelp,
  CirclePause,
  Clock,
  Hourglass,
  LoaderCircle,
  type LucideIcon,
  OctagonX,
  RotateCcw,
  RotateCw,
  SkipForward,
  TimerOff,
  TriangleAlert,
  Unlink,
  Unplug,
  UserCheck,
  Wrench,
  X,
} from "lucide-react";
import { Tooltip } from "@mantine/core";
import { useTranslation } from "react-i18next";

import type {
  ExecutionStatus,
  FailureGroup,
  FailureState,
  Job,
  JobStatus,
  RunStatus,
  ScheduleRun,
  StepStatus,
  WorkerStatus,
  WorkflowRun,
} from "../api/schema";
import { usePreferences } from "../lib/preferences";
import { awaitsApproval, runTone, stepTone } from "../lib/runs";
import { formatExact } from "../lib/time";
import style from "./Status.module.css";

type Tone = JobStatus;

const ICONS: Record<JobStatus | ExecutionStatus | WorkerStatus, LucideIcon> = {
  ready: CalendarClock,
  waiting: Clock,
  running: LoaderCircle,
  retrying: RotateCw,
  succeeded: Check,
  failed: X,
  cancelled: Ban,
  expired: Hourglass,
  assigned: CircleDashed,
  lost: Unplug,
  refused: TriangleAlert,
  unknown: CircleHelp,
  expected: CircleDashed,
};

const EXECUTION_TONES: Record<ExecutionStatus, Tone> = {
  assigned: "waiting",
  running: "running",
  succeeded: "succeeded",
  failed: "failed",
  cancelled: "cancelled",
  lost: "failed",
  refused: "retrying",
  unknown: "waiting",
};

const WORKER_TONES: Record<WorkerStatus, Tone> = { ready: "succeeded", lost: "failed", expected: "waiting" };

function Badge(props: { tone: Tone; icon: LucideIcon; word: string; plain?: boolean; spin?: boolean }) {
  const Icon = props.icon;
  return (
    <span className={`${style.badge} ${props.plain ? style.plain : ""}`} data-tone={props.tone}>
      <Icon size={13} strokeWidth={2.4} aria-hidden className={props.spin ? style.spin : undefined} />
      <span>{props.word}</span>
    </span>
  );
}

export function StatusBadge({ status, plain }: { status: JobStatus; plain?: boolean }) {
  const { t } = useTranslation();
  return (
    <Badge
      tone={status}
      icon={ICONS[status]}
      word={t(`status.${status}`)}
      plain={plain}
      spin={status === "running"}
    />
  );
}

function useOverdueText(at: string | null | undefined): string {
  const { t } = useTranslation();
  const { language, zone } = usePreferences();
  return at ? t("job.overdueSince", { at: formatExact(at, language, zone) }) : t("job.overdue");
}

/** Badge of a job whose completion deadline passed before its end; on hover the deadline. */
export function OverdueBadge({ job }: { job: Pick<Job, "finish_by"> }) {
  const { t } = useTranslation();
  return (
    <Tooltip label={useOverdueText(job.finish_by)}>
      <span tabIndex={0} data-testid="overdue">
        <Badge tone="expired" icon={TimerOff} word={t("job.overdue")} />
      </span>
    </Tooltip>
  );
}

/** Icon of an overdue job in a long list, which needs a browser's tooltip. */
export function OverdueIcon({ job }: { job: Pick<Job, "finish_by"> }) {
  const text = useOverdueText(job.finish_by);
  return (
    <span className={style.overdue} role="img" aria-label={text} title={text}>
      <TimerOff size={13} strokeWidth={2.4} aria-hidden />
    </span>
  );
}

export function ExecutionBadge({ status }: { status: ExecutionStatus }) {
  const { t } = useTranslation();
  return (
    <Badge
      tone={EXECUTION_TONES[status]}
      icon={ICONS[status]}
      word={t(`execution.${status}`)}
      plain
      spin={status === "running"}
    />
  );
}

export function WorkerBadge({ status }: { status: WorkerStatus }) {
  const { t } = useTranslation();
  const icon = status === "ready" ? Check : ICONS[status];
  return <Badge tone={WORKER_TONES[status]} icon={icon} word={t(`workerStatus.${status}`)} plain />;
}

const RUN_ICONS: Record<RunStatus, LucideIcon> = {
  waiting: Clock,
  running: LoaderCircle,
  retrying: RotateCw,
  paused: CirclePause,
  stopping: OctagonX,
  succeeded: Check,
  failed: X,
  cancelled: Ban,
};

const STEP_ICONS: Record<StepStatus, LucideIcon> = {
  pending: CircleDashed,
  running: LoaderCircle,
  waiting: Clock,
  succeeded: Check,
  failed: X,
  upstream_failed: Unlink,
  skipped: SkipForward,
  cancelled: Ban,
};

export function RunBadge({ status, plain }: { status: RunStatus; plain?: boolean }) {
  const { t } = useTranslation();
  return (
    <Badge
      tone={runTone(status)}
      icon={RUN_ICONS[status]}
      word={t(`runStatus.${status}`)}
      plain={plain}
      spin={status === "running"}
    />
  );
}

/** Badge of a run; a run that waits only for approvals has its own badge. */
export function RunStateBadge(props: {
  run: Pick<WorkflowRun, "status" | "steps">;
  /** Number of steps that wait for approval. */
  approvals: number;
  plain?: boolean;
}) {
  const { t } = useTranslation();
  const { run, approvals, plain } = props;
  if (!awaitsApproval(run, approvals)) return <RunBadge status={run.status} plain={plain} />;
  return <Badge tone="waiting" icon={UserCheck} word={t("run.awaitsApproval")} plain={plain} />;
}

/** Badge of a schedule's run: of its job, or of its workflow run. */
export function ScheduleRunBadge({ run, plain }: { run: ScheduleRun; plain?: boolean }) {
  const { run_id, status } = run;
  return run_id ? (
    <RunBadge status={status as RunStatus} plain={plain} />
  ) : (
    <StatusBadge status={status as JobStatus} plain={plain} />
  );
}

export function StepBadge({ status, plain }: { status: StepStatus; plain?: boolean }) {
  const { t } = useTranslation();
  return (
    <Badge
      tone={stepTone(status)}
      icon={STEP_ICONS[status]}
      word={t(`stepStatus.${status}`)}
      plain={plain}
      spin={status === "running"}
    />
  );
}

const FAILURE_LOOKS: Record<FailureState | "reopened", readonly [Tone, LucideIcon]> = {
  open: ["failed", X],
  reopened: ["retrying", RotateCcw],
  known: ["waiting", Wrench],
  muted: ["cancelled", BellOff],
  resolved: ["succeeded", Check],
};

/** Badge of a failure group; an open one that was resolved before is shown as reopened. */
export function FailureBadge(props: { group: Pick<FailureGroup, "state" | "reopened">; plain?: boolean }) {
  const { t } = useTranslation();
  const { group, plain } = props;
  const [tone, icon] = FAILURE_LOOKS[group.reopened ? "reopened" : group.state];
  const word = group.reopened ? t("failureGroup.reopened") : t(`failureState.${group.state}`);
  return <Badge tone={tone} icon={icon} word={word} plain={plain} />;
}

/** Icon of a step's status, next to a text. */
export function StepIcon({ status }: { status: StepStatus }) {
  const Icon = STEP_ICONS[status];
  return (
    <Icon size={13} strokeWidth={2.4} aria-hidden className={status === "running" ? style.spin : undefined} />
  );
}

/** Badge for other statuses. */
export function ToneBadge(props: { tone: Tone; icon: LucideIcon; word: string; plain?: boolean }) {
  return <Badge {...props} />;
}

export function executionTone(status: ExecutionStatus): Tone {
  return EXECUTION_TONES[status];
}
