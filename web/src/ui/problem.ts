/** A refusal in the user's own language where there are words for it, and in the server's where not. */

import type { TFunction } from "i18next";

import i18n from "../i18n";
import { hintKey, messageKey, type ApiError } from "../api/problem";

/** What kind of refusal it is, in a language that the server does not speak. Its own words say which object it is about. */
function translate(refusal: ApiError, t: TFunction): { title: string; hint: string } | null {
  const { code, message } = refusal;
  if (i18n.language === "en" || !i18n.exists(`refusal.${code}`)) return null;
  const hint = hintKey(refusal);
  return {
    title: t(`refusal.${code as "internal"}`),
    hint: hint ? `${message}${t("common.listSeparator")}${t(`hint.${hint}`)}` : message,
  };
}

function hintOf(refusal: ApiError, t: TFunction): string | null {
  const key = hintKey(refusal);
  return key ? t(`hint.${key}`) : refusal.hint;
}

export function errorText(refusal: ApiError, t: TFunction): { title: string; hint: string | null } {
  const own = messageKey(refusal);
  switch (own) {
    case null:
      return translate(refusal, t) ?? { title: refusal.message, hint: hintOf(refusal, t) };
    case "unreachable":
    case "unexpected":
      return { title: t(`problem.${own}`), hint: refusal.hint };
    case "notLoaded":
    case "leaderless":
    case "outcomeUnknown":
    case "noOtherServer":
      return { title: t(`problem.${own}`), hint: t(`problem.${own}Hint`) };
  }
}
