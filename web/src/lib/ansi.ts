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
// Remaining control characters, and characters that change the text direction.

const INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** Parses a line, starting with the style at the end of the previous line. */
export function parseAnsi(line: string, before: Style = {}): { spans: Span[]; style: Style } {
  if (!line.includes("\u001b")) {
    const text = clean(line);
    return { spans: text === "" ? [] : [{ text, style: before }], style: before };
  }
  const spans: Span[] = [];
  let style = before;
  let from = 0;
  const addSpan = (until: number) => {
    const text = clean(line.slice(from, until));
    if (text !== "") spans.push({ text, style });
  };
  for (const match of line.matchAll(ESCAPES)) {
    addSpan(match.index);
    from = match.index + match[0].length;
    if (match[2] === "m") style = applySgr(style, match[1] ?? "");
  }
  addSpan(line.length);
  return { spans, style };
}

function clean(text: string): string {
  // A progress bar overwrites itself: only the last text is visible.
  // Without `/\r+$/`, which takes quadratic time.
  let end = text.length;
  while (text[end - 1] === "\r") end -= 1;
  return text.slice(text.lastIndexOf("\r", end - 1) + 1, end).replace(INVISIBLE, "");
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
