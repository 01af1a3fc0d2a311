/** Searches a whole log of which the page shows a part. */

import { useEffect, useRef, useState } from "react";

import { fetchRaw } from "../../api/client";
import { ApiError } from "../../api/errors";
import type { LogPage } from "../../api/schema";
import { type LogSearch, searchLog, type LogQuery } from "../../lib/logSearch";
import { logUrl } from "./useLog";

/** Entries per window; the server also ends a window after 4 MiB. */
const WINDOW_ENTRIES = 10_000;

export interface LogSearchState {
  /** Progress or result of the search; null if none was started. */
  result: LogSearch | null;
  isRunning: boolean;
  apiError: ApiError | null;
  /** Searches up to `end`, an offset of the log. Resolves to null if the search failed or was stopped. */
  start: (wanted: LogQuery, end: number) => Promise<LogSearch | null>;
  /** Stops the search and keeps its hits. */
  stop: () => void;
  /** Stops the search and clears its hits. */
  clear: () => void;
}

export function useLogSearch(job: string, execution: number | undefined): LogSearchState {
  const [result, setResult] = useState<LogSearch | null>(null);
  const [isRunning, setRunning] = useState(false);
  const [apiError, setApiError] = useState<ApiError | null>(null);
  const running = useRef<AbortController | null>(null);
  useEffect(() => () => running.current?.abort(), []);

  const stop = () => {
    running.current?.abort();
    running.current = null;
    setRunning(false);
  };
  const clear = () => {
    stop();
    setResult(null);
    setApiError(null);
  };
  const start = async (wanted: LogQuery, end: number) => {
    clear();
    const current = new AbortController();
    running.current = current;
    setRunning(true);
    setResult({ hits: [], lines: 0, fraction: 0, capped: false });
    const read = async (offset: number) => {
      const query = { offset: String(offset), limit: String(WINDOW_ENTRIES) };
      const response = await fetchRaw(logUrl(job, execution, query), {
        signal: current.signal,
        cache: "no-store",
      });
      return (await response.json()) as LogPage;
    };
    const isCurrent = () => running.current === current;
    try {
      const all = await searchLog(read, end, wanted, (now) => isCurrent() && setResult(now), current.signal);
      return isCurrent() ? all : null;
    } catch (error) {
      if (isCurrent()) setApiError(ApiError.from(error));
      return null;
    } finally {
      if (isCurrent()) stop();
    }
  };
  return { result, isRunning, apiError, start, stop, clear };
}
