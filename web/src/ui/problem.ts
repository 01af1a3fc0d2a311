/** A refusal in the user's own language where there are words for it, and in the server's where not. */

import type { TFunction } from "i18next";

import i18n from "../i18n";
import { ownWords, type Refusal } from "../api/problem";

/** What kind of refusal it is, in a language that the server does not speak. Its own words say which object it is about. */
function translated({ code, message }: Refusal, t: TFunction): { title: string; hint: string } | null {
  const isKnown = i18n.language !== "en" && i18n.exists(`refusal.${code}`);
  return isKnown ? { title: t(`refusal.${code as "internal"}`), hint: message } : null;
}

export function wordsOf(refusal: Refusal, t: TFunction): { title: string; hint: string | null } {
  const own = ownWords(refusal);
  switch (own) {
    case null:
      return translated(refusal, t) ?? { title: refusal.message, hint: refusal.hint };
    case "unreachable":
    case "unexpected":
      return { title: t(`problem.${own}`), hint: refusal.hint };
    case "leaderless":
    case "outcomeUnknown":
    case "noOtherServer":
      return { title: t(`problem.${own}`), hint: t(`problem.${own}Hint`) };
  }
}
