/**
 * Queries of the views, and their refresh.
 *
 * Data that the {@link feed} covers is not polled: events say what changed, and {@link startRefreshing} refetches the
 * affected queries of the page, each at most once a second. A change during a read causes one more read. While the
 * tab is hidden, refetches wait. Failed queries are refetched as soon as the feed is connected again.
 */

import { keepPreviousData, type Query, QueryClient, queryOptions, useQuery } from "@tanstack/react-query";

import { ALL_NAMESPACES, isAllNamespaces } from "../lib/namespaces";
import { type Range, RANGES } from "../lib/statistics";
import { updateCounts, type Counts, isLive, STATUSES } from "../lib/statuses";
import { waitsForJobs } from "../lib/triggers";
import { hasLostRights } from "../lib/rights";
import { initialCaller, onForbidden } from "./auth";
import { unwrap, api } from "./client";
import { feed } from "./feed";
import { isTakeover, ApiError } from "./errors";
import type { FeedEvent, JobStatus, LogPage, Replica, Workflow } from "./schema";

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

/** Returns whether the same request may succeed a moment later. */
function isTransient(error: ApiError): boolean {
  // The client has already retried it, and the feed reconnects when there is a leader.
  if (isTakeover(error)) return false;
  return error.status === 0 || error.status === 429 || error.status >= 500;
}

/** Query key of counts of jobs, followed by their namespace. */
const COUNTS = "counts";

/** Number of jobs by status, in a namespace or in all. */
export const countsQuery = (namespace?: string) =>
  queryOptions({
    queryKey: [COUNTS, namespace ?? ALL_NAMESPACES],
    queryFn: async (): Promise<Counts> => {
      const counts = await Promise.all(
        STATUSES.map(async (status) => {
          const query = { status, namespace, count: true, limit: 1 };
          const { error, response } = await api.GET("/api/v1/jobs", { params: { query } });
          if (!response.ok) throw ApiError.ofBody(error, response);
          return [status, Number(response.headers.get("x-total-count") ?? 0)] as const;
        }),
      );
      return Object.fromEntries(counts) as Counts;
    },
    // Events update the counts in between, but there are no events for jobs that retention deletes.
    refetchInterval: 300_000,
    staleTime: 30_000,
  });

/** Applies a batch of events to the loaded counts of each namespace. */
function updateLoadedCounts(batch: readonly FeedEvent[]): void {
  for (const { queryKey } of queryClient.getQueryCache().findAll({ queryKey: [COUNTS] })) {
    const namespace = queryKey[1] as string;
    const own = isAllNamespaces(namespace) ? batch : batch.filter((event) => event.namespace === namespace);
    queryClient.setQueryData<Counts>(queryKey, (counts) => counts && updateCounts(counts, own));
  }
}

export const meQuery = queryOptions({
  queryKey: ["me"],
  queryFn: () => unwrap(api.GET("/api/v1/me")),
  initialData: initialCaller,
  staleTime: Infinity,
});

/** Query keys that do not depend on the rights of the caller. */
const INDEPENDENT = new Set<unknown>(["me", "version", "ready"]);

/**
 * Reads the caller again. If its rights have changed, all other data is read again; after a loss of rights it is
 * discarded first, because the caller may no longer see it.
 */
export async function refreshMe(): Promise<void> {
  const { queryKey } = meQuery;
  const before = queryClient.getQueryData(queryKey);
  await queryClient.fetchQuery({ ...meQuery, staleTime: 0, retry: false }).catch(() => undefined);
  // Equal data keeps its identity.
  const after = queryClient.getQueryData(queryKey);
  if (!after || !before || after === before) return;
  const predicate = (query: Query) => !INDEPENDENT.has(query.queryKey[0]);
  if (hasLostRights(before, after)) void queryClient.resetQueries({ predicate });
  else void queryClient.invalidateQueries({ predicate });
  feed.reset();
}

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

/** The servers that share the store. There are no events for servers. */
export const serversQuery = queryOptions({
  queryKey: ["servers"],
  queryFn: () => unwrap(api.GET("/api/v1/servers")),
  refetchInterval: 2_000,
});

/** The members of a Raft cluster; empty without the Raft store. */
export const clusterMembersQuery = queryOptions({
  queryKey: ["clusterMembers"],
  queryFn: () => unwrap(api.GET("/api/v1/cluster/members")),
  refetchInterval: 2_000,
});

export const workersQuery = queryOptions({
  queryKey: ["workers"],
  queryFn: () => unwrap(api.GET("/api/v1/workers", { params: { query: { limit: 1_000 } } })),
  // Load, memory and last heartbeat of a worker change without an event.
  refetchInterval: 30_000,
});

/** Refetch interval of the workers on pages that are about them. */
export const WORKERS_REFETCH_MS = 10_000;

export const queuesQuery = queryOptions({
  queryKey: ["queues"],
  queryFn: () => unwrap(api.GET("/api/v1/queues", { params: { query: { limit: 1_000 } } })),
});

/** The namespaces with their quotas and usage. There are no events for namespaces. */
export const namespaceQuotasQuery = queryOptions({
  queryKey: ["namespace-quotas"],
  queryFn: () => unwrap(api.GET("/api/v1/namespaces", { params: { query: { limit: 1_000 } } })),
  refetchInterval: 10_000,
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

/** Lines that explain a failure. */
const LOG_TAIL_LINES = 8;

/** The last lines of the newest execution of an ended job. */
export const logTailQuery = (id: string) =>
  queryOptions({
    queryKey: ["job", id, "log-tail"],
    queryFn: async () => {
      const params = { path: { id }, query: { tail: LOG_TAIL_LINES } };
      // The OpenAPI document has one response type for all formats; the default is a page.
      return (await unwrap(api.GET("/api/v1/jobs/{id}/logs", { params }))) as LogPage;
    },
    staleTime: Infinity,
  });

/** The newest jobs with a name, for comparison. */
export const jobsByNameQuery = (name: string, namespace: string) =>
  queryOptions({
    queryKey: ["recent", "name", namespace, name],
    queryFn: () => unwrap(api.GET("/api/v1/jobs", { params: { query: { name, namespace, limit: 30 } } })),
  });

/** The newest jobs with one of these statuses. Refetched when a job enters or leaves one of them. */
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

/** Query keys of lists of schedules that have their own refresh rules. */
export const PAGED_SCHEDULES = "paged-schedules";
export const VISIBLE_SCHEDULES = ["schedules", "shown"] as const;
/** Query key of series of statistics, followed by the range. */
export const SERIES = "series";
/** Query key of failure groups. */
export const FAILURES = "failures";
/** Query key of paginated lists of runs. */
export const PAGED_RUNS = "paged-runs";
/** Query keys of the parts of a service, followed by its id. */
export const REPLICAS = "replicas";
export const REVISIONS = "revisions";
export const ENDPOINTS = "endpoints";
/** Query keys of what shows services. */
export const SERVICE_KEYS = [
  "services",
  "watched-services",
  "service",
  REPLICAS,
  REVISIONS,
  ENDPOINTS,
] as const;
/** Query key of the runs of today, which are counted. */
export const TODAYS_RUNS = "todays-runs";
/** Maximum number of loaded pages of a list that is refetched; a user of a longer list has scrolled far down. */
const REFRESHED_PAGES_MAX = 2;

const REFRESH_MS = 1_000;
/** Minimum refetch interval of lists with more than `LONG_LIST_JOBS` jobs. */
const LONG_LIST_REFRESH_MS = 10_000;
const LONG_LIST_JOBS = 50;
/** Minimum refetch intervals of series by range. In a longer range, a few jobs change less. */
const SERIES_REFRESH_MS: Record<Range, number> = { "1h": 5_000, "24h": 30_000, "7d": 60_000, "30d": 60_000 };
/** Minimum refetch interval of failure groups. */
const FAILURES_REFRESH_MS = 10_000;
/** Minimum refetch interval of the runs of today. */
const TODAYS_RUNS_REFRESH_MS = 30_000;
/** Delay of the first refetch of statistics: jobs often change together. */
const STATISTICS_DELAY_MS = 1_000;

/** Maximum age of the server's view of workers and queues. */
const VIEW_AGE_MAX_MS = 100;

/** Runs a function `delayMs` after a request, and at most once per `ms`. */
class Throttle {
  readonly #ms: number;
  readonly #run: () => void;
  readonly #delayMs: number;
  #timer: ReturnType<typeof setTimeout> | null = null;
  #last = 0;

  constructor(ms: number, run: () => void, delayMs = VIEW_AGE_MAX_MS) {
    this.#ms = ms;
    this.#run = run;
    this.#delayMs = delayMs;
  }

  request(): void {
    const wait = Math.max(this.#delayMs, this.#last + this.#ms - Date.now());
    this.#timer ??= setTimeout(() => this.#fire(), wait);
  }

  stop(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
  }

  #fire(): void {
    this.#timer = null;
    // It is requested again when the page becomes visible.
    if (document.hidden) return;
    this.#last = Date.now();
    this.#run();
  }
}

/** Time of the last request of each query. */
const sentAt = new WeakMap<object, number>();
queryClient.getQueryCache().subscribe((event) => {
  if (event.type === "updated" && event.action.type === "fetch")
    sentAt.set(event.query as object, Date.now());
});

/**
 * Refetches each query that was sent before its data changed, at the time `changedAt`. A query in progress is not
 * restarted: a slow one would never finish. Its response may be older than the change, so the function returns `true`
 * and must be called again.
 */
function refetch(queryKey: readonly unknown[], changedAt: (query: Query) => number): boolean {
  const isOld = (query: Query) => (sentAt.get(query) ?? 0) < changedAt(query) + VIEW_AGE_MAX_MS;
  const filters = { queryKey, predicate: isOld };
  const isBeingRead = queryClient.isFetching(filters) > 0;
  void queryClient.invalidateQueries(filters, { cancelRefetch: false });
  return isBeingRead;
}

/** Refetches the lists of recent jobs. Remembers when jobs last entered or left each status, or changed at all. */
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

/** Refetches the statistics of a key, once for many changes. */
class StatisticsRefresher {
  readonly throttle: Throttle;
  #changedAt = -Infinity;

  constructor(queryKey: readonly unknown[], ms: number) {
    const refresh = () => {
      if (refetch(queryKey, () => this.#changedAt)) this.throttle.request();
    };
    this.throttle = new Throttle(ms, refresh, STATISTICS_DELAY_MS);
  }

  add(): void {
    this.#changedAt = Date.now();
    this.throttle.request();
  }
}

function isCheap({ queryKey, state }: Query): boolean {
  if (![PAGED_SCHEDULES, PAGED_RUNS, "workflows", "services"].includes(String(queryKey[0]))) return true;
  const { pages } = (state.data ?? { pages: [] }) as { pages: unknown[] };
  return pages.length <= REFRESHED_PAGES_MAX;
}

/** Returns whether a loaded workflow has a trigger that keeps the ends of jobs: no other event tells that it changed. */
function isWorkflowWaitingForJobs(): boolean {
  const loaded = queryClient.getQueriesData<Workflow>({ queryKey: ["workflow"] });
  return loaded.some(([, workflow]) => waitsForJobs(workflow?.spec));
}

/** Returns the jobs of the loaded replicas. Events of jobs do not name the service. */
function loadedReplicas(): ReadonlySet<string> {
  const loaded = queryClient.getQueriesData<{ items: Replica[] }>({ queryKey: [REPLICAS] });
  return new Set(loaded.flatMap(([, replicas]) => replicas?.items.map(({ job }) => job) ?? []));
}

/** Minimum interval between reads of the caller after denied requests. */
const ME_REFRESH_MS = 2_000;

/** Refetches the queries that events affect, until the returned function is called. */
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
  const series = RANGES.map((range) => new StatisticsRefresher([SERIES, range], SERIES_REFRESH_MS[range]));
  const failures = new StatisticsRefresher([FAILURES], FAILURES_REFRESH_MS);
  const todaysRuns = new StatisticsRefresher([TODAYS_RUNS], TODAYS_RUNS_REFRESH_MS);
  const refreshers = [...lists, ...series, failures, todaysRuns];
  const ask = (...keys: Array<readonly unknown[]>) => {
    for (const key of keys) pending.set(JSON.stringify(key), { key, changedAt: Date.now() });
    throttle.request();
  };
  const onBatch = (batch: readonly FeedEvent[]) => {
    const hasEndedJob = batch.some(({ to, run_id }) => to && !isLive(to) && !run_id);
    if (hasEndedJob && isWorkflowWaitingForJobs()) ask(["workflow"]);
    const replicas = loadedReplicas();
    for (const event of batch) {
      if (event.job_id && (replicas.has(event.job_id) || event.cause === "replica_started")) {
        ask(["service"], [REPLICAS], [ENDPOINTS]);
      }
      if (event.run_id && queryClient.getQueryState(["run", event.run_id])) ask(["run", event.run_id]);
      if (event.job_id && queryClient.getQueryState(["job", event.job_id])) ask(["job", event.job_id]);
      if (event.schedule_id) ask(["schedule", event.schedule_id]);
      if (event.type.startsWith("job.")) {
        for (const list of lists) list.add(event.from, event.to);
        for (const each of series) each.add();
        if (event.to === "failed" || event.to === "expired") failures.add();
        ask(["queues"], ["workers"]);
        if (!event.schedule_id) continue;
        // Running jobs are shown only in visible rows; the next firing and the failures are shown in all rows.
        const changesRow = event.cause === "fired" || !event.to || !isLive(event.to);
        if (changesRow) ask(["schedules"], [PAGED_SCHEDULES], ["schedule"]);
        else ask(VISIBLE_SCHEDULES, ["schedule"]);
      } else if (event.type.startsWith("schedule.") || event.type.startsWith("backfill.")) {
        ask(["schedules"], [PAGED_SCHEDULES], ["schedule"], ["upcoming"]);
      } else if (event.type.startsWith("calendar.")) ask(["calendars"], ["upcoming"], ["schedule"]);
      else if (event.type.startsWith("workflow.")) ask(["workflows"], ["workflow"]);
      else if (event.type.startsWith("run.")) {
        todaysRuns.add();
        ask(["workflows"], ["workflow"], ["runs"], [PAGED_RUNS], VISIBLE_SCHEDULES, ["schedule"]);
      } else if (event.type.startsWith("step.")) ask(["runs"], [PAGED_RUNS]);
      else if (event.service_id) ask(...SERVICE_KEYS.map((key) => [key]));
      else if (event.type.startsWith("worker.")) ask(["workers"]);
      else if (event.type.startsWith("queue.")) ask(["queues"]);
    }
    updateLoadedCounts(batch);
  };
  const onReset = (since: number) => {
    const predicate = (query: Query) => (sentAt.get(query) ?? 0) < since;
    void queryClient.invalidateQueries({ predicate });
  };
  // The server ends the streams of a caller whose rights have changed.
  const me = new Throttle(ME_REFRESH_MS, () => void refreshMe());
  let wasLost = false;
  const onStatus = () => {
    const { state } = feed.status;
    if (state === "live" && wasLost) me.request();
    wasLost = state === "lost";
    if (state !== "live") return;
    void queryClient.invalidateQueries({ predicate: ({ state }) => state.status === "error" });
  };
  const onVisible = () => {
    if (document.hidden) return;
    if (pending.size > 0) throttle.request();
    me.request();
    for (const refresher of refreshers) refresher.throttle.request();
  };

  document.addEventListener("visibilitychange", onVisible);
  const stops = [
    feed.onBatch(onBatch),
    feed.onReset(onReset),
    feed.onStatus(onStatus),
    onForbidden(() => me.request()),
  ];
  return () => {
    stops.forEach((stop) => stop());
    document.removeEventListener("visibilitychange", onVisible);
    for (const each of [throttle, me, ...refreshers.map((refresher) => refresher.throttle)]) each.stop();
  };
}
