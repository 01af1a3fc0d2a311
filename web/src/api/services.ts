/** Requests for services, their replicas, revisions and endpoints. */

import { infiniteQueryOptions, keepPreviousData, queryOptions } from "@tanstack/react-query";

import { fieldsOf } from "../lib/runtimes";
import { unwrap, api } from "./client";
import { ENDPOINTS, queryClient, REPLICAS, REVISIONS, SERVICE_KEYS } from "./queries";
import type { AppliedService, JobSpec, Service, ServiceChanged, ServiceSpec } from "./schema";

export interface ServicesFilter {
  text?: string;
  owner?: string;
  namespace?: string;
  label?: string[];
}

const PAGE = 100;

export const servicesQuery = (filter: ServicesFilter) =>
  infiniteQueryOptions({
    queryKey: ["services", filter],
    queryFn: ({ pageParam: cursor }) =>
      unwrap(api.GET("/api/v1/services", { params: { query: { ...filter, limit: PAGE, cursor } } })),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next_cursor ?? undefined,
    placeholderData: keepPreviousData,
  });

/** Services that the overview looks at. */
const WATCHED_MAX = 200;

/** The newest services, for the overview. */
export const watchedServicesQuery = queryOptions({
  queryKey: ["watched-services"],
  queryFn: () => unwrap(api.GET("/api/v1/services", { params: { query: { limit: WATCHED_MAX } } })),
});

/** A few services whose name contains a text. */
export const suggestedServicesQuery = (text: string) =>
  queryOptions({
    queryKey: ["suggested-services", text],
    queryFn: () =>
      unwrap(api.GET("/api/v1/services", { params: { query: { text: text || undefined, limit: 20 } } })),
    placeholderData: keepPreviousData,
    staleTime: 10_000,
  });

/** Path and namespace of a service; the namespace is not needed with an id. */
const at = (name: string, namespace: string | undefined) => ({ path: { name }, query: { namespace } });

/** A service by id, or by name and namespace. */
export const serviceQuery = (name: string, namespace?: string) =>
  queryOptions({
    queryKey: ["service", name, namespace ?? null],
    queryFn: () => unwrap(api.GET("/api/v1/services/{name}", { params: at(name, namespace) })),
  });

/** The replicas of a service, by number. */
export const replicasQuery = (id: string) =>
  queryOptions({
    queryKey: [REPLICAS, id],
    queryFn: () => unwrap(api.GET("/api/v1/services/{name}/replicas", { params: at(id, undefined) })),
  });

/** The revisions of a service, newest first. */
export const revisionsQuery = (id: string) =>
  queryOptions({
    queryKey: [REVISIONS, id],
    queryFn: () => unwrap(api.GET("/api/v1/services/{name}/revisions", { params: at(id, undefined) })),
  });

/** The ports of the healthy replicas. */
export const endpointsQuery = (id: string) =>
  queryOptions({
    queryKey: [ENDPOINTS, id],
    queryFn: () => unwrap(api.GET("/api/v1/services/{name}/endpoints", { params: at(id, undefined) })),
  });

/** Number of jobs shown of a service. */
const JOBS_SHOWN = 50;

/** The newest jobs of a service: its replicas, and earlier ones. */
export const jobsOfServiceQuery = (service: string) =>
  queryOptions({
    queryKey: ["recent", "service", service],
    queryFn: () => unwrap(api.GET("/api/v1/jobs", { params: { query: { service, limit: JOBS_SHOWN } } })),
  });

/** Returns the spec with defaults, as the server would store it; stores nothing. */
async function resolveService(spec: ServiceSpec, signal?: AbortSignal): Promise<ServiceSpec> {
  const params = { path: { name: pathName(spec.name) }, query: { dry_run: true, namespace: spec.namespace } };
  // The OpenAPI document has one response type for both; a dry run returns the spec.
  return (await unwrap(api.PUT("/api/v1/services/{name}", { params, body: spec, signal }))) as ServiceSpec;
}

/**
 * Validates a spec on the server and returns what a save would change; stores nothing. Throws an ApiError if the spec is
 * invalid.
 */
export async function checkService(spec: ServiceSpec, signal?: AbortSignal): Promise<AppliedService | null> {
  await resolveService(spec, signal);
  const params = { query: { dry_run: true } };
  const body = { services: [spec] };
  const applied = await unwrap(api.POST("/api/v1/services/apply", { params, body, signal }));
  return applied.services[0] ?? null;
}

/** Creates a service (`version` null), or replaces the spec of the service with this version. */
export async function saveService(spec: ServiceSpec, version: number | null): Promise<Service> {
  const header = version === null ? { "If-None-Match": "*" } : { "If-Match": `"${version}"` };
  const params = { path: { name: pathName(spec.name) }, query: { namespace: spec.namespace }, header };
  const saved = await unwrap(api.PUT("/api/v1/services/{name}", { params, body: spec }));
  await invalidate();
  return saved as Service;
}

/** Returns the server's defaults: the resolved spec of a minimal service with the same name, namespace and owner. */
export async function serviceDefaults({ name, namespace, owner }: ServiceSpec): Promise<ServiceSpec> {
  const job = { run: { process: { command: ["true"] } } } as JobSpec;
  const defaults = await resolveService({ name, namespace, owner, job });
  const run = { process: { ...fieldsOf(defaults.job, "process"), command: undefined } } as JobSpec["run"];
  // Values from the request are no defaults.
  return { ...defaults, namespace: "default", owner: null, job: { ...defaults.job, run } };
}

/**
 * Returns the name for the path, `-` if it is missing or invalid: the server's error message is better than one of
 * ours.
 */
function pathName(name: unknown): string {
  return typeof name === "string" && name !== "" ? name : "-";
}

export async function scaleService(id: string, replicas: number): Promise<void> {
  await act(api.POST("/api/v1/services/{name}/scale", { params: at(id, undefined), body: { replicas } }));
}

export async function restartService(id: string): Promise<void> {
  await act(api.POST("/api/v1/services/{name}/restart", { params: at(id, undefined) }));
}

/** Returns to a revision; by default to the last one that was rolled out completely, before the current one. */
export async function rollbackService(id: string, revision: number | null): Promise<void> {
  const body = revision === null ? {} : { revision };
  await act(api.POST("/api/v1/services/{name}/rollback", { params: at(id, undefined), body }));
}

export async function pauseRollout(id: string): Promise<void> {
  await act(api.POST("/api/v1/services/{name}/pause", { params: at(id, undefined) }));
}

export async function resumeRollout(id: string): Promise<void> {
  await act(api.POST("/api/v1/services/{name}/resume", { params: at(id, undefined) }));
}

export async function promoteRollout(id: string): Promise<void> {
  await act(api.POST("/api/v1/services/{name}/promote", { params: at(id, undefined) }));
}

/** Stops the replicas of a service, and deletes it when they have ended. */
export async function deleteService(id: string): Promise<void> {
  await unwrap(api.DELETE("/api/v1/services/{name}", { params: at(id, undefined) }));
  await invalidate();
}

async function act(request: Parameters<typeof unwrap<ServiceChanged>>[0]): Promise<void> {
  await unwrap(request);
  await invalidate();
}

async function invalidate(): Promise<void> {
  await Promise.all(SERVICE_KEYS.map((key) => queryClient.invalidateQueries({ queryKey: [key] })));
}
