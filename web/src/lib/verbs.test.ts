import { expect, test } from "vitest";

import { typedActions, type Verb } from "./verbs";

const CHINESE: Partial<Record<Verb, string>> = { pause: "暂停", resume: "恢复", uncordon: "恢复调度" };
const english = (text: string) => typedActions(text, (verb) => verb);
const chinese = (text: string) => typedActions(text, (verb) => CHINESE[verb] ?? verb);

test("a verb is recognized by its beginning, and the rest is a name", () => {
  expect(english("pause Nightly")).toEqual([{ verb: "pause", name: "nightly" }]);
  expect(english("re").map(({ verb }) => verb)).toEqual(["resume", "retry"]);
  expect(english("p")).toEqual([]);
  expect(english("")).toEqual([]);
  expect(english("paused-one"), "a name that begins like a verb").toEqual([]);
});

test("Chinese verbs need no space, and English ones are known in Chinese too", () => {
  expect(chinese("暂停nightly")).toEqual([{ verb: "pause", name: "nightly" }]);
  expect(chinese("暂")).toEqual([{ verb: "pause", name: "" }]);
  expect(chinese("drain vm")).toEqual([{ verb: "drain", name: "vm" }]);
  expect(chinese("恢复").map(({ verb }) => verb)).toEqual(["resume", "uncordon"]);
});
