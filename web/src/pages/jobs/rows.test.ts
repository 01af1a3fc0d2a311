import { expect, test } from "vitest";

import type { FeedEvent, Job } from "../../api/schema";
import { appendPage, mergeNewestPage, NO_ROWS, applyEvents } from "./rows";

const job = (id: number, over: Partial<Job> = {}) =>
  ({ id: `job_${String(id).padStart(3, "0")}`, status: "running", version: 1, ...over }) as Job;
const ids = (rows: { items: readonly Job[] }) => rows.items.map((each) => Number(each.id.slice(4)));

test("pages are appended without duplicates", () => {
  const first = appendPage(NO_ROWS, { items: [job(9), job(8)], next_cursor: "a" });
  const second = appendPage(first, { items: [job(8), job(7)], next_cursor: null });
  expect(ids(second)).toEqual([9, 8, 7]);
  expect(second.cursor).toBeNull();
});

test("a refetched newest page adds new rows and removes rows that no longer match", () => {
  const rows = { items: [job(9), job(8), job(7), job(3), job(2)], cursor: "deep" };
  const next = mergeNewestPage(rows, {
    items: [job(10), job(9, { version: 2 }), job(7)],
    next_cursor: "top",
  });
  expect(ids(next)).toEqual([10, 9, 7, 3, 2]);
  expect(next.cursor).toBe("deep");
  expect(next.items[1]?.version).toBe(2);
  // An unchanged row is the same object, so it is not rendered again.
  expect(next.items[2]).toBe(rows.items[2]);
});

test("a complete page replaces the whole list", () => {
  const rows = { items: [job(9), job(3)], cursor: null };
  expect(ids(mergeNewestPage(rows, { items: [job(9)], next_cursor: null }))).toEqual([9]);
  expect(ids(mergeNewestPage(rows, { items: [], next_cursor: null }))).toEqual([]);
});

test("events update the statuses of loaded rows", () => {
  const rows = { items: [job(9), job(8)], cursor: null };
  const at = "2026-11-21T12:00:00Z";
  const event = {
    seq: 1,
    at,
    type: "job.failed",
    job_id: job(8).id,
    from: "running",
    to: "failed",
  } as FeedEvent;
  const next = applyEvents(rows, [event]);
  expect(next.items[1]).toMatchObject({ status: "failed", finished_at: at });
  expect(next.items[0]).toBe(rows.items[0]);
  expect(applyEvents(rows, [{ ...event, job_id: "job_777" }])).toBe(rows);
});

test("an event marks a loaded row as overdue", () => {
  const rows = { items: [job(9), job(8)], cursor: null };
  const event = { seq: 1, at: "2026-11-21T12:00:00Z", type: "job.overdue", job_id: job(8).id } as FeedEvent;
  const next = applyEvents(rows, [event]);
  expect(next.items[1]).toEqual({ ...job(8), overdue: true });
  expect(next.items[0]).toBe(rows.items[0]);
  // In one batch with the end of the job.
  const end = { ...event, type: "job.failed", from: "running", to: "failed" } as FeedEvent;
  expect(applyEvents(rows, [event, end]).items[1]).toMatchObject({ status: "failed", overdue: true });
});
