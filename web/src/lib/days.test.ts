/** H6. Heat maps count by the local days of any zone, also around clock changes. */

import { expect, test } from "vitest";

import type { StatisticsSeries } from "../api/schema";
import {
  COUNTED_RUNS,
  countJobs,
  countRuns,
  dayOnKey,
  firstKnownDay,
  joinRuns,
  lastWeeks,
  seriesParts,
  shares,
  splitsHours,
  startOfDay,
  strengthOf,
} from "./days";

const iso = (at: number) => new Date(at).toISOString().slice(0, 16);
const point = (at: string, succeeded: number, failed = 0) => ({
  at,
  succeeded,
  failed,
  cancelled: 0,
  expired: 0,
});
const series = (...points: object[]) => [{ points }] as unknown as StatisticsSeries[];
const counts = (part: object) => ({ succeeded: 0, failed: 0, other: 0, active: 0, ...part });

test("a year has 53 weeks from Monday to Sunday, and at most 365 days", () => {
  const of = lastWeeks(53, "2026-11-25", "UTC");
  expect(of.weeks).toHaveLength(53);
  expect(of.days).toHaveLength(365);
  expect(of.days[0]).toBe("2025-11-26");
  expect(of.weeks.at(-1)).toEqual(["2026-11-23", "2026-11-24", "2026-11-25", null, null, null, null]);
  expect(iso(of.starts.at(-1) ?? 0)).toBe("2026-11-26T00:00");
});

test("one request covers a year in zones without clock changes", () => {
  const parts = (zone: string) => seriesParts(lastWeeks(53, "2026-11-25", zone));
  expect(parts("UTC")).toMatchObject([{ stepHours: 24 }]);
  const [shanghai, ...more] = parts("Asia/Shanghai");
  expect(more).toEqual([]);
  expect(shanghai).toMatchObject({ stepHours: 8 });
  expect(iso(shanghai?.from ?? 0)).toBe("2025-11-25T16:00");
  // Yesterday and today are read apart: they still change.
  expect(iso(shanghai?.until ?? 0)).toBe("2026-11-23T16:00");
});

test("with clock changes, the parts cover all days without gaps, in as many intervals as the server permits", () => {
  const of = lastWeeks(53, "2026-11-25", "Europe/Berlin");
  const parts = seriesParts(of);
  expect(parts.map(({ stepHours }) => stepHours)).toEqual([1, 1, 1, 1, 1, 1]);
  expect(parts[0]?.from).toBe(of.starts[0]);
  expect(parts.at(-1)?.until).toBe(of.starts.at(-3));
  for (const [i, part] of parts.entries()) {
    if (i > 0) expect(part.from).toBe(parts[i - 1]?.until);
    expect((part.until - part.from) / 3_600_000).toBeLessThanOrEqual(1_500);
  }
});

test("jobs count for the local day, also on the days of a clock change", () => {
  // On 2026-03-29, clocks in Berlin go from 2:00 to 3:00: the day has 23 hours.
  const of = lastWeeks(2, "2026-03-31", "Europe/Berlin");
  const found = countJobs(
    of,
    series(
      point("2026-03-28T22:00:00Z", 1),
      point("2026-03-28T23:00:00Z", 2),
      point("2026-03-29T21:00:00Z", 4, 1),
      point("2026-03-29T22:00:00Z", 8),
      point("2026-04-01T12:00:00Z", 16),
    ),
  );
  expect(Object.fromEntries(found)).toEqual({
    "2026-03-28": counts({ succeeded: 1 }),
    "2026-03-29": counts({ succeeded: 6, failed: 1 }),
    "2026-03-30": counts({ succeeded: 8 }),
  });
});

test("a day without midnight starts at its first time", () => {
  // On 2024-04-26, clocks in Cairo went from 0:00 to 1:00.
  expect(iso(startOfDay("2024-04-26", "Africa/Cairo"))).toBe("2024-04-25T22:00");
  expect(iso(startOfDay("2024-04-25", "Africa/Cairo"))).toBe("2024-04-24T22:00");
});

test("zones with half hours are known to split an hour of the statistics", () => {
  expect(splitsHours(lastWeeks(2, "2026-11-25", "Asia/Kolkata"))).toBe(true);
  expect(splitsHours(lastWeeks(2, "2026-11-25", "Asia/Tokyo"))).toBe(false);
});

test("runs count for the day of their creation; older days than the newest runs are unknown", () => {
  const of = lastWeeks(2, "2026-11-25", "Asia/Shanghai");
  const run = (created_at: string, status: "succeeded" | "failed" | "running" | "cancelled") => ({
    created_at,
    status,
  });
  const runs = [
    run("2026-11-24T16:00:00Z", "running"),
    run("2026-11-24T15:59:59Z", "failed"),
    run("2026-11-24T15:00:00Z", "cancelled"),
    run("2026-11-22T15:00:00Z", "succeeded"),
  ];
  expect(Object.fromEntries(countRuns(of, runs))).toEqual({
    "2026-11-25": counts({ active: 1 }),
    "2026-11-24": counts({ failed: 1, other: 1 }),
    "2026-11-22": counts({ succeeded: 1 }),
  });
  expect(firstKnownDay(of, runs, false)).toBeNull();
  // The oldest of the newest runs is of the 22nd: that day may have more.
  expect(firstKnownDay(of, runs, true)).toBe("2026-11-23");
  expect(firstKnownDay(of, runs.slice(0, 1), true)).toBe("2026-11-26");
});

test("a single failure among thousands is visible", () => {
  expect(shares(counts({ succeeded: 9_999, failed: 1 }))).toEqual({ failed: 0.25, other: 0 });
  expect(shares(counts({ failed: 3 }))).toEqual({ failed: 1, other: 0 });
  expect(shares(counts({ succeeded: 1, failed: 2, other: 1 }))).toEqual({ failed: 0.5, other: 0.25 });
  expect(shares(counts({}))).toEqual({ failed: 0, other: 0 });
});

test("the strength of a day grows with its number, up to the highest", () => {
  expect([0, 1, 10, 100, 1_000].map((total) => strengthOf(total, 1_000))).toEqual([0, 1, 2, 3, 4]);
  expect(strengthOf(1, 1)).toBe(4);
});

test("arrow keys move by days and weeks within the known days", () => {
  const of = lastWeeks(4, "2026-11-25", "UTC");
  expect(dayOnKey(of, "2026-11-20", "ArrowDown")).toBe("2026-11-21");
  expect(dayOnKey(of, "2026-11-20", "ArrowLeft")).toBe("2026-11-13");
  expect(dayOnKey(of, "2026-11-20", "ArrowRight")).toBe("2026-11-25");
  expect(dayOnKey(of, "2026-11-20", "Home")).toBe("2026-11-02");
  expect(dayOnKey(of, "2026-11-20", "End")).toBe("2026-11-25");
  expect(dayOnKey(of, "2026-11-20", "a")).toBeNull();
});

test("runs of today come before earlier ones, up to the counted number", () => {
  const runs = (count: number, created_at: string) =>
    Array.from({ length: count }, () => ({ created_at, status: "succeeded" as const }));
  const today = { runs: runs(400, "2026-11-25T01:00:00Z"), hasMore: false };
  const few = { runs: runs(2, "2026-11-24T01:00:00Z"), hasMore: false };
  expect(joinRuns(today, few)).toEqual({ runs: [...today.runs, ...few.runs], hasMore: false });
  const many = joinRuns(today, { ...few, runs: runs(COUNTED_RUNS, "2026-11-24T01:00:00Z") });
  expect([many.runs.length, many.hasMore]).toEqual([COUNTED_RUNS, true]);
  const more = { ...today, hasMore: true };
  expect(joinRuns(more, few)).toBe(more);
});
