/** What can be done with many jobs at once. */

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

/** The jobs of a filter that an action fits. */
export function findApplicable(action: BulkAction, query: JobsQuery, signal: AbortSignal): Promise<Job[]> {
  const read = (cursor: string | undefined) => {
    const params = { query: { ...query, limit: 1_000, cursor } };
    return unwrap(api.GET("/api/v1/jobs", { params, signal }));
  };
  return findAll(read, (job) => isApplicable(action, job));
}

/** Lists have the newest job first; jobs are retried in the order in which they were submitted. */
export function orderedIds(action: BulkAction, jobs: readonly Job[]): string[] {
  const ids = jobs.map((job) => job.id);
  return action === "retry" ? ids.reverse() : ids;
}

/** The schedule of each job that has one. */
export type JobSchedules = ReadonlyMap<string, string>;

export function schedulesOf(jobs: readonly Job[]): JobSchedules {
  return new Map(jobs.flatMap(({ id, origin }) => (origin ? [[id, origin.schedule]] : [])));
}

/** Tries again after so long even though no end of a run was heard of: the feed may be lost. */
const RETRY_INTERVAL_MS = 5_000;

/** A schedule refuses a retry while it has as many runs as its overlap policy allows; a run that ends lets the next in. */
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
