/** The graph of a workflow: its steps and their dependencies. */

import type { RunStep, Section, StepKind, StepSpec, WorkflowSpec } from "../../api/schema";

export const SECTIONS = ["steps", "on_failure", "finally"] as const satisfies readonly Section[];

export interface DagNode {
  name: string;
  section: Section;
  kind: StepKind;
  /** Upstream steps in its section: those that it depends on, and those whose tasks add elements to it. */
  needs: readonly string[];
  /** Upstream steps that it does not wait for: their tasks add its elements while it runs. */
  addedBy: readonly string[];
  /** Whether it runs once per element of a list (task mapping). */
  isMap: boolean;
  /** Whether it has a condition (`when`). */
  isConditional: boolean;
}

/** Returns the graph of a possibly incomplete spec; invalid parts are ignored. */
export function dagFromSpec(spec: Partial<WorkflowSpec> | null | undefined): DagNode[] {
  return normalize(
    SECTIONS.flatMap((section) => {
      const steps: unknown = spec?.[section];
      if (!Array.isArray(steps)) return [];
      return (steps as Array<Partial<StepSpec> | null>).flatMap((step) => {
        if (typeof step?.name !== "string" || step.name === "") return [];
        const needs = stringsIn(step.needs);
        const isMap = Boolean(step.for_each);
        return [
          {
            ...{ name: step.name, section, kind: stepKindOf(step), needs, addedBy: addedByOf(step) },
            ...{ isMap, isConditional: !!step.when },
          },
        ];
      });
    }),
  );
}

export function dagFromRunSteps(steps: readonly RunStep[], spec?: WorkflowSpec | null): DagNode[] {
  const specs = new Map(
    SECTIONS.flatMap((section) => spec?.[section] ?? []).map((step) => [step.name, step]),
  );
  return normalize(
    steps.map(({ name, section, kind, needs, for_each: isMap }) => ({
      ...{ name, section, kind, needs: needs ?? [], addedBy: addedByOf(specs.get(name)), isMap },
      isConditional: !!specs.get(name)?.when,
    })),
  );
}

/** Returns the valid names in the `added_by` of a step. */
export function addedByOf(step: Partial<StepSpec> | undefined): string[] {
  const over = step?.for_each?.over as { added_by?: unknown } | null | undefined;
  return stringsIn(over?.added_by);
}

function stringsIn(list: unknown): string[] {
  return Array.isArray(list) ? list.filter((each) => typeof each === "string") : [];
}

export function stepKindOf(step: Partial<StepSpec>): StepKind {
  if (step.workflow) return "workflow";
  if (step.approval) return "approval";
  return step.wait ? "wait" : "job";
}

/** Removes duplicate names, and dependencies other than steps of the same section. */
function normalize(nodes: DagNode[]): DagNode[] {
  const sections = new Map<string, Section>();
  const unique = nodes.filter(({ name, section }) => {
    if (sections.has(name)) return false;
    sections.set(name, section);
    return true;
  });
  return unique.map((node) => {
    const isUpstream = (other: string) => other !== node.name && sections.get(other) === node.section;
    const needs = new Set(node.needs.filter(isUpstream));
    const addedBy = new Set(node.addedBy.filter((step) => isUpstream(step) && !needs.has(step)));
    return { ...node, needs: [...needs, ...addedBy], addedBy: [...addedBy] };
  });
}

/** Returns a key of everything that the layout depends on: graphs with the same key share a layout. */
export function layoutKeyOf(nodes: readonly DagNode[]): string {
  return JSON.stringify(nodes.map(({ name, section, needs }) => [name, section, needs]));
}

/** Returns a step with all its direct and transitive upstream and downstream steps. */
export function relatedSteps(nodes: readonly DagNode[], name: string): ReadonlySet<string> {
  const needs = new Map(nodes.map((node) => [node.name, node.needs]));
  const neededBy = new Map<string, string[]>();
  for (const node of nodes) {
    for (const need of node.needs) neededBy.set(need, [...(neededBy.get(need) ?? []), node.name]);
  }
  const related = new Set([name]);
  for (const next of [needs, neededBy] as Array<Map<string, readonly string[]>>) {
    const open = [name];
    const seen = new Set(open);
    for (let at = open.pop(); at !== undefined; at = open.pop()) {
      for (const other of next.get(at) ?? []) {
        if (seen.has(other)) continue;
        seen.add(other);
        open.push(other);
      }
    }
    for (const each of seen) related.add(each);
  }
  return related;
}
