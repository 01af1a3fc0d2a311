import { createInstance } from "i18next";
import { expect, test } from "vitest";

import type { Replica, Service, ServiceSpec } from "../api/schema";
import english from "../i18n/en.json";
import chinese from "../i18n/zh-CN.json";
import {
  availabilityOf,
  checkKindOf,
  degradedSince,
  editableSpec,
  endpointAddress,
  hasHealthChecks,
  isAutomaticRollback,
  isSettling,
  replicaStateOf,
  rolloutActions,
  rolloutStateOf,
  saveEffect,
  scalingCauseText,
  toPort,
  troubledReplicas,
} from "./services";

const AT = "2026-11-21T08:00:00Z";
const NOW = Date.parse(AT);

const service = (replicas: number, available: number, over: Partial<Service> = {}) =>
  ({
    id: "svc_1",
    replicas,
    counts: { live: replicas, running: replicas, available, updated: 0, updated_available: 0, stopping: 0 },
    updated_at: AT,
    rollout: { revision: 1, status: "completed", started_at: AT, progressed_at: AT },
    ...over,
  }) as Service;

const replica = (over: Partial<Replica>): Replica => ({
  replica: 0,
  job: "job_1",
  revision: 1,
  status: "running",
  stopping: false,
  restarts: 0,
  ...over,
});

test("the availability compares the available replicas with the desired ones", () => {
  expect(availabilityOf(service(3, 3))).toBe("available");
  // A surge during an update.
  expect(availabilityOf(service(3, 4))).toBe("available");
  expect(availabilityOf(service(3, 2))).toBe("degraded");
  expect(availabilityOf(service(3, 0))).toBe("none");
  expect(availabilityOf(service(0, 0))).toBe("scaledToZero");
  expect(availabilityOf(service(0, 1))).toBe("scaledToZero");
  expect(availabilityOf(service(3, 3, { deleting: true }))).toBe("deleting");
});

test("only an active rollout is paused, and each status allows its actions", () => {
  expect(rolloutStateOf({ status: "progressing" })).toBe("progressing");
  expect(rolloutStateOf({ status: "awaiting_promotion", paused: true })).toBe("paused");
  expect(rolloutStateOf({ status: "completed", paused: true })).toBe("completed");
  const allowed = (status: "progressing" | "awaiting_promotion" | "completed" | "failed", paused = false) =>
    Object.entries(rolloutActions({ status, paused }))
      .filter(([, can]) => can)
      .map(([action]) => action);
  expect(allowed("progressing")).toEqual(["canPause"]);
  expect(allowed("progressing", true)).toEqual(["canResume"]);
  expect(allowed("awaiting_promotion")).toEqual(["canPause", "canPromote"]);
  expect(allowed("awaiting_promotion", true)).toEqual(["canResume", "canPromote"]);
  expect(allowed("completed")).toEqual([]);
  expect(allowed("failed")).toEqual(["canResume"]);
  expect(allowed("failed", true)).toEqual(["canResume"]);
});

test("a rollout with a reason that has not failed undoes a failed one", () => {
  expect(isAutomaticRollback({ status: "completed", reason: "revision 2 failed: …" })).toBe(true);
  expect(isAutomaticRollback({ status: "failed", reason: "no further replica …" })).toBe(false);
  expect(isAutomaticRollback({ status: "completed", reason: null })).toBe(false);
});

test("the state of a replica follows from its job and its health", () => {
  expect(replicaStateOf(replica({ status: "waiting" }), false)).toBe("waiting");
  expect(replicaStateOf(replica({ status: "ready" }), false)).toBe("waiting");
  expect(replicaStateOf(replica({ status: "retrying", restarts: 2 }), false)).toBe("restarting");
  expect(replicaStateOf(replica({}), false), "assigned, not started").toBe("starting");
  expect(replicaStateOf(replica({ started_at: AT }), false)).toBe("healthy");
  expect(replicaStateOf(replica({ started_at: AT }), true), "no result yet").toBe("starting");
  for (const status of ["starting", "healthy", "unhealthy"] as const) {
    expect(replicaStateOf(replica({ started_at: AT, health: { status, since: AT } }), true)).toBe(status);
  }
  expect(replicaStateOf(replica({ started_at: AT, stopping: true }), false)).toBe("stopping");
});

test("replicas that are not healthy are listed, the unhealthy ones first", () => {
  const health = { status: "unhealthy", since: AT } as const;
  const replicas = [
    replica({ replica: 0, started_at: AT }),
    replica({ replica: 1, status: "waiting" }),
    replica({ replica: 2, started_at: AT, health }),
    replica({ replica: 3, stopping: true }),
    replica({ replica: 4, status: "retrying" }),
  ];
  expect(
    troubledReplicas(replicas, false).map(({ replica, state }) => `${replica.replica} ${state}`),
  ).toEqual(["2 unhealthy", "4 restarting", "1 waiting"]);
});

test("a replica settles until it has been healthy for long enough", () => {
  const health = { status: "healthy", since: AT } as const;
  expect(isSettling(replica({ health }), 10_000, NOW + 5_000)).toBe(true);
  expect(isSettling(replica({ health }), 10_000, NOW + 10_000)).toBe(false);
  expect(isSettling(replica({ started_at: AT }), 10_000, NOW + 5_000)).toBe(true);
  expect(isSettling(replica({}), 10_000, NOW)).toBe(false);
});

test("health checks are recognized", () => {
  const spec = (health?: object) => ({ name: "web", job: { health } }) as unknown as ServiceSpec;
  expect(hasHealthChecks(spec())).toBe(false);
  expect(hasHealthChecks(spec({ startup: null }))).toBe(false);
  expect(hasHealthChecks(spec({ liveness: { tcp: { port: "http" } } }))).toBe(true);
  expect(checkKindOf(undefined)).toBe("none");
  expect(checkKindOf({ tcp: { port: 80 } })).toBe("tcp");
  expect(checkKindOf({ http: { port: "http" }, tcp: null })).toBe("http");
});

test("a save creates a service or a revision, or changes only its settings", () => {
  expect(saveEffect({ change: "created", revision: 1 }, null)).toBe("creates");
  expect(saveEffect({ change: "changed", revision: 2 }, null)).toBe("exists");
  expect(saveEffect({ change: "unchanged", revision: 1 }, null)).toBe("exists");
  expect(saveEffect({ change: "changed", revision: 3 }, 2)).toBe("newRevision");
  expect(saveEffect({ change: "changed", revision: 2 }, 2)).toBe("settings");
  expect(saveEffect({ change: "unchanged", revision: 2 }, 2)).toBe("nothing");
});

test("an edit keeps the current number of replicas", () => {
  const spec = { name: "web", job: {} } as ServiceSpec;
  expect(editableSpec({ ...spec, replicas: 2 }, 3).replicas).toBe(3);
  expect(editableSpec(spec, 3).replicas).toBeUndefined();
});

test("the cause of a scaling has the value of its metric, with the unit of CPU and memory", async () => {
  const i18n = createInstance();
  const resources = { en: { translation: english }, "zh-CN": { translation: chinese } };
  await i18n.init({ lng: "en", resources, interpolation: { escapeValue: false } });
  const [en, zh] = [i18n.getFixedT("en"), i18n.getFixedT("zh-CN")];
  expect(scalingCauseText({ cause: "cpu", value: 4.5 }, en)).toBe("CPU: 4.5 cores");
  expect(scalingCauseText({ cause: "memory", value: 3 * 2 ** 30 }, zh)).toBe("内存：3 GiB");
  expect(scalingCauseText({ cause: "queue", value: 1_200 }, en)).toBe("queue: 1,200");
  expect(scalingCauseText({ cause: "minimum" }, en)).toBe("minimum");
});

test("a checked port is a number or a name", () => {
  expect(toPort("8080")).toBe(8080);
  expect(toPort(" http ")).toBe("http");
  expect(toPort("")).toBe("");
});

test("an address with colons is in brackets", () => {
  expect(endpointAddress("10.0.0.1", 80)).toBe("10.0.0.1:80");
  expect(endpointAddress("fd00::1", 80)).toBe("[fd00::1]:80");
  expect(endpointAddress(null, 80)).toBeNull();
});

test("the time of a degradation is that of the first read, or of the change that the page saw", () => {
  const degraded = service(3, 1);
  const first = degradedSince(null, [degraded, service(1, 1, { id: "svc_2" })], NOW + 60_000);
  expect([...first]).toEqual([["svc_1", NOW]]);
  expect([...degradedSince(first, [degraded], NOW + 90_000)]).toEqual([["svc_1", NOW]]);
  const later = degradedSince(first, [service(2, 0, { id: "svc_2" })], NOW + 90_000);
  expect([...later]).toEqual([["svc_2", NOW + 90_000]]);
  expect([...degradedSince(later, [service(2, 2, { id: "svc_2" })], NOW)]).toEqual([]);
});
