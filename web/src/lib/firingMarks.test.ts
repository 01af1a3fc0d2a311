import { expect, test } from "vitest";

import { mergeFirings } from "./firingMarks";

const HOUR = 3_600_000;

test("firings too close to distinguish are merged into one mark with a count", () => {
  const seconds = Array.from({ length: 100 }, (_, i) => i * 1_000);
  expect(mergeFirings([...seconds, 12 * HOUR], 0, 24 * HOUR)).toEqual([
    { from: 0, to: 99_000, count: 100 },
    { from: 12 * HOUR, to: 12 * HOUR, count: 1 },
  ]);
});

test("distant firings have separate marks", () => {
  expect(mergeFirings([HOUR, 2 * HOUR, 3 * HOUR], 0, 24 * HOUR).map(({ from }) => from / HOUR)).toEqual([
    1, 2, 3,
  ]);
  expect(mergeFirings([], 0, HOUR)).toEqual([]);
});
