/** Specs of jobs as text, and what a form changes in them. */

import { Document, parseDocument, stringify } from "yaml";

import type { JobSpec, StepSpec, WorkflowSpec } from "../api/schema";

/** A spec as a file. */
export function toYaml(spec: object): string {
  return stringify(prune(spec), { lineWidth: 100 });
}

/** Without members that say nothing: empty maps and lists, and nulls. */
export function prune<T extends object>(spec: T): T {
  const entries = Object.entries(spec as Record<string, unknown>).filter(([, value]) => {
    if (value === null || value === undefined) return false;
    return typeof value !== "object" || Object.keys(value).length > 0;
  });
  return Object.fromEntries(entries) as unknown as T;
}

/**
 * Without what `defaults` say as well, at any depth, so that a spec that was read back is as short as it
 * was written. `kept` names members of the top that stay whatever they are.
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
 * A workflow as somebody would write it. `defaults` is one with a single step that runs a job, as the server
 * gives it back; what each job took over from its workflow is left out too.
 */
export function omitWorkflowDefaults(spec: WorkflowSpec, defaults: WorkflowSpec): WorkflowSpec {
  const usual = defaults.steps[0]?.job ?? {};
  const steps = (of: readonly StepSpec[] | undefined) =>
    of?.map(({ job, ...step }) => {
      const name = `${spec.name}.${step.name}`;
      const action = job ? { job: omitDefaults(job, { ...usual, name }, ["run"]) } : {};
      return prune({ ...step, ...action });
    });
  const { steps: main, on_failure: onFailure, finally: last, ...rest } = spec;
  const top = omitDefaults(rest as WorkflowSpec, { ...defaults, name: "" }, ["name"]);
  return prune({ ...top, steps: steps(main) ?? [], on_failure: steps(onFailure), finally: steps(last) });
}

function isMap(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A spec to be submitted once more: what names that one submission is left out. */
export function forResubmission(spec: JobSpec): JobSpec {
  return prune({ ...spec, idempotency_key: undefined, run_at: undefined });
}

export interface Parsed<T> {
  spec: T | null;
  /** Why the text is no YAML or JSON, and where. */
  error: { message: string; line: number; from: number; to: number } | null;
}

/** The message for a text that is valid YAML, but no map. */
export const NOT_A_MAP = "expected a map";

/** The spec that a text in YAML (or JSON, which is YAML) says. */
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
 * The text with one member set, or taken out where `value` is undefined. Whatever else the text has
 * stays as it was written, comments too. Parents that become empty go.
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
    // A plain value goes into the node that is there, which keeps its comment and its style.
    document.setIn(path, typeof value === "object" ? document.createNode(value) : value);
  }
  return document.toString({ lineWidth: 100 });
}

/** Where the value of a path (`run.process.env.FOO`) stands in a text; the nearest parent if it is not there. */
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
