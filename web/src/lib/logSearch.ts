/** Finds text in a whole log, window by window, so that a log of any length needs the memory of one window. */

import type { LogPage } from "../api/schema";
import { LogLines, type LogLine, findMatches } from "./log";

/** A search ends with this many lines that have a hit. */
export const HITS_MAX = 10_000;

export interface LogSearch {
  /** Numbers of the lines that have a hit, ascending. */
  hits: readonly number[];
  /** Number of the last line searched. */
  lines: number;
  /** Searched fraction of the log, from 0 to 1. */
  fraction: number;
  /** Whether the search ended at {@link HITS_MAX}, with more of the log behind. */
  capped: boolean;
}

export interface LogQuery {
  text: string;
  /** Returns whether lines of a stream are searched. */
  includesStream: (stream: string) => boolean;
}

/**
 * Searches a log from its start to `end`, an offset; later lines of a growing log are not searched.
 *
 * `fetchWindow` reads a window that starts at an offset. Calls `onProgress` after each window. Aborting `signal`
 * stops the search and keeps the hits found so far.
 */
export async function searchLog(
  fetchWindow: (offset: number) => Promise<LogPage>,
  end: number,
  query: LogQuery,
  onProgress: (search: LogSearch) => void,
  signal: AbortSignal,
): Promise<LogSearch> {
  const log = new LogLines(1, Infinity);
  const hits: number[] = [];
  const isHit = ({ text, stream }: LogLine) =>
    query.includesStream(stream) && findMatches(text, query.text).length > 0;
  let result: LogSearch = { hits, lines: 0, fraction: 0, capped: false };
  const add = (lines: readonly LogLine[], fraction: number) => {
    for (const line of lines) if (hits.length < HITS_MAX && isHit(line)) hits.push(line.number);
    const capped = hits.length >= HITS_MAX;
    const last = capped ? hits.at(-1) : lines.at(-1)?.number;
    result = { hits: [...hits], lines: last ?? result.lines, fraction, capped };
    onProgress(result);
  };
  for (let offset = 0; offset < end && !result.capped;) {
    const page = await fetchWindow(offset);
    if (signal.aborted) return result;
    if (page.next_offset <= offset) break;
    log.push(page.items);
    offset = page.next_offset;
    add(log.drain(), Math.min(1, offset / end));
  }
  // Incomplete lines.
  if (!result.capped) add(log.lines, 1);
  return result;
}
