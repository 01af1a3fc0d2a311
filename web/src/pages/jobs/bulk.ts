/** What can be done with many jobs at once. */

import { cancelJob, retryJob } from "../../api/actions";
import { answer, api } from "../../api/client";
import type { Job } from "../../api/schema";
import { findAll } from "../../lib/bulk";
import type { JobsQuery } from "../../lib/filters";
import { isLive } from "../../lib/statuses";

export type BulkAction = "cancel" | "retry";

export function isFit(action: BulkAction, job: Pick<Job, "status">): boolean {
  return action === "cancel" ? isLive(job.status) : !isLive(job.status);
}

/** The jobs of a filter that an action fits. */
export function findFit(action: BulkAction, query: JobsQuery, signal: AbortSignal): Promise<string[]> {
  const read = (cursor: string | undefined) => {
    const params = { query: { ...query, limit: 1_000, cursor } };
    return answer(api.GET("/api/v1/jobs", { params, signal }));
  };
  return findAll(read, (job) => isFit(action, job));
}

export async function actOn(action: BulkAction, id: string): Promise<void> {
  if (action === "cancel") await cancelJob(id);
  else await retryJob(id);
}
