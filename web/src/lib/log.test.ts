import { expect, test } from "vitest";

import { linesOfPage, LogLines, splitLinks } from "./log";

const entry = (text: string, stream = "stdout") => ({
  next_offset: 0,
  at: "2026-11-21T00:00:00Z",
  stream,
  text,
});

function render(...entries: ReturnType<typeof entry>[]): string[] {
  const lines = new LogLines();
  for (const each of entries) lines.push([each]);
  return lines.lines.map((line) => `${line.number} ${line.stream} ${line.text}`);
}

test("an entry with several lines is several lines", () => {
  expect(render(entry("a\nb\n\nc\n"))).toEqual(["1 stdout a", "2 stdout b", "3 stdout ", "4 stdout c"]);
});

test("an entry without a line end continues in the next entry of its stream", () => {
  expect(render(entry("dow"), entry("err\n", "stderr"), entry("nload"), entry(" done\nnext"))).toEqual([
    "1 stderr err",
    "2 stdout download done",
    "3 stdout next",
  ]);
});

test("lines are numbered by their ends, as on the server, at any interleaving of streams", () => {
  // The server counts line ends: `line=2` starts after the first one.
  const whole = render(entry("50 %"), entry("a\nb\n", "stderr"), entry(" 100 %\n"), entry("c\n", "stderr"));
  expect(whole).toEqual(["1 stderr a", "2 stderr b", "3 stdout 50 % 100 %", "4 stderr c"]);
  const part = new LogLines(4);
  part.push([entry("c\n", "stderr")]);
  expect(part.lines.map(({ number, text }) => `${number} ${text}`)).toEqual(["4 c"]);
});

test("incomplete lines come last, in the order of the server's search", () => {
  expect(render(entry("err", "stderr"), entry("out"), entry("put"))).toEqual([
    "1 stdout output",
    "2 stderr err",
  ]);
  expect(render(entry("out"), entry("err", "stderr"), entry("or\n", "stderr"))).toEqual([
    "1 stderr error",
    "2 stdout out",
  ]);
});

test("a part of a log omits incomplete lines, whose numbers are unknown", () => {
  const lines = new LogLines(5);
  lines.push([entry("a\nb")]);
  expect(lines.completeLines.map(({ number }) => number)).toEqual([5]);
});

test("an escape sequence split across entries is parsed as one", () => {
  const lines = new LogLines();
  lines.push([entry("\u001b[3"), entry("1mred\n"), entry("still red\u001b[0m\n")]);
  expect(lines.lines.map((line) => line.spans)).toEqual([
    [{ text: "red", style: { color: 1 } }],
    [{ text: "still red", style: { color: 1 } }],
  ]);
});

test("an endless log does not fill the memory", () => {
  const lines = new LogLines();
  const many = "x\n".repeat(1_000);
  for (let i = 0; i < 80; i += 1) lines.push([entry(many)]);
  expect(lines.lines.length).toBeLessThan(LogLines.LINES_MAX * 1.2);
  expect(lines.lines.at(-1)?.number).toBe(80_000);
});

test("HTTP URLs are links; trailing punctuation and other schemes are not", () => {
  const links = (text: string) => splitLinks(text).flatMap(({ text, isLink }) => (isLink ? [text] : []));
  expect(links("see https://a.example/x?y=1, or (http://b.example).")).toEqual([
    "https://a.example/x?y=1",
    "http://b.example",
  ]);
  expect(links("javascript://x data:text/html,x")).toEqual([]);
  expect(
    splitLinks("a http://b c")
      .map(({ text }) => text)
      .join(""),
  ).toBe("a http://b c");
});

test("a line cut at the end of a response is left for the next part", () => {
  const lines = (text: string, complete: boolean) =>
    linesOfPage({ items: [entry(text)], next_offset: 9, complete, first_line: 7 }).map(
      ({ number, text }) => `${number} ${text}`,
    );
  expect(lines("a\nb", false)).toEqual(["7 a"]);
  expect(lines("a\nb", true)).toEqual(["7 a", "8 b"]);
  expect(lines("one very long line", false)).toEqual(["7 one very long line"]);
});
