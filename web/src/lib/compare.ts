/** Comparison of two jobs, executions or runs. */

import type { JobSpec, RunStep } from "../api/schema";

/** A field with different values; null if a side lacks the field. */
export interface Difference {
  path: string;
  a: string | null;
  b: string | null;
}

/** Returns the fields with different values, by path such as `run.process.env.MODE`. */
export function differences(a: unknown, b: unknown): Difference[] {
  const [left, right] = [leaves(a), leaves(b)];
  return [...new Set([...left.keys(), ...right.keys()])]
    .map((path) => ({ path, a: left.get(path) ?? null, b: right.get(path) ?? null }))
    .filter(({ a, b }) => a !== b);
}

/** Returns the values by path. Lists are values: the items of a command have no names. */
function leaves(value: unknown, path = ""): Map<string, string> {
  if (value === null || value === undefined) return new Map();
  if (typeof value !== "object" || Array.isArray(value)) {
    return new Map([[path, typeof value === "string" ? value : JSON.stringify(value)]]);
  }
  const found = new Map<string, string>();
  for (const [key, inner] of Object.entries(value)) {
    for (const [at, text] of leaves(inner, path === "" ? key : `${path}.${key}`)) found.set(at, text);
  }
  return found;
}

/** Returns a spec without its idempotency key, which differs between any two jobs. */
export function comparedSpec(spec: JobSpec): JobSpec {
  return { ...spec, idempotency_key: null };
}

/** A step in one or both runs. */
export interface StepPair {
  name: string;
  a: RunStep | null;
  b: RunStep | null;
}

/** Returns the steps of both runs by name: in the order of the first run, then those of the second run alone. */
export function pairSteps(a: readonly RunStep[], b: readonly RunStep[]): StepPair[] {
  const [left, right] = [a, b].map((steps) => new Map(steps.map((step) => [step.name, step])));
  return [...new Set([...(left?.keys() ?? []), ...(right?.keys() ?? [])])].map((name) => ({
    name,
    a: left?.get(name) ?? null,
    b: right?.get(name) ?? null,
  }));
}

/** Returns the duration of a step in ms; null if it has not ended, or never started in this run. */
export function stepDuration(step: RunStep | null): number | null {
  if (!step?.started_at || !step.finished_at || step.cause === "carried_over") return null;
  return Math.max(0, Date.parse(step.finished_at) - Date.parse(step.started_at));
}

/** Returns the step whose logs are compared first: one that ended differently, else none. */
export function differingStep(pairs: readonly StepPair[]): string | undefined {
  const withLogs = pairs.filter(({ a, b }) => a?.job_id && b?.job_id);
  return withLogs.find(({ a, b }) => a?.status !== b?.status)?.name;
}

export interface CompareSearch {
  /** Ids of two jobs, which may be the same, or of two runs. */
  a?: string;
  b?: string;
  /** Numbers of the executions of the jobs; the newest ones by default. */
  execution_a?: string;
  execution_b?: string;
  /** Step of the runs whose logs are compared. */
  step?: string;
  /** `ignore`: lines that differ only in numbers are equal. */
  numbers?: string;
}
