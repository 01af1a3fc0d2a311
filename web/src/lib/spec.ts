/** Specs as text, and edits of that text by a form. */

import { Document, parseDocument, stringify } from "yaml";

import type { JobSpec, StepSpec, WorkflowSpec } from "../api/schema";

/** Formats a spec as YAML. */
export function toYaml(spec: object): string {
  return stringify(prune(spec), { lineWidth: 100 });
}

/** Removes empty members: nulls, and empty maps and lists. */
export function prune<T extends object>(spec: T): T {
  const entries = Object.entries(spec as Record<string, unknown>).filter(([, value]) => {
    if (value === null || value === undefined) return false;
    return typeof value !== "object" || Object.keys(value).length > 0;
  });
  return Object.fromEntries(entries) as unknown as T;
}

/**
 * Removes values equal to `defaults`, at any depth, so that a stored spec is as short as the original. `kept` names
 * top-level members that are never removed.
 */
export function omitDefaults<T extends object>(spec: T, defaults: object, kept: readonly string[] = []): T {
  const known = defaults as Record<string, unknown>;
  const entries = Object.entries(spec as Record<string, unknown>).flatMap(([key, value]) => {
    if (kept.includes(key)) return [[key, value]];
    if (value === null || JSON.stringify(value) === JSON.stringify(known[key])) return [];
    if (!isMap(value)) return [[key, value]];
    const rest = omitDefaults(value, isMap(known[key]) ? known[key] : {});
    return Object.keys(rest).length > 0 || Object.keys(value).length === 0 ? [[key, rest]] : [];
  });
  return Object.fromEntries(entries) as T;
}

/**
 * Removes defaults from a workflow. `defaults` is the resolved spec of a workflow with a single job step. Values that
 * jobs inherit from the workflow are removed too.
 */
export function omitWorkflowDefaults(spec: WorkflowSpec, defaults: WorkflowSpec): WorkflowSpec {
  const jobDefaults = defaults.steps[0]?.job ?? {};
  const steps = (of: readonly StepSpec[] | undefined) =>
    of?.map(({ job, ...step }) => {
      const name = `${spec.name}.${step.name}`;
      const action = job ? { job: omitDefaults(job, { ...jobDefaults, name }, ["run"]) } : {};
      return prune({ ...step, ...action });
    });
  const { steps: main, on_failure: onFailure, finally: last, ...rest } = spec;
  const top = omitDefaults(rest as WorkflowSpec, { ...defaults, name: "" }, ["name"]);
  return prune({ ...top, steps: steps(main) ?? [], on_failure: steps(onFailure), finally: steps(last) });
}

function isMap(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * Returns a spec for another submission at `now`: without the idempotency key, the run time, the upstream jobs and a
 * completion deadline that has passed.
 */
export function forResubmission(spec: JobSpec, now = Date.now()): JobSpec {
  const { finish_by: finishBy } = spec;
  const hasPassed = finishBy?.at != null && Date.parse(finishBy.at) <= now;
  const left = hasPassed ? undefined : finishBy;
  return prune({ ...spec, idempotency_key: undefined, run_at: undefined, after: undefined, finish_by: left });
}

export interface Parsed<T> {
  spec: T | null;
  /** Syntax error and its position; null if the text is valid YAML or JSON. */
  error: { message: string; line: number; from: number; to: number } | null;
}

/** Error message for valid YAML that is not a map. */
export const NOT_A_MAP = "expected a map";

/** Parses a spec in YAML or JSON (a subset of YAML). */
export function parseSpec<T = JobSpec>(text: string): Parsed<T> {
  const document = parseDocument(text, { prettyErrors: true });
  const [error] = document.errors;
  if (error) {
    const line = error.linePos?.[0].line ?? 1;
    return {
      spec: null,
      error: { message: error.message.split("\n")[0] ?? "", line, from: error.pos[0], to: error.pos[1] },
    };
  }
  const spec: unknown = document.toJS({ maxAliasCount: 0 });
  if (typeof spec !== "object" || spec === null || Array.isArray(spec)) {
    return { spec: null, error: { message: NOT_A_MAP, line: 1, from: 0, to: text.length } };
  }
  return { spec: spec as T, error: null };
}

/**
 * Sets one member in the text, or removes it if `value` is undefined. The rest of the text stays unchanged, including
 * comments. Parents that become empty are removed.
 */
export function setMember(text: string, path: readonly string[], value: unknown): string {
  const document = text.trim() === "" ? new Document({}) : parseDocument(text);
  if (document.errors.length > 0) return text;
  if (value === undefined) {
    document.deleteIn(path);
    for (let up = path.slice(0, -1); up.length > 0; up = up.slice(0, -1)) {
      const parent: unknown = document.toJS();
      const at = up.reduce<unknown>(
        (node, key) => (node as Record<string, unknown> | undefined)?.[key],
        parent,
      );
      if (typeof at !== "object" || at === null || Object.keys(at).length > 0) break;
      document.deleteIn(up);
    }
  } else {
    removeNullParent(document, path);
    // A plain value is set in the existing node, which keeps its comment and its style.
    document.setIn(path, typeof value === "object" ? document.createNode(value) : value);
  }
  return document.toString({ lineWidth: 100 });
}

/** Removes the first parent that is null, as in `http:` without members: a member can be set only in a map. */
function removeNullParent(document: Document, path: readonly string[]): void {
  const parents = path.slice(0, -1).map((_, i) => path.slice(0, i + 1));
  const empty = parents.find((parent) => document.getIn(parent) === null);
  if (empty) document.deleteIn(empty);
}

/** Returns the range of a path's value (`run.process.env.FOO`) in a text; of the nearest parent if it is missing. */
export function rangeOf(text: string, path: string): [number, number] {
  const document = parseDocument(text);
  const keys = path
    .split(/[.[\]]+/)
    .filter(Boolean)
    .map((key) => (/^\d+$/.test(key) ? Number(key) : key));
  for (let depth = keys.length; depth > 0; depth -= 1) {
    const node = document.getIn(keys.slice(0, depth), true) as
      { range?: [number, number, number] } | undefined;
    if (node?.range) return [node.range[0], Math.max(node.range[1], node.range[0] + 1)];
  }
  return [0, text.split("\n")[0]?.length ?? 0];
}
