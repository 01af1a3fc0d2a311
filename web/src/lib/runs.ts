/** Statuses of runs and steps, and their colours. */

import type { JobStatus, RunStatus, RunStep, StepCounts, StepStatus, WorkflowRun } from "../api/schema";
import { SECTIONS } from "./dag/graph";

export const RUN_STATUSES = [
  "waiting",
  "running",
  "retrying",
  "paused",
  "stopping",
  "succeeded",
  "failed",
  "cancelled",
] as const satisfies readonly RunStatus[];

export const STEP_STATUSES = [
  "succeeded",
  "failed",
  "upstream_failed",
  "cancelled",
  "skipped",
  "running",
  "waiting",
  "pending",
] as const satisfies readonly StepStatus[];

export function isRunEnded(status: RunStatus): boolean {
  return status === "succeeded" || status === "failed" || status === "cancelled";
}

export function isStepEnded(status: StepStatus): boolean {
  return status !== "pending" && status !== "running" && status !== "waiting";
}

const RUN_TONES: Record<RunStatus, JobStatus> = {
  waiting: "ready",
  running: "running",
  paused: "waiting",
  retrying: "retrying",
  stopping: "retrying",
  succeeded: "succeeded",
  failed: "failed",
  cancelled: "cancelled",
};

const STEP_TONES: Record<StepStatus, JobStatus> = {
  pending: "cancelled",
  running: "running",
  waiting: "waiting",
  succeeded: "succeeded",
  failed: "failed",
  upstream_failed: "expired",
  skipped: "cancelled",
  cancelled: "cancelled",
};

/** Returns the colour of a run's status, as the job status with a similar meaning. */
export function runTone(status: RunStatus): JobStatus {
  return RUN_TONES[status];
}

export function stepTone(status: StepStatus): JobStatus {
  return STEP_TONES[status];
}

export function totalOf(counts: StepCounts): number {
  return STEP_STATUSES.reduce((sum, status) => sum + (counts[status] ?? 0), 0);
}

/** Returns the number of ended steps and the total. */
export function progressOf(counts: StepCounts): { ended: number; total: number } {
  const ended = STEP_STATUSES.filter(isStepEnded).reduce((sum, status) => sum + (counts[status] ?? 0), 0);
  return { ended, total: totalOf(counts) };
}

/** Returns whether a run waits only for `pending` approvals: no other step is active. */
export function awaitsApproval({ status, steps }: Pick<WorkflowRun, "status" | "steps">, pending: number) {
  const { running = 0, waiting = 0 } = steps;
  return status === "running" && pending > 0 && running === 0 && waiting === pending;
}

/** Returns whether a step may be marked: only until it ends. */
export function isMarkable({ status }: Pick<RunStep, "status">): boolean {
  return !isStepEnded(status);
}

/** Returns the message of an approval with its references replaced; null if only a text with references is known. */
export function approvalMessage(
  { spec }: Pick<WorkflowRun, "spec">,
  { name, approval }: Pick<RunStep, "name" | "approval">,
): string | null {
  if (approval?.message) return approval.message;
  const written = SECTIONS.flatMap((section) => spec?.[section] ?? []).find((step) => step.name === name);
  const message = written?.approval?.message ?? null;
  return message?.includes("${{") ? null : message;
}
