/** What the server says in codes, in the user's language; its own English where the code is a newer one's. */

import type { TFunction } from "i18next";

import type { Calendar, LedgerEntry, Warning } from "../api/schema";
import i18n from "../i18n";

/** What somebody should know about a schedule. */
export function warningText({ code, params, message }: Warning, t: TFunction): string {
  if (!i18n.exists(`warning.${code}`)) return message;
  // A rule's place counts from 0 in a file, and from 1 among people.
  const rule = params?.rule === undefined ? undefined : Number(params.rule) + 1;
  const context = code === "always_held" && params?.filter ? "by" : undefined;
  return t(`warning.${code}`, { ...params, rule, context });
}

/** Why an instant has its outcome; who asked stands before it. */
export function reasonText({ reason, detail }: Pick<LedgerEntry, "reason" | "detail">, t: TFunction): string {
  if (!reason || !i18n.exists(`reason.${reason.code}`)) return detail ?? "";
  const words = t(`reason.${reason.code}`, { value: reason.value ?? "" });
  return reason.asked_by ? `${reason.asked_by}${t("common.listSeparator")}${words}` : words;
}

/** The built-in calendars, by what stands behind `belfry.`. */
const BUILT_IN = ["cn_holidays", "cn_makeup_days", "cn_workdays"] as const;

/** What a calendar is: a built-in one in the user's language. */
export function calendarDescription({ name, built_in, description }: Calendar, t: TFunction): string {
  const word = BUILT_IN.find((each) => built_in && name === `belfry.${each.replaceAll("_", "-")}`);
  return word ? t(`builtIn.${word}`) : (description ?? "");
}
