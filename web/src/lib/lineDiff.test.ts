/** Logs are compared line by line, in bounded time. */

import { expect, test } from "vitest";

import { collapse, diffLines, type DiffRow } from "./lineDiff";

const short = (rows: readonly DiffRow[] | null) =>
  rows?.map(
    ({ kind, a, b, text }) => `${{ same: " ", removed: "-", added: "+" }[kind]}${a ?? ""}:${b ?? ""} ${text}`,
  );

test("removed, added and equal lines have their line numbers", () => {
  expect(short(diffLines(["start", "old", "end"], ["start", "new", "more", "end"]))).toEqual([
    " 0:0 start",
    "-1: old",
    "+:1 new",
    "+:2 more",
    " 2:3 end",
  ]);
});

test("numbers can be ignored: the line of the second text is shown", () => {
  const [a, b] = [
    ["took 12 ms", "row 7: ok"],
    ["took 9 ms", "row 7: failed"],
  ];
  expect(short(diffLines(a, b, { ignoresNumbers: true }))).toEqual([
    " 0:0 took 9 ms",
    "-1: row 7: ok",
    "+:1 row 7: failed",
  ]);
  expect(diffLines(a, b)?.filter(({ kind }) => kind === "same")).toEqual([]);
});

test("5,000 lines with a few changes are compared quickly, and very different ones are given up in time", () => {
  const a = Array.from({ length: 5_000 }, (_, i) => `row ${i}`);
  const b = a.map((line, i) => (i % 500 === 0 ? `${line} changed` : line));
  expect(diffLines(a, b)?.filter(({ kind }) => kind === "added")).toHaveLength(10);
  const other = a.map((_, i) => `other ${i}`);
  const from = performance.now();
  expect(diffLines(a, other, { timeoutMs: 50 })).toBeNull();
  expect(performance.now() - from).toBeLessThan(2_000);
});

test("equal lines far from changes are collapsed, and can be expanded", () => {
  const a = Array.from({ length: 20 }, (_, i) => `row ${i}`);
  const rows = diffLines(a, [...a.slice(0, 10), "new", ...a.slice(10)]) ?? [];
  const shown = collapse(rows, new Set());
  expect(shown[0]).toEqual({ kind: "gap", from: 0, count: 7 });
  expect(shown.map(({ kind }) => kind)).toEqual([
    "gap",
    ...["same", "same", "same", "added", "same", "same", "same"],
    "gap",
  ]);
  expect(collapse(rows, new Set([0]))).toHaveLength(15);
  // Nothing differs: one gap.
  expect(collapse(diffLines(a, a) ?? [], new Set())).toEqual([{ kind: "gap", from: 0, count: 20 }]);
});
