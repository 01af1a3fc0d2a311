/** Statuses of runs and of their steps, and how they look. */

import type { JobStatus } from "../api/schema";
import type { RunStatus, RunStep, StepCounts, StepStatus } from "../api/workflow-schema";

export const RUN_STATUSES = [
  "waiting",
  "running",
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

export function isRunOver(status: RunStatus): boolean {
  return status === "succeeded" || status === "failed" || status === "cancelled";
}

export function isStepOver(status: StepStatus): boolean {
  return status !== "pending" && status !== "running" && status !== "waiting";
}

/** The colour of a run's status, as the status of a job that means about the same. */
export function runTone(status: RunStatus): JobStatus {
  switch (status) {
    case "paused":
      return "waiting";
    case "stopping":
      return "retrying";
    case "waiting":
      return "ready";
    default:
      return status;
  }
}

export function stepTone(status: StepStatus): JobStatus {
  switch (status) {
    case "pending":
    case "skipped":
      return "cancelled";
    case "upstream_failed":
      return "expired";
    default:
      return status;
  }
}

export function totalOf(counts: StepCounts): number {
  return STEP_STATUSES.reduce((sum, status) => sum + (counts[status] ?? 0), 0);
}

/** How far it is: `3 / 10`. */
export function progressOf(counts: StepCounts): { over: number; total: number } {
  const over = STEP_STATUSES.filter(isStepOver).reduce((sum, status) => sum + (counts[status] ?? 0), 0);
  return { over, total: totalOf(counts) };
}

/** Whether a step may be marked: until it ends. */
export function isMarkable({ status }: Pick<RunStep, "status">): boolean {
  return !isStepOver(status);
}
