import { expect, test } from "vitest";

import type { FailureGroup, Queue, Schedule, Service, Worker, WorkflowRun } from "../../api/schema";
import { attentionItems } from "./attention";

const NOW = Date.parse("2026-11-21T12:00:00Z");
const worker = (over: Partial<Worker>) =>
  ({ name: "w", status: "ready", admission: "open", ...over }) as Worker;
const queue = (over: Partial<Queue>) => ({
  name: "q",
  settings: {},
  waiting: 0,
  running: 0,
  version: 0,
  ...over,
});
const group = (id: string, last_24h: number, over: Partial<FailureGroup> = {}) =>
  ({ id, last_24h, state: "open", ...over }) as FailureGroup;
const all = <T>(...items: T[]) => ({ items });
const calm = {
  ready: { status: "ready" },
  workers: [worker({})],
  alerts: { firing: 0, critical: 0 },
  queues: [queue({})],
  failures: [],
  failedRuns: all<WorkflowRun>(),
  approvals: [],
  services: [],
  degradedSince: new Map<string, number>(),
  schedules: [],
  now: NOW,
};

test("a healthy cluster has no items", () => {
  expect(attentionItems(calm)).toEqual([]);
});

test("lost workers, failure groups, and stuck and paused queues are listed, the most severe first", () => {
  const items = attentionItems({
    ...calm,
    workers: [worker({ admission: "draining" }), worker({ name: "x", status: "lost" })],
    queues: [
      queue({ oldest_waiting_since: "2026-11-21T11:58:00Z", waiting: 3 }),
      queue({ name: "p", settings: { paused: true } }),
      queue({ name: "fine", oldest_waiting_since: "2026-11-21T11:59:50Z" }),
    ],
    failures: [group("b", 1_000_000), group("back", 3, { reopened: true }), group("a", 1)],
  });
  expect(
    items.map((need) =>
      "group" in need ? `${need.kind} ${need.group.id} ${need.group.last_24h}` : need.kind,
    ),
  ).toEqual([
    "workerLost",
    "stuck",
    "paused",
    "workerUnschedulable",
    "failures b 1000000",
    "reopened back 3",
    "failures a 1",
  ]);
});

test("failed runs come before failure groups, and a group whose failures are a day old is not listed", () => {
  const at = "2026-11-21T11:00:00Z";
  const run = { workflow: "etl", status: "failed", finished_at: at, updated_at: at } as WorkflowRun;
  const failures = [group("a", 5), group("old", 0)];
  const items = attentionItems({ ...calm, failures, failedRuns: all(run) });
  expect(items.map(({ kind }) => kind)).toEqual(["runFailed", "failures"]);
});

test("firing alerts are one item, with the number of critical ones", () => {
  const alerts = { firing: 3, critical: 1 };
  expect(attentionItems({ ...calm, alerts })).toEqual([{ kind: "alerts", ...alerts }]);
  expect(attentionItems({ ...calm, alerts: undefined })).toEqual([]);
});

test("missing workers are an item, workers that are not loaded yet are not", () => {
  expect(attentionItems({ ...calm, workers: [] }).map((need) => need.kind)).toEqual(["noWorkers"]);
  expect(attentionItems({ ...calm, workers: undefined })).toEqual([]);
});

test("late and stuck runs are listed by schedule, and so are automatically paused schedules", () => {
  const run = { job_id: "j", scheduled_for: "", expected_by: "2026-11-21T11:00:00Z" };
  const health = { open_runs: 2, late_runs: [run], stuck_runs: [run, run] };
  const paused = (by: string) => ({ name: by, pause: { by, at: "" } }) as Schedule;
  const schedules = [{ name: "s", health } as unknown as Schedule, paused("ann"), paused("belfry")];
  const items = attentionItems({ ...calm, schedules }).map((need) =>
    "count" in need ? [need.kind, need.count] : need.kind,
  );
  expect(items).toEqual([["stuckRun", 2], ["late", 1], "autoPaused"]);
});

test("failed runs are counted by workflow; jobs of their steps and called runs are not listed", () => {
  const run = (workflow: string, finished_at: string, over: Partial<WorkflowRun> = {}) =>
    ({ workflow, status: "failed", finished_at, updated_at: finished_at, ...over }) as WorkflowRun;
  const asks = { run: run("release", ""), step: "approve", since: "2026-11-21T11:00:00Z" };
  const items = attentionItems({
    ...calm,
    approvals: [asks],
    failedRuns: all(
      run("etl", "2026-11-21T11:00:00Z"),
      run("etl", "2026-11-21T10:00:00Z"),
      run("inner", "2026-11-21T10:00:00Z", { caller: { run: "r", step: 0 } }),
      run("old", "2026-11-19T10:00:00Z"),
    ),
  });
  const listed = items.map((need) => (need.kind === "runFailed" ? `${need.name} ${need.count}` : need.kind));
  expect(listed).toEqual(["approval", "etl 2"]);
});

test("paused queues, approvals and cordoned workers come before any number of failures", () => {
  const items = attentionItems({
    ...calm,
    workers: [worker({ admission: "cordoned" })],
    queues: [queue({ name: "gpu", settings: { paused: true }, waiting: 316 })],
    approvals: [{ run: {} as WorkflowRun, step: "gate", since: "" }],
    failures: Array.from({ length: 20 }, (_, i) => group(`g${i}`, 1_000_000 - i)),
  });
  const kinds = items.slice(0, 4).map(({ kind }) => kind);
  expect(kinds).toEqual(["paused", "approval", "workerUnschedulable", "failures"]);
  expect(items).toHaveLength(23);
});

test("a truncated sample of runs gives a minimum, a complete one the exact number", () => {
  const run = (workflow: string, finished_at: string) =>
    ({ workflow, status: "failed", finished_at, updated_at: finished_at }) as WorkflowRun;
  const counted = (oldest: string, next_cursor: string | null) =>
    attentionItems({
      ...calm,
      failedRuns: { items: [run("a", "2026-11-21T11:00:00Z"), run("b", oldest)], next_cursor },
    }).map((need) => "atLeast" in need && need.atLeast);
  expect(counted("2026-11-21T10:00:00Z", "more")).toEqual([true, true]);
  expect(counted("2026-11-21T10:00:00Z", null)).toEqual([false, false]);
  // A run after the sample was created earlier, but may have failed later.
  expect(counted("2026-11-20T10:00:00Z", "more")).toEqual([true]);
});

test("services are listed after approvals: degraded for some time, with failed rollouts, or waiting for a promotion", () => {
  const at = "2026-11-21T11:00:00Z";
  const service = (id: string, available: number, rollout: Partial<Service["rollout"]> = {}) =>
    ({
      id,
      replicas: 2,
      counts: { available },
      rollout: { revision: 2, status: "completed", started_at: at, progressed_at: at, ...rollout },
    }) as Service;
  const services = [
    service("down", 0),
    service("some", 1),
    service("just-now", 1),
    service("fine", 2),
    service("failed", 2, { status: "failed", ended_at: at, reason: "no further replica" }),
    service("canary", 2, { status: "awaiting_promotion" }),
    service("back", 2, { ended_at: at, reason: "revision 1 failed: no further replica" }),
    service("long-ago", 2, { ended_at: "2026-11-20T11:00:00Z", reason: "revision 1 failed" }),
    { ...service("deleting", 0), deleting: true },
  ];
  const degradedSince = new Map([
    ["down", NOW - 60_000],
    ["some", NOW - 600_000],
    ["just-now", NOW - 59_000],
  ]);
  const run = { id: "run_1" } as WorkflowRun;
  const items = attentionItems({
    ...calm,
    approvals: [{ run, step: "sign-off", since: at }],
    queues: [queue({ name: "p", settings: { paused: true }, waiting: 1 })],
    schedules: [{ pause: { by: "belfry" } } as Schedule],
    services,
    degradedSince,
  });
  expect(items.map((item) => ("service" in item ? `${item.kind} ${item.service.id}` : item.kind))).toEqual([
    "paused",
    "approval",
    "serviceDown down",
    "serviceDegraded some",
    "rolloutFailed failed",
    "promotion canary",
    "rolledBack back",
    "autoPaused",
  ]);
});
