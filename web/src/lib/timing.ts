/** What a form shows of a timing: one rule of a simple kind, the zone, and the calendars that hold it back. */

import type { Filter, Rule, Timing } from "../api/schema";

export const RULE_KINDS = ["cron", "every", "after", "at", "demand"] as const;
export type RuleKind = (typeof RULE_KINDS)[number];

export interface SimpleRule {
  kind: RuleKind;
  /** What the rule says: an expression, a length of time, a time. */
  text: string;
}

/** The rule as a form can show it; null if there are several, or one that has more to it. */
export function toSimpleRule(timing: Timing | undefined): SimpleRule | null {
  const [rule, ...others] = timing?.rules ?? [];
  if (others.length > 0) return null;
  if (!rule) return { kind: "demand", text: "" };
  const [[kind, value] = ["", null]] = Object.entries(rule) as Array<[string, unknown]>;
  const known = RULE_KINDS.find((each) => each === kind);
  return known && typeof value === "string" ? { kind: known, text: value } : null;
}

/** What each kind begins with. */
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

/** The rule of a kind that was just chosen; `at` is what the clock of the zone shows. */
export function initialRule(kind: RuleKind, at: string): SimpleRule {
  return { kind, text: kind === "at" ? at : INITIAL_TEXTS[kind] };
}

/** The calendars whose days are left out. */
export function calendarsOf(timing: Timing | undefined): string[] {
  return (timing?.exclude ?? []).flatMap((filter) => ("calendar" in filter ? [filter.calendar] : []));
}

/** The filters with other calendars; those of other kinds stay. */
export function withExcludedCalendars(
  timing: Timing | undefined,
  calendars: readonly string[],
): Filter[] | undefined {
  const others = (timing?.exclude ?? []).filter((filter) => !("calendar" in filter));
  const all = [...others, ...calendars.map((calendar) => ({ calendar }))];
  return all.length > 0 ? all : undefined;
}
