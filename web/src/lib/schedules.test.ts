import { expect, test } from "vitest";

import type { Schedule } from "../api/schema";
import { sorted } from "./schedules";

const schedule = (name: string, over: Partial<Schedule>) =>
  ({ name, track: { succeeded: 0, failed: 0, streak: 0 }, ...over }) as Schedule;
const all = [
  schedule("paused", { next_at: null }),
  schedule("later", {
    next_at: "2026-11-22T00:00:00Z",
    track: { succeeded: 9, failed: 1, streak: 3, success_rate: 0.9 },
  }),
  schedule("bad", {
    next_at: "2026-11-21T13:00:00Z",
    track: { succeeded: 0, failed: 4, streak: -4, success_rate: 0 },
  }),
  schedule("also-paused", {}),
];
const names = (by: "next" | "name" | "health") => sorted(all, by).map(({ name }) => name);

test("what fires next comes first, what does not fire last", () => {
  expect(names("next")).toEqual(["bad", "later", "also-paused", "paused"]);
});

test("what fails now comes first, what never ran last", () => {
  expect(names("health")).toEqual(["bad", "later", "also-paused", "paused"]);
  expect(names("name")).toEqual(["also-paused", "bad", "later", "paused"]);
});
