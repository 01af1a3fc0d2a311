/** What executions use: measurements of running ones, statistics of ended ones, and how requests compare. */

import type { TFunction } from "i18next";

import type { Job, Usage, UsageSample } from "../api/schema";
import { formatBytes, formatCpu, parseBytes, parseCpu, parseDuration, peakMemory } from "./quantities";
import { niceCeiling } from "./statistics";

export const MEASURED = ["cpu", "memory"] as const;
export type Measured = (typeof MEASURED)[number];

/** CPU in cores and memory in bytes. */
export type Use = Record<Measured, number>;

/** Orders of a list of what executions use; the first one is the default. */
export const USAGE_ORDERS = ["cpu", "memory", "disk"] as const;
export type UsageOrder = (typeof USAGE_ORDERS)[number];

/** Returns the order of a search parameter. */
export function parseUsageOrder(value: string | undefined): UsageOrder {
  return USAGE_ORDERS.find((order) => order === value) ?? USAGE_ORDERS[0];
}

/** Requests of jobs that set none. */
const DEFAULT_REQUESTS: Use = { cpu: 0.1, memory: 64 * 2 ** 20 };
/** A request is oversized if it is more than this many times the 95th percentile of the use. */
const OVERSIZED_FROM = 2;

/** Returns what a job requests; null if its spec is unknown. */
export function requestsOf(spec: Job["spec"]): Use | null {
  if (!spec) return null;
  const { cpu, memory } = spec.resources ?? {};
  return {
    cpu: cpu == null ? DEFAULT_REQUESTS.cpu : parseCpu(cpu),
    memory: memory == null ? DEFAULT_REQUESTS.memory : parseBytes(memory),
  };
}

/** Fewest measurements that say something about a request. */
const MEASUREMENTS_MIN = 3;

/** Returns whether a request is much larger than the use. The default request, or less, is never too much. */
export function isOversized(
  resource: Measured,
  request: number,
  { measurements, ...use }: UsageStatistics,
): boolean {
  const isKnown = measurements >= MEASUREMENTS_MIN;
  return isKnown && request > DEFAULT_REQUESTS[resource] && request > OVERSIZED_FROM * use[resource].p95;
}

/** Statistics of one resource; null if they are unknown. */
export interface Distribution {
  mean: number | null;
  p95: number;
  max: number | null;
}

export interface UsageStatistics extends Record<Measured, Distribution> {
  measurements: number;
  readBytes: number;
  writtenBytes: number;
}

/** Returns the statistics of an ended execution; null if it was not measured. */
export function usageStatistics(usage: Usage | null | undefined): UsageStatistics | null {
  const measured = usage?.measured;
  if (!measured) return null;
  const [cpuMs, runMs] = [parseDuration(usage.cpu_time), parseDuration(usage.run_time)];
  return {
    measurements: measured.measurements,
    cpu: {
      mean: cpuMs !== null && runMs ? cpuMs / runMs : null,
      p95: parseCpu(measured.cpu_p95),
      max: parseCpu(measured.cpu_max),
    },
    memory: {
      mean: parseBytes(measured.memory_mean),
      p95: parseBytes(measured.memory_p95),
      max: peakMemory(usage),
    },
    readBytes: measured.read_bytes,
    writtenBytes: measured.written_bytes,
  };
}

/** Range of the charts of a running execution. */
const WINDOW_MS = 300_000;
/** Shortest interval in which workers measure, and the time without a measurement from which one is missing. */
const INTERVAL_MS = 5_000;
/** Workers with many executions measure every 30 seconds. */
const GAP_MS = 45_000;

/** A part of the last minutes, in ms since the epoch. */
export interface UsageSpan {
  from: number;
  to: number;
  /** Null if nothing was measured. */
  use: Use | null;
}

/** Returns the last five minutes up to the newest measurement: each one covers the time since the one before. */
export function usageSpans(samples: readonly UsageSample[]): UsageSpan[] {
  const newest = samples.at(-1);
  if (!newest) return [];
  const spans: UsageSpan[] = [];
  let end = Date.parse(newest.at) - WINDOW_MS;
  for (const { at, cpu, memory } of samples) {
    const to = Date.parse(at);
    if (to <= end) continue;
    const from = to - end > GAP_MS ? to - INTERVAL_MS : end;
    if (from > end) spans.push({ from: end, to: from, use: null });
    spans.push({ from, to, use: { cpu: parseCpu(cpu), memory: parseBytes(memory) } });
    end = to;
  }
  return spans;
}

/** Returns the spans that follow each other without a gap. */
export function measuredParts(spans: readonly UsageSpan[]): Array<Array<UsageSpan & { use: Use }>> {
  const parts: Array<Array<UsageSpan & { use: Use }>> = [];
  let isNew = true;
  for (const { use, ...span } of spans) {
    if (use && isNew) parts.push([]);
    if (use) parts.at(-1)?.push({ ...span, use });
    isNew = use === null;
  }
  return parts;
}

/** A request above this many times the highest use is not in the chart: the use would be a flat line. */
const SHOWN_REQUEST_MAX = 4;
/** The lowest tops: noise of an idle process is not a chart. */
const TOP_MIN: Use = { cpu: 0.1, memory: 2 ** 20 };

/** Returns the top of a chart: a round value above the highest use and, if it is not far above, the request. */
export function usageTop(resource: Measured, highest: number, request: number | null): number {
  const isShown = request !== null && request <= highest * SHOWN_REQUEST_MAX;
  const top = Math.max(TOP_MIN[resource], highest, isShown ? request : 0);
  const unit = resource === "cpu" ? 0.001 : 2 ** (10 * Math.floor(Math.log2(top) / 10));
  return niceCeiling(top / unit) * unit;
}

/** Formats cores with their unit, or bytes. */
export function formatUse(resource: Measured, value: number, t: TFunction): string {
  if (resource === "memory") return formatBytes(value);
  const cores = formatCpu(value);
  return t("usage.cores", { count: Number(cores), cores });
}
