import { expect, test } from "vitest";

import { join, split } from "./shell";

test("a command line is split as by a shell", () => {
  expect(split(`sh -c 'echo "hi"  there' a\\ b "c \\"d\\""`)).toEqual([
    "sh",
    "-c",
    'echo "hi"  there',
    "a b",
    'c "d"',
  ]);
  expect(split("  ")).toEqual([]);
  expect(split(`echo ''`)).toEqual(["echo", ""]);
  expect(split(`echo 'open`)).toBeNull();
});

test("joined words are split into the same words", () => {
  for (const words of [["echo", "it's", "$HOME", "a b", "", "\\", '"'], ["x"]]) {
    expect(split(join(words))).toEqual(words);
  }
});
