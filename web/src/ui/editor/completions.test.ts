import { expect, test } from "vitest";

import { pathAbove } from "./completions";

test("the path above a line consists of its parents by indentation", () => {
  const lines = [
    "name: a",
    "retry:",
    "  max_retries: 3",
    "run:",
    "  process:",
    "    script: |",
    "      echo: x",
    "",
  ];
  expect(pathAbove(lines, 4)).toEqual(["run", "process"]);
  expect(pathAbove(lines, 2)).toEqual(["run"]);
  expect(pathAbove(lines, 0)).toEqual([]);
});
