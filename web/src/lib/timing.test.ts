import { expect, test } from "vitest";

import type { Timing } from "../api/schema";
import { calendarsOf, withExcludedCalendars, toRules, toSimpleRule, initialRule } from "./timing";

test("one simple rule is shown in the form; others are left to the file", () => {
  expect(toSimpleRule({ rules: [{ cron: "0 2 * * *" }] })).toEqual({ kind: "cron", text: "0 2 * * *" });
  expect(toSimpleRule({ rules: [] })).toEqual({ kind: "demand", text: "" });
  expect(toSimpleRule(undefined)).toEqual({ kind: "demand", text: "" });
  expect(toSimpleRule({ rules: [{ every: "1h" }, { every: "7m" }] })).toBeNull();
  expect(toSimpleRule({ rules: [{ every: { period: "1h", phase: "5m" } }] })).toBeNull();
  expect(toSimpleRule({ rules: [{ calendar: { unit: "months", days: [-1] } }] })).toBeNull();
});

test("a displayed rule is written back unchanged", () => {
  for (const kind of ["cron", "every", "after", "at", "demand"] as const) {
    const start = initialRule(kind, "2026-12-01T09:00");
    expect(toSimpleRule({ rules: toRules(start) })).toEqual(start);
  }
});

test("selecting calendars keeps other filters", () => {
  const timing: Timing = { exclude: [{ weekdays: ["sunday"] }, { calendar: "old" }] };
  expect(calendarsOf(timing)).toEqual(["old"]);
  expect(withExcludedCalendars(timing, ["new"])).toEqual([{ weekdays: ["sunday"] }, { calendar: "new" }]);
  expect(withExcludedCalendars({ exclude: [{ calendar: "old" }] }, [])).toBeUndefined();
});
