/** The part of a timing that the form shows: one simple rule, the zone, and the excluded calendars. */

import type { Filter, Rule, Timing } from "../api/schema";

export const RULE_KINDS = ["cron", "every", "after", "at", "demand"] as const;
export type RuleKind = (typeof RULE_KINDS)[number];

export interface SimpleRule {
  kind: RuleKind;
  /** Value of the rule: an expression, a duration, or a time. */
  text: string;
}

/** Returns the rule as the form shows it; null if there are several, or a complex one. */
export function toSimpleRule(timing: Timing | undefined): SimpleRule | null {
  const [rule, ...others] = timing?.rules ?? [];
  if (others.length > 0) return null;
  if (!rule) return { kind: "demand", text: "" };
  const [[kind, value] = ["", null]] = Object.entries(rule) as Array<[string, unknown]>;
  const known = RULE_KINDS.find((each) => each === kind);
  return known && typeof value === "string" ? { kind: known, text: value } : null;
}

/** Initial value of each kind. */
const INITIAL_TEXTS: Record<RuleKind, string> = {
  cron: "0 9 * * *",
  every: "15m",
  after: "10m",
  at: "",
  demand: "",
};

export function toRules({ kind, text }: SimpleRule): Rule[] {
  if (kind === "demand") return [];
  return [{ [kind]: text }] as unknown as Rule[];
}

/** Returns the initial rule of a kind; `at` is the local time in the zone. */
export function initialRule(kind: RuleKind, at: string): SimpleRule {
  return { kind, text: kind === "at" ? at : INITIAL_TEXTS[kind] };
}

/** Returns the excluded calendars. */
export function calendarsOf(timing: Timing | undefined): string[] {
  return (timing?.exclude ?? []).flatMap((filter) => ("calendar" in filter ? [filter.calendar] : []));
}

/** Returns the filters with other calendars; other filters are kept. */
export function withExcludedCalendars(
  timing: Timing | undefined,
  calendars: readonly string[],
): Filter[] | undefined {
  const others = (timing?.exclude ?? []).filter((filter) => !("calendar" in filter));
  const all = [...others, ...calendars.map((calendar) => ({ calendar }))];
  return all.length > 0 ? all : undefined;
}
