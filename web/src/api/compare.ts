/** Requests for comparisons: the end of a log, and the last success of a job name or workflow. */

import { queryOptions } from "@tanstack/react-query";

import { LogLines } from "../lib/log";
import { fetchRaw, unwrap, api } from "./client";
import type { Job, LogEntry, LogPage, WorkflowRun } from "./schema";

/** Newest lines of each log that are compared. */
export const COMPARED_LINES = 5_000;
/** A response has at most 4 MiB. */
const RESPONSES_MAX = 8;

export interface ComparedLog {
  lines: readonly string[];
  /** Number of the first line, from 1. */
  first: number;
  /** Whether the log has no further lines that are compared. */
  isComplete: boolean;
}

/** Refetch interval of the log of a job that runs. */
const LOG_REFETCH_MS = 5_000;
/** Refetch interval of the log of an ended execution whose last lines the server does not have yet. */
const LOG_END_REFETCH_MS = 1_000;

/**
 * The newest lines of the log of an execution. It is read again when the execution ends, and then until the server has
 * its last lines: the worker sends them after the end.
 */
export const comparedLogQuery = (job: string, execution: number | undefined, isEnded: boolean) =>
  queryOptions({
    queryKey: ["compared-log", job, execution ?? null, isEnded],
    queryFn: async ({ signal }): Promise<ComparedLog> => {
      const entries: LogEntry[] = [];
      let first = 1;
      let isComplete = true;
      let position: Record<string, string> = { tail: String(COMPARED_LINES) };
      for (let i = 0; i < RESPONSES_MAX; i += 1) {
        const query = { ...position, ...(execution === undefined ? {} : { execution: String(execution) }) };
        const path = `/api/v1/jobs/${encodeURIComponent(job)}/logs?${new URLSearchParams(query)}`;
        const page = (await (await fetchRaw(path, { signal, cache: "no-store" })).json()) as LogPage;
        if (i === 0) first = page.first_line ?? 1;
        entries.push(...page.items);
        isComplete = page.complete || page.items.length > 0;
        if (page.complete || page.items.length === 0) break;
        position = { offset: String(page.next_offset) };
      }
      const lines = new LogLines(first, Infinity);
      lines.push(entries);
      const texts = lines.lines.map(({ text }) => text);
      const excess = Math.max(0, texts.length - COMPARED_LINES);
      return { lines: texts.slice(excess), first: first + excess, isComplete };
    },
    staleTime: ({ state }) => (isEnded && state.data?.isComplete ? Infinity : 0),
    refetchInterval: ({ state }) => {
      if (!isEnded) return LOG_REFETCH_MS;
      return state.data?.isComplete ? false : LOG_END_REFETCH_MS;
    },
  });

/** Returns the newest succeeded job of the same name before a job, or else the newest one after it. */
export async function lastSuccessOfJob({ id, name, namespace, created_at }: Job): Promise<string | null> {
  const find = async (created_before?: string) => {
    const query = { name, namespace, status: "succeeded", created_before, limit: 2 };
    const { items } = await unwrap(api.GET("/api/v1/jobs", { params: { query } }));
    return items.find((job) => job.id !== id)?.id ?? null;
  };
  return (await find(created_at)) ?? (await find());
}

/** Returns the newest succeeded run of the same workflow before a run, or else the newest one after it. */
export async function lastSuccessOfRun({
  id,
  workflow_id: workflow,
  created_at,
}: WorkflowRun): Promise<string | null> {
  if (!workflow) return null;
  const find = async (created_before?: string) => {
    const query = { workflow, status: "succeeded", created_before, limit: 2 };
    const { items } = await unwrap(api.GET("/api/v1/runs", { params: { query } }));
    return items.find((run) => run.id !== id)?.id ?? null;
  };
  return (await find(created_at)) ?? (await find());
}
