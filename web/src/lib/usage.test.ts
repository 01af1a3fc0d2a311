/** What executions use, and whether their requests fit. */

import { createInstance } from "i18next";
import { expect, test } from "vitest";

import type { Usage, UsageSample } from "../api/schema";
import english from "../i18n/en.json";
import chinese from "../i18n/zh-CN.json";
import {
  formatUse,
  isOversized,
  measuredParts,
  parseUsageOrder,
  requestsOf,
  usageSpans,
  usageStatistics,
  usageTop,
} from "./usage";

const GIB = 2 ** 30;
const MIB = 2 ** 20;
const END = Date.parse("2026-11-21T12:00:00Z");

/** A measurement some seconds before the end. */
function sample(secondsBefore: number, cpu: string, memory = "1MiB"): UsageSample {
  const at = new Date(END - secondsBefore * 1_000).toISOString();
  return { at, cpu, memory, read_bytes_per_second: 0, written_bytes_per_second: 0, processes: 1 };
}

const seconds = (samples: readonly UsageSample[]) =>
  usageSpans(samples).map(({ from, to, use }) => [
    (from - END) / 1_000,
    (to - END) / 1_000,
    use?.cpu ?? null,
  ]);

test("each measurement covers the time since the one before, in the last five minutes", () => {
  expect(seconds([sample(10, "500m"), sample(5.2, "1"), sample(0, "1500m")])).toEqual([
    [-300, -15, null],
    [-15, -10, 0.5],
    [-10, -5.2, 1],
    [-5.2, 0, 1.5],
  ]);
  expect(usageSpans([])).toEqual([]);
});

test("measurements from before the last five minutes are not shown", () => {
  expect(seconds([sample(305, "2"), sample(295, "1"), sample(0, "500m")])).toEqual([
    [-300, -295, 1],
    [-295, -5, null],
    [-5, 0, 0.5],
  ]);
});

test("a missing heartbeat interrupts the chart", () => {
  const spans = usageSpans([sample(70, "1"), sample(65, "2"), sample(5, "3"), sample(0, "4")]);
  expect(measuredParts(spans).map((part) => part.map(({ use }) => use.cpu))).toEqual([
    [1, 2],
    [3, 4],
  ]);
  expect(measuredParts([])).toEqual([]);
});

test("the top of a chart is round, and includes a request that is not far above the use", () => {
  expect(usageTop("cpu", 0.98, null)).toBe(1);
  expect(usageTop("cpu", 0.98, 2)).toBe(2);
  expect(usageTop("cpu", 0.98, 64)).toBe(1);
  expect(usageTop("cpu", 0, 2)).toBe(0.1);
  expect(usageTop("memory", 300 * MIB, GIB)).toBe(GIB);
  expect(usageTop("memory", 300 * MIB, 16 * GIB)).toBe(500 * MIB);
  expect(usageTop("memory", 0, null)).toBe(MIB);
});

test("a job without requests has the default ones", () => {
  expect(requestsOf({ resources: { cpu: "2", memory: "1GiB" } } as never)).toEqual({ cpu: 2, memory: GIB });
  expect(requestsOf({ resources: { cpu: "0" } } as never)).toEqual({ cpu: 0, memory: 64 * MIB });
  expect(requestsOf({} as never)).toEqual({ cpu: 0.1, memory: 64 * MIB });
  expect(requestsOf(null)).toBeNull();
});

test("a request of more than twice the use is oversized, but never the default one", () => {
  const used = (p95: number, measurements = 3) => {
    const distribution = { mean: null, p95, max: null };
    return { measurements, cpu: distribution, memory: distribution, readBytes: 0, writtenBytes: 0 };
  };
  expect(isOversized("memory", 2 * GIB, used(300 * MIB))).toBe(true);
  expect(isOversized("memory", 2 * GIB, used(GIB))).toBe(false);
  expect(isOversized("memory", 64 * MIB, used(MIB))).toBe(false);
  expect(isOversized("cpu", 4, used(1.9))).toBe(true);
  expect(isOversized("cpu", 0.1, used(0))).toBe(false);
  expect(isOversized("cpu", 4, used(0, 2))).toBe(false);
});

test("the mean CPU of an ended execution is its CPU time by its run time", () => {
  const measured = {
    measurements: 8,
    cpu_p95: "1500m",
    cpu_max: "2",
    memory_mean: "200MiB",
    memory_p95: "300MiB",
    read_bytes: 10,
    written_bytes: 20,
  };
  const usage: Usage = { run_time: "40s", cpu_time: "20s", peak_memory_bytes: GIB, log_bytes: 0, measured };
  expect(usageStatistics(usage)).toEqual({
    measurements: 8,
    cpu: { mean: 0.5, p95: 1.5, max: 2 },
    memory: { mean: 200 * MIB, p95: 300 * MIB, max: GIB },
    readBytes: 10,
    writtenBytes: 20,
  });
  expect(usageStatistics({ ...usage, run_time: "0s", peak_memory_bytes: 0 })).toMatchObject({
    cpu: { mean: null },
    memory: { max: null },
  });
});

test("an execution that was too short to be measured has no statistics", () => {
  expect(usageStatistics({ run_time: "1s", cpu_time: "1s", peak_memory_bytes: 1, log_bytes: 0 })).toBeNull();
  expect(usageStatistics(null)).toBeNull();
});

test("an unknown order is the default", () => {
  expect([undefined, "memory", "disk", "name"].map(parseUsageOrder)).toEqual([
    "cpu",
    "memory",
    "disk",
    "cpu",
  ]);
});

test("CPU is shown in cores, and memory in bytes", async () => {
  const i18n = createInstance();
  const resources = { en: { translation: english }, "zh-CN": { translation: chinese } };
  await i18n.init({ lng: "en", resources, interpolation: { escapeValue: false } });
  const [en, zh] = [i18n.getFixedT("en"), i18n.getFixedT("zh-CN")];
  expect([0.25, 1, 2].map((cores) => formatUse("cpu", cores, en))).toEqual([
    "0.25 cores",
    "1 core",
    "2 cores",
  ]);
  expect(formatUse("cpu", 0.999, en)).toBe("1 core");
  expect(formatUse("cpu", 1.5, zh)).toBe("1.5 核");
  expect(formatUse("memory", 300 * MIB, zh)).toBe("300 MiB");
});
