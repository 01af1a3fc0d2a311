/** Job statistics per minute, for the charts of the overview. */

import type { FeedEvent, Job } from "../api/schema";
import { isLive } from "./statuses";

/** Fields of a job that the charts use. */
export type ChartJob = Pick<Job, "id" | "status" | "queued_at" | "started_at" | "finished_at">;

/** Maximum number of jobs kept for the charts. */
export const CHART_JOBS_MAX = 20_000;

/** Returns the jobs after a batch of events; unknown jobs are added and the oldest ones dropped. */
export function applyJobEvents(
  jobs: ReadonlyMap<string, ChartJob>,
  batch: readonly FeedEvent[],
): ReadonlyMap<string, ChartJob> {
  const next = new Map(jobs);
  for (const { type, job_id: id, to, at } of batch) {
    if (!id || !to || !type.startsWith("job.")) continue;
    const job: ChartJob = { ...(next.get(id) ?? { id }), status: to };
    if (to === "waiting") job.queued_at ??= at;
    else if (to === "running") job.started_at = at;
    else if (!isLive(to)) job.finished_at = at;
    next.set(id, job);
  }
  let excess = next.size - CHART_JOBS_MAX;
  for (const id of next.keys()) {
    if (excess-- <= 0) break;
    next.delete(id);
  }
  return next;
}

export interface MinuteBucket {
  /** Start of the minute, in ms since the epoch. */
  from: number;
  succeeded: number;
  failed: number;
  /** Cancelled and expired. */
  other: number;
  /** Delays of the jobs that started in this minute, in milliseconds. */
  delays: number[];
}

export const BUCKET_MS = 60_000;

/** Returns the buckets of the last `count` minutes up to `now`, the current minute last. */
export function minuteBuckets(jobs: Iterable<ChartJob>, now: number, count = 60): MinuteBucket[] {
  const last = Math.floor(now / BUCKET_MS) * BUCKET_MS;
  const first = last - (count - 1) * BUCKET_MS;
  const buckets: MinuteBucket[] = Array.from({ length: count }, (_, i) => ({
    from: first + i * BUCKET_MS,
    succeeded: 0,
    failed: 0,
    other: 0,
    delays: [],
  }));
  const at = (time: string | null | undefined) =>
    time ? buckets[Math.floor((Date.parse(time) - first) / BUCKET_MS)] : undefined;
  for (const job of jobs) {
    const ended = at(job.finished_at);
    if (ended) {
      if (job.status === "succeeded") ended.succeeded += 1;
      else if (job.status === "failed") ended.failed += 1;
      else ended.other += 1;
    }
    if (job.started_at && job.queued_at) {
      at(job.started_at)?.delays.push(Math.max(0, Date.parse(job.started_at) - Date.parse(job.queued_at)));
    }
  }
  return buckets;
}

/** Returns the quantile of the values, one of them; null if there are none. */
export function quantile(values: readonly number[], fraction: number): number | null {
  if (values.length === 0) return null;
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(sorted.length * fraction) - 1))] ?? null;
}

/** Returns a round number that is not smaller: the top of an axis. */
export function niceCeiling(value: number): number {
  if (value <= 1) return 1;
  const size = 10 ** Math.floor(Math.log10(value));
  const step = [1, 2, 2.5, 5, 10].find((each) => each * size >= value) ?? 10;
  return step * size;
}
