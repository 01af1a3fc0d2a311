/** Bulk actions on jobs. */

import { cancelJob, retryJob } from "../../api/actions";
import { unwrap, api } from "../../api/client";
import { feed } from "../../api/feed";
import type { FeedEvent, Job } from "../../api/schema";
import { pause } from "../../api/sse";
import { findAll, type RetryPolicy } from "../../lib/bulk";
import type { JobsQuery } from "../../lib/filters";
import { isLive } from "../../lib/statuses";

export type BulkAction = "cancel" | "retry";

export function isApplicable(action: BulkAction, job: Pick<Job, "status">): boolean {
  return action === "cancel" ? isLive(job.status) : !isLive(job.status);
}

/** Returns the jobs of a filter to which an action applies. */
export function findApplicable(action: BulkAction, query: JobsQuery, signal: AbortSignal): Promise<Job[]> {
  const read = (cursor: string | undefined) => {
    const params = { query: { ...query, limit: 1_000, cursor } };
    return unwrap(api.GET("/api/v1/jobs", { params, signal }));
  };
  return findAll(read, (job) => isApplicable(action, job));
}

/** Returns the ids in execution order: lists are newest first, but jobs are retried in the order of submission. */
export function orderedIds(action: BulkAction, jobs: readonly Job[]): string[] {
  const ids = jobs.map((job) => job.id);
  return action === "retry" ? ids.reverse() : ids;
}

/** Schedule ids by job id, for jobs of a schedule. */
export type JobSchedules = ReadonlyMap<string, string>;

export function schedulesOf(jobs: readonly Job[]): JobSchedules {
  return new Map(jobs.flatMap(({ id, origin }) => (origin ? [[id, origin.schedule]] : [])));
}

/** Maximum delay between retries, in case the feed is lost and no end of a run is reported. */
const RETRY_INTERVAL_MS = 5_000;

/**
 * Returns the retry policy of bulk retries: a schedule refuses a retry at its limit of concurrent runs, until a run
 * ends.
 */
export function retryPolicyOf(schedules: JobSchedules, ended: AbortSignal): RetryPolicy {
  let hasEnded = false;
  let wake = () => {};
  const onEnd = () => {
    hasEnded = true;
    wake();
  };
  const stops = [feed.onBatch((batch) => batch.some(isEndOfRun) && onEnd()), feed.onReset(onEnd)];
  ended.addEventListener("abort", () => stops.forEach((stop) => stop()), { once: true });
  return {
    groupOf: (id) => schedules.get(id),
    isRetryable: ({ code }) => code === "schedule_run_limit",
    waitForRetry: async (signal) => {
      const ended = new Promise<void>((resolve) => (wake = resolve));
      if (!hasEnded) await Promise.race([ended, pause(RETRY_INTERVAL_MS, signal)]);
      hasEnded = false;
    },
  };
}

function isEndOfRun({ schedule_id, to }: FeedEvent): boolean {
  return Boolean(schedule_id && to && !isLive(to));
}

export async function runAction(action: BulkAction, id: string): Promise<void> {
  if (action === "cancel") await cancelJob(id);
  else await retryJob(id);
}
