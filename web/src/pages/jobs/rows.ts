/**
 * Rows of a job list with up to a million jobs.
 *
 * Pages are appended as the user scrolls down. Changes are merged: the newest page is refetched and replaces the rows
 * that it covers, and events update the statuses of loaded rows at once.
 */

import type { FeedEvent, Job } from "../../api/schema";

export interface Rows {
  items: readonly Job[];
  /** Cursor of the next page; null at the end, undefined before the first page. */
  cursor: string | null | undefined;
}

export const NO_ROWS: Rows = { items: [], cursor: undefined };

/** Appends a page. Duplicate rows are skipped. */
export function appendPage(rows: Rows, page: { items: Job[]; next_cursor?: string | null }): Rows {
  const known = new Set(rows.items.map((job) => job.id));
  const fresh = page.items.filter((job) => !known.has(job.id));
  return { items: [...rows.items, ...fresh], cursor: page.next_cursor ?? null };
}

/** Merges the refetched newest page: it replaces all rows that are not older than its last row. */
export function mergeNewestPage(rows: Rows, page: { items: Job[]; next_cursor?: string | null }): Rows {
  const last = page.items.at(-1);
  const isComplete = !page.next_cursor;
  if (!last || isComplete) return { items: page.items, cursor: null };
  const known = new Map(rows.items.map((job) => [job.id, job]));
  const newest = page.items.map((job) => {
    const previous = known.get(job.id);
    return previous?.version === job.version ? previous : job;
  });
  // Job ids are time-ordered, and so is the list.
  const older = rows.items.filter((job) => job.id < last.id);
  return { items: [...newest, ...older], cursor: older.length > 0 ? rows.cursor : page.next_cursor };
}

/** Applies the statuses and missed deadlines of events; returns the same object if no row is affected. */
export function applyEvents(rows: Rows, batch: readonly FeedEvent[]): Rows {
  const newest = new Map<string, FeedEvent>();
  const overdue = new Set<string>();
  for (const event of batch) {
    if (event.job_id && event.to) newest.set(event.job_id, event);
    if (event.job_id && event.type === "job.overdue") overdue.add(event.job_id);
  }
  if (!rows.items.some(({ id }) => newest.has(id) || overdue.has(id))) return rows;
  const items = rows.items.map((before) => {
    const job = overdue.has(before.id) ? { ...before, overdue: true } : before;
    const event = newest.get(job.id);
    if (!event?.to) return job;
    const started_at = event.to === "running" ? (job.started_at ?? event.at) : job.started_at;
    const ended = event.to !== "running" && job.status === "running" ? event.at : job.finished_at;
    return { ...job, status: event.to, updated_at: event.at, started_at, finished_at: ended };
  });
  return { ...rows, items };
}
