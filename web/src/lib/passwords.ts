/** Rules of passwords, as far as the page checks them, and the texts of those that the server checks. */

import type { TFunction } from "i18next";

import { ApiError } from "../api/errors";

/** Minimum and maximum length of a password, in characters. */
export const PASSWORD_CHARS_MIN = 12;
const PASSWORD_CHARS_MAX = 128;

/** Returns whether a password is long enough: the server counts characters, not UTF-16 units. */
export function isLongEnough(password: string): boolean {
  return Array.from(password.normalize("NFKC")).length >= PASSWORD_CHARS_MIN;
}

const REFUSALS = [
  [/^has \d+ characters/, "length"],
  [/name of the account/, "isName"],
  [/too common/, "tooCommon"],
  [/control characters/, "control"],
  [/^is wrong$/, "wrong"],
  [/^is wrong: compare the clock/, "wrongCode"],
  [/^has expired: start again/, "expired"],
] as const satisfies ReadonlyArray<[RegExp, string]>;

/** Returns the error of a form with a password, with the text of the refused password in the language of the page. */
export function passwordError(error: unknown, t: TFunction): ApiError {
  const apiError = ApiError.from(error);
  const detail = apiError.fields.length === 1 ? (apiError.fields[0]?.detail ?? "") : "";
  const key = REFUSALS.find(([pattern]) => pattern.test(detail))?.[1];
  if (key === undefined) return apiError;
  const params = { min: PASSWORD_CHARS_MIN, max: PASSWORD_CHARS_MAX };
  const { code, status } = apiError;
  return new ApiError(code, status, t(`password.refused.${key}`, params), { hint: null });
}
