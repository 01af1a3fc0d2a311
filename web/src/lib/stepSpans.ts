/** Time spans of a run's steps, on one axis. */

import type { RunStep, WorkflowRun } from "../api/schema";
import { isRunEnded } from "./runs";

export interface StepSpan {
  step: RunStep;
  from: number;
  to: number;
}

/**
 * Returns the spans of started steps, ordered by start, and the axis that contains them. The spans of running steps
 * end at `now`.
 */
export function stepSpans(run: WorkflowRun, steps: readonly RunStep[], now: number) {
  const end = run.finished_at && isRunEnded(run.status) ? Date.parse(run.finished_at) : now;
  const begin = Date.parse(run.started_at ?? run.created_at);
  const spans: StepSpan[] = steps.flatMap((step) => {
    // Steps carried over from an earlier run have times before this run.
    if (!step.started_at || step.cause === "carried_over") return [];
    const from = Math.max(begin, Date.parse(step.started_at));
    const to = step.finished_at ? Date.parse(step.finished_at) : end;
    return [{ step, from, to: Math.max(from, to) }];
  });
  spans.sort((a, b) => a.from - b.from || a.step.number - b.step.number);
  const last = Math.max(end, ...spans.map((span) => span.to));
  return { spans, from: begin, to: Math.max(last, begin + 10) };
}
