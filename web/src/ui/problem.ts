/** A refusal in the user's own language where there are words for it, and in the server's where not. */

import type { TFunction } from "i18next";

import { ownWords, type Refusal } from "../api/problem";

export function wordsOf(refusal: Refusal, t: TFunction): { title: string; hint: string | null } {
  const own = ownWords(refusal);
  switch (own) {
    case null:
      return { title: refusal.message, hint: refusal.hint };
    case "unreachable":
    case "unexpected":
      return { title: t(`problem.${own}`), hint: refusal.hint };
    case "leaderless":
    case "outcomeUnknown":
    case "noOtherServer":
      return { title: t(`problem.${own}`), hint: t(`problem.${own}Hint`) };
  }
}
