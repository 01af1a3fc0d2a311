/** Requests for failure groups. */

import { keepPreviousData, queryOptions } from "@tanstack/react-query";

import { type FailuresQuery, type FailuresSearch, groupOfJob, toFailuresQuery } from "../lib/failures";
import { unwrap, api } from "./client";
import { FAILURES, queryClient } from "./queries";
import type { FailureGroup, FailureState, Job } from "./schema";

function readGroups(query: FailuresQuery) {
  return unwrap(api.GET("/api/v1/failures", { params: { query } }));
}

/** Groups of a filter, at most `limit`. */
export const failuresQuery = (search: FailuresSearch, limit: number) =>
  queryOptions({
    queryKey: [FAILURES, "list", search, limit],
    queryFn: () => readGroups({ ...toFailuresQuery(search, Date.now()), limit }),
    placeholderData: keepPreviousData,
  });

export const failureQuery = (id: string, namespace: string) =>
  queryOptions({
    queryKey: [FAILURES, "group", namespace, id],
    queryFn: () =>
      unwrap(api.GET("/api/v1/failures/{id}", { params: { path: { id }, query: { namespace } } })),
  });

/** The filter of the groups that need attention. */
export const ATTENTION = { state: "open", since: "24h", order: "count" } as const satisfies FailuresSearch;
/** Groups that the overview lists at most. */
const ATTENTION_MAX = 50;
/** Failures cause events, but their age has none. */
const ATTENTION_REFETCH_MS = 300_000;

/** Open groups of the last 24 hours, most failures first. */
export const attentionFailuresQuery = queryOptions({
  ...failuresQuery(ATTENTION, ATTENTION_MAX),
  refetchInterval: ATTENTION_REFETCH_MS,
});

/** Groups of a job name that are read to find that of a job. */
const GROUPS_OF_NAME_MAX = 100;

/** The group that counts a failed or expired job; null if it is not found. */
export const failureOfJobQuery = (job: Job) =>
  queryOptions({
    queryKey: [FAILURES, "job", job.id, job.status, job.executions],
    queryFn: async () => {
      const { namespace, name } = job;
      const { items } = await readGroups({ namespace, name, limit: GROUPS_OF_NAME_MAX });
      return groupOfJob(items, job);
    },
  });

/** Sets the state of a group, with a note for others. */
export async function setFailureState(group: FailureGroup, state: FailureState, note: string): Promise<void> {
  const { id, namespace } = group;
  const params = { path: { id }, query: { namespace } };
  const body = note === "" ? { state } : { state, note };
  const changed = await unwrap(api.POST("/api/v1/failures/{id}/state", { params, body }));
  queryClient.setQueryData(failureQuery(id, namespace).queryKey, changed);
  void queryClient.invalidateQueries({ queryKey: [FAILURES] });
}
