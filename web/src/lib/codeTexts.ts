/** Localized texts for warning and reason codes of the server. Codes of a newer server keep their English text. */

import type { TFunction } from "i18next";

import type { Calendar, Guarantee, LedgerEntry, Warning } from "../api/schema";
import i18n from "../i18n";
import english from "../i18n/en.json";

/** Returns the text of a warning. */
export function warningText({ code, params, message }: Warning, t: TFunction): string {
  if (!i18n.exists(`warning.${code}`)) return message;
  // Rules are numbered from 0 in a file, and from 1 in texts.
  const rule = params?.rule === undefined ? undefined : Number(params.rule) + 1;
  const guarantee = guaranteeText(params?.guarantee, t);
  return t(`warning.${code}`, { ...params, rule, guarantee, context: contextOf({ code, params }) });
}

/** Returns the suffix of the text of a warning whose text depends on its parameters. */
function contextOf({ code, params }: Pick<Warning, "code" | "params">): string | undefined {
  if (code === "always_excluded") return params?.filter ? "by" : undefined;
  // A field without a text of its own is named.
  return code === "contradicts_guarantee" ? params?.field?.replaceAll(".", "_") : undefined;
}

function guaranteeText(guarantee: string | undefined, t: TFunction): string | undefined {
  if (guarantee === undefined || !(guarantee in english.guarantee)) return guarantee;
  return t(`guarantee.${guarantee as Guarantee}`);
}

/** Returns the reason of a ledger entry's outcome, after the name of the user who asked for it. */
export function reasonText({ reason, detail }: Pick<LedgerEntry, "reason" | "detail">, t: TFunction): string {
  if (!reason || !i18n.exists(`reason.${reason.code}`)) return detail ?? "";
  const words = t(`reason.${reason.code}`, { value: reason.value ?? "" });
  return reason.requested_by ? `${reason.requested_by}${t("common.listSeparator")}${words}` : words;
}

/** Built-in calendars, by their names after `belfry.`, with `_` for `-`. */
const BUILT_IN = ["cn_holidays", "cn_makeup_days", "cn_workdays"] as const;

/** Returns a calendar's description; localized if it is built in. */
export function calendarDescription({ name, built_in, description }: Calendar, t: TFunction): string {
  const word = BUILT_IN.find((each) => built_in && name === `belfry.${each.replaceAll("_", "-")}`);
  return word ? t(`builtIn.${word}`) : (description ?? "");
}
