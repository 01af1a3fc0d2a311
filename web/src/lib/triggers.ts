/** Triggers of a workflow: their sources, the ends that they wait for, and the runs that they started. */

import type { TFunction } from "i18next";

import type {
  Ended,
  JobStatus,
  RequiredResult,
  RunTrigger,
  TriggerSource,
  TriggerSpec,
  TriggerStatus,
  WorkflowSpec,
} from "../api/schema";

export type SourceKind = "job" | "workflow";

/** A source of a trigger, with defaults. */
export interface Source {
  kind: SourceKind;
  name: string;
  on: RequiredResult;
  labels: Record<string, string>;
  within: string | null;
  /** End of the source that waits for the ends of the other sources; null if there is none. */
  ended: Ended | null;
}

/** Returns the sources of a trigger, in order. A trigger has one source, or several in `all`. */
export function sourcesOf(trigger: TriggerSpec, status: TriggerStatus | undefined): Source[] {
  // The API names the waiting ends in the order of the sources.
  const waiting = [...(status?.waiting_events ?? [])];
  const sources: readonly TriggerSource[] = trigger.all?.length ? trigger.all : [trigger];
  return sources.map(({ job, workflow, on = "success", labels = {}, within = null }) => {
    const kind = job == null ? "workflow" : "job";
    const source = { kind, name: job ?? workflow ?? "", on, labels, within } as const;
    const index = waiting.findIndex((ended) => isEndOf(ended, source));
    return { ...source, ended: index < 0 ? null : (waiting.splice(index, 1)[0] ?? null) };
  });
}

/** Returns the number of sources that a trigger still waits for; 0 if it waits for none because none has ended. */
export function missingSources(sources: readonly Source[]): number {
  const missing = sources.filter(({ ended }) => !ended).length;
  return missing === sources.length ? 0 : missing;
}

function isEndOf(ended: Ended, { kind, name, on }: Pick<Source, "kind" | "name" | "on">): boolean {
  return kindOfEnd(ended) === kind && ended.name === name && includes(on, ended.status);
}

function includes(on: RequiredResult, status: JobStatus): boolean {
  if (on === "any") return true;
  return on === "success" ? status === "succeeded" : status === "failed" || status === "expired";
}

/** Returns whether a job or a run of a workflow ended. */
export function kindOfEnd({ run_id }: Pick<Ended, "run_id">): SourceKind {
  return run_id == null ? "job" : "workflow";
}

/** Returns the sources whose ends started a run, in one line. */
export function startedByText({ ended }: RunTrigger, t: TFunction): string {
  return ended
    .map((end) => t(`trigger.source.${kindOfEnd(end)}`, { name: end.name }))
    .join(t("common.listSeparator"));
}

/**
 * Returns whether the end of a job can change the status of a trigger without starting a run: the trigger keeps the
 * end until its other sources have ended.
 */
export function waitsForJobs(spec: WorkflowSpec | null | undefined): boolean {
  return (spec?.triggers ?? []).some(({ all }) => all?.some(({ job }) => job != null));
}
