import { expect, test } from "vitest";

import type { Execution, Job } from "../../api/schema";
import { axis, executionBars } from "./bars";

const at = (second: number) => new Date(Date.UTC(2026, 10, 21, 12, 0, second)).toISOString();
const job = { created_at: at(0), queued_at: at(1), updated_at: at(20) } as Job;
const execution = (number: number, assigned: number, started?: number, finished?: number) =>
  ({
    number,
    assigned_at: at(assigned),
    started_at: started === undefined ? null : at(started),
    finished_at: finished === undefined ? null : at(finished),
  }) as Execution;

test("the waiting time of an execution starts at the end of the previous one", () => {
  const { bars, from, to } = executionBars(job, [execution(2, 10, 11, 20), execution(1, 2, 3, 5)], null);
  const seconds = (time: number) => (time - Date.parse(at(0))) / 1_000;
  expect(bars.map((bar) => [bar.waitingSince, bar.started, bar.ended].map(seconds))).toEqual([
    [1, 3, 5],
    [5, 11, 20],
  ]);
  expect([from, to].map(seconds)).toEqual([1, 20]);
});

test("the bar of a running execution ends now", () => {
  const { bars } = executionBars(job, [execution(1, 2, 3)], Date.parse(at(30)));
  expect(bars[0]?.ended).toBe(Date.parse(at(30)));
});

test("an axis of any length has 2 to 8 round ticks", () => {
  for (const span of [3, 90, 4_000, 61_000, 5_400_000, 86_400_000, 4e9]) {
    const { ticks } = axis(span);
    expect(ticks.length).toBeGreaterThan(1);
    expect(ticks.length).toBeLessThan(9);
  }
});
