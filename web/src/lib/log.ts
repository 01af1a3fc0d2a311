/** A log as lines, made from the pieces in which it comes. */

import type { LogEntry } from "../api/schema";
import { parseAnsi, type Span, type Style } from "./ansi";

export interface LogLine {
  /** From 1, in the order of the log. */
  number: number;
  at: string;
  stream: string;
  spans: readonly Span[];
  /** The same without styles, for searching. */
  text: string;
}

/** Gathers lines; a piece without a line end is gone on with by the next one of its stream. */
export class LogLines {
  /** Older lines are forgotten, so that a log without an end does not fill the memory. */
  static readonly LINES_MAX = 50_000;

  #lines: LogLine[] = [];
  #count = 0;
  #styles = new Map<string, Style>();
  /** Of each stream, the line that has not ended: its raw text, and where it stands. */
  #open = new Map<string, { raw: string; line: LogLine; before: Style }>();

  get lines(): readonly LogLine[] {
    return this.#lines;
  }

  /** How many lines there were in all. */
  get count(): number {
    return this.#count;
  }

  push(entries: readonly LogEntry[]): void {
    for (const entry of entries) this.#take(entry);
    const over = this.#lines.length - LogLines.LINES_MAX;
    // In larger steps than one line: each costs a copy.
    if (over > LogLines.LINES_MAX / 10) this.#lines = this.#lines.slice(over);
  }

  #take(entry: LogEntry): void {
    const parts = entry.text.split("\n");
    const rest = parts.pop() ?? "";
    for (const part of parts) {
      this.#write(entry, part);
      this.#open.delete(entry.stream);
    }
    if (rest !== "") this.#write(entry, rest);
  }

  #write(entry: LogEntry, part: string): void {
    const open = this.#open.get(entry.stream);
    const raw = (open?.raw ?? "") + part;
    const before = open?.before ?? this.#styles.get(entry.stream) ?? {};
    const { spans, style } = parseAnsi(raw, before);
    this.#styles.set(entry.stream, style);
    const text = spans.map((span) => span.text).join("");
    if (open) {
      // A new object, so that views see that it changed.
      const line = { ...open.line, spans, text };
      const at = this.#lines.lastIndexOf(open.line);
      if (at >= 0) this.#lines[at] = line;
      this.#open.set(entry.stream, { raw, line, before });
      return;
    }
    this.#count += 1;
    const line: LogLine = { number: this.#count, at: entry.at, stream: entry.stream, spans, text };
    this.#lines.push(line);
    this.#open.set(entry.stream, { raw, line, before });
  }
}

/** Where `needle` stands in `text`, without regard to case. */
export function occurrences(text: string, needle: string): Array<[number, number]> {
  if (needle === "") return [];
  const found: Array<[number, number]> = [];
  const hay = text.toLowerCase();
  const wanted = needle.toLowerCase();
  for (let at = hay.indexOf(wanted); at >= 0; at = hay.indexOf(wanted, at + wanted.length)) {
    found.push([at, at + wanted.length]);
  }
  return found;
}
