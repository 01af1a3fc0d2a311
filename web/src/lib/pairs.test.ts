import { expect, test } from "vitest";

import { parsePairs } from "./pairs";

test("a value may contain the separator, and spaces", () => {
  expect(parsePairs("A=1\n B = x=y \nno pair\n\nC=", "=")).toEqual({ A: "1", B: " x=y ", C: "" });
});

test("a value after a separator with a space has no spaces around it", () => {
  const text = "Accept: text/plain \nX-Time:12:30\nHost";
  expect(parsePairs(text, ": ")).toEqual({ Accept: "text/plain", "X-Time": "12:30" });
});
