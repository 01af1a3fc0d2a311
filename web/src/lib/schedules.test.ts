import { expect, test } from "vitest";

import type { Schedule, LateOrStuckRun } from "../api/schema";
import { type BulkAction, chunksInRange, isApplicable, sortSchedules } from "./schedules";

const schedule = (name: string, over: Partial<Schedule>) =>
  ({ name, statistics: { succeeded: 0, failed: 0, streak: 0 }, ...over }) as Schedule;
const all = [
  schedule("paused", { next_at: null }),
  schedule("later", {
    next_at: "2026-11-22T00:00:00Z",
    statistics: { succeeded: 9, failed: 1, streak: 3, success_rate: 0.9 },
  }),
  schedule("bad", {
    next_at: "2026-11-21T13:00:00Z",
    statistics: { succeeded: 0, failed: 4, streak: -4, success_rate: 0 },
  }),
  schedule("also-paused", {}),
];
const names = (by: "next" | "name" | "health") => sortSchedules(all, by).map(({ name }) => name);

test("schedules are sorted by next firing; those without one come last", () => {
  expect(names("next")).toEqual(["bad", "later", "also-paused", "paused"]);
});

test("failing schedules come first, those without runs last", () => {
  expect(names("health")).toEqual(["bad", "later", "also-paused", "paused"]);
  expect(names("name")).toEqual(["also-paused", "bad", "later", "paused"]);
});

test("stuck and late schedules come before failing ones", () => {
  const run = {} as LateOrStuckRun;
  const health = (late: number, stuck: number) => ({
    open_runs: 0,
    late_runs: Array<LateOrStuckRun>(late).fill(run),
    stuck_runs: Array<LateOrStuckRun>(stuck).fill(run),
  });
  const troubled = [
    { name: "well", statistics: { streak: 3, success_rate: 1 }, health: health(0, 0) },
    { name: "failing", statistics: { streak: -9, success_rate: 0.1 } },
    { name: "late", statistics: { streak: 3, success_rate: 1 }, health: health(2, 0) },
    { name: "stuck", statistics: { streak: 3, success_rate: 1 }, health: health(0, 1) },
  ] as unknown as Schedule[];
  expect(sortSchedules(troubled, "health").map(({ name }) => name)).toEqual([
    "stuck",
    "late",
    "failing",
    "well",
  ]);
});

test("active schedules can be paused, paused ones resumed, and all triggered", () => {
  const fits = (action: BulkAction) =>
    (["active", "paused", "completed"] as const).filter((status) => isApplicable(action, { status }));
  expect(fits("pause")).toEqual(["active"]);
  expect(fits("resume")).toEqual(["paused"]);
  expect(fits("trigger")).toEqual(["active", "paused", "completed"]);
});

test("chunks of rows are stable while scrolling", () => {
  const rows = Array.from({ length: 60 }, (_, i) => i);
  const starts = (first: number, last: number) =>
    chunksInRange(rows, first, last, 25).map((chunk) => chunk[0]);
  expect(starts(0, 20)).toEqual([0]);
  expect(starts(3, 24)).toEqual([0]);
  expect(starts(20, 30)).toEqual([0, 25]);
  expect(starts(49, 90)).toEqual([25, 50]);
  expect(chunksInRange(rows, 50, 59, 25)[0]?.length).toBe(10);
  expect(chunksInRange([], 0, 10, 25)).toEqual([]);
});
