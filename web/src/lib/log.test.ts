import { expect, test } from "vitest";

import { LogLines, occurrences } from "./log";

const entry = (text: string, stream = "stdout") => ({
  next_offset: 0,
  at: "2026-11-21T00:00:00Z",
  stream,
  text,
});

function shown(...entries: ReturnType<typeof entry>[]): string[] {
  const lines = new LogLines();
  for (const each of entries) lines.push([each]);
  return lines.lines.map((line) => `${line.number} ${line.stream} ${line.text}`);
}

test("an entry with several lines is several lines", () => {
  expect(shown(entry("a\nb\n\nc\n"))).toEqual(["1 stdout a", "2 stdout b", "3 stdout ", "4 stdout c"]);
});

test("a piece without an end goes on in the next piece of its stream", () => {
  expect(shown(entry("dow"), entry("err\n", "stderr"), entry("nload"), entry(" done\nnext"))).toEqual([
    "1 stdout download done",
    "2 stderr err",
    "3 stdout next",
  ]);
});

test("a colour that was cut in two is one colour", () => {
  const lines = new LogLines();
  lines.push([entry("\u001b[3"), entry("1mred\n"), entry("still red\u001b[0m\n")]);
  expect(lines.lines.map((line) => line.spans)).toEqual([
    [{ text: "red", style: { color: 1 } }],
    [{ text: "still red", style: { color: 1 } }],
  ]);
});

test("a log without an end does not fill the memory", () => {
  const lines = new LogLines();
  const many = "x\n".repeat(1_000);
  for (let i = 0; i < 80; i += 1) lines.push([entry(many)]);
  expect(lines.lines.length).toBeLessThan(LogLines.LINES_MAX * 1.2);
  expect(lines.count).toBe(80_000);
  expect(lines.lines.at(-1)?.number).toBe(80_000);
});

test("words are found without regard to case", () => {
  expect(occurrences("Error: error", "ERROR")).toEqual([
    [0, 5],
    [7, 12],
  ]);
  expect(occurrences("abc", "")).toEqual([]);
});
