/** Series of statistics for charts: ranges, intervals and axis marks. */

import type { Distribution, StatisticsCounts, StatisticsSeries } from "../api/schema";
import { parseDuration } from "./quantities";
import { clockHours, dayStarts, type Zone } from "./time";

/** Ranges that end now; the first one is the default. */
export const RANGES = ["1h", "24h", "7d", "30d"] as const;
export type Range = (typeof RANGES)[number];
/** Range of a chart; that of measurements of an execution is not chosen. */
export type ChartRange = Range | "5m";

/** Length of the intervals of each range. */
export const STEPS: Record<Range, string> = { "1h": "1m", "24h": "15m", "7d": "2h", "30d": "6h" };

const QUARTER_MS = 900_000;

/** Returns the range of a search parameter. */
export function parseRange(value: string | undefined): Range {
  return RANGES.find((range) => range === value) ?? RANGES[0];
}

/** Returns the number of intervals of a range. */
export function intervalCount(range: Range): number {
  return (parseDuration(range) ?? 0) / stepMs(range);
}

function stepMs(range: Range): number {
  return parseDuration(STEPS[range]) ?? 1;
}

/** Returns the start of the first interval of a range; the last interval contains `now`. */
export function rangeStart(range: Range, now: number): number {
  const step = stepMs(range);
  return (Math.floor(now / step) - intervalCount(range) + 1) * step;
}

/** Quantiles of durations, in milliseconds. */
export interface Quantiles {
  count: number;
  p50: number;
  p95: number;
}

/** What happened in an interval. */
export interface Interval {
  /** Start and end, in ms since the epoch. */
  from: number;
  to: number;
  submitted: number;
  succeeded: number;
  failed: number;
  /** Cancelled and expired. */
  other: number;
  /** Null if no job started. */
  startDelay: Quantiles | null;
  /** Null if no execution ended. */
  runTime: Quantiles | null;
  /** Highest sampled numbers; null if no sample was taken. */
  levels: { running: number; waiting: number } | null;
}

export function quantiles(of: Distribution | null | undefined): Quantiles | null {
  return of ? { count: of.count, p50: parseDuration(of.p50) ?? 0, p95: parseDuration(of.p95) ?? 0 } : null;
}

/**
 * Returns the fraction of the ended jobs that succeeded, from 0 to 1; cancelled jobs do not count. Null if no job ended.
 * Rounded down to a thousandth: only a name without failures has 100 %.
 */
export function successRate(
  total: Pick<StatisticsCounts, "succeeded" | "failed" | "expired">,
): number | null {
  const ended = total.succeeded + total.failed + total.expired;
  return ended === 0 ? null : Math.floor((total.succeeded / ended) * 1_000) / 1_000;
}

/** Returns all intervals of a range up to the end of the series. The series omits intervals without any statistics. */
export function intervalsOf(series: StatisticsSeries, range: Range): Interval[] {
  const step = stepMs(range);
  // The end is exclusive.
  const first = rangeStart(range, Date.parse(series.until) - 1);
  const points = new Map(series.points.map((point) => [Date.parse(point.at), point]));
  return Array.from({ length: intervalCount(range) }, (_, i) => {
    const from = first + i * step;
    const point = points.get(from);
    return {
      from,
      to: from + step,
      submitted: point?.submitted ?? 0,
      succeeded: point?.succeeded ?? 0,
      failed: point?.failed ?? 0,
      other: (point?.cancelled ?? 0) + (point?.expired ?? 0),
      startDelay: quantiles(point?.start_delay),
      runTime: quantiles(point?.run_time),
      levels: point?.levels ?? null,
    };
  });
}

/** Returns the times of the axis marks: minutes, quarters of an hour, every six hours, days, or every fifth day. */
export function axisMarks(range: ChartRange, from: number, to: number, zone: Zone): number[] {
  switch (range) {
    case "5m":
      return multiples(from, to, 60_000);
    case "1h":
      return multiples(from, to, QUARTER_MS);
    case "24h":
      return clockHours(from, to, 6, zone);
    case "7d":
      return dayStarts(from, to, zone);
    case "30d":
      // Counted from the end, so that the newest day has a mark.
      return dayStarts(from, to, zone).filter((_, i, days) => (days.length - 1 - i) % 5 === 0);
  }
}

/** Returns the multiples of `step` from `from` to `to`, exclusive. */
function multiples(from: number, to: number, step: number): number[] {
  const first = Math.ceil(from / step);
  return Array.from({ length: Math.max(0, Math.ceil(to / step) - first) }, (_, i) => (first + i) * step);
}

/** Returns a round number that is not smaller: the top of an axis. */
export function niceCeiling(value: number): number {
  if (value <= 1) return 1;
  const size = 10 ** Math.floor(Math.log10(value));
  const step = [1, 2, 2.5, 5, 10].find((each) => each * size >= value) ?? 10;
  return step * size;
}
