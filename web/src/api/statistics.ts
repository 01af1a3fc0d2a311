/** Requests for statistics: series for charts, and the names of namespaces. */

import { keepPreviousData, queryOptions } from "@tanstack/react-query";

import type { SeriesPart } from "../lib/days";
import { type Range, rangeStart, STEPS } from "../lib/statistics";
import { unwrap, api } from "./client";
import { feed } from "./feed";
import { SERIES } from "./queries";
import type { paths } from "./schema";

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
