/** Searches a whole log on the server while the user types, and its new lines while the log grows. */

import { useEffect, useRef, useState } from "react";

import { fetchRaw } from "../../api/client";
import { ApiError } from "../../api/errors";
import type { LogSearch as LogSearchPage } from "../../api/schema";
import { isFinal, pause } from "../../api/sse";
import { searchLog, type LogHits, type LogQuery } from "../../lib/logSearch";
import { logSearchUrl } from "./useLog";

/** Delay after the last keystroke. */
const TYPING_DELAY_MS = 200;
/** Minimum interval between searches of a log that grows. */
const GROWTH_INTERVAL_MS = 1_000;
/** The server searches one log during at most this fraction of the time. */
const LOAD_MAX = 0.1;

export interface LogSearchState {
  /** Progress or result of the search; null before its first page. */
  result: LogHits | null;
  /** Whether the log is searched for the first time. */
  isRunning: boolean;
  apiError: ApiError | null;
  /** Stops the search and keeps its hits. */
  stop: () => void;
}

type State = Pick<LogSearchState, "result" | "isRunning" | "apiError"> & {
  /** The search to which the state belongs. */
  key: string;
};

/** Searches for `query`, unless its pattern is empty. `end` is the end of the log as far as known: an offset. */
export function useLogSearch(
  job: string,
  execution: number | undefined,
  query: LogQuery,
  end: number,
): LogSearchState {
  const { pattern, isRegex, stream } = query;
  const key = JSON.stringify([job, execution, pattern, isRegex, stream]);
  const none: State = { key, result: null, isRunning: pattern !== "", apiError: null };
  const [state, setState] = useState(none);
  const known = useRef(end);
  known.current = end;
  const running = useRef<AbortController | null>(null);

  useEffect(() => {
    if (pattern === "") return;
    const stopped = new AbortController();
    const { signal } = stopped;
    running.current = stopped;
    const begun = { key, result: null, isRunning: true, apiError: null };
    const update = (change: Partial<State>) =>
      setState((state) => ({ ...(state.key === key ? state : begun), ...change }));
    const fetchPage = async (parameters: Record<string, string>) => {
      const url = logSearchUrl(job, execution, parameters);
      const response = await fetchRaw(url, { signal, cache: "no-store" });
      return (await response.json()) as LogSearchPage;
    };
    const search = async () => {
      let found: LogHits | null = null;
      await pause(TYPING_DELAY_MS, signal);
      while (!signal.aborted) {
        const searched = known.current;
        const startedAt = performance.now();
        let apiError: ApiError | null = null;
        try {
          const query = { pattern, isRegex, stream };
          found = await searchLog(fetchPage, query, found, (result) => update({ result }), signal);
          update({ isRunning: false, apiError });
          if (found.complete || found.hasMore) return;
        } catch (error) {
          if (signal.aborted) return;
          apiError = ApiError.from(error);
          update({ isRunning: !isFinal(apiError) && found === null, apiError });
          if (isFinal(apiError)) return;
        }
        const interval = Math.max(GROWTH_INTERVAL_MS, (performance.now() - startedAt) / LOAD_MAX);
        do await pause(interval, signal);
        while (!signal.aborted && !apiError && known.current <= searched);
      }
    };
    void search();
    return () => stopped.abort();
  }, [key, job, execution, pattern, isRegex, stream]);

  const { result, isRunning, apiError } = state.key === key ? state : none;
  const stop = () => {
    running.current?.abort();
    setState({ key, result, isRunning: false, apiError });
  };
  return { result, isRunning, apiError, stop };
}
