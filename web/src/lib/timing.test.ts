import { expect, test } from "vitest";

import type { Timing } from "../api/schema";
import { calendarsOf, excluding, rulesOf, simpleOf, startOf } from "./timing";

test("one plain rule is shown, whatever has more to it is left to the file", () => {
  expect(simpleOf({ rules: [{ cron: "0 2 * * *" }] })).toEqual({ kind: "cron", text: "0 2 * * *" });
  expect(simpleOf({ rules: [] })).toEqual({ kind: "demand", text: "" });
  expect(simpleOf(undefined)).toEqual({ kind: "demand", text: "" });
  expect(simpleOf({ rules: [{ every: "1h" }, { every: "7m" }] })).toBeNull();
  expect(simpleOf({ rules: [{ every: { period: "1h", phase: "5m" } }] })).toBeNull();
  expect(simpleOf({ rules: [{ calendar: { unit: "months", days: [-1] } }] })).toBeNull();
});

test("a rule that is shown is written back as it was", () => {
  for (const kind of ["cron", "every", "after", "at", "demand"] as const) {
    const start = startOf(kind, "2026-12-01T09:00");
    expect(simpleOf({ rules: rulesOf(start) })).toEqual(start);
  }
});

test("choosing calendars leaves other filters alone", () => {
  const timing: Timing = { exclude: [{ weekdays: ["sunday"] }, { calendar: "old" }] };
  expect(calendarsOf(timing)).toEqual(["old"]);
  expect(excluding(timing, ["new"])).toEqual([{ weekdays: ["sunday"] }, { calendar: "new" }]);
  expect(excluding({ exclude: [{ calendar: "old" }] }, [])).toBeUndefined();
});
