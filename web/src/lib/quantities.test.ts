import { expect, test } from "vitest";

import {
  formatBytes,
  formatDuration,
  parseBytes,
  parseCpu,
  parseDuration,
  peakMemory,
  splitList,
} from "./quantities";

test("durations of the API are parsed", () => {
  expect(parseDuration("1h30m")).toBe(5_400_000);
  expect(parseDuration("500ms")).toBe(500);
  expect(parseDuration("0s")).toBe(0);
  expect(parseDuration("soon")).toBeNull();
  expect(parseDuration("5")).toBeNull();
});

test("a list of durations is split at commas and spaces", () => {
  expect(splitList("1m, 5m,10m  1h")).toEqual(["1m", "5m", "10m", "1h"]);
  expect(splitList("1m，5m、10m")).toEqual(["1m", "5m", "10m"]);
  expect(splitList("1m, soon,")).toEqual(["1m", "soon"]);
  expect(splitList(" ")).toEqual([]);
});

test("durations are shown in at most two units", () => {
  expect([0.2, 850, 1_240, 12_400, 200_000, 7_500_000, 360_000_000].map(formatDuration)).toEqual([
    "0 ms",
    "850 ms",
    "1.2 s",
    "12 s",
    "3m 20s",
    "2h 5m",
    "4d 4h",
  ]);
});

test("quantities are parsed with their units", () => {
  expect([parseCpu("500m"), parseCpu("2"), parseCpu(0.5)]).toEqual([0.5, 2, 0.5]);
  expect([parseBytes("256MiB"), parseBytes("2GB"), parseBytes("0B"), parseBytes(7)]).toEqual([
    268_435_456, 2e9, 0, 7,
  ]);
  expect([0, 1_023, 1_536, 25_276_514_304].map(formatBytes)).toEqual([
    "0 B",
    "1023 B",
    "1.5 KiB",
    "23.5 GiB",
  ]);
});

test("a peak memory of 0 is unknown: every process uses memory", () => {
  expect(peakMemory({ peak_memory_bytes: 4_096 })).toBe(4_096);
  expect(peakMemory({ peak_memory_bytes: 0 })).toBeNull();
  expect(peakMemory(null)).toBeNull();
});
