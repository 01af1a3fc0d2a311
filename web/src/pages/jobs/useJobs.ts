/** A filtered list of jobs: paginated, and refreshed by events. */

import { useQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useRef, useState } from "react";

import { unwrap, api } from "../../api/client";
import { feed } from "../../api/feed";
import { ApiError } from "../../api/errors";
import { meQuery } from "../../api/queries";
import type { JobsSearch } from "../../app/router";
import { toJobsQuery, type JobsQuery } from "../../lib/filters";
import { appendPage, mergeNewestPage, NO_ROWS, applyEvents, type Rows } from "./rows";

const PAGE = 100;
/** Minimum interval between refetches of the newest page while jobs change. */
const REFRESH_MS = 1_000;

export interface Jobs {
  rows: Rows;
  loading: boolean;
  apiError: ApiError | null;
  more: () => void;
  refresh: () => void;
  /** The query of the API, for bulk actions on all matching jobs. */
  query: JobsQuery;
}

interface Request {
  query: JobsQuery;
  busy: boolean;
  abort: AbortController;
  /** Time of the last load, in ms since the epoch. */
  at: number;
}

export function useJobs(search: JobsSearch): Jobs {
  const key = JSON.stringify(search);
  // The list depends on the rights of the caller: it is loaded again when they change.
  const rights = useQuery(meQuery).data?.rights;
  const [rows, setRows] = useState<Rows>(NO_ROWS);
  const [loading, setLoading] = useState(true);
  const [apiError, setApiError] = useState<ApiError | null>(null);
  const [query, setQuery] = useState<JobsQuery>(() => toJobsQuery(search, Date.now()));
  const request = useRef<Request | null>(null);

  const load = useCallback(async (how: "first" | "more" | "again", cursor?: string) => {
    const current = request.current;
    if (!current || current.busy) return;
    current.busy = true;
    current.at = Date.now();
    if (how !== "again") setLoading(true);
    try {
      const params = { query: { ...current.query, limit: PAGE, cursor } };
      const page = await unwrap(api.GET("/api/v1/jobs", { params, signal: current.abort.signal }));
      if (request.current !== current) return;
      setRows((rows) =>
        how === "more"
          ? appendPage(rows, page)
          : how === "again"
            ? mergeNewestPage(rows, page)
            : appendPage(NO_ROWS, page),
      );
      setApiError(null);
    } catch (error) {
      if (request.current === current && how !== "again") setApiError(ApiError.from(error));
    } finally {
      current.busy = false;
      if (request.current === current) setLoading(false);
    }
  }, []);

  useEffect(() => {
    const query = toJobsQuery(JSON.parse(key) as JobsSearch, Date.now());
    const current = { query, busy: false, abort: new AbortController(), at: 0 };
    request.current = current;
    setQuery(query);
    setRows(NO_ROWS);
    void load("first");
    return () => current.abort.abort();
  }, [key, rights, load]);

  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | null = null;
    let last = 0;
    const refreshNow = () => {
      timer = null;
      if (document.hidden) return;
      last = Date.now();
      void load("again");
    };
    // The first change is shown at once, further ones at most once a second.
    const scheduleRefresh = () => {
      timer ??= setTimeout(refreshNow, Math.max(0, last + REFRESH_MS - Date.now()));
    };
    const stops = [
      feed.onBatch((batch) => {
        if (!batch.some((event) => event.type.startsWith("job."))) return;
        setRows((rows) => applyEvents(rows, batch));
        scheduleRefresh();
      }),
      feed.onReset((since) => {
        if ((request.current?.at ?? 0) < since) scheduleRefresh();
      }),
    ];
    document.addEventListener("visibilitychange", scheduleRefresh);
    return () => {
      stops.forEach((stop) => stop());
      document.removeEventListener("visibilitychange", scheduleRefresh);
      if (timer !== null) clearTimeout(timer);
    };
  }, [load]);

  const cursor = rows.cursor;
  const more = useCallback(() => {
    if (cursor) void load("more", cursor);
  }, [cursor, load]);
  const refresh = useCallback(() => void load("first"), [load]);
  return { rows, loading, apiError, more, refresh, query };
}
