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

export function isFit(action: BulkAction, job: Pick<Job, "status">): boolean {
  return action === "cancel" ? isLive(job.status) : !isLive(job.status);
}

/** The jobs of a filter that an action fits. */
export function findFit(action: BulkAction, query: JobsQuery, signal: AbortSignal): Promise<Job[]> {
  const read = (cursor: string | undefined) => {
    const params = { query: { ...query, limit: 1_000, cursor } };
    return unwrap(api.GET("/api/v1/jobs", { params, signal }));
  };
  return findAll(read, (job) => isFit(action, job));
}

/** Lists have the newest job first; jobs are retried in the order in which they were submitted. */
export function inOrder(action: BulkAction, jobs: readonly Job[]): string[] {
  const ids = jobs.map((job) => job.id);
  return action === "retry" ? ids.reverse() : ids;
}

/** The schedule of each job that has one. */
export type Schedules = ReadonlyMap<string, string>;

export function schedulesOf(jobs: readonly Job[]): Schedules {
  return new Map(jobs.flatMap(({ id, origin }) => (origin ? [[id, origin.schedule]] : [])));
}

/** Tries again after so long even though no end of a run was heard of: the feed may be lost. */
const AGAIN_MS = 5_000;

/** A schedule refuses a retry while it has as many runs as its overlap policy allows; a run that ends lets the next in. */
export function turnsOf(schedules: Schedules, ended: AbortSignal): RetryPolicy {
  let hasTurn = false;
  let wake = () => {};
  const note = () => {
    hasTurn = true;
    wake();
  };
  const stops = [feed.onBatch((batch) => batch.some(isEndOfRun) && note()), feed.onReset(note)];
  ended.addEventListener("abort", () => stops.forEach((stop) => stop()), { once: true });
  return {
    groupOf: (id) => schedules.get(id),
    isRetryable: ({ code }) => code === "schedule_run_limit",
    waitForRetry: async (signal) => {
      const woken = new Promise<void>((resolve) => (wake = resolve));
      if (!hasTurn) await Promise.race([woken, pause(AGAIN_MS, signal)]);
      hasTurn = false;
    },
  };
}

function isEndOfRun({ schedule_id, to }: FeedEvent): boolean {
  return Boolean(schedule_id && to && !isLive(to));
}

export async function actOn(action: BulkAction, id: string): Promise<void> {
  if (action === "cancel") await cancelJob(id);
  else await retryJob(id);
}
