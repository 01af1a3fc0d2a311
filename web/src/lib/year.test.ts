import { expect, test } from "vitest";

import { monthsOf } from "./year";

test("a year has all of its days once, in weeks that begin on Monday", () => {
  const days = monthsOf(2026).flatMap((month) => month.weeks.flat().filter((day) => day !== null));
  expect(days).toHaveLength(365);
  expect(days[0]).toBe("2026-01-01");
  expect(new Set(days).size).toBe(365);
  // The first of January 2026 is a Thursday.
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

test("a leap year has its day", () => {
  expect(monthsOf(2028)[1]?.weeks.flat()).toContain("2028-02-29");
});
