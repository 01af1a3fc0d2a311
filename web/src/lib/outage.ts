/** Causes of a lost feed, and when to report them. */

import type { FeedStatus } from "../api/feed";
import { isTakeover } from "../api/errors";

export type Outage =
  /** No server responds. */
  | "unreachable"
  /** A server responds, and a takeover is in progress. */
  | "takeOver"
  /** The takeover has taken too long: an operator must act. */
  | "leaderless"
  /** A server responds, but its store does not. */
  | "store";

/** Grace period before an unreachable server is reported. */
const UNREACHABLE_GRACE_MS = 1_500;
/** A takeover takes seconds. After this time an operator must act. */
const TAKEOVER_MAX_MS = 15_000;

/** Returns the cause of a lost feed; null while it is not lost. */
export function outage({ state, lostAt, error }: FeedStatus, now: number): Outage | null {
  if (state !== "lost" || lostAt === null) return null;
  if (error && isTakeover(error)) return now - lostAt < TAKEOVER_MAX_MS ? "takeOver" : "leaderless";
  if (error?.code === "store_unavailable") return "store";
  return "unreachable";
}

/** Returns the outage to show: `unreachable` only after the grace period, others at once. */
export function visibleOutage(status: FeedStatus, now: number): Outage | null {
  const cause = outage(status, now);
  const isSilence = cause === "unreachable" && now - (status.lostAt ?? now) < UNREACHABLE_GRACE_MS;
  return isSilence ? null : cause;
}
