/** Outcomes and causes of ledger entries, and their colours. */

import type { FiringCause, FiringOutcome, JobStatus } from "../api/schema";

export const OUTCOMES = [
  "fired",
  "fired_late",
  "buffered",
  "coalesced",
  "skipped_overlap",
  "skipped_calendar",
  "skipped_window",
  "skipped_pause",
  "skipped_deadline",
  "skipped_policy",
  "skipped_replaced",
  "skipped_limit",
  "not_started",
] as const satisfies readonly FiringOutcome[];

export const CAUSES = [
  "timer",
  "catch_up",
  "manual",
  "backfill",
  "retry",
] as const satisfies readonly FiringCause[];

/** Returns the colour of an outcome, as the job status with a similar meaning. */
export function outcomeTone(outcome: FiringOutcome): JobStatus {
  switch (outcome) {
    case "fired":
      return "succeeded";
    case "fired_late":
      return "retrying";
    case "buffered":
      return "waiting";
    case "coalesced":
    case "skipped_calendar":
    case "skipped_window":
    case "skipped_replaced":
      return "cancelled";
    case "skipped_overlap":
    case "skipped_pause":
    case "skipped_policy":
      return "expired";
    case "skipped_deadline":
    case "skipped_limit":
    case "not_started":
      return "failed";
  }
}

/** Parses outcomes of a URL, such as `fired,skipped_limit`; unknown ones are ignored. */
export function parseOutcomes(text: string | undefined): FiringOutcome[] {
  const words = text?.split(",") ?? [];
  return OUTCOMES.filter((outcome) => words.includes(outcome));
}
