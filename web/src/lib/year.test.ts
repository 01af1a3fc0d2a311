import { expect, test } from "vitest";

import { monthsOf } from "./year";

test("a year has each of its days once, in weeks that start on Monday", () => {
  const days = monthsOf(2026).flatMap((month) => month.weeks.flat().filter((day) => day !== null));
  expect(days).toHaveLength(365);
  expect(days[0]).toBe("2026-01-01");
  expect(new Set(days).size).toBe(365);
  // January 1, 2026 is a Thursday.
  expect(monthsOf(2026)[0]?.weeks[0]).toEqual([
    null,
    null,
    null,
    "2026-01-01",
    "2026-01-02",
    "2026-01-03",
    "2026-01-04",
  ]);
});

test("a leap year has February 29", () => {
  expect(monthsOf(2028)[1]?.weeks.flat()).toContain("2028-02-29");
});
