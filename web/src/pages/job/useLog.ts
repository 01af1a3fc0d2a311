/** Loads an execution's log: the newest lines, followed while the job runs, or a part of the log. */

import { useEffect, useRef, useState } from "react";

import { fetchRaw } from "../../api/client";
import { ApiError } from "../../api/errors";
import type { LogEntry, LogPage } from "../../api/schema";
import { isFinal, hasEnd, pause } from "../../api/sse";
import { follow } from "../../api/streams";
import { linesOfPage, LogLines, type LogLine } from "../../lib/log";

/** Newest lines that are loaded. */
const TAIL_LINES = 10_000;
/** Lines of another part. */
export const PART_LINES = 5_000;
/** Entries of another part; an entry has one or more lines. */
const PART_ENTRIES = 5_000;
/** Render interval of new lines. */
const RENDER_INTERVAL_MS = 100;
const RETRY_DELAY_MS = 2_000;

export interface Log {
  lines: readonly LogLine[];
  /** First line of the requested part, once it is loaded; undefined for the newest lines. */
  part: number | undefined;
  /** Whether any part is loaded. */
  isLoaded: boolean;
  /** End of the log as far as known: an offset in bytes. */
  end: number;
  /** Whether the log has ended. */
  complete: boolean;
  /** Whether the stream is lost and being reopened. */
  lost: boolean;
  apiError: ApiError | null;
}

const EMPTY: Log = {
  lines: [],
  part: undefined,
  isLoaded: false,
  end: 0,
  complete: false,
  lost: false,
  apiError: null,
};

type Query = Record<string, string>;

/** Returns the API path of a log. */
export function logUrl(job: string, execution: number | undefined, query: Query): string {
  return `${logPath(job)}?${parameters(execution, query)}`;
}

/** Returns the API path of a search in a log. */
export function logSearchUrl(job: string, execution: number | undefined, query: Query): string {
  return `${logPath(job)}/search?${parameters(execution, query)}`;
}

function logPath(job: string): string {
  return `/api/v1/jobs/${encodeURIComponent(job)}/logs`;
}

function parameters(execution: number | undefined, query: Query): URLSearchParams {
  return new URLSearchParams(execution === undefined ? query : { ...query, execution: String(execution) });
}

/**
 * `execution` is the number of an execution, or undefined for the latest; `part` is the first line of the part, or
 * undefined for the newest lines.
 */
export function useLog(job: string, execution: number | undefined, part: number | undefined): Log {
  const [log, setLog] = useState<Log>(EMPTY);
  const timer = useRef<ReturnType<typeof setTimeout> | null>(null);

  useEffect(() => {
    const ended = new AbortController();
    let stop = () => {};
    const address = (query: Record<string, string>) => logUrl(job, execution, query);

    const read = async () => {
      const query: Record<string, string> =
        part === undefined
          ? { tail: String(TAIL_LINES) }
          : { line: String(part), limit: String(PART_ENTRIES) };
      const response = await fetchRaw(address(query), { signal: ended.signal, cache: "no-store" });
      const page = (await response.json()) as LogPage;
      if (ended.signal.aborted) return;
      const lines = new LogLines(page.first_line ?? 1);
      if (part === undefined) lines.push(page.items);
      const { complete } = page;
      setLog((log) => ({
        ...log,
        lines: part === undefined ? lines.lines : linesOfPage(page).slice(0, PART_LINES),
        part,
        isLoaded: true,
        end: Math.max(log.end, page.next_offset),
        complete: log.complete || complete,
        lost: false,
        apiError: null,
      }));
      if (part === undefined && !complete) followLog(lines, page.next_offset);
    };
    const followLog = (lines: LogLines, offset: number) => {
      let end = offset;
      const show = () => {
        timer.current = null;
        setLog((log) => ({ ...log, lines: lines.lines, end }));
      };
      stop = follow(address({ follow: "true", offset: String(offset) }), {
        onOpen: () => setLog((log) => ({ ...log, lost: false, apiError: null })),
        onEvents: (events) => {
          const entries = events.filter(({ name }) => name === "log");
          const read = entries.map(({ data }) => JSON.parse(data) as LogEntry);
          lines.push(read);
          end = read.at(-1)?.next_offset ?? end;
          timer.current ??= setTimeout(show, RENDER_INTERVAL_MS);
          // In one update with the last lines: else a log would look empty for a moment.
          if (hasEnd(events)) setLog((log) => ({ ...log, lines: lines.lines, end, complete: true }));
        },
        onLost: () => setLog((log) => ({ ...log, lost: true })),
        onRefused: (apiError) => setLog((log) => ({ ...log, apiError })),
      });
    };
    const readWithRetries = async () => {
      while (!ended.signal.aborted) {
        try {
          return await read();
        } catch (error) {
          if (ended.signal.aborted) return;
          const apiError = ApiError.from(error);
          if (isFinal(apiError)) return setLog((log) => ({ ...log, apiError }));
          setLog((log) => ({ ...log, lost: true }));
        }
        await pause(RETRY_DELAY_MS, ended.signal);
      }
    };

    void readWithRetries();
    return () => {
      ended.abort();
      stop();
      if (timer.current !== null) clearTimeout(timer.current);
      timer.current = null;
    };
  }, [job, execution, part]);

  return log;
}
