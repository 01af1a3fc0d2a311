/**
 * Requests for alerts, their rules, channels, silences and notifications. There are no events for them, so they are
 * polled.
 */

import { keepPreviousData, queryOptions } from "@tanstack/react-query";

import {
  type AlertsSearch,
  isOpen,
  type NotificationsSearch,
  toAlertsQuery,
  toNotificationsQuery,
} from "../lib/alerts";
import { isAllNamespaces } from "../lib/namespaces";
import type { Alert, AlertRuleSpec, ChannelSpec, ChannelTest, NewSilence, Silence } from "./schema";
import { api, unwrap } from "./client";
import { queryClient } from "./queries";

export const ALERTS = "alerts";
const REFETCH_MS = 5_000;
/** Refetch intervals of the numbers in the navigation and in the title. */
const COUNTS_REFETCH_MS = 10_000;
const HIDDEN_REFETCH_MS = 60_000;

const ofNamespace = (namespace: string | undefined) => (isAllNamespaces(namespace) ? undefined : namespace);

async function countFiring(severity?: "critical"): Promise<number> {
  const query = { status: "firing", severity, limit: 1 };
  return (await unwrap(api.GET("/api/v1/alerts", { params: { query } }))).open;
}

/** Numbers of firing alerts in all namespaces. Also read while the tab is hidden: its title shows critical alerts. */
export const alertCountsQuery = queryOptions({
  queryKey: [ALERTS, "counts"],
  queryFn: async () => {
    const firing = await countFiring();
    return { firing, critical: firing > 0 ? await countFiring("critical") : 0 };
  },
  refetchInterval: () => (document.hidden ? HIDDEN_REFETCH_MS : COUNTS_REFETCH_MS),
  refetchIntervalInBackground: true,
  refetchOnWindowFocus: true,
});

/** Alerts of a filter, at most `limit`. */
export const alertsQuery = (search: AlertsSearch, limit: number) =>
  queryOptions({
    queryKey: [ALERTS, "list", search, limit],
    queryFn: () =>
      unwrap(api.GET("/api/v1/alerts", { params: { query: { ...toAlertsQuery(search), limit } } })),
    placeholderData: keepPreviousData,
    refetchInterval: REFETCH_MS,
  });

export const alertQuery = (id: number) =>
  queryOptions({
    queryKey: [ALERTS, "alert", id],
    queryFn: () => unwrap(api.GET("/api/v1/alerts/{id}", { params: { path: { id } } })),
    refetchInterval: ({ state }) => (state.data && !isOpen(state.data) ? false : REFETCH_MS),
  });

export const alertRulesQuery = (namespace?: string) =>
  queryOptions({
    queryKey: [ALERTS, "rules", ofNamespace(namespace)],
    queryFn: () => {
      const query = { namespace: ofNamespace(namespace) };
      return unwrap(api.GET("/api/v1/alert-rules", { params: { query } }));
    },
    placeholderData: keepPreviousData,
    refetchInterval: REFETCH_MS,
  });

export const channelsQuery = (namespace?: string) =>
  queryOptions({
    queryKey: [ALERTS, "channels", ofNamespace(namespace)],
    queryFn: () => {
      const query = { namespace: ofNamespace(namespace) };
      return unwrap(api.GET("/api/v1/channels", { params: { query } }));
    },
    placeholderData: keepPreviousData,
    refetchInterval: REFETCH_MS,
  });

export const silencesQuery = (namespace?: string) =>
  queryOptions({
    queryKey: [ALERTS, "silences", ofNamespace(namespace)],
    queryFn: () => {
      const query = { namespace: ofNamespace(namespace) };
      return unwrap(api.GET("/api/v1/silences", { params: { query } }));
    },
    placeholderData: keepPreviousData,
    refetchInterval: REFETCH_MS,
  });

/** Notifications of a filter, at most `limit`. */
export const notificationsQuery = (search: NotificationsSearch, limit: number) =>
  queryOptions({
    queryKey: [ALERTS, "notifications", search, limit],
    queryFn: () => {
      const query = { ...toNotificationsQuery(search), limit };
      return unwrap(api.GET("/api/v1/notifications", { params: { query } }));
    },
    placeholderData: keepPreviousData,
    refetchInterval: REFETCH_MS,
  });

export function invalidateAlerts(): void {
  void queryClient.invalidateQueries({ queryKey: [ALERTS] });
}

export type AlertAction = "acknowledge" | "resolve";

export async function actOnAlert({ id }: Alert, action: AlertAction, comment: string): Promise<void> {
  const request = { params: { path: { id } }, body: comment === "" ? {} : { comment } };
  const changed = await unwrap(
    action === "acknowledge"
      ? api.POST("/api/v1/alerts/{id}/acknowledge", request)
      : api.POST("/api/v1/alerts/{id}/resolve", request),
  );
  queryClient.setQueryData(alertQuery(id).queryKey, changed);
  invalidateAlerts();
}

/** Preconditions of a new object (`version` null), or of the change of an object with this version. */
export function preconditions(version: number | null): Record<string, string> {
  return version === null ? { "If-None-Match": "*" } : { "If-Match": `"${version}"` };
}

/** Creates a rule (`version` null), or replaces the rule with this version. */
export async function saveAlertRule(spec: AlertRuleSpec, version: number | null): Promise<void> {
  const params = { path: { name: spec.name }, query: { namespace: spec.namespace } };
  const headers = preconditions(version);
  await unwrap(api.PUT("/api/v1/alert-rules/{name}", { params, headers, body: spec }));
  invalidateAlerts();
}

export async function deleteAlertRule(name: string, namespace: string): Promise<void> {
  const params = { path: { name }, query: { namespace } };
  await unwrap(api.DELETE("/api/v1/alert-rules/{name}", { params }));
  invalidateAlerts();
}

/** Creates a channel (`version` null), or replaces the channel with this version. Hidden secrets stay as stored. */
export async function saveChannel(spec: ChannelSpec, version: number | null): Promise<void> {
  const params = { path: { name: spec.name }, query: { namespace: spec.namespace } };
  const headers = preconditions(version);
  await unwrap(api.PUT("/api/v1/channels/{name}", { params, headers, body: spec }));
  invalidateAlerts();
}

export async function deleteChannel(name: string, namespace: string): Promise<void> {
  const params = { path: { name }, query: { namespace } };
  await unwrap(api.DELETE("/api/v1/channels/{name}", { params }));
  invalidateAlerts();
}

/** Sends a test notification to a channel. */
export async function testChannel(name: string, namespace: string): Promise<ChannelTest> {
  const params = { path: { name }, query: { namespace } };
  const result = await unwrap(api.POST("/api/v1/channels/{name}/test", { params }));
  invalidateAlerts();
  return result;
}

export async function createSilence(body: NewSilence): Promise<Silence> {
  const created = await unwrap(api.POST("/api/v1/silences", { body }));
  invalidateAlerts();
  return created;
}

/** Ends a silence. */
export async function endSilence(id: number): Promise<void> {
  await unwrap(api.DELETE("/api/v1/silences/{id}", { params: { path: { id } } }));
  invalidateAlerts();
}
