/** Items that need attention, the most severe first. */

import type { FailureGroup, Queue, Ready, Schedule, Service, Worker, WorkflowRun } from "../../api/schema";
import { type DegradedSince, isAutomaticRollback } from "../../lib/services";

export type AttentionItem =
  | { kind: "server"; detail: string }
  | { kind: "workerLost"; worker: Worker }
  | { kind: "workerUnhealthy"; worker: Worker; problem: string }
  | { kind: "noWorkers" }
  | { kind: "alerts"; firing: number; critical: number }
  | { kind: "failures" | "reopened"; group: FailureGroup }
  | { kind: "runFailed"; name: string; count: number; atLeast: boolean; last: WorkflowRun }
  | { kind: "approval"; run: WorkflowRun; step: string; since: string }
  | { kind: "serviceDown" | "serviceDegraded"; service: Service; since: string }
  | { kind: "rolloutFailed" | "rolledBack" | "promotion"; service: Service; since: string }
  | { kind: "late"; schedule: Schedule; count: number; since: string }
  | { kind: "stuckRun"; schedule: Schedule; count: number; since: string }
  | { kind: "autoPaused"; schedule: Schedule }
  | { kind: "stuck"; queue: Queue; since: string }
  | { kind: "paused"; queue: Queue }
  | { kind: "workerUnschedulable"; worker: Worker };

/** Waiting time from which a queue is listed as stuck. */
export const STUCK_AFTER_MS = 60_000;
/** Time from which a service that is not fully available is listed. */
export const DEGRADED_AFTER_MS = 60_000;
/** Maximum age of listed failed runs, and of automatic rollbacks. */
export const RECENT_MS = 86_400_000;

export interface PendingApproval {
  run: WorkflowRun;
  step: string;
  since: string;
}

/** The newest rows of a list, and the cursor of further rows. */
export interface Sample<T> {
  items: readonly T[];
  next_cursor?: string | null;
}

/**
 * Returns whether a sample may lack rows of the last day. Lists are ordered by creation, but rows count by their end:
 * a row after the sample may have ended a moment ago.
 */
function isTruncated(sample: Sample<unknown> | undefined): boolean {
  return Boolean(sample?.next_cursor);
}

export interface AttentionInput {
  ready: Ready | undefined;
  workers: readonly Worker[] | undefined;
  /** Numbers of firing alerts. */
  alerts: { firing: number; critical: number } | undefined;
  queues: readonly Queue[] | undefined;
  /** Open failure groups of the last day, in the order in which they are listed. */
  failures: readonly FailureGroup[] | undefined;
  /** Newest failed workflow runs, newest first. */
  failedRuns: Sample<WorkflowRun> | undefined;
  /** Steps that wait for approval. */
  approvals: readonly PendingApproval[];
  services: readonly Service[] | undefined;
  /** Since when services are degraded, by their id. */
  degradedSince: DegradedSince;
  /** Schedules with active runs, with their health, and paused schedules. */
  schedules: readonly Schedule[] | undefined;
  now: number;
}

/** Actor of automatic pauses after repeated failures. */
const SYSTEM_ACTOR = "belfry";

export function attentionItems(seen: AttentionInput): AttentionItem[] {
  const { ready, workers, alerts, queues, failures, failedRuns, approvals, schedules, now } = seen;
  const items: AttentionItem[] = [];
  if (ready && ready.status !== "ready") {
    const wrong = ready.checks?.find((check) => !check.ok);
    items.push({ kind: "server", detail: wrong?.detail ?? ready.status });
  }
  if (workers?.length === 0) items.push({ kind: "noWorkers" });
  if (alerts && alerts.firing > 0) items.push({ kind: "alerts", ...alerts });
  for (const worker of workers ?? []) {
    if (worker.status === "lost") items.push({ kind: "workerLost", worker });
    else if (worker.health?.problem) {
      items.push({ kind: "workerUnhealthy", worker, problem: worker.health.problem });
    }
  }
  // Items that block work until a user acts come before failures.
  const paused = (queues ?? []).filter(({ settings }) => settings.paused);
  for (const queue of paused) if (queue.waiting > 0) items.push({ kind: "paused", queue });
  for (const approval of approvals) items.push({ kind: "approval", ...approval });
  for (const service of seen.services ?? []) items.push(...serviceItems(service, seen.degradedSince, now));
  for (const schedule of schedules ?? []) items.push(...scheduleItems(schedule));
  for (const queue of queues ?? []) {
    const since = queue.settings.paused ? null : queue.oldest_waiting_since;
    if (since && now - Date.parse(since) > STUCK_AFTER_MS) items.push({ kind: "stuck", queue, since });
  }
  // What a user paused or cordoned is easily forgotten, so no number of failures hides it.
  for (const queue of paused) if (queue.waiting === 0) items.push({ kind: "paused", queue });
  for (const worker of workers ?? []) {
    if (worker.status !== "lost" && worker.admission !== "open")
      items.push({ kind: "workerUnschedulable", worker });
  }
  if (failedRuns) items.push(...failedWorkflowItems(failedRuns, now));
  for (const group of failures ?? []) {
    // A day counts from the start of an hour, so the newest failure may be too old to count.
    if (group.last_24h > 0) items.push({ kind: group.reopened ? "reopened" : "failures", group });
  }
  return items;
}

/** Returns the items of a service: too few available replicas, a failed rollout, canaries that await a promotion. */
function serviceItems(service: Service, degraded: DegradedSince, now: number): AttentionItem[] {
  const { rollout, counts } = service;
  if (service.deleting) return [];
  const items: AttentionItem[] = [];
  const since = degraded.get(service.id);
  if (since !== undefined && now - since >= DEGRADED_AFTER_MS) {
    const kind = counts.available === 0 ? "serviceDown" : "serviceDegraded";
    items.push({ kind, service, since: new Date(since).toISOString() });
  }
  const at = rollout.ended_at ?? rollout.started_at;
  if (rollout.status === "failed") items.push({ kind: "rolloutFailed", service, since: at });
  else if (rollout.status === "awaiting_promotion") {
    items.push({ kind: "promotion", service, since: rollout.progressed_at });
  }
  if (isAutomaticRollback(rollout) && now - Date.parse(at) < RECENT_MS) {
    items.push({ kind: "rolledBack", service, since: at });
  }
  return items;
}

/** Returns the items of a schedule: stuck runs, late runs, an automatic pause. */
function scheduleItems(schedule: Schedule): AttentionItem[] {
  const { health, pause } = schedule;
  const items: AttentionItem[] = [];
  const [stuck] = health?.stuck_runs ?? [];
  const [late] = health?.late_runs ?? [];
  if (stuck) {
    const count = health?.stuck_runs.length ?? 0;
    items.push({ kind: "stuckRun", schedule, count, since: stuck.expected_by });
  }
  if (late)
    items.push({ kind: "late", schedule, count: health?.late_runs.length ?? 0, since: late.expected_by });
  if (pause?.by === SYSTEM_ACTOR) items.push({ kind: "autoPaused", schedule });
  return items;
}

/** Returns the workflows with failed runs of the last day. A retried run counts too. */
function failedWorkflowItems(sample: Sample<WorkflowRun>, now: number): AttentionItem[] {
  const atLeast = isTruncated(sample);
  const byName = new Map<string, WorkflowRun[]>();
  for (const run of sample.items) {
    if (run.caller || now - Date.parse(run.finished_at ?? run.updated_at) >= RECENT_MS) continue;
    byName.set(run.workflow, [...(byName.get(run.workflow) ?? []), run]);
  }
  return [...byName].flatMap(([name, of]) => {
    const [last] = of;
    return last ? [{ kind: "runFailed" as const, name, count: of.length, atLeast, last }] : [];
  });
}
