/** The lines of an execution's log, followed while it is written. */

import { useEffect, useRef, useState } from "react";

import type { Refusal } from "../../api/problem";
import type { LogEntry } from "../../api/schema";
import { follow } from "../../api/sse";
import { LogLines, type LogLine } from "../../lib/log";

/** As many lines of what is there already are shown; all of it can be downloaded. */
export const TAIL = 10_000;
/** Lines are shown a few times a second, however fast they come. */
const SHOW_MS = 100;

export interface Log {
  lines: readonly LogLine[];
  /** Nothing more will come. */
  complete: boolean;
  /** The stream was lost, and is tried again. */
  lost: boolean;
  refusal: Refusal | null;
}

const EMPTY: Log = { lines: [], complete: false, lost: false, refusal: null };

/** `execution` is the number of one, or undefined for the newest. */
export function useLog(job: string, execution: number | undefined): Log {
  const [log, setLog] = useState<Log>(EMPTY);
  const timer = useRef<ReturnType<typeof setTimeout> | null>(null);

  useEffect(() => {
    const lines = new LogLines();
    setLog(EMPTY);
    const show = () => {
      timer.current = null;
      setLog((log) => ({ ...log, lines: lines.lines.slice() }));
    };
    const query = new URLSearchParams({ follow: "true", tail: String(TAIL) });
    if (execution !== undefined) query.set("execution", String(execution));
    const stop = follow(`/api/v1/jobs/${encodeURIComponent(job)}/logs?${query}`, {
      onOpen: () => setLog((log) => ({ ...log, lost: false, refusal: null })),
      onEvents: (events) => {
        lines.push(events.filter((event) => event.name === "log").map((e) => JSON.parse(e.data) as LogEntry));
        timer.current ??= setTimeout(show, SHOW_MS);
      },
      isOver: (events) => {
        const over = events.some((event) => event.name === "end");
        // Together with what came last: else a log would look empty for a moment.
        if (over) setLog((log) => ({ ...log, lines: lines.lines.slice(), complete: true }));
        return over;
      },
      onLost: () => setLog((log) => ({ ...log, lost: true })),
      onRefused: (refusal) => setLog((log) => ({ ...log, refusal })),
    });
    return () => {
      stop();
      if (timer.current !== null) clearTimeout(timer.current);
      timer.current = null;
    };
  }, [job, execution]);

  return log;
}
