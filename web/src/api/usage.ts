/** Requests for what running executions use. Workers measure every 5 seconds, without events, so the queries poll. */

import { keepPreviousData, queryOptions } from "@tanstack/react-query";

import type { UsageOrder } from "../lib/usage";
import { unwrap, api } from "./client";

const REFETCH_MS = 5_000;

/** The measurements of a running execution in the last minutes, oldest first. */
export const executionUsageQuery = (id: string) =>
  queryOptions({
    queryKey: ["usage", "execution", id],
    queryFn: () => unwrap(api.GET("/api/v1/executions/{id}/usage", { params: { path: { id } } })),
    refetchInterval: REFETCH_MS,
  });

/** Executions of a worker that are listed at most. */
export const WORKER_USAGE_MAX = 20;

/** What the executions on a worker use, highest first. */
export const workerUsageQuery = (worker: string, order: UsageOrder) =>
  queryOptions({
    queryKey: ["usage", "worker", worker, order],
    queryFn: () => {
      const query = { worker_id: worker, order, limit: WORKER_USAGE_MAX };
      return unwrap(api.GET("/api/v1/usage", { params: { query } }));
    },
    placeholderData: keepPreviousData,
    refetchInterval: REFETCH_MS,
  });
