import { createInstance } from "i18next";
import { expect, test } from "vitest";

import { ApiError } from "../api/errors";
import english from "../i18n/en.json";
import { isLongEnough, passwordError } from "./passwords";

const i18n = createInstance();
await i18n.init({ lng: "en", resources: { en: { translation: english } } });

test("the length of a password is counted in characters", () => {
  expect(isLongEnough("一二三四五六七八九十百千")).toBe(true);
  expect(isLongEnough("🦀".repeat(6))).toBe(false);
  expect(isLongEnough("cafe\u0301 1234567")).toBe(true);
  expect(isLongEnough("elevenchars")).toBe(false);
});

test("a refused password has a text in the language of the page", () => {
  const refused = (path: string, detail: string) =>
    new ApiError("invalid_spec", 422, `${path}: ${detail}`, {
      fields: [{ path, detail, pointer: `/${path}` }],
    });
  const text = (error: ApiError) => passwordError(error, i18n.t).message;
  expect(text(refused("current", "is wrong"))).toBe("The current password is wrong.");
  expect(text(refused("new", "has 5 characters: expected 12 to 128"))).toContain("12 to 128");
  expect(text(refused("password", "is too common: attackers try it first"))).toContain("too common");
  expect(text(refused("password", "is odd"))).toBe("password: is odd");
});
