/** What a form shows of a timing: one rule of a simple kind, the zone, and the calendars that hold it back. */

import type { Filter, Rule, Timing } from "../api/schema";

export const KINDS = ["cron", "every", "after", "at", "demand"] as const;
export type Kind = (typeof KINDS)[number];

export interface Simple {
  kind: Kind;
  /** What the rule says: an expression, a length of time, a time. */
  text: string;
}

/** The rule as a form can show it; null if there are several, or one that has more to it. */
export function simpleOf(timing: Timing | undefined): Simple | null {
  const [rule, ...others] = timing?.rules ?? [];
  if (others.length > 0) return null;
  if (!rule) return { kind: "demand", text: "" };
  const [[kind, value] = ["", null]] = Object.entries(rule) as Array<[string, unknown]>;
  const known = KINDS.find((each) => each === kind);
  return known && typeof value === "string" ? { kind: known, text: value } : null;
}

/** What each kind begins with. */
const STARTS: Record<Kind, string> = { cron: "0 9 * * *", every: "15m", after: "10m", at: "", demand: "" };

export function rulesOf({ kind, text }: Simple): Rule[] {
  if (kind === "demand") return [];
  return [{ [kind]: text }] as unknown as Rule[];
}

/** The rule of a kind that was just chosen; `at` is what the clock of the zone shows. */
export function startOf(kind: Kind, at: string): Simple {
  return { kind, text: kind === "at" ? at : STARTS[kind] };
}

/** The calendars whose days are left out. */
export function calendarsOf(timing: Timing | undefined): string[] {
  return (timing?.exclude ?? []).flatMap((filter) => ("calendar" in filter ? [filter.calendar] : []));
}

/** The filters with other calendars; those of other kinds stay. */
export function excluding(timing: Timing | undefined, calendars: readonly string[]): Filter[] | undefined {
  const others = (timing?.exclude ?? []).filter((filter) => !("calendar" in filter));
  const all = [...others, ...calendars.map((calendar) => ({ calendar }))];
  return all.length > 0 ? all : undefined;
}
