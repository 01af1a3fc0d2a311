/** Log lines, assembled from log entries. */

import type { LogEntry, LogPage } from "../api/schema";
import { AnsiLine, type Span, type Style } from "./ansi";

export interface LogLine {
  /** Line number, from 1, by the order of line ends, as on the server. */
  number: number;
  at: string;
  stream: string;
  spans: readonly Span[];
  /** Text without styles, for searching. */
  text: string;
}

/** A line without a line end so far. */
interface OpenLine {
  at: string;
  stream: string;
  parsed: AnsiLine;
}

function toLogLine({ at, stream, parsed }: OpenLine, number: number): LogLine {
  const { spans } = parsed;
  return { number, at, stream, spans, text: spans.map(({ text }) => text).join("") };
}

/** The streams in the order in which the server numbers their incomplete last lines. */
const STREAMS = ["stdout", "stderr", "notice"];

/**
 * Collects lines; an entry without a line end is continued by the next entry of its stream.
 *
 * Lines are numbered by their ends. The server counts line ends too, so `line=` of its API starts with the same line.
 * An incomplete line has a provisional number after all complete lines.
 */
export class LogLines {
  /** Maximum number of lines; older ones are dropped, so that an endless log does not fill the memory. */
  static readonly LINES_MAX = 50_000;

  /** Complete lines. */
  #lines: LogLine[] = [];
  #count = 0;
  #styles = new Map<string, Style>();
  /** The incomplete line of each stream. */
  #incomplete = new Map<string, OpenLine>();

  /** All lines; incomplete ones come last. */
  get lines(): readonly LogLine[] {
    const open = STREAMS.flatMap((stream) => this.#incomplete.get(stream) ?? []);
    return [...this.#lines, ...open.map((line, i) => toLogLine(line, this.#count + 1 + i))];
  }

  /** The complete lines. */
  get completeLines(): readonly LogLine[] {
    return this.#lines.slice();
  }

  readonly #max: number;

  /**
   * `first` is the number of the first pushed line, if it is not the start of the log. `max` limits the lines kept;
   * the lines of a page are limited by the response instead.
   */
  constructor(first = 1, max = LogLines.LINES_MAX) {
    this.#count = first - 1;
    this.#max = max;
  }

  push(entries: readonly LogEntry[]): void {
    for (const entry of entries) this.#append(entry);
    const excess = this.#lines.length - this.#max;
    // Drops many lines at once, because each drop copies the array.
    if (excess > this.#max / 10) this.#lines = this.#lines.slice(excess);
  }

  #append(entry: LogEntry): void {
    const parts = entry.text.split("\n");
    const rest = parts.pop() ?? "";
    for (const part of parts) {
      const open = this.#write(entry, part);
      this.#incomplete.delete(entry.stream);
      this.#count += 1;
      this.#lines.push(toLogLine(open, this.#count));
    }
    if (rest !== "") this.#incomplete.set(entry.stream, this.#write(entry, rest));
  }

  /** Continues the incomplete line of a stream, or starts one. The earlier parts of the line are not read again. */
  #write({ stream, at }: LogEntry, part: string): OpenLine {
    const open = this.#incomplete.get(stream) ?? {
      at,
      stream,
      parsed: new AnsiLine(this.#styles.get(stream)),
    };
    open.parsed.push(part);
    this.#styles.set(stream, open.parsed.style);
    return open;
  }
}

/**
 * Returns the complete lines of a response. Unless the log is `complete`, its last line may continue in the next
 * response: the server also ends a response after 4 MiB. Such a line is left out, unless it is the only one.
 */
export function linesOfPage(page: LogPage): readonly LogLine[] {
  const lines = new LogLines(page.first_line ?? 1, Infinity);
  lines.push(page.items);
  return page.complete || lines.completeLines.length === 0 ? lines.lines : lines.completeLines;
}

/** A URL without trailing punctuation. */
const LINK = /https?:\/\/[^\s"'<>`]*[^\s"'<>`.,:;!?)\]}]/g;

/** Splits a text into links and other text. */
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
