/** A list of jobs for a filter: read page by page, kept fresh by the feed. */

import { useCallback, useEffect, useRef, useState } from "react";

import { unwrap, api } from "../../api/client";
import { feed } from "../../api/feed";
import { ApiError } from "../../api/problem";
import type { JobsSearch } from "../../app/router";
import { toJobsQuery, type JobsQuery } from "../../lib/filters";
import { appended, merged, NO_ROWS, patched, type Rows } from "./rows";

const PAGE = 100;
/** How often the newest page is read again while jobs change. */
const REFRESH_MS = 1_000;

export interface Jobs {
  rows: Rows;
  loading: boolean;
  refusal: ApiError | null;
  more: () => void;
  refresh: () => void;
  /** What the API was asked, for acting on all that match. */
  query: JobsQuery;
}

interface Asked {
  query: JobsQuery;
  busy: boolean;
  abort: AbortController;
  /** When it was last read. */
  at: number;
}

export function useJobs(search: JobsSearch): Jobs {
  const key = JSON.stringify(search);
  const [rows, setRows] = useState<Rows>(NO_ROWS);
  const [loading, setLoading] = useState(true);
  const [refusal, setRefusal] = useState<ApiError | null>(null);
  const [query, setQuery] = useState<JobsQuery>(() => toJobsQuery(search, Date.now()));
  const asked = useRef<Asked | null>(null);

  const read = useCallback(async (how: "first" | "more" | "again", cursor?: string) => {
    const mine = asked.current;
    if (!mine || mine.busy) return;
    mine.busy = true;
    mine.at = Date.now();
    if (how !== "again") setLoading(true);
    try {
      const params = { query: { ...mine.query, limit: PAGE, cursor } };
      const page = await unwrap(api.GET("/api/v1/jobs", { params, signal: mine.abort.signal }));
      if (asked.current !== mine) return;
      setRows((rows) =>
        how === "more"
          ? appended(rows, page)
          : how === "again"
            ? merged(rows, page)
            : appended(NO_ROWS, page),
      );
      setRefusal(null);
    } catch (error) {
      if (asked.current === mine && how !== "again") setRefusal(ApiError.from(error));
    } finally {
      mine.busy = false;
      if (asked.current === mine) setLoading(false);
    }
  }, []);

  useEffect(() => {
    const query = toJobsQuery(JSON.parse(key) as JobsSearch, Date.now());
    const mine = { query, busy: false, abort: new AbortController(), at: 0 };
    asked.current = mine;
    setQuery(query);
    setRows(NO_ROWS);
    void read("first");
    return () => mine.abort.abort();
  }, [key, read]);

  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | null = null;
    let last = 0;
    const again = () => {
      timer = null;
      if (document.hidden) return;
      last = Date.now();
      void read("again");
    };
    // The first change shows at once, those that follow it closely once a second.
    const soon = () => {
      timer ??= setTimeout(again, Math.max(0, last + REFRESH_MS - Date.now()));
    };
    const stops = [
      feed.onBatch((batch) => {
        if (!batch.some((event) => event.type.startsWith("job."))) return;
        setRows((rows) => patched(rows, batch));
        soon();
      }),
      feed.onReset((since) => {
        if ((asked.current?.at ?? 0) < since) soon();
      }),
    ];
    document.addEventListener("visibilitychange", soon);
    return () => {
      stops.forEach((stop) => stop());
      document.removeEventListener("visibilitychange", soon);
      if (timer !== null) clearTimeout(timer);
    };
  }, [read]);

  const cursor = rows.cursor;
  const more = useCallback(() => {
    if (cursor) void read("more", cursor);
  }, [cursor, read]);
  const refresh = useCallback(() => void read("first"), [read]);
  return { rows, loading, refusal, more, refresh, query };
}
