/** A status: always an icon, a word and a colour, so that none of them is needed alone. */

import {
  Ban,
  CalendarClock,
  Check,
  CircleDashed,
  Clock,
  Hourglass,
  LoaderCircle,
  type LucideIcon,
  RotateCw,
  TriangleAlert,
  Unplug,
  X,
} from "lucide-react";
import { useTranslation } from "react-i18next";

import type { ExecutionStatus, JobStatus, WorkerStatus } from "../api/schema";
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

/** For words of other lists of statuses. */
export function ToneBadge(props: { tone: Tone; icon: LucideIcon; word: string; plain?: boolean }) {
  return <Badge {...props} />;
}

export function executionTone(status: ExecutionStatus): Tone {
  return EXECUTION_TONES[status];
}
