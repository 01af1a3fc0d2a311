/** State of services, of their rollouts, of their replicas and of their scaling. */

import type { TFunction } from "i18next";

import type {
  AppliedService,
  HealthCheck,
  Replica,
  Rollout,
  RolloutStatus,
  ScalingChange,
  Service,
  ServiceSpec,
} from "../api/schema";
import { formatUse } from "./usage";

/** How many of the desired replicas are available. */
export type Availability = "available" | "degraded" | "none" | "scaledToZero" | "deleting";

export function availabilityOf({
  replicas,
  counts,
  deleting,
}: Pick<Service, "replicas" | "counts" | "deleting">): Availability {
  if (deleting) return "deleting";
  if (replicas === 0) return "scaledToZero";
  if (counts.available >= replicas) return "available";
  return counts.available === 0 ? "none" : "degraded";
}

/** Status of a rollout; a paused one has its own. */
export type RolloutState = RolloutStatus | "paused";

export function rolloutStateOf({ status, paused }: Pick<Rollout, "status" | "paused">): RolloutState {
  return paused && isActive(status) ? "paused" : status;
}

function isActive(status: RolloutStatus): boolean {
  return status === "progressing" || status === "awaiting_promotion";
}

/** Changes of a rollout that the server accepts in its status. */
export function rolloutActions(rollout: Pick<Rollout, "status" | "paused">) {
  const { status, paused = false } = rollout;
  return {
    canPause: isActive(status) && !paused,
    canResume: (isActive(status) && paused) || status === "failed",
    canPromote: status === "awaiting_promotion",
  };
}

/** Returns whether an ended rollout undid a failed one automatically: only then it has a reason. */
export function isAutomaticRollback({ status, reason }: Pick<Rollout, "status" | "reason">): boolean {
  return Boolean(reason) && status !== "failed";
}

export type ReplicaState = "waiting" | "starting" | "healthy" | "unhealthy" | "restarting" | "stopping";

/**
 * Returns the state of a replica. Without health checks (`hasChecks`), an execution that has started is healthy; with
 * health checks, it is starting until its worker reports a result.
 */
export function replicaStateOf(
  replica: Pick<Replica, "status" | "stopping" | "started_at" | "health">,
  hasChecks: boolean,
): ReplicaState {
  const { status, stopping, started_at: startedAt, health } = replica;
  if (stopping) return "stopping";
  if (status === "retrying") return "restarting";
  if (status !== "running") return "waiting";
  if (health) return health.status;
  return startedAt && !hasChecks ? "healthy" : "starting";
}

/** Returns whether the replicas have health checks. */
export function hasHealthChecks(spec: ServiceSpec | null | undefined): boolean {
  const { startup, readiness, liveness } = spec?.job.health ?? {};
  return Boolean(startup ?? readiness ?? liveness);
}

/** Returns whether a replica is healthy but not yet for `min_healthy`, so that it may not be available. */
export function isSettling(
  replica: Pick<Replica, "started_at" | "health">,
  minHealthyMs: number,
  now: number,
): boolean {
  const since = replica.health?.since ?? replica.started_at;
  return since != null && now - Date.parse(since) < minHealthyMs;
}

/** Replicas that explain a degraded service, by state: the unhealthy ones first. */
export function troubledReplicas(
  replicas: readonly Replica[],
  hasChecks: boolean,
): Array<{ replica: Replica; state: ReplicaState }> {
  const order: readonly ReplicaState[] = ["unhealthy", "restarting", "waiting", "starting"];
  return replicas
    .map((replica) => ({ replica, state: replicaStateOf(replica, hasChecks) }))
    .filter(({ state }) => order.includes(state))
    .sort((a, b) => order.indexOf(a.state) - order.indexOf(b.state));
}

/** Kinds of a health check, and `none`. */
export const CHECK_KINDS = ["none", "http", "tcp", "grpc", "command"] as const;
export type CheckKind = (typeof CHECK_KINDS)[number];

export function checkKindOf(check: HealthCheck | null | undefined): CheckKind {
  if (!check || typeof check !== "object") return "none";
  return CHECK_KINDS.find((kind) => kind !== "none" && check[kind] != null) ?? "none";
}

/** Returns the address of an endpoint, `host:port`; null without a host. An IPv6 address is in brackets. */
export function endpointAddress(address: string | null | undefined, port: number): string | null {
  if (!address) return null;
  return address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
}

/** Time since which each service is degraded, by its id. */
export type DegradedSince = ReadonlyMap<string, number>;

/**
 * Returns since when services are degraded: the API does not say it. A service that is degraded when it is read for the
 * first time is degraded since its last known change at the latest.
 */
export function degradedSince(
  before: DegradedSince | null,
  services: readonly Service[],
  now: number,
): DegradedSince {
  const since = new Map<string, number>();
  for (const service of services) {
    const availability = availabilityOf(service);
    if (availability !== "degraded" && availability !== "none") continue;
    const { updated_at: updated, rollout } = service;
    const changed = [updated, rollout.progressed_at, rollout.ended_at].map((at) => (at ? Date.parse(at) : 0));
    since.set(service.id, before ? (before.get(service.id) ?? now) : Math.min(now, Math.max(...changed)));
  }
  return since;
}

/** Returns what determined a number of replicas, with the value of the metric: `CPU: 1.5 cores`. */
export function scalingCauseText(
  { cause, value }: Pick<ScalingChange, "cause" | "value">,
  t: TFunction,
): string {
  const name = t(`scalingCause.${cause}`);
  if (value == null) return name;
  const isMeasured = cause === "cpu" || cause === "memory";
  return `${name}${t("common.colon")}${isMeasured ? formatUse(cause, value, t) : value.toLocaleString()}`;
}

/** Returns a typed port of a check: a number, or the name of a port. */
export function toPort(text: string): number | string {
  const word = text.trim();
  return /^\d{1,5}$/.test(word) ? Number(word) : word;
}

/** Effect of saving a spec. */
export type SaveEffect = "creates" | "exists" | "newRevision" | "settings" | "nothing";

/** Returns what a save changes. `revision` is the current one of the service, null for a new service. */
export function saveEffect(
  { change, revision }: Pick<AppliedService, "change" | "revision">,
  current: number | null,
): SaveEffect {
  if (current === null) return change === "created" ? "creates" : "exists";
  if (change === "unchanged") return "nothing";
  return revision > current ? "newRevision" : "settings";
}

/**
 * Returns the spec to edit: the number of replicas is the current one, because a save would otherwise undo the last
 * scaling.
 */
export function editableSpec(spec: ServiceSpec, replicas: number): ServiceSpec {
  return spec.replicas == null || spec.per_worker || spec.scaling ? spec : { ...spec, replicas };
}
