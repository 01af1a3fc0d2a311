/** G3. Every apiError of the server has words in the user's language: its codes are read where they are made. */

import { readFileSync } from "node:fs";
import { join } from "node:path";

import { expect, test } from "vitest";

import { hintKey, messageKey, ApiError } from "../api/errors";
import chinese from "./zh-CN.json";

const SOURCE = join(import.meta.dirname, "../../../crates/model/src/api/code.rs");

test("every code of a apiError has a text", () => {
  const codes = [...readFileSync(SOURCE, "utf8").matchAll(/= [45]\d\d, "(\w+)",/g)].map(
    (match) => match[1] ?? "",
  );
  expect(codes.length).toBeGreaterThan(40);
  const isOwn = (code: string) => messageKey(new ApiError(code, 0, "")) !== null;
  const told = new Set(Object.keys(chinese.apiError));
  expect(codes.filter((code) => !told.has(code) && !isOwn(code))).toEqual([]);
  expect([...told].filter((code) => !codes.includes(code))).toEqual([]);
});

test("a hint that is for programs is replaced by one for people", () => {
  const codes = [...readFileSync(SOURCE, "utf8").matchAll(/= [45]\d\d, "(\w+)", ".*?", "(.*)";/g)];
  expect(codes.length).toBeGreaterThan(40);
  const shown = codes
    .filter(([, code = ""]) => messageKey(new ApiError(code, 0, "")) === null)
    .map(([, code = "", hint = ""]) => ({ code, hint }))
    .filter((apiError) => hintKey(apiError) === null);
  // A header, a method, a path of the API or a field of its answers.
  const ofTheApi = /`[A-Z][A-Za-z-]+(:|`)|\b(GET|PUT|POST)\b|\/api\/|\/docs|`errors`|`cursor`|ETag/;
  expect(shown.filter(({ hint }) => ofTheApi.test(hint))).toEqual([]);
});
