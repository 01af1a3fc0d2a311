/** The lines of an execution's log: the newest, followed while it is written, or a part of it. */

import { useEffect, useRef, useState } from "react";

import { fetchRaw } from "../../api/client";
import { ApiError } from "../../api/errors";
import type { LogEntry, LogPage } from "../../api/schema";
import { isFinal, hasEnd, pause } from "../../api/sse";
import { follow } from "../../api/streams";
import { linesOfPage, LogLines, type LogLine } from "../../lib/log";

/** As many of the newest lines are read. */
const TAIL_LINES = 10_000;
/** As many lines are read of another part. */
export const PART_LINES = 5_000;
/** The same in entries, which have one line or many. */
const PART_ENTRIES = 5_000;
/** Lines are shown a few times a second, however fast they come. */
const RENDER_INTERVAL_MS = 100;
const RETRY_DELAY_MS = 2_000;

export interface Log {
  lines: readonly LogLine[];
  /** The first line of the part that was asked for, once it is read; undefined for the newest lines. */
  part: number | undefined;
  /** Whether anything was read yet. */
  isLoaded: boolean;
  /** Where the log ends, as far as it was read: an offset in bytes. */
  end: number;
  /** Nothing more will come. */
  complete: boolean;
  /** The stream was lost, and is tried again. */
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

/** The address of a log in the API. */
export function logUrl(job: string, execution: number | undefined, query: Record<string, string>): string {
  const of = execution === undefined ? query : { ...query, execution: String(execution) };
  return `/api/v1/jobs/${encodeURIComponent(job)}/logs?${new URLSearchParams(of)}`;
}

/**
 * `execution` is the number of one, or undefined for the newest; `part` is the line that the part begins with,
 * or undefined for the newest lines.
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
          // Together with what came last: else a log would look empty for a moment.
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
