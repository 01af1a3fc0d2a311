/** A log as lines, made from the pieces in which it comes. */

import type { LogEntry, LogPage } from "../api/schema";
import { parseAnsi, type Span, type Style } from "./ansi";

export interface LogLine {
  /** From 1, in the order in which lines end, as the server counts them. */
  number: number;
  at: string;
  stream: string;
  spans: readonly Span[];
  /** The same without styles, for searching. */
  text: string;
}

/**
 * Gathers lines; a piece without a line end is continued by the next one of its stream.
 *
 * Lines have the numbers of their ends: the server counts ends, so `line=` of its API begins with the same line. A line
 * that has not ended has a number for the time being, behind all that have ended.
 */
export class LogLines {
  /** Older lines are forgotten, so that a log without an end does not fill the memory. */
  static readonly LINES_MAX = 50_000;

  /** Those that have ended. */
  #lines: LogLine[] = [];
  #count = 0;
  #styles = new Map<string, Style>();
  /** Of each stream, the line that has not ended: its raw text, and the style before it. */
  #incomplete = new Map<string, { raw: string; line: LogLine; before: Style }>();

  /** All lines; those that have not ended come last. */
  get lines(): readonly LogLine[] {
    const open = [...this.#incomplete.values()].map(({ line }, i) => ({
      ...line,
      number: this.#count + 1 + i,
    }));
    return [...this.#lines, ...open];
  }

  /** The lines that have ended. */
  get completeLines(): readonly LogLine[] {
    return this.#lines.slice();
  }

  /** Returns the lines that have ended since the last call, and forgets them. */
  drain(): readonly LogLine[] {
    const taken = this.#lines;
    this.#lines = [];
    return taken;
  }

  readonly #max: number;

  /**
   * `first` is the number of the first line of what is pushed, where that is not the beginning of the log. More than
   * `max` lines are kept only where that is said: a part of a log is bounded by the answer that it comes in.
   */
  constructor(first = 1, max = LogLines.LINES_MAX) {
    this.#count = first - 1;
    this.#max = max;
  }

  push(entries: readonly LogEntry[]): void {
    for (const entry of entries) this.#append(entry);
    const over = this.#lines.length - this.#max;
    // In larger steps than one line: each costs a copy.
    if (over > this.#max / 10) this.#lines = this.#lines.slice(over);
  }

  #append(entry: LogEntry): void {
    const parts = entry.text.split("\n");
    const rest = parts.pop() ?? "";
    for (const part of parts) {
      const line = this.#write(entry, part);
      this.#incomplete.delete(entry.stream);
      this.#count += 1;
      this.#lines.push({ ...line, number: this.#count });
    }
    if (rest !== "") this.#write(entry, rest);
  }

  /** Continues the open line of a stream, or begins one. */
  #write(entry: LogEntry, part: string): LogLine {
    const open = this.#incomplete.get(entry.stream);
    const raw = (open?.raw ?? "") + part;
    const before = open?.before ?? this.#styles.get(entry.stream) ?? {};
    const { spans, style } = parseAnsi(raw, before);
    this.#styles.set(entry.stream, style);
    const text = spans.map((span) => span.text).join("");
    const at = open?.line.at ?? entry.at;
    // A new object, so that views see that it changed.
    const line = { number: 0, at, stream: entry.stream, spans, text };
    this.#incomplete.set(entry.stream, { raw, line, before });
    return line;
  }
}

/**
 * The lines of an answer that nothing continues. Unless the answer is `complete`, its last line may go on behind it: the
 * server also ends an answer after 4 MiB. Such a line is left for the next part, unless it is all that there is.
 */
export function linesOfPage(page: LogPage): readonly LogLine[] {
  const lines = new LogLines(page.first_line ?? 1, Infinity);
  lines.push(page.items);
  return page.complete || lines.completeLines.length === 0 ? lines.lines : lines.completeLines;
}

/** Where `needle` stands in `text`, without regard to case. */
export function findMatches(text: string, needle: string): Array<[number, number]> {
  if (needle === "") return [];
  const found: Array<[number, number]> = [];
  const hay = text.toLowerCase();
  const wanted = needle.toLowerCase();
  for (let at = hay.indexOf(wanted); at >= 0; at = hay.indexOf(wanted, at + wanted.length)) {
    found.push([at, at + wanted.length]);
  }
  return found;
}

/** An address of a page, without the punctuation behind it. */
const LINK = /https?:\/\/[^\s"'<>`]*[^\s"'<>`.,:;!?)\]}]/g;

/** A text as what is a link and what is not. */
export function splitLinks(text: string): Array<{ text: string; isLink: boolean }> {
  const parts: Array<{ text: string; isLink: boolean }> = [];
  let from = 0;
  for (const { 0: link, index } of text.matchAll(LINK)) {
    if (index > from) parts.push({ text: text.slice(from, index), isLink: false });
    parts.push({ text: link, isLink: true });
    from = index + link.length;
  }
  if (from < text.length) parts.push({ text: text.slice(from), isLink: false });
  return parts;
}
