/** Edits of a workflow definition by the form: all members that one change affects. */

import type { ForEach, Section, StepKind, StepSpec, WorkflowSpec } from "../api/schema";
import { addedByOf, SECTIONS } from "./dag/graph";

/** Sets one member of the definition, or removes it if `value` is undefined. */
export interface Change {
  path: string[];
  value: unknown;
}

/** Returns the steps of a section of a possibly incomplete spec. */
export function stepsOf(spec: Partial<WorkflowSpec>, section: Section): StepSpec[] {
  const steps: unknown = spec[section];
  return Array.isArray(steps)
    ? (steps as Array<StepSpec | null>).map((step) => step ?? ({} as StepSpec))
    : [];
}

/** Returns an unused step name. */
export function unusedName(spec: Partial<WorkflowSpec>, begin = "step"): string {
  const taken = new Set(SECTIONS.flatMap((section) => stepsOf(spec, section).map(({ name }) => name)));
  let number = taken.size + 1;
  while (taken.has(`${begin}-${number}`)) number += 1;
  return `${begin}-${number}`;
}

/** Adds a step at the end of a section; it depends on the last step. */
export function addStep(spec: Partial<WorkflowSpec>, section: Section): Change[] {
  const steps = stepsOf(spec, section);
  const last = steps.at(-1)?.name;
  const step = { name: unusedName(spec), ...(last && { needs: [last] }), job: defaultAction("job").job };
  if (steps.length === 0) return [{ path: [section], value: [step] }];
  return [{ path: [section, String(steps.length)], value: step }];
}

/** Removes a step. Its downstream steps depend on its upstream steps instead, and it is removed from `added_by`. */
export function removeStep(spec: Partial<WorkflowSpec>, section: Section, index: number): Change[] {
  const steps = stepsOf(spec, section);
  const removed = steps[index];
  if (!removed) return [];
  const changes = steps.flatMap((step, i): Change[] => {
    if (i === index || !step.needs?.includes(removed.name)) return [];
    const needs = step.needs.flatMap((need) => (need === removed.name ? (removed.needs ?? []) : [need]));
    return [
      { path: [section, String(i), "needs"], value: needs.length > 0 ? [...new Set(needs)] : undefined },
    ];
  });
  changes.push(...replaceInAddedBy(section, steps, removed.name, []));
  return [...changes, { path: [section, String(index)], value: undefined }];
}

/** Renames a step, also in dependencies. Expressions are not changed. */
export function renameStep(
  spec: Partial<WorkflowSpec>,
  section: Section,
  index: number,
  name: string,
): Change[] {
  const steps = stepsOf(spec, section);
  const before = steps[index]?.name;
  const changes = steps.flatMap((step, i): Change[] => {
    if (before === undefined || !step.needs?.includes(before)) return [];
    const needs = step.needs.map((need) => (need === before ? name : need));
    return [{ path: [section, String(i), "needs"], value: needs }];
  });
  if (before !== undefined) changes.push(...replaceInAddedBy(section, steps, before, [name]));
  return [{ path: [section, String(index), "name"], value: name }, ...changes];
}

/** Replaces a name by others in `added_by` of all steps. */
function replaceInAddedBy(section: Section, steps: StepSpec[], name: string, names: string[]): Change[] {
  return steps.flatMap((step, i): Change[] => {
    const addedBy = addedByOf(step);
    if (!addedBy.includes(name)) return [];
    const value = addedBy.flatMap((each) => (each === name ? names : [each]));
    return [{ path: [section, String(i), "for_each", "over", "added_by"], value }];
  });
}

/** Returns the initial action of a step of each kind. */
function defaultAction(kind: StepKind): Partial<StepSpec> & { job?: unknown } {
  switch (kind) {
    case "job":
      return { job: { run: { process: { command: ["echo", "hello"] } } } };
    case "workflow":
      return { workflow: { name: "" } };
    case "approval":
      return { approval: {} };
    case "wait":
      return { wait: { for: "10m" } };
  }
}

/** Changes the kind of a step. */
export function changeStepKind(section: Section, index: number, kind: StepKind): Change[] {
  const at = [section, String(index)];
  const others = (["job", "workflow", "approval", "wait"] as const).filter((each) => each !== kind);
  return [
    // Set the new action first: a step without members would be removed.
    { path: [...at, kind], value: defaultAction(kind)[kind] },
    ...others.map((other) => ({ path: [...at, other], value: undefined })),
    ...(kind === "approval" || kind === "wait" ? ["for_each", "outputs"] : []).map((field) => ({
      path: [...at, field],
      value: undefined,
    })),
  ];
}

export const LIST_KINDS = ["none", "items", "list", "shards", "workers", "added_by"] as const;
export type ListKind = (typeof LIST_KINDS)[number];

/** Returns the list of a mapped step: its kind, and its text in a field. */
export function toListField(each: ForEach | null | undefined): { kind: ListKind; text: string } {
  const over = each?.over as Record<string, unknown> | undefined;
  if (!over) return { kind: "none", text: "" };
  if (Array.isArray(over.items)) {
    const texts = over.items.map((item) => (typeof item === "string" ? item : JSON.stringify(item)));
    return { kind: "items", text: texts.join("\n") };
  }
  if ("list" in over) return { kind: "list", text: String(over.list) };
  if (Array.isArray(over.added_by)) return { kind: "added_by", text: over.added_by.join(", ") };
  if ("shards" in over) return { kind: "shards", text: String(over.shards) };
  return { kind: "workers", text: "" };
}

/** Parses the text of a list field into `over`. Each non-empty line is an item. */
export function parseListField(kind: ListKind, text: string): ForEach["over"] | undefined {
  switch (kind) {
    case "none":
      return undefined;
    case "items":
      return { items: text.split("\n").filter((line) => line !== "") };
    case "list":
      return { list: text };
    case "shards":
      return { shards: Number(text) || 1 };
    case "added_by":
      return { added_by: namesIn(text) };
    case "workers":
      return { workers: [] };
  }
}

/** Parses comma-separated step names. */
export function namesIn(text: string): string[] {
  return text
    .split(",")
    .map((name) => name.trim())
    .filter((name) => name !== "");
}
