/**
 * ANSI colours in logs: SGR sequences become styles; other escape sequences are removed.
 *
 * The result is data, never markup: a log can add only text to the page.
 */

export interface Style {
  /** 0–15 from the palette, or `#rrggbb`. */
  color?: number | string;
  background?: number | string;
  bold?: true;
  dim?: true;
  italic?: true;
  underline?: true;
  inverse?: true;
}

export interface Span {
  text: string;
  style: Style;
}

// CSI sequences; OSC sequences (titles, links) up to BEL or ST; two-character escapes.

const ESCAPES =
  /\u001b\[([0-9;:?<=>]*)[ -/]*([@-~])|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|\u001b[@-_]?/g;
// The end of a text that may be the start of a longer sequence.

const INCOMPLETE = /\u001b(?:\[[0-9;:?<=>]*[ -/]*|\][^\u0007\u001b]*\u001b?)?$/;
// Remaining control characters, and characters that change the text direction.

const INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

const CSI = "\u001b[";
const OSC = "\u001b]";

/**
 * Parses a line that arrives in parts, starting with the style at the end of the previous line. Each part costs time
 * for its own length only. The result does not depend on where the parts are cut.
 */
export class AnsiLine {
  /** The spans before the last escape sequence. */
  #spans: Span[] = [];
  #style: Style;
  /** The visible text after the last escape sequence. */
  #text = "";
  /** Whether the raw text ends with a carriage return: the next character overwrites the visible text. */
  #isReturned = false;
  /** The start of an escape sequence that the next part may continue, without parameters or content. */
  #incomplete: "" | "\u001b" | typeof CSI | typeof OSC | `${typeof OSC}\u001b` = "";
  /** Parameters of an incomplete CSI sequence; only appended to until it is complete. */
  #parameters = "";
  /** Whether only intermediate bytes and the final byte may follow the parameters. */
  #hasIntermediates = false;

  constructor(before: Style = {}) {
    this.#style = before;
  }

  /** The style at the end of the line so far. */
  get style(): Style {
    return this.#style;
  }

  /** The spans so far. The start of a sequence is invisible, unless its parameters look like text. */
  get spans(): Span[] {
    const spans = [...this.#spans];
    for (const text of [this.#text, this.#parameters])
      if (text !== "") spans.push({ text, style: this.#style });
    return spans;
  }

  push(part: string): void {
    if (this.#incomplete === "" && !part.includes("\u001b")) return this.#addText(part);
    if (this.#incomplete === CSI && this.#continuesParameters(part)) return;
    const text = this.#incomplete + this.#parameters + part;
    const end = INCOMPLETE.exec(text)?.index ?? text.length;
    let from = 0;
    for (const match of text.slice(0, end).matchAll(ESCAPES)) {
      this.#addText(text.slice(from, match.index));
      this.#endSpan();
      from = match.index + match[0].length;
      if (match[2] === "m") this.#style = applySgr(this.#style, match[1] ?? "");
    }
    this.#addText(text.slice(from, end));
    this.#keep(text.slice(end));
  }

  /** Adds a part that contains only parameters to a CSI sequence. Returns whether the part does. */
  #continuesParameters(part: string): boolean {
    const rest = this.#hasIntermediates ? /^[ -/]*$/ : /^[0-9;:?<=>]*[ -/]*$/;
    if (!rest.test(part)) return false;
    this.#parameters += part;
    this.#hasIntermediates ||= /[ -/]/.test(part);
    return true;
  }

  /** Keeps the start of a sequence. The content of an OSC sequence is invisible. */
  #keep(incomplete: string): void {
    const isCsi = incomplete.startsWith(CSI);
    this.#parameters = isCsi ? incomplete.slice(CSI.length) : "";
    this.#hasIntermediates = /[ -/]$/.test(this.#parameters);
    if (incomplete !== "") this.#endSpan();
    if (isCsi) this.#incomplete = CSI;
    else if (incomplete.startsWith(OSC))
      this.#incomplete = incomplete.endsWith("\u001b") ? `${OSC}\u001b` : OSC;
    else this.#incomplete = incomplete === "" ? "" : "\u001b";
  }

  /** A progress bar overwrites itself: only the text after the last carriage return is visible. */
  #addText(text: string): void {
    // Without `/\r+$/`, which takes quadratic time.
    let end = text.length;
    while (text[end - 1] === "\r") end -= 1;
    if (end > 0) {
      const start = text.lastIndexOf("\r", end - 1) + 1;
      if (start > 0 || this.#isReturned) this.#text = "";
      this.#text += text.slice(start, end).replace(INVISIBLE, "");
      this.#isReturned = false;
    }
    if (end < text.length) this.#isReturned = true;
  }

  #endSpan(): void {
    if (this.#text !== "") this.#spans.push({ text: this.#text, style: this.#style });
    this.#text = "";
    this.#isReturned = false;
  }
}

/** Parses a line, starting with the style at the end of the previous line. */
export function parseAnsi(line: string, before: Style = {}): { spans: Span[]; style: Style } {
  const parsed = new AnsiLine(before);
  parsed.push(line);
  return { spans: parsed.spans, style: parsed.style };
}

function applySgr(style: Style, parameters: string): Style {
  const codes = parameters.split(/[;:]/).map((p) => (p === "" ? 0 : Number(p)));
  const next: Style = { ...style };
  for (let i = 0; i < codes.length; i += 1) {
    const code = codes[i] ?? 0;
    if (code === 0) for (const key of Object.keys(next)) delete next[key as keyof Style];
    else if (code === 1) next.bold = true;
    else if (code === 2) next.dim = true;
    else if (code === 3) next.italic = true;
    else if (code === 4) next.underline = true;
    else if (code === 7) next.inverse = true;
    else if (code === 22) {
      delete next.bold;
      delete next.dim;
    } else if (code === 23) delete next.italic;
    else if (code === 24) delete next.underline;
    else if (code === 27) delete next.inverse;
    else if (code >= 30 && code <= 37) next.color = code - 30;
    else if (code === 39) delete next.color;
    else if (code >= 40 && code <= 47) next.background = code - 40;
    else if (code === 49) delete next.background;
    else if (code >= 90 && code <= 97) next.color = code - 82;
    else if (code >= 100 && code <= 107) next.background = code - 92;
    else if (code === 38 || code === 48) {
      const [color, used] = extendedColor(codes.slice(i + 1, i + 5));
      if (color !== undefined) next[code === 38 ? "color" : "background"] = color;
      i += used;
    }
  }
  return next;
}

function extendedColor(codes: number[]): [number | string | undefined, number] {
  const [kind, a = 0, b = 0, c = 0] = codes;
  if (kind === 5) return [indexed(a), 2];
  if (kind === 2) return [rgb(a, b, c), 4];
  return [undefined, Infinity];
}

function indexed(index: number): number | string {
  if (index < 16) return index;
  if (index >= 232) {
    const grey = 8 + (index - 232) * 10;
    return rgb(grey, grey, grey);
  }
  const level = (n: number) => (n === 0 ? 0 : 55 + n * 40);
  const cube = index - 16;
  return rgb(level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6));
}

function rgb(...parts: number[]): string {
  return `#${parts
    .map((p) =>
      Math.max(0, Math.min(255, p | 0))
        .toString(16)
        .padStart(2, "0"),
    )
    .join("")}`;
}
