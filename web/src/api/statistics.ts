/** Requests for statistics: series for charts, and the job names that failed. */

import { keepPreviousData, queryOptions } from "@tanstack/react-query";

import { findFailures, type Failures, type NamedTotal } from "../lib/failures";
import type { SeriesPart } from "../lib/days";
import { parseDuration } from "../lib/quantities";
import { type Range, rangeStart, STEPS } from "../lib/statistics";
import { unwrap, api } from "./client";
import { feed } from "./feed";
import { FAILURES, queryClient, SERIES } from "./queries";
import type { Job, paths } from "./schema";

type SeriesParameters = NonNullable<paths["/api/v1/stats/series"]["get"]["parameters"]["query"]>;
/** Subject of a series; without any field: all jobs and workers. */
export type SeriesSubject = Pick<SeriesParameters, "namespace" | "queue" | "job" | "schedule" | "worker_id">;

/**
 * Refetch intervals while nothing changes: the range moves on, and levels have no events. Events cause refetches in
 * between, unless the feed is lost.
 */
const IDLE_REFETCH_MS: Record<Range, number> = {
  "1h": 60_000,
  "24h": 300_000,
  "7d": 300_000,
  "30d": 300_000,
};
const LOST_FEED_REFETCH_MS = 10_000;

export const seriesQuery = (subject: SeriesSubject, range: Range) =>
  queryOptions({
    queryKey: [SERIES, range, subject],
    queryFn: async () => {
      const from = new Date(rangeStart(range, Date.now())).toISOString();
      const query = { ...subject, from, step: STEPS[range] };
      const series = await unwrap(api.GET("/api/v1/stats/series", { params: { query } }));
      return { range, series };
    },
    // The chart of another range is better than an empty one.
    placeholderData: keepPreviousData,
    refetchInterval: () => {
      const isShort = range === "1h" && feed.status.state !== "live";
      return isShort ? LOST_FEED_REFETCH_MS : IDLE_REFETCH_MS[range];
    },
  });

/** Namespaces that are read. */
const NAMESPACES_MAX = 1_000;
const NAMESPACE_DAYS = 30;

/** Names of the namespaces that had jobs in the last 30 days. */
export const namespacesQuery = queryOptions({
  queryKey: ["namespaces"],
  queryFn: async () => {
    const from = new Date(Date.now() - NAMESPACE_DAYS * 86_400_000).toISOString();
    const query = { by: "namespace", order: "name", from, limit: NAMESPACES_MAX } as const;
    const { items } = await unwrap(api.GET("/api/v1/stats/totals", { params: { query } }));
    return items.flatMap(({ subject }) => subject.namespace ?? []);
  },
  staleTime: 60_000,
});

function readDays(subject: SeriesSubject, from: number, until: number | null, stepHours: number) {
  const iso = (at: number) => new Date(at).toISOString();
  const range = { from: iso(from), until: until === null ? undefined : iso(until) };
  const params = { query: { ...subject, ...range, step: `${stepHours}h` } };
  return unwrap(api.GET("/api/v1/stats/series", { params }));
}

/** A part of the statistics of days that do not change any more. */
export const pastDaysQuery = (subject: SeriesSubject, { from, until, stepHours }: SeriesPart) =>
  queryOptions({
    queryKey: ["days", subject, from, until, stepHours],
    queryFn: () => readDays(subject, from, until, stepHours),
    staleTime: Infinity,
  });

/** The statistics of the days from `from` until now, refetched like a chart of 24 hours. */
export const newestDaysQuery = (subject: SeriesSubject, from: number) =>
  queryOptions({
    queryKey: [SERIES, "24h", subject, "days", from],
    queryFn: () => readDays(subject, from, null, 1),
    refetchInterval: IDLE_REFETCH_MS["24h"],
  });

/** Names with failed jobs that are read; further ones are counted together. */
const NAMES_MAX = 100;
const FAILURES_REFETCH_MS = 300_000;
const FAILURE_RANGE = "24h";

/** The job names that failed in the last 24 hours. */
export const failuresQuery = queryOptions({
  queryKey: [FAILURES],
  queryFn: async (): Promise<Failures> => {
    const from = new Date(Date.now() - (parseDuration(FAILURE_RANGE) ?? 0)).toISOString();
    const query = { by: "job", order: "failed", from, limit: NAMES_MAX } as const;
    const { items, subjects } = await unwrap(api.GET("/api/v1/stats/totals", { params: { query } }));
    const found = await findFailures(items, findNewest);
    if (subjects <= items.length) return { items: found, more: 0 };
    const all = await unwrap(api.GET("/api/v1/stats/totals", { params: { query: { by: "all", from } } }));
    const sum = (totals: ReadonlyArray<{ failed: number; expired: number }>) =>
      totals.reduce((count, { failed, expired }) => count + failed + expired, 0);
    return { items: found, more: Math.max(0, sum(all.items) - sum(items)) };
  },
  refetchInterval: FAILURES_REFETCH_MS,
});

/** Finds the newest ended job of a name. It stays the same until the counts change. */
function findNewest({ namespace, name, counts }: NamedTotal): Promise<Job | null> {
  const query = { namespace, name, status: "succeeded,failed,expired", limit: 1 };
  return queryClient.fetchQuery({
    queryKey: ["failure", namespace, name, counts.failed, counts.expired, counts.succeeded],
    queryFn: async () => (await unwrap(api.GET("/api/v1/jobs", { params: { query } }))).items[0] ?? null,
    staleTime: Infinity,
    gcTime: 3 * FAILURES_REFETCH_MS,
  });
}
