import { expect, test } from "vitest";

import {
  chosenZone,
  formatClock,
  clockHours,
  formatDay,
  dayStarts,
  formatExact,
  parseWallTime,
  formatRelative,
  inZones,
  toWallTime,
  zoneOffset,
  formatWeekday,
} from "./time";

const AT = "2026-03-29T00:30:05.250Z";

test("a time is shown in the chosen zone, with the zone", () => {
  expect(formatExact(AT, "en", "Europe/Berlin")).toBe("Mar 29, 2026, 01:30:05 GMT+1");
  expect(formatExact(AT, "en", "UTC")).toBe("Mar 29, 2026, 00:30:05 UTC");
  expect(formatExact(AT, "zh-CN", "Asia/Shanghai")).toBe("2026-03-29 08:30:05 GMT+8");
  expect(formatClock(AT, "en", "Asia/Kolkata")).toBe("06:00:05.250");
});

test("relative times are localized", () => {
  const now = Date.parse(AT);
  expect(formatRelative(AT, "en", now)).toBe("now");
  expect(formatRelative(AT, "en", now + 125_000)).toBe("2m ago");
  expect(formatRelative(AT, "en", now - 7_200_000)).toBe("in 2h");
  expect(formatRelative(AT, "zh-CN", now + 125_000)).toBe("2 分钟前");
});

test("hours and days start by the local time of the zone, also around clock changes", () => {
  const from = Date.parse("2026-03-28T12:00:00Z");
  const to = Date.parse("2026-03-30T12:00:00Z");
  const shown = (all: number[]) => all.map((at) => new Date(at).toISOString().slice(0, 16));
  expect(shown(dayStarts(from, to, "Europe/Berlin"))).toEqual(["2026-03-28T23:00", "2026-03-29T22:00"]);
  expect(shown(dayStarts(from, to, "Asia/Kolkata"))).toEqual(["2026-03-28T18:30", "2026-03-29T18:30"]);
  expect(clockHours(from, to, 6, "UTC")).toHaveLength(7);
});

test("a local time is parsed; an ambiguous one is the earlier time", () => {
  const at = (wall: string, zone: string) => new Date(parseWallTime(wall, zone)).toISOString();
  expect(at("2026-06-01T09:00", "Asia/Shanghai")).toBe("2026-06-01T01:00:00.000Z");
  expect(at("2026-10-25T02:30", "Europe/Berlin")).toBe("2026-10-25T00:30:00.000Z");
  expect(toWallTime(Date.parse("2026-06-01T01:00:00Z"), "Asia/Shanghai")).toBe("2026-06-01T09:00");
});

test("days are shown with weekday names", () => {
  expect(formatWeekday(Date.parse("2026-11-23T20:00:00Z"), "en", "Asia/Shanghai")).toBe("Tue 11/24");
  expect(formatWeekday(Date.parse("2026-11-23T00:00:00Z"), "zh-CN", "UTC")).toBe("周一 11/23");
  expect(formatDay("2026-11-23", "en")).toBe("Mon, Nov 23, 2026");
  expect(formatDay("2026-11-23", "zh-CN")).toBe("2026-11-23 周一");
});

test("the zone of a schedule applies on its pages only, and an unknown zone is that of this machine", () => {
  expect(chosenZone("schedule", "Asia/Shanghai")).toBe("Asia/Shanghai");
  expect(chosenZone("schedule", null)).toBe("local");
  expect(chosenZone("UTC", "Asia/Shanghai")).toBe("UTC");
  expect(chosenZone("local", "Asia/Shanghai")).toBe("local");
  expect(chosenZone("Mars/Olympus", null)).toBe("local");
  expect(chosenZone("schedule", "Mars/Olympus")).toBe("local");
});

test("a time is shown in several zones, equal ones once", () => {
  expect(inZones(AT, "en", ["UTC", "Asia/Tokyo", "UTC"])).toBe(
    "Mar 29, 2026, 00:30:05 UTC\nMar 29, 2026, 09:30:05 GMT+9",
  );
  expect(zoneOffset("Asia/Kolkata", "en")).toBe("GMT+5:30");
  expect(toWallTime(Date.parse(AT), "Asia/Tokyo", "second")).toBe("2026-03-29T09:30:05");
});
