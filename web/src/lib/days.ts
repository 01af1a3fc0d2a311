/**
 * Local days up to today, and what happened on each: from a series of statistics, or from runs.
 *
 * Days are strings such as `2026-11-23` in the zone that the user chose.
 */

import type { StatisticsSeries, WorkflowRun } from "../api/schema";
import { isRunEnded } from "./runs";
import { parseWallTime, toWallTime, type Zone } from "./time";
import type { Day } from "./year";

const HOUR_MS = 3_600_000;
const DAY_MS = 86_400_000;
/** Retention of statistics by hour. */
const KEPT_DAYS = 365;
/** Maximum number of intervals of a series in a response. */
const INTERVALS_MAX = 1_500;

/** What happened on a day. */
export interface DayCounts {
  succeeded: number;
  failed: number;
  /** Cancelled and expired. */
  other: number;
  /** Runs that have not ended. Jobs are counted when they end. */
  active: number;
}

export const NOTHING: DayCounts = { succeeded: 0, failed: 0, other: 0, active: 0 };

/** Consecutive days with their start times, the last of which is today. */
export interface Days {
  zone: Zone;
  /** Days by week, Monday first; null before the first day and after today. */
  weeks: Array<Array<Day | null>>;
  days: readonly Day[];
  /** Start of each day, and the end of the last one, in ms since the epoch. */
  starts: readonly number[];
}

export function dayOf(at: number, zone: Zone): Day {
  return toWallTime(at, zone).slice(0, 10);
}

function addDays(day: Day, count: number): Day {
  return new Date(Date.parse(`${day}T00:00Z`) + count * DAY_MS).toISOString().slice(0, 10);
}

/** Returns the start of a day in a zone; where a clock change skips midnight, the first time after it. */
export function startOfDay(day: Day, zone: Zone): number {
  const start = parseWallTime(`${day}T00:00`, zone);
  return dayOf(start, zone) < day ? start + HOUR_MS : start;
}

/** Returns the days of the last `count` weeks up to `today`, as far as statistics are kept. */
export function lastWeeks(count: number, today: Day, zone: Zone): Days {
  const weekday = (new Date(`${today}T00:00Z`).getUTCDay() + 6) % 7;
  const monday = addDays(today, -weekday - 7 * (count - 1));
  const oldest = addDays(today, 1 - KEPT_DAYS);
  const weeks = Array.from({ length: count }, (_, week) =>
    Array.from({ length: 7 }, (_, weekday) => {
      const day = addDays(monday, 7 * week + weekday);
      return day < oldest || day > today ? null : day;
    }),
  );
  const days = weeks.flat().filter((day) => day !== null);
  const starts = [...days, addDays(today, 1)].map((day) => startOfDay(day, zone));
  return { zone, weeks, days, starts };
}

/** A request for a part of the days. */
export interface SeriesPart {
  from: number;
  until: number;
  stepHours: number;
}

/**
 * Returns the requests for the days before yesterday: the counts of yesterday may still change, because statistics are
 * a little late and the clock of this browser may be ahead. The server has intervals from 1970 in UTC: their length is the longest
 * that still separates all days. In a zone without clock changes, one request covers a year.
 */
export function seriesParts({ starts }: Days): SeriesPart[] {
  const hours = starts.slice(0, -2).map((start) => Math.floor(start / HOUR_MS));
  const stepHours = hours.reduce((step, hour) => commonDivisor(step, hour % 24), 24);
  const [first, last] = [hours[0] ?? 0, hours.at(-1) ?? 0];
  const length = INTERVALS_MAX * stepHours;
  return Array.from({ length: Math.ceil((last - first) / length) }, (_, i) => ({
    from: (first + i * length) * HOUR_MS,
    until: Math.min(last, first + (i + 1) * length) * HOUR_MS,
    stepHours,
  }));
}

function commonDivisor(a: number, b: number): number {
  return b === 0 ? a : commonDivisor(b, a % b);
}

/** Returns whether days of the zone start within an hour of UTC, so that an hour belongs to two days. */
export function splitsHours({ starts }: Days): boolean {
  return starts.some((start) => start % HOUR_MS !== 0);
}

/** Returns the index of the day that contains a time; -1 for other days. */
function indexOf({ starts }: Days, at: number): number {
  let [low, high] = [0, starts.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((starts[middle] ?? Infinity) <= at) low = middle + 1;
    else high = middle;
  }
  // The last start is the end of today.
  return low === starts.length ? -1 : low - 1;
}

function count(of: Days, items: Iterable<readonly [at: number, counts: DayCounts]>): Map<Day, DayCounts> {
  const found = new Map<Day, DayCounts>();
  for (const [at, { succeeded, failed, other, active }] of items) {
    const day = of.days[indexOf(of, at)];
    if (day === undefined) continue;
    const before = found.get(day) ?? NOTHING;
    found.set(day, {
      succeeded: before.succeeded + succeeded,
      failed: before.failed + failed,
      other: before.other + other,
      active: before.active + active,
    });
  }
  return found;
}

/** Returns the ended jobs by day. */
export function countJobs(
  of: Days,
  series: ReadonlyArray<Pick<StatisticsSeries, "points">>,
): Map<Day, DayCounts> {
  const items = series.flatMap(({ points }) =>
    points.map(({ at, succeeded, failed, cancelled, expired }) => {
      return [Date.parse(at), { succeeded, failed, other: cancelled + expired, active: 0 }] as const;
    }),
  );
  return count(of, items);
}

/** Maximum number of runs that are counted by day. */
export const COUNTED_RUNS = 1_000;

type CountedRun = Pick<WorkflowRun, "created_at" | "status">;

export interface CountedRuns {
  /** The newest first. */
  runs: readonly CountedRun[];
  /** Whether there are older runs. */
  hasMore: boolean;
}

/** Returns the newest of all runs, of which those of today were read apart. */
export function joinRuns(today: CountedRuns, earlier: CountedRuns): CountedRuns {
  if (today.hasMore) return today;
  const runs = [...today.runs, ...earlier.runs];
  return { runs: runs.slice(0, COUNTED_RUNS), hasMore: earlier.hasMore || runs.length > COUNTED_RUNS };
}

/** Returns the runs by the day of their creation. */
export function countRuns(of: Days, runs: readonly CountedRun[]): Map<Day, DayCounts> {
  const items = runs.map(({ created_at, status }) => {
    const counts = {
      succeeded: Number(status === "succeeded"),
      failed: Number(status === "failed"),
      other: Number(status === "cancelled"),
      active: Number(!isRunEnded(status)),
    };
    return [Date.parse(created_at), counts] as const;
  });
  return count(of, items);
}

/**
 * Returns the first day whose runs are all among the newest ones: tomorrow if today has more. Null if these are all runs.
 */
export function firstKnownDay(of: Days, runs: readonly CountedRun[], hasMore: boolean): Day | null {
  const oldest = runs.at(-1);
  if (!hasMore || !oldest) return null;
  const at = Date.parse(oldest.created_at);
  const day = of.starts.findIndex((start) => start > at);
  return of.days[day] ?? addDays(of.days.at(-1) ?? dayOf(at, of.zone), 1);
}

export function totalOfDay({ succeeded, failed, other, active }: DayCounts): number {
  return succeeded + failed + other + active;
}

/** Returns the strength of the colour of a day, from 0 (nothing) to 4, by the number of jobs or runs. */
export function strengthOf(total: number, highest: number): number {
  return total === 0 ? 0 : Math.max(1, Math.ceil((4 * Math.log1p(total)) / Math.log1p(highest) - 1e-9));
}

/** Smallest shown fraction of failures: a single failure among thousands must be visible. */
const FAILED_MIN = 0.25;

/** Returns the fractions of a cell, from the bottom: failed, then other, then succeeded. */
export function shares(counts: DayCounts): { failed: number; other: number } {
  const total = totalOfDay(counts);
  if (total === 0) return { failed: 0, other: 0 };
  const failed = counts.failed === 0 ? 0 : Math.max(FAILED_MIN, counts.failed / total);
  const rest = 1 - failed;
  const others = counts.other + counts.active;
  return { failed, other: others === 0 ? 0 : (rest * others) / Math.max(1, total - counts.failed) };
}

/** Returns the day that a key moves to; null for other keys. Days are in columns of weeks. */
export function dayOnKey({ days }: Days, day: Day, key: string): Day | null {
  const at = days.indexOf(day);
  const last = days.length - 1;
  const steps: Record<string, number> = {
    ArrowUp: -1,
    ArrowDown: 1,
    ArrowLeft: -7,
    ArrowRight: 7,
    PageUp: -28,
    PageDown: 28,
    Home: -at,
    End: last - at,
  };
  const step = steps[key];
  return step === undefined ? null : (days[Math.max(0, Math.min(last, at + step))] ?? null);
}
