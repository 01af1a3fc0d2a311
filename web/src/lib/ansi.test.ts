import { expect, test } from "vitest";

import { parseAnsi } from "./ansi";

const ESC = "\u001b";
const plain = (line: string) =>
  parseAnsi(line)
    .spans.map((span) => span.text)
    .join("");

test("colours become styles until they are reset", () => {
  const { spans } = parseAnsi(`${ESC}[1;31mred${ESC}[0m plain ${ESC}[38;5;208mx${ESC}[48;2;1;2;3my`);
  expect(spans).toEqual([
    { text: "red", style: { bold: true, color: 1 } },
    { text: " plain ", style: {} },
    { text: "x", style: { color: "#ff8700" } },
    { text: "y", style: { color: "#ff8700", background: "#010203" } },
  ]);
});

test("a line continues with the style of the previous line", () => {
  const { style } = parseAnsi(`${ESC}[92mgreen`);
  expect(parseAnsi("still", style).spans).toEqual([{ text: "still", style: { color: 10 } }]);
});

test("a log can add only text to the page", () => {
  expect(plain(`${ESC}]8;;https://evil.example${ESC}\\link${ESC}]8;;${ESC}\\`)).toBe("link");
  expect(plain(`a${ESC}[2Jb${ESC}[10;20Hc${ESC}]0;title\u0007d`)).toBe("abcd");
  expect(plain("ab\u202ecd\u0008")).toBe("abcd");
  expect(plain("<b>&amp;</b>")).toBe("<b>&amp;</b>");
});

test("a line with carriage returns shows the last text", () => {
  expect(plain(" 10%\r 50%\r100%\r")).toBe("100%");
});

test("a long line of carriage returns or of style codes is parsed in linear time", () => {
  expect(plain(`${"\r".repeat(1 << 20)}x`)).toBe("x");
  expect(plain(`${ESC}[${"38;5;1;".repeat(50_000)}0mx`)).toBe("x");
});
