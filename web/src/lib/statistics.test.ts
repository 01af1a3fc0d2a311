/** H6. Charts show exact counts, also of intervals that a series omits. */

import { expect, test } from "vitest";

import type { StatisticsSeries } from "../api/schema";
import {
  axisMarks,
  intervalCount,
  intervalsOf,
  niceCeiling,
  parseRange,
  RANGES,
  rangeStart,
  successRate,
} from "./statistics";

const NOW = Date.parse("2026-11-21T12:00:30Z");
const iso = (at: number) => new Date(at).toISOString().slice(5, 16);
const counts = { submitted: 0, started: 0, succeeded: 0, failed: 0, cancelled: 0, expired: 0, retried: 0 };
const series = (until: string, ...points: Array<Partial<StatisticsSeries["points"][number]>>) =>
  ({ until, points: points.map((point) => ({ ...counts, at: "", ...point })) }) as StatisticsSeries;

test("omitted intervals have zeros", () => {
  const duration = { count: 7, mean: "1s", p50: "1s37ms", p95: "2m", p99: "1h" };
  const levels = { waiting: 3, running: 2 } as StatisticsSeries["points"][number]["levels"];
  const intervals = intervalsOf(
    series(
      "2026-11-21T12:00:30Z",
      { at: "2026-11-21T11:58:00Z", succeeded: 1_000_000, cancelled: 1, expired: 2, levels },
      { at: "2026-11-21T12:00:00Z", failed: 4, start_delay: duration },
    ),
    "1h",
  );
  expect(intervals).toHaveLength(60);
  expect(intervals[0]?.from).toBe(Date.parse("2026-11-21T11:01:00Z"));
  expect(intervals.slice(-3).map(({ succeeded, failed, other }) => [succeeded, failed, other])).toEqual([
    [1_000_000, 0, 3],
    [0, 0, 0],
    [0, 4, 0],
  ]);
  expect(intervals.at(-1)).toMatchObject({
    startDelay: { count: 7, p50: 1_037, p95: 120_000 },
    runTime: null,
    levels: null,
  });
  expect(intervals.at(-3)?.levels).toMatchObject({ waiting: 3, running: 2 });
});

test("submitted jobs are counted apart from ended ones", () => {
  const [point] = intervalsOf(
    series("2026-11-21T12:00:30Z", { at: "2026-11-21T12:00:00Z", submitted: 9 }),
    "1h",
  ).slice(-1);
  expect(point).toMatchObject({ submitted: 9, succeeded: 0, failed: 0, other: 0 });
});

test("only a name without failures has a success rate of 100 %", () => {
  expect(successRate({ succeeded: 0, failed: 0, expired: 0 })).toBeNull();
  expect(successRate({ succeeded: 9_999, failed: 1, expired: 0 })).toBe(0.999);
  expect(successRate({ succeeded: 1, failed: 0, expired: 3 })).toBe(0.25);
  expect(successRate({ succeeded: 3, failed: 0, expired: 0 })).toBe(1);
});

test("a range that ends at the end of an interval has no empty last interval", () => {
  const intervals = intervalsOf(series("2026-11-21T12:00:00Z"), "1h");
  expect(intervals.at(-1)?.to).toBe(Date.parse("2026-11-21T12:00:00Z"));
});

test("each range has few intervals, which start at full steps", () => {
  expect(RANGES.map((range) => [intervalCount(range), iso(rangeStart(range, NOW))])).toEqual([
    [60, "11-21T11:01"],
    [96, "11-20T12:15"],
    [84, "11-14T14:00"],
    [120, "10-22T18:00"],
  ]);
});

test("axis marks are full local times", () => {
  const marks = (range: (typeof RANGES)[number], zone: string) =>
    axisMarks(range, rangeStart(range, NOW), NOW, zone).map(iso);
  expect(marks("1h", "UTC")).toEqual(["11-21T11:15", "11-21T11:30", "11-21T11:45", "11-21T12:00"]);
  expect(axisMarks("5m", NOW - 300_000, NOW, "UTC").map((at) => iso(at).slice(6))).toEqual([
    "11:56",
    "11:57",
    "11:58",
    "11:59",
    "12:00",
  ]);
  expect(marks("24h", "UTC")).toEqual(["11-20T18:00", "11-21T00:00", "11-21T06:00", "11-21T12:00"]);
  expect(marks("7d", "Asia/Shanghai")).toHaveLength(7);
  expect(marks("7d", "Asia/Shanghai").at(-1)).toBe("11-20T16:00");
  expect(marks("30d", "UTC").slice(-2)).toEqual(["11-16T00:00", "11-21T00:00"]);
});

test("an unknown range is the default", () => {
  expect([parseRange(undefined), parseRange("7d"), parseRange("5y")]).toEqual(["1h", "7d", "1h"]);
});

test("the top of an axis is a round number", () => {
  expect([0, 1, 3, 7, 12, 240, 990].map(niceCeiling)).toEqual([1, 1, 5, 10, 20, 250, 1_000]);
});
