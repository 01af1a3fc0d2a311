/** Bulk actions on jobs: the server changes many jobs with each request. */

import { unwrap, api } from "../../api/client";
import { ApiError } from "../../api/errors";
import { feed } from "../../api/feed";
import type { FeedEvent, Job, JobStatus } from "../../api/schema";
import { pause } from "../../api/sse";
import { type BatchAction, findAll, type RetryPolicy } from "../../lib/bulk";
import type { JobsQuery } from "../../lib/filters";
import { isLive, STATUSES } from "../../lib/statuses";

export type BulkAction = "cancel" | "retry";

export function isApplicable(action: BulkAction, job: Pick<Job, "status">): boolean {
  return action === "cancel" ? isLive(job.status) : !isLive(job.status);
}

/** Returns the ids of the jobs of a filter to which an action applies, newest page first. */
export async function findApplicable(
  action: BulkAction,
  query: JobsQuery,
  signal: AbortSignal,
): Promise<string[]> {
  const jobs = toSelection(action, query);
  if (jobs.status.length === 0) return [];
  const read = async (cursor: string | undefined) => {
    const query = { dry_run: true, cursor };
    const path = action === "cancel" ? "/api/v1/jobs/cancel" : "/api/v1/jobs/retry";
    const page = await unwrap(api.POST(path, { params: { query }, body: { jobs }, signal }));
    // Each page is ordered from the oldest to the newest job.
    return { items: page.changed.map(({ id }) => id).reverse(), next_cursor: page.next_cursor };
  };
  return await findAll(read, () => true);
}

/** Returns the selection of the API for a filter of the list, limited to jobs to which the action applies. */
export function toSelection(action: BulkAction, query: JobsQuery) {
  const { status, label, ...rest } = query;
  const wanted = status ? (status.split(",") as JobStatus[]) : STATUSES;
  const labels = label?.map((each) => [each.slice(0, each.indexOf("=")), each.slice(each.indexOf("=") + 1)]);
  return {
    ...rest,
    // A list without a namespace is one of all namespaces.
    namespace: rest.namespace ?? "*",
    status: wanted.filter((status) => isApplicable(action, { status })),
    labels: labels && (Object.fromEntries(labels) as Record<string, string>),
  };
}

/** Returns the ids in execution order: lists are newest first, but jobs are retried in the order of submission. */
export function inOrder(action: BulkAction, ids: readonly string[]): string[] {
  return action === "retry" ? [...ids].reverse() : [...ids];
}

/** Maximum delay between retries, in case the feed is lost and no end of a run is reported. */
const RETRY_INTERVAL_MS = 5_000;

/**
 * Returns the retry policy of bulk retries: a schedule refuses a retry at its limit of concurrent runs, until a run
 * ends.
 */
export function retryPolicyOf(ended: AbortSignal): RetryPolicy {
  let hasEnded = false;
  let wake = () => {};
  const onEnd = () => {
    hasEnded = true;
    wake();
  };
  const stops = [feed.onBatch((batch) => batch.some(isEndOfRun) && onEnd()), feed.onReset(onEnd)];
  ended.addEventListener("abort", () => stops.forEach((stop) => stop()), { once: true });
  return {
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

/** Returns the action on a part of the jobs. Requests with the same idempotency key retry no job twice. */
export function batchAction(action: BulkAction, key: string): BatchAction {
  return async (ids) => {
    const body = { jobs: { ids: [...ids] } };
    const params = { header: { "Idempotency-Key": key } };
    const { refused } = await unwrap(
      action === "cancel"
        ? api.POST("/api/v1/jobs/cancel", { body })
        : api.POST("/api/v1/jobs/retry", { params, body }),
    );
    return new Map(
      refused.flatMap(({ code, detail, jobs }) => jobs.map((id) => [id, new ApiError(code, 409, detail)])),
    );
  };
}
