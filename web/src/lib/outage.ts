/** What is the matter while nothing comes from the server, and whether it is worth a word yet. */

import type { FeedStatus } from "../api/feed";
import { isTakeover } from "../api/errors";

export type Outage =
  /** Nobody answers. */
  | "unreachable"
  /** A server answers, and waits until another one, or itself, leads. */
  | "takeOver"
  /** The same, for so long that somebody must look. */
  | "leaderless"
  /** A server answers, and its database does not. */
  | "store";

/** A moment's silence is not worth a word. */
const UNREACHABLE_GRACE_MS = 1_500;
/** A take-over is over within seconds. After this long it does not come by itself. */
const TAKEOVER_MAX_MS = 15_000;

/** What is the matter, as far as a lost feed tells; `null` if nothing is. */
export function outage({ state, lostAt, error }: FeedStatus, now: number): Outage | null {
  if (state !== "lost" || lostAt === null) return null;
  if (error && isTakeover(error)) return now - lostAt < TAKEOVER_MAX_MS ? "takeOver" : "leaderless";
  if (error?.code === "store_unavailable") return "store";
  return "unreachable";
}

/** The same, but not before it is worth a word: what a server says is, and silence is after a moment. */
export function visibleOutage(status: FeedStatus, now: number): Outage | null {
  const found = outage(status, now);
  const isSilence = found === "unreachable" && now - (status.lostAt ?? now) < UNREACHABLE_GRACE_MS;
  return isSilence ? null : found;
}
