/**
 * What views read, and how it is kept fresh.
 *
 * Nothing polls what the {@link feed} tells: it says what changed, and {@link startRefreshing} reads again what is on
 * the page and concerned, at most once a second each. What changed while it was being read is read once more. While
 * nobody looks (the tab is hidden) it waits. What could not be read is read again as soon as the feed is there again.
 */

import { keepPreviousData, type Query, QueryClient, queryOptions, useQuery } from "@tanstack/react-query";

import { updateCounts, type Counts, isLive, STATUSES } from "../lib/statuses";
import { unwrap, api } from "./client";
import { feed } from "./feed";
import { isTakeover, ApiError } from "./errors";
import type { FeedEvent, JobStatus } from "./schema";

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 5_000,
      refetchOnWindowFocus: false,
      retry: (count, error) => count < 2 && isTransient(ApiError.from(error)),
      retryDelay: (count) => 500 * 2 ** count,
    },
  },
});

/** Whether the same request may well succeed a moment later. */
function isTransient(error: ApiError): boolean {
  // It was waited for already, and the feed says when somebody leads.
  if (isTakeover(error)) return false;
  return error.status === 0 || error.status === 429 || error.status >= 500;
}

export const countsQuery = queryOptions({
  queryKey: ["counts"],
  queryFn: async (): Promise<Counts> => {
    const counts = await Promise.all(
      STATUSES.map(async (status) => {
        const request = api.GET("/api/v1/jobs", { params: { query: { status, count: true, limit: 1 } } });
        const { error, response } = await request;
        if (!response.ok) throw ApiError.ofBody(error, response.status);
        return [status, Number(response.headers.get("x-total-count") ?? 0)] as const;
      }),
    );
    return Object.fromEntries(counts) as Counts;
  },
  // The feed keeps them right in between; what retention deletes is not in the feed.
  refetchInterval: 30_000,
  staleTime: 30_000,
});

export const meQuery = queryOptions({
  queryKey: ["me"],
  queryFn: () => unwrap(api.GET("/api/v1/me")),
  staleTime: Infinity,
});

export const versionQuery = queryOptions({
  queryKey: ["version"],
  queryFn: () => unwrap(api.GET("/api/v1/version")),
  staleTime: Infinity,
});

export const readyQuery = queryOptions({
  queryKey: ["ready"],
  queryFn: () => unwrap(api.GET("/readyz", { params: { query: { verbose: "true" } } })),
  refetchInterval: 30_000,
});

/** The servers that share the store. Which of them are there is in no feed. */
export const serversQuery = queryOptions({
  queryKey: ["servers"],
  queryFn: () => unwrap(api.GET("/api/v1/servers")),
  refetchInterval: 2_000,
});

export const workersQuery = queryOptions({
  queryKey: ["workers"],
  queryFn: () => unwrap(api.GET("/api/v1/workers", { params: { query: { limit: 1_000 } } })),
  // How machines are (load, memory, last heard) changes without an event.
  refetchInterval: 10_000,
});

export const queuesQuery = queryOptions({
  queryKey: ["queues"],
  queryFn: () => unwrap(api.GET("/api/v1/queues", { params: { query: { limit: 1_000 } } })),
});

export const jobQuery = (id: string) =>
  queryOptions({
    queryKey: ["job", id],
    queryFn: () => unwrap(api.GET("/api/v1/jobs/{id}", { params: { path: { id } } })),
  });

export const whyQuery = (id: string) =>
  queryOptions({
    queryKey: ["job", id, "why"],
    queryFn: () => unwrap(api.GET("/api/v1/jobs/{id}/why", { params: { path: { id } } })),
    placeholderData: keepPreviousData,
  });

export const jobEventsQuery = (id: string) =>
  queryOptions({
    queryKey: ["job", id, "events"],
    queryFn: () => unwrap(api.GET("/api/v1/jobs/{id}/events", { params: { path: { id } } })),
  });

export const jobExecutionsQuery = (id: string) =>
  queryOptions({
    queryKey: ["job", id, "executions"],
    queryFn: () =>
      unwrap(api.GET("/api/v1/jobs/{id}/executions", { params: { path: { id }, query: { limit: 200 } } })),
  });

/** The newest runs of jobs with a name: what is usual for it. */
export const jobsByNameQuery = (name: string, namespace: string) =>
  queryOptions({
    queryKey: ["recent", "name", namespace, name],
    queryFn: () => unwrap(api.GET("/api/v1/jobs", { params: { query: { name, namespace, limit: 30 } } })),
  });

/** The newest jobs with one of these statuses. It is read again when a job enters or leaves one of them. */
export const recentQuery = (statuses: readonly JobStatus[], limit: number) =>
  queryOptions({
    queryKey: ["recent", statuses.join(","), limit],
    queryFn: () =>
      unwrap(api.GET("/api/v1/jobs", { params: { query: { status: statuses.join(","), limit } } })),
    meta: { statuses, isLong: limit > LONG_LIST_JOBS },
  });

export function useWorkerName(): (id: string | null | undefined) => string {
  const { data } = useQuery(workersQuery);
  return (id) => data?.items.find((worker) => worker.id === id)?.name ?? id ?? "";
}

/** Keys of lists of schedules that are kept fresh in a way of their own. */
export const PAGED_SCHEDULES = "paged-schedules";
export const VISIBLE_SCHEDULES = ["schedules", "shown"] as const;
/** Keys of lists of runs that are read page by page. */
export const PAGED_RUNS = "paged-runs";
/** A list with more pages than these is not read again while somebody is far down in it. */
const REFRESHED_PAGES_MAX = 2;

const REFRESH_MS = 1_000;
/** The same for lists of more than so many jobs. */
const LONG_LIST_REFRESH_MS = 10_000;
const LONG_LIST_JOBS = 100;

/** The server shows workers and queues as they were up to so long ago. */
const VIEW_AGE_MAX_MS = 100;

/** Runs something soon after it is asked for, and at most once in `ms`. */
class Throttle {
  readonly #ms: number;
  readonly #run: () => void;
  #timer: ReturnType<typeof setTimeout> | null = null;
  #last = 0;

  constructor(ms: number, run: () => void) {
    this.#ms = ms;
    this.#run = run;
  }

  request(): void {
    const wait = Math.max(VIEW_AGE_MAX_MS, this.#last + this.#ms - Date.now());
    this.#timer ??= setTimeout(() => this.#fire(), wait);
  }

  stop(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
  }

  #fire(): void {
    this.#timer = null;
    // It is asked for again when the page is shown.
    if (document.hidden) return;
    this.#last = Date.now();
    this.#run();
  }
}

/** When each query was last sent. */
const sentAt = new WeakMap<object, number>();
queryClient.getQueryCache().subscribe((event) => {
  if (event.type === "updated" && event.action.type === "fetch")
    sentAt.set(event.query as object, Date.now());
});

/**
 * Reads again each query that was sent before its data changed; `changedAt` says when that was. One that is still
 * being read is not sent anew: if it is slow it would never end. Its answer may be older than the change, so the
 * function is to be called again: it returns `true`.
 */
function refetch(queryKey: readonly unknown[], changedAt: (query: Query) => number): boolean {
  const isOld = (query: Query) => (sentAt.get(query) ?? 0) < changedAt(query) + VIEW_AGE_MAX_MS;
  const filters = { queryKey, predicate: isOld };
  const isBeingRead = queryClient.isFetching(filters) > 0;
  void queryClient.invalidateQueries(filters, { cancelRefetch: false });
  return isBeingRead;
}

/** When jobs last entered or left each status, or changed at all; and the lists that are read again for it. */
class JobListRefresher {
  readonly #isLong: boolean;
  readonly #changedAt = new Map<JobStatus | "any", number>();
  readonly throttle: Throttle;

  constructor(isLong: boolean, ms: number) {
    this.#isLong = isLong;
    this.throttle = new Throttle(ms, () => this.#refresh());
  }

  add(...statuses: Array<JobStatus | null | undefined>): void {
    for (const status of [...statuses, "any"] as const) if (status) this.#changedAt.set(status, Date.now());
    this.throttle.request();
  }

  #refresh(): void {
    const changedAt = ({ meta }: Query) => {
      const { statuses, isLong = false } = (meta ?? {}) as { statuses?: JobStatus[]; isLong?: boolean };
      if (isLong !== this.#isLong) return -Infinity;
      return Math.max(
        ...(statuses ?? ["any" as const]).map((status) => this.#changedAt.get(status) ?? -Infinity),
      );
    };
    if (refetch(["recent"], changedAt)) this.throttle.request();
  }
}

function isCheap({ queryKey, state }: Query): boolean {
  if (![PAGED_SCHEDULES, PAGED_RUNS, "workflows"].includes(String(queryKey[0]))) return true;
  const { pages } = (state.data ?? { pages: [] }) as { pages: unknown[] };
  return pages.length <= REFRESHED_PAGES_MAX;
}

/** Reads again what a batch of events concerns, as long as the returned function is not called. */
export function startRefreshing(): () => void {
  const pending = new Map<string, { key: readonly unknown[]; changedAt: number }>();
  const refresh = () => {
    for (const [name, { key, changedAt }] of pending) {
      const isBeingRead = refetch(key, (query) => (isCheap(query) ? changedAt : -Infinity));
      if (!isBeingRead) pending.delete(name);
    }
    if (pending.size > 0) throttle.request();
  };
  const throttle = new Throttle(REFRESH_MS, refresh);
  const lists = [new JobListRefresher(false, REFRESH_MS), new JobListRefresher(true, LONG_LIST_REFRESH_MS)];
  const ask = (...keys: Array<readonly unknown[]>) => {
    for (const key of keys) pending.set(JSON.stringify(key), { key, changedAt: Date.now() });
    throttle.request();
  };
  const onBatch = (batch: readonly FeedEvent[]) => {
    for (const event of batch) {
      if (event.run_id && queryClient.getQueryState(["run", event.run_id])) ask(["run", event.run_id]);
      if (event.job_id && queryClient.getQueryState(["job", event.job_id])) ask(["job", event.job_id]);
      if (event.schedule_id) ask(["schedule", event.schedule_id]);
      if (event.type.startsWith("job.")) {
        for (const list of lists) list.add(event.from, event.to);
        ask(["queues"], ["workers"]);
        if (!event.schedule_id) continue;
        // What runs is told of the rows in sight; when it fires next, and how often it failed, of all.
        const changesRow = event.cause === "fired" || !event.to || !isLive(event.to);
        if (changesRow) ask(["schedules"], [PAGED_SCHEDULES], ["schedule"]);
        else ask(VISIBLE_SCHEDULES, ["schedule"]);
      } else if (event.type.startsWith("schedule.") || event.type.startsWith("backfill.")) {
        ask(["schedules"], [PAGED_SCHEDULES], ["schedule"], ["upcoming"]);
      } else if (event.type.startsWith("calendar.")) ask(["calendars"], ["upcoming"], ["schedule"]);
      else if (event.type.startsWith("workflow.")) ask(["workflows"], ["workflow"]);
      else if (event.type.startsWith("run.")) {
        ask(["workflows"], ["workflow"], ["runs"], [PAGED_RUNS], VISIBLE_SCHEDULES, ["schedule"]);
      } else if (event.type.startsWith("step.")) ask(["runs"], [PAGED_RUNS]);
      else if (event.type.startsWith("worker.")) ask(["workers"]);
      else if (event.type.startsWith("queue.")) ask(["queues"]);
    }
    queryClient.setQueryData(countsQuery.queryKey, (counts) => counts && updateCounts(counts, batch));
  };
  const onReset = (since: number) => {
    const predicate = (query: Query) => (sentAt.get(query) ?? 0) < since;
    void queryClient.invalidateQueries({ predicate });
  };
  const onStatus = () => {
    if (feed.status.state !== "live") return;
    void queryClient.invalidateQueries({ predicate: ({ state }) => state.status === "error" });
  };
  const onVisible = () => {
    if (document.hidden) return;
    if (pending.size > 0) throttle.request();
    for (const list of lists) list.throttle.request();
  };

  document.addEventListener("visibilitychange", onVisible);
  const stops = [feed.onBatch(onBatch), feed.onReset(onReset), feed.onStatus(onStatus)];
  return () => {
    stops.forEach((stop) => stop());
    document.removeEventListener("visibilitychange", onVisible);
    for (const each of [throttle, ...lists.map((list) => list.throttle)]) each.stop();
  };
}
