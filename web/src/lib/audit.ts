/** Searches of the audit log. */

import type { AuditOutcome } from "../api/schema";
import { RESOURCES } from "./access";

export const AUDIT_OUTCOMES = [
  "allowed",
  "denied",
  "failed",
  "unknown",
] as const satisfies readonly AuditOutcome[];

/** Ranges to choose from, in days. All entries by default. */
export const AUDIT_DAYS = [1, 7, 30, 90] as const;

/** Search of the audit log, in its address. */
export interface AuditSearch {
  actor?: string;
  object?: string;
  resource?: string;
  outcome?: string;
  /** Range until now, in days. */
  days?: string;
}

const DAY_MS = 24 * 60 * 60 * 1000;

/** Returns the parameters of the API. Unknown words of an address are left out. */
export function auditQueryOf({ actor, object, resource, outcome, days }: AuditSearch, now: Date) {
  const range = AUDIT_DAYS.find((each) => String(each) === days);
  return {
    actor,
    object,
    resource: RESOURCES.find((each) => each === resource),
    outcome: AUDIT_OUTCOMES.find((each) => each === outcome),
    since: range && new Date(now.getTime() - range * DAY_MS).toISOString(),
  };
}
