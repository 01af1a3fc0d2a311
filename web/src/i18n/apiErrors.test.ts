/** G3. Every API error code has a localized text. The codes are read from the server's source. */

import { readFileSync } from "node:fs";
import { join } from "node:path";

import { expect, test } from "vitest";

import { hintKey, messageKey, ApiError } from "../api/errors";
import chinese from "./zh-CN.json";

const SOURCE = join(import.meta.dirname, "../../../crates/model/src/api/code.rs");

test("every API error code has a text", () => {
  const codes = [...readFileSync(SOURCE, "utf8").matchAll(/= [45]\d\d, "(\w+)",/g)].map(
    (match) => match[1] ?? "",
  );
  expect(codes.length).toBeGreaterThan(40);
  const isOwn = (code: string) => messageKey(new ApiError(code, 0, "")) !== null;
  const translated = new Set(Object.keys(chinese.apiError));
  expect(codes.filter((code) => !translated.has(code) && !isOwn(code))).toEqual([]);
  expect([...translated].filter((code) => !codes.includes(code))).toEqual([]);
});

test("hints for API clients are replaced by hints for users", () => {
  const codes = [...readFileSync(SOURCE, "utf8").matchAll(/= [45]\d\d, "(\w+)", ".*?", "(.*)";/g)];
  expect(codes.length).toBeGreaterThan(40);
  const shown = codes
    .filter(([, code = ""]) => messageKey(new ApiError(code, 0, "")) === null)
    .map(([, code = "", hint = ""]) => ({ code, hint }))
    .filter((apiError) => hintKey(apiError) === null);
  // A header, method, path or response field of the API.
  const ofTheApi = /`[A-Z][A-Za-z-]+(:|`)|\b(GET|PUT|POST)\b|\/api\/|\/docs|`errors`|`cursor`|ETag/;
  expect(shown.filter(({ hint }) => ofTheApi.test(hint))).toEqual([]);
});
