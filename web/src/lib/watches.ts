/** Jobs and runs whose end the user wants to know. */

import type { FeedEvent } from "../api/schema";
import { isLive } from "./statuses";

export interface Watched {
  kind: "jobs" | "runs";
  id: string;
  name: string;
}

export type EndStatus = "succeeded" | "failed" | "cancelled" | "expired";

/** How a watched job or run ended. */
export interface Ending {
  watched: Watched;
  status: EndStatus;
}

const RUN_ENDS: Partial<Record<string, EndStatus>> = {
  "run.succeeded": "succeeded",
  "run.failed": "failed",
  "run.cancelled": "cancelled",
};

/** Returns the watched jobs and runs that ended in a batch of events. */
export function endingsIn(batch: readonly FeedEvent[], watched: ReadonlyMap<string, Watched>): Ending[] {
  if (watched.size === 0) return [];
  const endings = new Map<string, Ending>();
  for (const { type, job_id, run_id, to } of batch) {
    const isJob = type.startsWith("job.");
    const found = watched.get((isJob ? job_id : run_id) ?? "");
    const status = isJob ? to && !isLive(to) && (to as EndStatus) : RUN_ENDS[type];
    if (found && status) endings.set(found.id, { watched: found, status });
  }
  return [...endings.values()];
}
