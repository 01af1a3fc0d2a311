/** Guarantees of schedules, and the policies that they set. */

import type { Delivery, Guarantee, MissedPolicy, OverlapPolicy, ScheduleSpec } from "../api/schema";

export const GUARANTEES = [
  "at_least_once",
  "exactly_once",
  "at_most_once",
  "best_effort",
] as const satisfies readonly Guarantee[];

export interface Policies {
  overlap: OverlapPolicy;
  missed: MissedPolicy;
  /** Delivery of the job. */
  delivery: Delivery;
}

export const DEFAULT_POLICIES: Policies = {
  overlap: "skip",
  missed: "fire_once",
  delivery: "at_least_once",
};

const EVERY_FIRING = { overlap: "buffer_all", missed: "fire_all" } as const;

const POLICIES: Record<Guarantee, Policies> = {
  at_least_once: { ...DEFAULT_POLICIES, ...EVERY_FIRING },
  exactly_once: { ...EVERY_FIRING, delivery: "exactly_once" },
  at_most_once: { ...DEFAULT_POLICIES, delivery: "at_most_once" },
  best_effort: { ...DEFAULT_POLICIES, missed: "skip" },
};

/** Returns the policies of a schedule that sets none of them; without a known guarantee, the defaults. */
export function policiesOf(guarantee: Guarantee | null | undefined): Policies {
  return (guarantee && (POLICIES as Partial<typeof POLICIES>)[guarantee]) ?? DEFAULT_POLICIES;
}

/** Returns the policies of a schedule. Like the server, replaces a default by the policy of the guarantee. */
export function effectivePolicies({ guarantee, overlap, missed, job }: Partial<ScheduleSpec>): Policies {
  const base = policiesOf(guarantee);
  const effective = <T>(written: T | null | undefined, initial: T, base: T): T =>
    written == null || written === initial ? base : written;
  return {
    overlap: effective(overlap?.policy, DEFAULT_POLICIES.overlap, base.overlap),
    missed: effective(missed?.policy, DEFAULT_POLICIES.missed, base.missed),
    delivery: effective(job?.delivery, DEFAULT_POLICIES.delivery, base.delivery),
  };
}

/** A choice of a policy in a form. The default of a policy cannot be chosen if a guarantee replaces it. */
export function policyChoices<T extends string>(
  values: readonly T[],
  initial: T,
  base: T,
): Array<{ value: T; disabled: boolean }> {
  return values.map((value) => ({ value, disabled: value === initial && value !== base }));
}
