/** G3. Every refusal of the server has words in the user's language: its codes are read where they are made. */

import { readFileSync } from "node:fs";
import { join } from "node:path";

import { expect, test } from "vitest";

import { ownWords, Refusal } from "../api/problem";
import chinese from "./zh-CN.json";

const SOURCE = join(import.meta.dirname, "../../../crates/server/src/api/problem.rs");

test("every code of a refusal has a text", () => {
  const codes = [...readFileSync(SOURCE, "utf8").matchAll(/= [45]\d\d, "(\w+)",/g)].map(
    (match) => match[1] ?? "",
  );
  expect(codes.length).toBeGreaterThan(40);
  const isOwn = (code: string) => ownWords(new Refusal(code, 0, "")) !== null;
  const told = new Set(Object.keys(chinese.refusal));
  expect(codes.filter((code) => !told.has(code) && !isOwn(code))).toEqual([]);
  expect([...told].filter((code) => !codes.includes(code))).toEqual([]);
});
