/** Search in a whole log by the server, page by page, and the location of its matches in the displayed lines. */

import type { LogSearch as LogSearchPage } from "../api/schema";

/** A search ends with this many lines that match. */
export const HITS_MAX = 10_000;
/** Lines per page: the maximum of the server. */
const PAGE_HITS = 1_000;
/** Number of the last lines that may be incomplete: one of each stream. Their text and their numbers may change. */
const OPEN_LINES_MAX = 3;

export interface LogQuery {
  pattern: string;
  /** Whether the pattern is a regular expression; else it is a text whose letter case is ignored. */
  isRegex: boolean;
  /** Stream to search; `all` for all of them. */
  stream: string;
}

export interface LogHits {
  /** Numbers of the lines that match, ascending. */
  hits: readonly number[];
  /** Number of the last line searched. */
  lines: number;
  /** Whether the log has lines that were not searched. */
  hasMore: boolean;
  /** Whether nothing will be appended to the log. */
  complete: boolean;
}

/**
 * Searches a log, or continues an earlier search of a log that has grown.
 *
 * `fetchPage` requests a page with these parameters. Calls `onProgress` after each page. Rejects if `signal` is aborted
 * during a request.
 */
export async function searchLog(
  fetchPage: (parameters: Record<string, string>) => Promise<LogSearchPage>,
  query: LogQuery,
  earlier: LogHits | null,
  onProgress: (found: LogHits) => void,
  signal: AbortSignal,
): Promise<LogHits> {
  const start = Math.max(1, (earlier?.lines ?? 0) + 1 - OPEN_LINES_MAX);
  const hits = earlier?.hits.filter((number) => number < start) ?? [];
  // All streams, because the server numbers the lines of the selected streams only.
  const base = { [query.isRegex ? "regex" : "text"]: query.pattern, limit: String(PAGE_HITS) };
  let next: Record<string, string> = start > 1 ? { line: String(start) } : {};
  for (;;) {
    const page = await fetchPage({ ...base, ...next });
    signal.throwIfAborted();
    const added = page.items.filter(({ stream }) => query.stream === "all" || stream === query.stream);
    hits.push(...added.slice(0, HITS_MAX - hits.length).map(({ number }) => number));
    const isFull = hits.length >= HITS_MAX;
    const found = {
      hits: [...hits],
      lines: isFull ? (hits.at(-1) ?? 0) : page.lines,
      hasMore: isFull || page.next_cursor != null,
      complete: page.complete,
    };
    onProgress(found);
    if (isFull || page.next_cursor == null) return found;
    next = { cursor: page.next_cursor };
  }
}

/** Ranges of a text: the start, and the end without the end itself. */
export type Ranges = ReadonlyArray<readonly [number, number]>;

/** Steps of matching a line with a regular expression after which its match is not located. */
const STEPS_MAX = 1e8;

/**
 * Returns a function that locates the matches in a displayed line. It finds none if the server matched another part of
 * the line, such as an overwritten progress bar, or if only the server understands the regular expression.
 */
export function matcher({
  pattern,
  isRegex,
}: Pick<LogQuery, "pattern" | "isRegex">): (text: string) => Ranges {
  if (pattern === "") return () => [];
  const regex = isRegex ? localRegex(pattern) : new RegExp(escapeRegex(pattern), "giu");
  if (!regex) return () => [];
  const power = isRegex ? repetitions(pattern) + 1 : 1;
  return (text) => {
    if (text.length ** power > STEPS_MAX) return [];
    const matches = [...text.matchAll(regex)].filter(([found]) => found !== "");
    return matches.map(({ 0: found, index }) => [index, index + found.length] as const);
  };
}

function escapeRegex(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
}

/** Converts a regular expression of the server; null if this browser has no equivalent, or only a slow one. */
function localRegex(pattern: string): RegExp | null {
  // A browser needs exponential time for some repeated groups; the server does not.
  if (/\)[*+?{]/.test(pattern)) return null;
  const [, ignoresCase, rest = ""] = /^(\(\?i\))?([^]*)$/.exec(pattern) ?? [];
  try {
    return new RegExp(rest.replaceAll("(?P<", "(?<"), ignoresCase ? "giu" : "gu");
  } catch {
    return null;
  }
}

/** Returns the number of repetitions in a regular expression, or more: each may multiply the time by the length. */
function repetitions(pattern: string): number {
  return pattern.replace(/\\.|\(\?/g, "").match(/[*+?{]/g)?.length ?? 0;
}
