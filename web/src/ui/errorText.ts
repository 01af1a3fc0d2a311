/** Texts of API errors: localized if possible, else the server's text. */

import type { TFunction } from "i18next";

import i18n from "../i18n";
import { hintKey, messageKey, type ApiError } from "../api/errors";

/**
 * Returns the localized text of an error code, for languages other than English. The server's message, which names
 * the object, becomes the hint.
 */
function translate(apiError: ApiError, t: TFunction): { title: string; hint: string } | null {
  const { code, message } = apiError;
  if (i18n.language === "en" || !i18n.exists(`apiError.${code}`)) return null;
  const hint = hintKey(apiError);
  return {
    title: t(`apiError.${code as "internal"}`),
    hint: hint ? `${message}${t("common.listSeparator")}${t(`hint.${hint}`)}` : message,
  };
}

function hintOf(apiError: ApiError, t: TFunction): string | null {
  const key = hintKey(apiError);
  return key ? t(`hint.${key}`) : apiError.hint;
}

export function errorText(apiError: ApiError, t: TFunction): { title: string; hint: string | null } {
  const key = messageKey(apiError);
  switch (key) {
    case null:
      return translate(apiError, t) ?? { title: apiError.message, hint: hintOf(apiError, t) };
    case "unreachable":
    case "unexpected":
      return { title: t(`problem.${key}`), hint: apiError.hint };
    case "notLoaded":
    case "leaderless":
    case "outcomeUnknown":
    case "noOtherServer":
    case "loginFailed":
    case "noInvitation":
    case "wrongCode":
      return { title: t(`problem.${key}`), hint: t(`problem.${key}Hint`) };
    case "loginThrottled": {
      const count = Math.ceil((apiError.retryAfterMs ?? 1_000) / 1_000);
      return { title: t("problem.loginThrottled"), hint: t("problem.loginThrottledHint", { count }) };
    }
  }
}
