/** Failure groups: the filters of their list, the hours of their charts, and the group of a job. */

import type { FailureGroup, FailureState, FailuresOfHour, Job, paths } from "../api/schema";
import { sinceTime } from "./filters";

export type FailuresQuery = NonNullable<paths["/api/v1/failures"]["get"]["parameters"]["query"]>;
export type FailureOrder = NonNullable<FailuresQuery["order"]>;

export const FAILURE_STATES = [
  "open",
  "known",
  "muted",
  "resolved",
] as const satisfies readonly FailureState[];
export const FAILURE_ORDERS = ["last_seen", "first_seen", "count"] as const satisfies readonly FailureOrder[];
/** Ages of the newest failure that the list offers; without one, it shows groups of any age. */
export const FAILURE_SPANS = ["24h", "7d"] as const;

/** Filters of the list, as in its address. */
export interface FailuresSearch {
  /** States, separated by commas, or `all`. Without it: `open` and `known`. */
  state?: string;
  /** A job name. */
  name?: string;
  /** A part of the message or of a job name. */
  text?: string;
  namespace?: string;
  /** A span that ends now, such as `24h`. */
  since?: string;
  order?: string;
}

const ALL = "all";
const DEFAULT_STATES = "open,known";

/** Returns the states that a list shows. */
export function statesOf({ state = DEFAULT_STATES }: FailuresSearch): FailureState[] {
  const words = state.split(",");
  const chosen = FAILURE_STATES.filter((each) => words.includes(each));
  return chosen.length > 0 ? chosen : [...FAILURE_STATES];
}

/** Shows a state if it was hidden, else hides it. A list of no state shows all. */
export function withState(search: FailuresSearch, toggled: FailureState): FailuresSearch {
  const shown = statesOf(search);
  const next = FAILURE_STATES.filter((each) => shown.includes(each) !== (each === toggled)).join(",");
  const isAll = next === "" || next === FAILURE_STATES.join(",");
  return { ...search, state: isAll ? ALL : next === DEFAULT_STATES ? undefined : next };
}

export function orderOf({ order }: FailuresSearch): FailureOrder {
  return FAILURE_ORDERS.find((each) => each === order) ?? "last_seen";
}

/** Returns the API query for the filters of a list. */
export function toFailuresQuery(search: FailuresSearch, now: number): FailuresQuery {
  const states = statesOf(search);
  return {
    namespace: search.namespace,
    name: search.name,
    text: search.text,
    state: states.length === FAILURE_STATES.length ? undefined : states.join(","),
    since: search.since && sinceTime(search.since, now),
    order: orderOf(search),
  };
}

const HOUR_MS = 3_600_000;

/** An hour of a chart. */
export interface FailedHour {
  /** Start and end, in ms since the epoch. */
  from: number;
  to: number;
  failed: number;
}

/** Returns `count` hours without gaps; the last one contains `end`. */
export function hoursUntil(hours: readonly FailuresOfHour[], end: number, count: number): FailedHour[] {
  const failed = new Map(hours.map(({ at, count }) => [Date.parse(at), count]));
  const last = Math.floor(end / HOUR_MS) * HOUR_MS;
  return Array.from({ length: count }, (_, i) => {
    const from = last - (count - 1 - i) * HOUR_MS;
    return { from, to: from + HOUR_MS, failed: failed.get(from) ?? 0 };
  });
}

/** Returns a message without numbers. The signatures of two messages are equal if they differ in numbers only. */
function withoutNumbers(message: string | null | undefined): string {
  return (message ?? "").replace(/\d+/g, "#");
}

/**
 * Returns the group that counts a job. A group lists its newest jobs only, so an older job is recognized by its result.
 * If its message differs from that of the newest job by more than numbers, such as an ID, its group is not found.
 */
export function groupOfJob(groups: readonly FailureGroup[], job: Job): FailureGroup | null {
  const { result } = job;
  const isListed = ({ jobs }: FailureGroup) => jobs.includes(job.id);
  const isEqual = (group: FailureGroup) =>
    job.status === "failed" &&
    group.error === result?.error &&
    (group.exit_code ?? null) === (result.exit_code ?? null) &&
    withoutNumbers(group.message) === withoutNumbers(result.message);
  return groups.find(isListed) ?? groups.find(isEqual) ?? null;
}
