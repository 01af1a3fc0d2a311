/** Why a job ended badly, and what the user can do about it. */

import type {
  Job,
  JobEvent,
  Origin,
  RunHistoryEntry,
  RunStep,
  StepCause,
  StepWhy,
  WorkflowRun,
} from "../api/schema";
import type english from "../i18n/en.json";

export type Advice = keyof typeof english.advice;

/** Advice for each error code of a result. */
const ADVICE: Record<keyof typeof english.result, Advice> = {
  exit_code: "task",
  signal: "signal",
  timeout: "timeout",
  out_of_memory: "memory",
  command_not_found: "program",
  interpreter_not_found: "program",
  permission_denied: "permission",
  not_executable: "program",
  arguments_too_long: "arguments",
  working_directory: "permission",
  user: "permission",
  start_failed: "worker",
  limit_unenforceable: "unsupported",
  no_resources: "worker",
  runtime_unknown: "unsupported",
  spec_not_understood: "unsupported",
  artifact_failed: "artifact",
  checkpoint_failed: "worker",
  output_invalid: "output",
  output_too_large: "output",
  output_missing: "output",
  output_not_stored: "worker",
  worker_lost: "lost",
  outcome_unknown: "unknownOutcome",
  interrupted: "lost",
  stopped: "timeline",
  refused: "worker",
  finish_deadline_passed: "finishDeadline",
  unhealthy: "healthCheck",
  no_free_port: "ports",
  port_in_use: "ports",
  volume_missing: "volume",
  secret_not_found: "secret",
  secrets_unavailable: "worker",
  sandbox_unavailable: "sandbox",
  sandbox_conflict: "sandboxConflict",
  sandbox_lost: "sandboxLost",
  image_missing: "image",
  image_not_found: "image",
  image_unauthorized: "image",
  image_pull_failed: "image",
  engine_unavailable: "engine",
  engine_failed: "engine",
  container_not_visible: "engine",
  container_removed: "engine",
  container_refused: "container",
  invalid_request: "httpRequest",
  unknown_variable: "httpRequest",
  address_not_allowed: "httpRequest",
  poll_url_invalid: "httpRequest",
  no_location: "httpResponse",
  unexpected_status: "httpResponse",
  unexpected_response: "httpResponse",
  response_too_large: "httpResponse",
  redirect_failed: "httpResponse",
  request_timeout: "httpTimeout",
  connect_failed: "httpConnection",
  request_failed: "httpConnection",
  poll_failed: "httpConnection",
  tls_unavailable: "tls",
};

export interface JobFailure {
  advice: Advice;
  /** Cause of the end, if it is not the result of the last execution. */
  endCause: JobEvent["cause"] | null;
  /** Who stopped the job, if neither the task nor a user did. */
  stoppedBy: SystemStop | null;
}

export type SystemStop = { by: "run" } | { by: "schedule"; name: string; at: string };

/** Causes of the end of a step without elements whose job its run stopped. */
const RUN_STOPS: ReadonlySet<StepCause> = new Set(["stopped", "timed_out", "marked"]);

type EndedJob = Pick<Job, "status" | "result" | "step" | "origin"> &
  Partial<Pick<Job, "losses" | "overdue" | "spec" | "cancel_requested_at">>;

/**
 * Returns why a job ended badly; null if it has not, or if a user cancelled it. `stepCause` is the cause of the end of
 * its step, if the job belongs to a step and the step has ended.
 */
export function jobFailureOf(
  job: EndedJob,
  events: readonly JobEvent[],
  stepCause?: StepCause | null,
): JobFailure | null {
  const { status, result } = job;
  if (isEndedByDeadline(job, events.at(-1))) {
    return { advice: "finishDeadline", endCause: "finish_deadline_passed", stoppedBy: null };
  }
  if (status === "failed") {
    const advice = isLostTooOften(job) ? "lostTooOften" : adviceFor(result?.error);
    return { advice, endCause: null, stoppedBy: null };
  }
  if (status === "expired") return { advice: "deadline", endCause: "deadline_passed", stoppedBy: null };
  const stoppedBy = status === "cancelled" ? stopOfJob(job, events.at(-1), stepCause) : null;
  const advice = stoppedBy?.by === "run" ? "stepStopped" : "replaced";
  return stoppedBy && { advice, endCause: "cancel_requested", stoppedBy };
}

/** Whether the completion deadline ended a job: as `failed` or `cancelled`. */
function isEndedByDeadline(job: EndedJob, end: JobEvent | undefined): boolean {
  const { status, result, overdue, spec, cancel_requested_at } = job;
  if (status === "failed") return result?.error === "finish_deadline_passed";
  if (status !== "cancelled") return false;
  if (end) return end.cause === "finish_deadline_passed";
  return Boolean(overdue) && spec?.finish_by?.action === "cancel" && !cancel_requested_at;
}

/** Whether a failed job ended because more executions were lost than allowed. A loss ends an `at_most_once` job uncounted. */
function isLostTooOften({ result, losses = 0 }: EndedJob): boolean {
  return result?.error === "worker_lost" && losses > 0;
}

export function adviceFor(error: string | null | undefined): Advice {
  return ADVICE[error as keyof typeof ADVICE] ?? "timeline";
}

/** Returns the cause by which the run of a job can have stopped it; undefined for an element, which has none here. */
export function stepCauseOf({ step }: Pick<Job, "step">, why: StepWhy | undefined): StepCause | undefined {
  if (!step || step.element) return undefined;
  return why?.reasons.find((reason) => reason.reason === "ended")?.cause;
}

/**
 * Returns who cancelled a job; null for a user. The cause of the step decides. For an element, or if the run was
 * deleted or has retried the step, only the detail of the transition tells who it was; that of a job that was running
 * has a prefix.
 */
function stopOfJob(
  { step, origin }: EndedJob,
  end: JobEvent | undefined,
  stepCause: StepCause | null | undefined,
): SystemStop | null {
  if (step && stepCause === "job_cancelled") return null;
  if (step && stepCause && RUN_STOPS.has(stepCause)) return { by: "run" };
  if (end?.cause !== "cancel_requested") return null;
  const detail = end.detail?.replace(/^cancelled by /, "");
  if (step && detail === "the run: the step was stopped") return { by: "run" };
  return scheduleStopOf(origin, detail);
}

/**
 * Returns the schedule that replaced a job or run with a later firing; null if a user cancelled it. Only a schedule
 * that created the job or run can replace it. Only the detail says that it did.
 */
function scheduleStopOf(
  origin: Origin | null | undefined,
  detail: string | null | undefined,
): SystemStop | null {
  const prefix = `schedule ${origin?.name}: replaced by the firing for `;
  if (!origin || !detail?.startsWith(prefix)) return null;
  return { by: "schedule", name: origin.name, at: detail.slice(prefix.length) };
}

export interface RunFailure {
  /** The last transition of the run. */
  end: RunHistoryEntry;
  /** Steps that failed themselves, in the order of the workflow: upstream failures are consequences. */
  failed: readonly RunStep[];
  /** What to do, if no step failed. */
  advice: Advice;
  stoppedBy: SystemStop | null;
}

const STEP_ADVICE: Partial<Record<StepCause, Advice>> = {
  rejected: "rejected",
  timed_out: "stepTimeout",
  run_failed: "calledRun",
  run_cancelled: "calledRun",
  condition_failed: "definition",
  bad_reference: "definition",
  bad_output: "definition",
  job_expired: "deadline",
};

/** Returns what to do about a failed step without a job that explains it. */
export function adviceForStep({ cause }: Pick<RunStep, "cause">): Advice {
  return (cause && STEP_ADVICE[cause]) ?? "timeline";
}

const RUN_ADVICE: Partial<Record<RunHistoryEntry["cause"], Advice>> = {
  timed_out: "runTimeout",
  expired: "deadline",
  output_failed: "output",
  parent_stopped: "stepStopped",
};

/** Returns why a run ended badly; null if it has not, or if a user cancelled it. */
export function runFailureOf(
  { status, history, origin }: Pick<WorkflowRun, "status" | "history" | "origin">,
  steps: readonly RunStep[],
): RunFailure | null {
  const end = history?.at(-1);
  if (!end || (status !== "failed" && status !== "cancelled")) return null;
  const isCancel = end.cause === "cancel_requested";
  const bySchedule = isCancel ? scheduleStopOf(origin, end.detail) : null;
  if (isCancel && !bySchedule) return null;
  const stoppedBy = end.cause === "parent_stopped" ? ({ by: "run" } as const) : bySchedule;
  const failed = status === "failed" ? steps.filter((step) => step.status === "failed") : [];
  const advice = stoppedBy?.by === "schedule" ? "replaced" : (RUN_ADVICE[end.cause] ?? "timeline");
  return { end, failed, advice, stoppedBy };
}

/** Returns the steps with the failed ones first, and otherwise in the same order. */
export function failedFirst(steps: readonly RunStep[]): RunStep[] {
  const isFailed = ({ status }: RunStep) => Number(status === "failed");
  return [...steps].sort((a, b) => isFailed(b) - isFailed(a));
}

/** Returns the step to show first in an ended run: the first failed one. */
export function stepInFocus(run: Pick<WorkflowRun, "status">, steps: readonly RunStep[]): string | undefined {
  if (run.status !== "failed" && run.status !== "cancelled") return undefined;
  return steps.find((step) => step.status === "failed")?.name;
}
