/** Positions of the bars of a job's executions. */

import type { Execution, Job } from "../../api/schema";

export interface ExecutionBar {
  execution: Execution;
  /** Start of the waiting time: when the job was queued, or the end of the previous execution. */
  waitingSince: number;
  assigned: number;
  started: number;
  ended: number;
}

/** Returns the bars, oldest first, and their time span. `now` is null for an ended job. */
export function executionBars(job: Job, executions: readonly Execution[], now: number | null) {
  const ordered = [...executions].sort((a, b) => a.number - b.number);
  const queued = Date.parse(job.queued_at ?? job.created_at);
  let previousEnd = queued;
  const bars: ExecutionBar[] = ordered.map((execution) => {
    const assigned = Date.parse(execution.assigned_at);
    const started = execution.started_at ? Date.parse(execution.started_at) : assigned;
    const ended = execution.finished_at
      ? Date.parse(execution.finished_at)
      : Math.max(started, now ?? started);
    const waitingSince = Math.min(previousEnd, assigned);
    previousEnd = ended;
    return { execution, waitingSince, assigned, started, ended };
  });
  const from = queued;
  const end = Math.max(...bars.map((bar) => bar.ended), now ?? 0, from);
  return { bars, from, to: Math.max(end, from + 10) };
}

const STEPS_MS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 10e3, 15e3, 30e3, 60e3, 120e3, 300e3, 600e3, 900e3,
  1.8e6, 3.6e6, 7.2e6, 14.4e6, 21.6e6, 43.2e6, 86.4e6, 172.8e6, 604.8e6, 1.2096e9, 2.592e9,
];

/** Returns round ticks for an axis of `span` milliseconds, at most seven. */
export function axis(span: number): { ticks: number[] } {
  const step = STEPS_MS.find((each) => span / each <= 6) ?? span / 4;
  const ticks: number[] = [];
  for (let at = 0; at <= span * 0.96; at += step) ticks.push(at);
  return { ticks };
}
