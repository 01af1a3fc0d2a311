import { expect, test } from "vitest";

import type { RunStep, WorkflowRun } from "../api/schema";
import { progressOf } from "./runs";
import { stepSpans } from "./stepSpans";

const at = (s: number) => new Date(1_000_000 + s * 1_000).toISOString();
const run = { status: "running", created_at: at(0), started_at: at(10) } as WorkflowRun;
const step = (name: string, over: Partial<RunStep>) =>
  ({ name, number: 0, status: "succeeded", ...over }) as RunStep;

test("bars are ordered by start; the bar of a running step ends now", () => {
  const steps = [
    step("late", { started_at: at(30), status: "running" }),
    step("early", { started_at: at(12), finished_at: at(20) }),
    step("never", { status: "pending" }),
  ];
  const { spans, from, to } = stepSpans(run, steps, Date.parse(at(40)));
  expect(spans.map((span) => [span.step.name, (span.to - span.from) / 1_000])).toEqual([
    ["early", 8],
    ["late", 10],
  ]);
  expect((to - from) / 1_000).toBe(30);
});

test("a step carried over from an earlier run has no bar", () => {
  const carried = step("done", { started_at: at(-500), finished_at: at(-400), cause: "carried_over" });
  expect(stepSpans(run, [carried], Date.parse(at(40))).spans).toEqual([]);
});

test("progress counts ended steps with any result", () => {
  expect(progressOf({ succeeded: 2, skipped: 1, upstream_failed: 1, running: 3, pending: 4 })).toEqual({
    ended: 4,
    total: 11,
  });
});
