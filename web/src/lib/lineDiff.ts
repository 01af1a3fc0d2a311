/** Line differences of two texts. */

import { diffArrays } from "diff";

export interface DiffRow {
  kind: "same" | "removed" | "added";
  /** Index of the line in each text; null if the text lacks the line. */
  a: number | null;
  b: number | null;
  text: string;
}

export interface DiffOptions {
  /** Compare lines as if all numbers were equal: times, durations and ids rarely matter. */
  ignoresNumbers?: boolean;
  /** Maximum duration, in ms. */
  timeoutMs?: number;
}

const TIMEOUT_MS = 5_000;
/** Largest number of changed lines that is searched for: the time grows with its square. */
const EDITS_MAX = 8_000;

/** Returns the rows in order; null if the texts are too different to be compared in time. */
export function diffLines(
  a: readonly string[],
  b: readonly string[],
  { ignoresNumbers = false, timeoutMs = TIMEOUT_MS }: DiffOptions = {},
): DiffRow[] | null {
  const key = (line: string) => (ignoresNumbers ? line.replace(/[0-9]+/g, "0") : line);
  const options = { timeout: timeoutMs, maxEditLength: EDITS_MAX };
  const changes = diffArrays(a.map(key), b.map(key), options);
  if (!changes) return null;
  const rows: DiffRow[] = [];
  let [nextA, nextB] = [0, 0];
  for (const { added, removed, count } of changes) {
    for (let i = 0; i < count; i += 1) {
      if (removed) rows.push({ kind: "removed", a: nextA, b: null, text: a[nextA++] ?? "" });
      else if (added) rows.push({ kind: "added", a: null, b: nextB, text: b[nextB++] ?? "" });
      else rows.push({ kind: "same", a: nextA++, b: nextB, text: b[nextB++] ?? "" });
    }
  }
  return rows;
}

/** A row, or equal rows that are not shown: their first index and number. */
export type ShownRow = DiffRow | { kind: "gap"; from: number; count: number };

/** Equal lines shown around changes. */
const CONTEXT = 3;

/** Replaces equal rows far from changes by gaps, except those whose first index is among `expanded`. */
export function collapse(rows: readonly DiffRow[], expanded: ReadonlySet<number>): ShownRow[] {
  const isNear = new Array<boolean>(rows.length).fill(false);
  for (const [i, { kind }] of rows.entries()) {
    if (kind !== "same") isNear.fill(true, Math.max(0, i - CONTEXT), i + CONTEXT + 1);
  }
  const shown: ShownRow[] = [];
  for (let i = 0; i < rows.length;) {
    let end = i;
    while (end < rows.length && !isNear[end]) end += 1;
    // A gap of one line saves nothing.
    if (end - i > 1 && !expanded.has(i)) shown.push({ kind: "gap", from: i, count: end - i });
    else shown.push(...rows.slice(i, end));
    if (end < rows.length) shown.push(rows[end]!);
    i = end + 1;
  }
  return shown;
}
