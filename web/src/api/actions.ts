/**
 * User actions on jobs, workers, servers, queues and namespaces. Each function throws an ApiError if the server refuses
 * the request.
 */

import { unwrap, api } from "./client";
import { queryClient } from "./queries";
import type { JobSpec, NamespaceSettings, QueueSettings } from "./schema";
import { randomId } from "../lib/randomId";

function invalidate(...keys: string[][]): void {
  for (const queryKey of keys) void queryClient.invalidateQueries({ queryKey });
}

export async function cancelJob(id: string, reason?: string): Promise<void> {
  const body = reason ? { reason } : {};
  await unwrap(api.POST("/api/v1/jobs/{id}/cancel", { params: { path: { id } }, body }));
  invalidate(["job", id], ["recent"]);
}

/** Submits the job's spec again as a new job. Returns the id of the new job. */
export async function retryJob(id: string): Promise<string> {
  const params = { path: { id }, header: { "Idempotency-Key": randomId() } };
  const created = await unwrap(api.POST("/api/v1/jobs/{id}/retry", { params }));
  return created.id;
}

export async function submitJob(spec: JobSpec, key: string): Promise<string> {
  const params = { header: { "Idempotency-Key": key } };
  const created = await unwrap(api.POST("/api/v1/jobs", { params, body: spec }));
  if ("id" in created) return created.id;
  throw new Error("the server returned several jobs for a single submission");
}

/** Validates a job spec on the server; stores nothing. Throws an ApiError if the spec is invalid. */
export async function checkSpec(spec: JobSpec, signal: AbortSignal): Promise<void> {
  const params = { query: { dry_run: true } };
  await unwrap(api.POST("/api/v1/jobs", { params, body: spec, signal }));
}

export type WorkerAction = "cordon" | "uncordon" | "drain";

export async function actOnWorker(id: string, action: WorkerAction): Promise<void> {
  const params = { params: { path: { id } } };
  if (action === "cordon") await unwrap(api.POST("/api/v1/workers/{id}/cordon", params));
  else if (action === "uncordon") await unwrap(api.POST("/api/v1/workers/{id}/uncordon", params));
  else await unwrap(api.POST("/api/v1/workers/{id}/drain", params));
  invalidate(["workers"]);
}

export async function deleteWorker(id: string): Promise<void> {
  await unwrap(api.DELETE("/api/v1/workers/{id}", { params: { path: { id } } }));
  invalidate(["workers"]);
}

/** Drains a server, or undrains it so that it can own shards again. */
export async function setServerDraining(id: string, draining: boolean): Promise<void> {
  const params = { params: { path: { id } } };
  if (draining) await unwrap(api.POST("/api/v1/servers/{id}/drain", params));
  else await unwrap(api.POST("/api/v1/servers/{id}/undrain", params));
  invalidate(["servers"]);
}

/** Removes a member of a Raft cluster whose server has ended for good. */
export async function removeClusterMember(id: string): Promise<void> {
  await unwrap(api.DELETE("/api/v1/cluster/members/{id}", { params: { path: { id } } }));
  invalidate(["clusterMembers"]);
}

export async function pauseQueue(name: string, note: string): Promise<void> {
  const body = note === "" ? {} : { note };
  await unwrap(api.POST("/api/v1/queues/{name}/pause", { params: { path: { name } }, body }));
  invalidate(["queues"]);
}

export async function resumeQueue(name: string): Promise<void> {
  await unwrap(api.POST("/api/v1/queues/{name}/resume", { params: { path: { name } } }));
  invalidate(["queues"]);
}

/**
 * Replaces a queue's settings. Fails if the settings have changed since `version`; 0 means that the queue must not
 * have settings yet.
 */
export async function saveQueueSettings(
  name: string,
  settings: QueueSettings,
  version: number,
): Promise<void> {
  const header = precondition(version);
  await unwrap(api.PUT("/api/v1/queues/{name}", { params: { path: { name }, header }, body: settings }));
  invalidate(["queues"]);
}

/** Returns the header of a change that is based on `version`; 0 means that there must be no settings yet. */
function precondition(version: number): { "If-None-Match": string } | { "If-Match": string } {
  return version === 0 ? { "If-None-Match": "*" } : { "If-Match": `"${version}"` };
}

/**
 * Replaces the settings of a namespace. Fails if they have changed since `version`; 0 means that the namespace must not
 * have settings yet.
 */
export async function saveNamespaceSettings(
  name: string,
  settings: NamespaceSettings,
  version: number,
): Promise<void> {
  const params = { path: { name }, header: precondition(version) };
  await unwrap(api.PUT("/api/v1/namespaces/{name}", { params, body: settings }));
  invalidate(["namespace-quotas"]);
}

/** Deletes the settings of a namespace; its jobs then have no limits. */
export async function deleteNamespaceSettings(name: string): Promise<void> {
  await unwrap(api.DELETE("/api/v1/namespaces/{name}", { params: { path: { name } } }));
  invalidate(["namespace-quotas"]);
}
