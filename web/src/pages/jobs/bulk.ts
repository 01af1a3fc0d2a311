/** Acting on many jobs: first which they are, then one request each, a few at a time. */

import { cancelJob, retryJob } from "../../api/actions";
import { answer, api } from "../../api/client";

import type { Job } from "../../api/schema";
import type { JobsQuery } from "../../lib/filters";
import { isLive } from "../../lib/statuses";

export type BulkAction = "cancel" | "retry";

/** More than so many are not acted on at once. */
export const BULK_MAX = 10_000;
const AT_ONCE = 6;

export function isFit(action: BulkAction, job: Pick<Job, "status">): boolean {
  return action === "cancel" ? isLive(job.status) : !isLive(job.status);
}

/** The jobs of a filter that an action fits, read page by page. */
export async function findFit(action: BulkAction, query: JobsQuery, signal: AbortSignal): Promise<string[]> {
  const ids: string[] = [];
  let cursor: string | undefined;
  do {
    const params = { query: { ...query, limit: 1_000, cursor } };
    const page = await answer(api.GET("/api/v1/jobs", { params, signal }));
    ids.push(...page.items.filter((job) => isFit(action, job)).map((job) => job.id));
    cursor = page.next_cursor ?? undefined;
  } while (cursor && ids.length < BULK_MAX);
  return ids.slice(0, BULK_MAX);
}

export interface Progress {
  done: number;
  failed: number;
}

export async function actOnAll(
  action: BulkAction,
  ids: readonly string[],
  onProgress: (progress: Progress) => void,
  signal: AbortSignal,
): Promise<Progress> {
  const progress = { done: 0, failed: 0 };
  const rest = [...ids];
  const take = async () => {
    for (let id = rest.shift(); id !== undefined && !signal.aborted; id = rest.shift()) {
      try {
        if (action === "cancel") await cancelJob(id);
        else await retryJob(id);
        progress.done += 1;
      } catch {
        progress.failed += 1;
      }
      onProgress({ ...progress });
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, take));
  return progress;
}
