import { expect, test } from "vitest";

import { isNewerSession, sessionAfter } from "./sessions";

test("each session is newer than the previous one, even if the clock was set back", () => {
  const first = sessionAfter("", 1_000, "z");
  const second = sessionAfter(first, 500, "a");
  expect(first).toBe("1000.z");
  expect(isNewerSession(first, "")).toBe(true);
  expect(isNewerSession(second, first)).toBe(true);
  expect(isNewerSession(first, second)).toBe(false);
  expect(isNewerSession(first, first)).toBe(false);
  // Ids of earlier versions contain no time.
  expect(isNewerSession(first, "9c1f0e5b")).toBe(true);
});

test("of two sessions with the same time, all tabs agree on the newer one", () => {
  expect([isNewerSession("5.a", "5.b"), isNewerSession("5.b", "5.a")]).toEqual([false, true]);
});
