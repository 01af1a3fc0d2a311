/** What created jobs: schedules, and steps of workflows. */

import type { Job } from "../api/schema";

export interface StepSource {
  workflow: string;
  step: string;
  /** Newest run among the jobs. */
  run: string;
}

export interface Sources {
  /** Ids of schedules, newest job first. */
  schedules: readonly string[];
  steps: readonly StepSource[];
}

/** Returns the distinct sources of `jobs`, in their order. */
export function sourcesOf(jobs: readonly Job[]): Sources {
  const steps = new Map<string, StepSource>();
  for (const { step } of jobs) {
    if (!step) continue;
    const key = `${step.workflow}\n${step.name}`;
    if (!steps.has(key)) steps.set(key, { workflow: step.workflow, step: step.name, run: step.run });
  }
  const schedules = new Set(jobs.flatMap(({ origin }) => origin?.schedule ?? []));
  return { schedules: [...schedules], steps: [...steps.values()] };
}
