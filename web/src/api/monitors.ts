/** Queries and changes of monitors. Their keys are below those of alerts: a ping can open or resolve an alert. */

import { keepPreviousData, queryOptions } from "@tanstack/react-query";

import { isAllNamespaces } from "../lib/namespaces";
import { ALERTS, invalidateAlerts, preconditions } from "./alerts";
import type { MonitorSpec, PingKind } from "./schema";
import { api, unwrap } from "./client";

const REFETCH_MS = 5_000;

export const monitorsQuery = (namespace?: string) =>
  queryOptions({
    queryKey: [ALERTS, "monitors", isAllNamespaces(namespace) ? undefined : namespace],
    queryFn: () => {
      const query = { namespace: isAllNamespaces(namespace) ? undefined : namespace };
      return unwrap(api.GET("/api/v1/monitors", { params: { query } }));
    },
    placeholderData: keepPreviousData,
    refetchInterval: REFETCH_MS,
  });

export const monitorQuery = (namespace: string, name: string) =>
  queryOptions({
    queryKey: [ALERTS, "monitor", namespace, name],
    queryFn: () => {
      const params = { path: { name }, query: { namespace } };
      return unwrap(api.GET("/api/v1/monitors/{name}", { params }));
    },
    refetchInterval: REFETCH_MS,
  });

/** Creates a monitor (`version` null), or replaces the monitor with this version. */
export async function saveMonitor(spec: MonitorSpec, version: number | null): Promise<void> {
  const params = { path: { name: spec.name }, query: { namespace: spec.namespace } };
  const headers = preconditions(version);
  await unwrap(api.PUT("/api/v1/monitors/{name}", { params, headers, body: spec }));
  invalidateAlerts();
}

export async function deleteMonitor(name: string, namespace: string): Promise<void> {
  const params = { path: { name }, query: { namespace } };
  await unwrap(api.DELETE("/api/v1/monitors/{name}", { params }));
  invalidateAlerts();
}

export async function pingMonitor(name: string, namespace: string, kind: PingKind): Promise<void> {
  const params = { path: { name }, query: { namespace } };
  await unwrap(api.POST("/api/v1/monitors/{name}/ping", { params, body: { kind } }));
  invalidateAlerts();
}
