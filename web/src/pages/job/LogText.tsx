/** The text of a log line: colours, links, and search matches. */

import type { CSSProperties, ReactNode } from "react";

import type { Span, Style } from "../../lib/ansi";
import { type LogLine, splitLinks } from "../../lib/log";
import type { Ranges } from "../../lib/logSearch";
import style from "./log.module.css";

interface Props {
  line: LogLine;
  /** Parts of the text to highlight. */
  matches?: Ranges;
  /** Whether the matches are the selected ones. */
  isSelected?: boolean;
}

export function LogText({ line, matches = [], isSelected = false }: Props) {
  let from = 0;
  return (
    <span className={style.text}>
      {line.spans.map((span, i) => {
        const start = from;
        from += span.text.length;
        return (
          <span key={i} style={styleOf(span.style)}>
            {withLinks(span, start, matches, isSelected)}
          </span>
        );
      })}
    </span>
  );
}

/** Renders URLs as links. */
function withLinks({ text }: Span, start: number, matches: Ranges, isSelected: boolean): ReactNode {
  if (!text.includes("://")) return withHighlights(text, start, matches, isSelected);
  let from = start;
  return splitLinks(text).map(({ text, isLink }, i) => {
    const content = withHighlights(text, from, matches, isSelected);
    from += text.length;
    return isLink ? (
      <a key={i} href={text} target="_blank" rel="noreferrer noopener">
        {content}
      </a>
    ) : (
      <span key={i}>{content}</span>
    );
  });
}

/** Highlights matches in a text that starts at the offset `start` of its line. */
function withHighlights(text: string, start: number, matches: Ranges, isSelected: boolean): ReactNode {
  if (matches.length === 0) return text;
  const parts: ReactNode[] = [];
  let from = 0;
  for (const [a, b] of matches) {
    const [left, right] = [Math.max(0, a - start), Math.min(text.length, b - start)];
    if (right <= 0 || left >= text.length) continue;
    parts.push(text.slice(from, left));
    parts.push(
      <mark key={a} data-now={isSelected || undefined}>
        {text.slice(left, right)}
      </mark>,
    );
    from = right;
  }
  parts.push(text.slice(from));
  return parts;
}

function styleOf(of: Style): CSSProperties | undefined {
  if (Object.keys(of).length === 0) return undefined;
  const color = (value: number | string | undefined) =>
    typeof value === "number" ? `var(--ansi-${value})` : value;
  const [front, back] = of.inverse
    ? [of.background ?? "var(--surface)", of.color ?? "var(--ink)"]
    : [of.color, of.background];
  return {
    color: color(front),
    backgroundColor: color(back),
    fontWeight: of.bold ? 700 : undefined,
    fontStyle: of.italic ? "italic" : undefined,
    textDecoration: of.underline ? "underline" : undefined,
    opacity: of.dim ? 0.65 : undefined,
  };
}
