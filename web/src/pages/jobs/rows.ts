/**
 * The rows of a list of jobs that may have a million of them.
 *
 * Pages are appended as the user scrolls down. What changes above is merged in: the newest page is
 * read again and takes the place of what it covers, and changes of status are written into the rows
 * that are there at once, from the feed.
 */

import type { FeedEvent, Job } from "../../api/schema";

export interface Rows {
  items: readonly Job[];
  /** For the next page; `null` at the end, `undefined` before the first. */
  cursor: string | null | undefined;
}

export const NO_ROWS: Rows = { items: [], cursor: undefined };

/** With the page that follows. Rows that were there already are not doubled. */
export function appendPage(rows: Rows, page: { items: Job[]; next_cursor?: string | null }): Rows {
  const known = new Set(rows.items.map((job) => job.id));
  const fresh = page.items.filter((job) => !known.has(job.id));
  return { items: [...rows.items, ...fresh], cursor: page.next_cursor ?? null };
}

/** With the newest page read again: it knows best of all rows that are not older than its last one. */
export function mergeNewestPage(rows: Rows, page: { items: Job[]; next_cursor?: string | null }): Rows {
  const last = page.items.at(-1);
  const isComplete = !page.next_cursor;
  if (!last || isComplete) return { items: page.items, cursor: null };
  const known = new Map(rows.items.map((job) => [job.id, job]));
  const newest = page.items.map((job) => {
    const before = known.get(job.id);
    return before?.version === job.version ? before : job;
  });
  // Ids of jobs grow with time, and the list is ordered by them.
  const older = rows.items.filter((job) => job.id < last.id);
  return { items: [...newest, ...older], cursor: older.length > 0 ? rows.cursor : page.next_cursor };
}

/** With the statuses that events tell; the same object if they concern none of the rows. */
export function applyEvents(rows: Rows, batch: readonly FeedEvent[]): Rows {
  const newest = new Map<string, FeedEvent>();
  for (const event of batch) if (event.job_id && event.to) newest.set(event.job_id, event);
  if (!rows.items.some((job) => newest.has(job.id))) return rows;
  const items = rows.items.map((job) => {
    const event = newest.get(job.id);
    if (!event?.to) return job;
    const started_at = event.to === "running" ? (job.started_at ?? event.at) : job.started_at;
    const ended = event.to !== "running" && job.status === "running" ? event.at : job.finished_at;
    return { ...job, status: event.to, updated_at: event.at, started_at, finished_at: ended };
  });
  return { ...rows, items };
}
