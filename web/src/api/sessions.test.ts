import { expect, test } from "vitest";

import { isNewerSession, sessionAfter } from "./sessions";

test("each session is newer than the one before, also if the clock was set back", () => {
  const first = sessionAfter("", 1_000, "z");
  const second = sessionAfter(first, 500, "a");
  expect(first).toBe("1000.z");
  expect(isNewerSession(first, "")).toBe(true);
  expect(isNewerSession(second, first)).toBe(true);
  expect(isNewerSession(first, second)).toBe(false);
  expect(isNewerSession(first, first)).toBe(false);
  // An id of an earlier version has no time.
  expect(isNewerSession(first, "9c1f0e5b")).toBe(true);
});

test("of two sessions of the same moment one is the newer, for all tabs", () => {
  expect([isNewerSession("5.a", "5.b"), isNewerSession("5.b", "5.a")]).toEqual([false, true]);
});
