/** Job statuses, and counts of jobs by status. */

import type { FeedEvent, Job, JobStatus } from "../api/schema";

export const STATUSES = [
  "ready",
  "waiting",
  "running",
  "retrying",
  "succeeded",
  "failed",
  "cancelled",
  "expired",
] as const satisfies readonly JobStatus[];

export const LIVE_STATUSES = [
  "ready",
  "waiting",
  "running",
  "retrying",
] as const satisfies readonly JobStatus[];

export function isLive(status: JobStatus): boolean {
  return (LIVE_STATUSES as readonly JobStatus[]).includes(status);
}

/** Whether a job waits for its scheduled time. Without one, a ready job waits for upstream jobs. */
export function isScheduled({ status, due_at, created_at }: Job): boolean {
  return status === "ready" && due_at > created_at;
}

export type Counts = Record<JobStatus, number>;

/** Returns the counts after a batch of events. */
export function updateCounts(counts: Counts, batch: readonly FeedEvent[]): Counts {
  const next = { ...counts };
  for (const { type, from, to } of batch) {
    if (!type.startsWith("job.") || !to) continue;
    if (from) next[from] = Math.max(0, next[from] - 1);
    next[to] += 1;
  }
  return next;
}
