import { afterEach, expect, test, vi } from "vitest";

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

afterEach(() => vi.restoreAllMocks());

/** Returns the number of characters in all texts that are searched, split or replaced. */
function processedCharacters(run: () => void): number {
  let count = 0;
  for (const method of ["split", "replace", "matchAll", "includes", "lastIndexOf", "startsWith"] as const) {
    // eslint-disable-next-line @typescript-eslint/unbound-method -- it is called with its own `this`
    const original = String.prototype[method] as (...args: unknown[]) => unknown;
    vi.spyOn(String.prototype, method).mockImplementation(function (this: string, ...args: unknown[]) {
      count += this.length;
      return original.apply(this, args) as never;
    });
  }
  // eslint-disable-next-line @typescript-eslint/unbound-method -- it is called with its own `this`
  const exec = RegExp.prototype.exec;
  vi.spyOn(RegExp.prototype, "exec").mockImplementation(function (this: RegExp, text: string) {
    count += text.length;
    return exec.call(this, text);
  });
  run();
  vi.restoreAllMocks();
  return count;
}

test.each([
  ["text", "downloading "],
  ["a progress bar", "\r 50 % of the file"],
  ["colours", "\u001b[32mok\u001b[0m "],
  ["a sequence in two parts", "1mred\u001b[3"],
  ["parameters that never end", "\u001b[38;5;1"],
  ["one sequence that never ends", ";38;5"],
  ["a title that never ends", "\u001b]0;title"],
  ["several streams", "x"],
])("the cost of a long line without a line end grows with its length: %s", (name, part) => {
  const write = (parts: number) =>
    processedCharacters(() => {
      const lines = new LogLines();
      if (name === "one sequence that never ends") lines.push([entry("\u001b[")]);
      for (let i = 0; i < parts; i += 1) {
        lines.push([entry(part, name === "several streams" && i % 2 ? "stderr" : "stdout")]);
      }
    });
  const once = write(500);
  expect(once).toBeGreaterThan(500 * part.length - 1);
  // It would be four times as many if each part read the earlier ones again.
  expect(write(1_000)).toBeLessThan(once * 2.1);
  expect(once).toBeLessThan(500 * part.length * 20);
});

test("a line in parts has the same spans as in one, wherever it is cut", () => {
  const escape = "\u001b";
  const lines = [
    "10 %\r20 %\r\r30 %\r",
    `${escape}[1;31mred${escape}[0m plain${escape}[2K\rover${escape}[0m\r\rlast`,
    `a${escape}]8;;https://a.example${escape}\\link${escape}]8;;\u0007 b${escape}]0;open`,
    `${escape}${escape}[3${escape}[38;5;208mx${escape}[12é${escape}(B${escape}`,
    `tail ${escape}[38;2;1`,
    `a\r\u0000${escape}[${"1".repeat(300)}mlong`,
  ];
  const spansOf = (parts: readonly string[]) => {
    const log = new LogLines();
    for (const part of parts) log.push([entry(part)]);
    return log.lines.map(({ spans, text }) => ({ spans, text }));
  };
  for (const line of lines) {
    const whole = spansOf([line]);
    expect(spansOf([...line])).toEqual(whole);
    for (let i = 1; i < line.length; i += 1) {
      expect(spansOf([line.slice(0, i), line.slice(i)]), JSON.stringify(line.slice(0, i))).toEqual(whole);
    }
    expect(spansOf([...line, "\n"]).length).toBe(1);
  }
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
