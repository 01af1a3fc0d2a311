/** Requests for workflows, runs and steps. */

import { infiniteQueryOptions, keepPreviousData, queryOptions } from "@tanstack/react-query";

import { unwrap, api } from "./client";
import type {
  Job,
  JobSpec,
  RunPlan,
  StartRun,
  StepStatus,
  Warning,
  Workflow,
  WorkflowRun,
  WorkflowSpec,
  paths,
} from "./schema";
import { COUNTED_RUNS, type CountedRuns } from "../lib/days";
import { DEFAULT_CLASS } from "../lib/priorityClasses";
import { PAGED_RUNS, queryClient, TODAYS_RUNS } from "./queries";

export interface WorkflowsFilter {
  text?: string;
  owner?: string;
  namespace?: string;
  label?: string[];
}

export interface RunsFilter {
  /** Statuses, comma-separated. */
  status?: string;
  /** Id or name of a workflow. */
  workflow?: string;
  namespace?: string;
  /** The id of a schedule. */
  schedule?: string;
  /** Range of the creation: from `after`, before `before`. */
  after?: string;
  before?: string;
}

const PAGE = 100;
/** Runs drawn beside a workflow. */
const RUNS_SHOWN = 20;

export const workflowsQuery = (filter: WorkflowsFilter) =>
  infiniteQueryOptions({
    queryKey: ["workflows", filter],
    queryFn: ({ pageParam: cursor }) =>
      unwrap(
        api.GET("/api/v1/workflows", {
          params: { query: { ...filter, runs: RUNS_SHOWN, limit: PAGE, cursor } },
        }),
      ),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next_cursor ?? undefined,
    placeholderData: keepPreviousData,
  });

/** A few workflows whose name contains a text. */
export const suggestedWorkflowsQuery = (text: string) =>
  queryOptions({
    queryKey: ["suggested-workflows", text],
    queryFn: () =>
      unwrap(api.GET("/api/v1/workflows", { params: { query: { text: text || undefined, limit: 20 } } })),
    placeholderData: keepPreviousData,
    staleTime: 10_000,
  });

/** A workflow by id, or by name and namespace; the current generation unless `generation` is given. */
export const workflowQuery = (name: string, namespace?: string, generation?: number) =>
  queryOptions({
    queryKey: ["workflow", name, namespace ?? null, generation ?? null],
    queryFn: () =>
      unwrap(
        api.GET("/api/v1/workflows/{name}", { params: { path: { name }, query: { namespace, generation } } }),
      ),
  });

export const runsQuery = (filter: RunsFilter, limit: number) =>
  queryOptions({
    queryKey: ["runs", filter, limit],
    queryFn: () => unwrap(api.GET("/api/v1/runs", { params: { query: { ...filter, limit } } })),
    placeholderData: keepPreviousData,
  });

/** Returns a filter as parameters of the API. */
export function runsParameters({ after, before, ...filter }: RunsFilter) {
  return { ...filter, created_after: after, created_before: before };
}

/** Runs, newest first, paginated. */
export const pagedRunsQuery = (filter: RunsFilter) =>
  infiniteQueryOptions({
    queryKey: [PAGED_RUNS, filter],
    queryFn: ({ pageParam: cursor }) => {
      const query = { ...runsParameters(filter), approvals: true, limit: PAGE, cursor };
      return unwrap(api.GET("/api/v1/runs", { params: { query } }));
    },
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next_cursor ?? undefined,
    placeholderData: keepPreviousData,
  });

/** Refetch interval of the runs of earlier days, of which some may still be active. */
const COUNTED_REFETCH_MS = 300_000;

export type CountedRunsFilter = Pick<RunsFilter, "workflow" | "schedule">;

/** The newest runs of a workflow or schedule in a range, to be counted by day. There are no statistics of runs. */
async function readCountedRuns(
  filter: CountedRunsFilter,
  range: { created_after?: string; created_before?: string },
): Promise<CountedRuns> {
  const params = { query: { ...filter, ...range, limit: COUNTED_RUNS } };
  const { items, next_cursor } = await unwrap(api.GET("/api/v1/runs", { params }));
  const runs = items.map(({ created_at, status }) => ({ created_at, status }));
  return { runs, hasMore: !!next_cursor };
}

/** The newest runs before today, to be counted by day. */
export const earlierRunsQuery = (filter: CountedRunsFilter, today: string) =>
  queryOptions({
    queryKey: ["earlier-runs", filter, today],
    queryFn: () => readCountedRuns(filter, { created_before: today }),
    staleTime: COUNTED_REFETCH_MS,
    refetchInterval: COUNTED_REFETCH_MS,
  });

/** The runs of today, to be counted. Refetched when runs change. */
export const todaysRunsQuery = (filter: CountedRunsFilter, today: string) =>
  queryOptions({
    queryKey: [TODAYS_RUNS, filter, today],
    queryFn: () => readCountedRuns(filter, { created_after: today }),
    staleTime: 30_000,
  });

export const runQuery = (id: string) =>
  queryOptions({
    queryKey: ["run", id],
    queryFn: () => unwrap(api.GET("/api/v1/runs/{id}", { params: { path: { id } } })),
  });

/** All steps of a run. The steps of an ended run (`isOver`) never become stale. */
export const stepsQuery = (id: string, isOver = false) =>
  queryOptions({
    queryKey: ["run", id, "steps"],
    queryFn: () => unwrap(api.GET("/api/v1/runs/{id}/steps", { params: { path: { id } } })),
    staleTime: isOver ? Infinity : undefined,
  });

/** An element in progress, or the only job of a step: a job, or a called run. */
export interface LiveElement {
  index: number | undefined;
  value: string | undefined;
  job?: Job;
  run?: WorkflowRun;
}

/** Maximum number of jobs or called runs in progress that are read. */
const LIVE_SCANNED_MAX = 500;
/** Maximum number of elements shown, running ones first. */
const LIVE_ELEMENTS_MAX = 50;

/** The elements of a step that are in progress, running ones first, then by index. */
export const liveElementsQuery = (id: string, step: string, number: number) =>
  queryOptions({
    queryKey: ["run", id, "live", step],
    queryFn: async () => {
      const limit = LIVE_SCANNED_MAX;
      const jobsOf = (status: string) =>
        unwrap(api.GET("/api/v1/jobs", { params: { query: { run: id, status, limit } } }));
      const calls = { caller: id, status: "waiting,running,paused,stopping", limit };
      const [running, others, called] = await Promise.all([
        jobsOf("running"),
        jobsOf("ready,waiting,retrying"),
        unwrap(api.GET("/api/v1/runs", { params: { query: calls } })),
      ]);
      const ofJobs = (jobs: readonly Job[]): LiveElement[] =>
        jobs
          .filter((job) => job.step?.name === step)
          .map((job) => ({ index: job.step?.element?.index, value: job.step?.element?.value, job }));
      const runs: LiveElement[] = called.items
        .filter(({ caller }) => caller?.step === number)
        .map((run) => ({ index: run.caller?.element ?? undefined, value: undefined, run }));
      const byIndex = (a: LiveElement, b: LiveElement) => (a.index ?? 0) - (b.index ?? 0);
      const items = [
        ...[...ofJobs(running.items), ...runs].sort(byIndex),
        ...ofJobs(others.items).sort(byIndex),
      ];
      const cut = [running, others, called].some((page) => page.next_cursor);
      return { items: items.slice(0, LIVE_ELEMENTS_MAX), more: cut || items.length > LIVE_ELEMENTS_MAX };
    },
    refetchInterval: 2_000,
    placeholderData: keepPreviousData,
  });

/** Active runs, with their pending approvals. */
export const approvalsQuery = queryOptions({
  queryKey: ["runs", "approvals"],
  queryFn: () => {
    const query = { status: "running,paused", approvals: true, limit: 1_000 };
    return unwrap(api.GET("/api/v1/runs", { params: { query } }));
  },
});

export const stepWhyQuery = (id: string, step: string) =>
  queryOptions({
    queryKey: ["run", id, "why", step],
    queryFn: () => unwrap(api.GET("/api/v1/runs/{id}/steps/{step}/why", { params: { path: { id, step } } })),
    placeholderData: keepPreviousData,
  });

/** The first failed element of a mapped step; null if none is stored. */
export const failedElementQuery = (id: string, step: string) =>
  queryOptions({
    queryKey: ["run", id, "failed-element", step],
    queryFn: async () => {
      const params = { path: { id, step }, query: { status: "failed", limit: 1 } };
      const page = await unwrap(api.GET("/api/v1/runs/{id}/steps/{step}/elements", { params }));
      return page.items[0] ?? null;
    },
  });

/** The ended elements of a step, paginated. */
export const elementsQuery = (id: string, step: string) =>
  infiniteQueryOptions({
    queryKey: ["run", id, "elements", step],
    queryFn: ({ pageParam: cursor }) => {
      const params = { path: { id, step }, query: { limit: 50, cursor } };
      return unwrap(api.GET("/api/v1/runs/{id}/steps/{step}/elements", { params }));
    },
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next_cursor ?? undefined,
  });

/** Returns the spec with defaults, as the server would store it; stores nothing. */
async function resolveWorkflow(spec: WorkflowSpec, signal?: AbortSignal): Promise<WorkflowSpec> {
  const query = { dry_run: true, namespace: spec.namespace };
  const params = { path: { name: pathName(spec.name) }, query };
  // The OpenAPI document has one response type for both; a dry run returns the spec.
  return (await unwrap(api.PUT("/api/v1/workflows/{name}", { params, body: spec, signal }))) as WorkflowSpec;
}

/**
 * Validates a spec on the server and returns its warnings; stores nothing. Throws an ApiError if the spec is invalid.
 */
export async function checkWorkflow(spec: WorkflowSpec, signal?: AbortSignal): Promise<Warning[]> {
  await resolveWorkflow(spec, signal);
  const params = { query: { dry_run: true } };
  const body = { workflows: [spec] };
  const applied = await unwrap(api.POST("/api/v1/workflows/apply", { params, body, signal }));
  return applied.workflows.flatMap(({ warnings }) => warnings ?? []);
}

/** Creates a workflow (`version` null), or replaces the spec of the workflow with this version. */
export async function saveWorkflow(spec: WorkflowSpec, version: number | null): Promise<Workflow> {
  const header = version === null ? { "If-None-Match": "*" } : { "If-Match": `"${version}"` };
  const params = { path: { name: pathName(spec.name) }, query: { namespace: spec.namespace }, header };
  const saved = await unwrap(api.PUT("/api/v1/workflows/{name}", { params, body: spec }));
  await invalidate(["workflows"], ["workflow"]);
  return saved as Workflow;
}

/**
 * Returns the server's defaults: the resolved spec of a minimal workflow with the same owner, queue, priority class and
 * priority.
 */
export async function workflowDefaults(spec: WorkflowSpec): Promise<WorkflowSpec> {
  const { namespace, owner, queue, priority_class, priority } = spec;
  const job = { run: { process: { command: ["true"] } } } as JobSpec;
  const steps = [{ name: "step", job }];
  const minimal = { name: "defaults", namespace, owner, queue, priority_class, priority, steps };
  // Values from the request are no defaults.
  const requested = {
    namespace: "default",
    queue: "default",
    priority_class: DEFAULT_CLASS,
    priority: 50,
    owner: null,
  };
  return { ...(await resolveWorkflow(minimal)), ...requested };
}

/**
 * Returns the name for the path, `-` if it is missing or invalid: the server's error message is better than one of
 * ours.
 */
function pathName(name: unknown): string {
  return typeof name === "string" && name !== "" ? name : "-";
}

export async function deleteWorkflow(id: string): Promise<void> {
  await unwrap(api.DELETE("/api/v1/workflows/{name}", { params: { path: { name: id } } }));
  await invalidate(["workflows"], ["workflow"]);
}

export async function startRun(id: string, body: StartRun, key: string): Promise<WorkflowRun> {
  const params = { path: { name: id }, header: { "Idempotency-Key": key } };
  const run = await unwrap(api.POST("/api/v1/workflows/{name}/start", { params, body }));
  await invalidate(["workflows"], ["workflow"], ["runs"], [PAGED_RUNS]);
  return run;
}

/** Returns the plan of a run; starts nothing. */
export async function planRun(id: string, body: StartRun, signal?: AbortSignal): Promise<RunPlan> {
  const params = { path: { name: id } };
  return unwrap(api.POST("/api/v1/workflows/{name}/plan", { params, body, signal }));
}

export async function cancelRun(id: string, reason: string, skipFinally: boolean): Promise<void> {
  const body = { ...(reason && { reason }), ...(skipFinally && { skip_finally: true }) };
  await unwrap(api.POST("/api/v1/runs/{id}/cancel", { params: { path: { id } }, body }));
  await invalidateRun(id);
}

export async function pauseRun(id: string, note: string): Promise<void> {
  const body = note ? { note } : {};
  await unwrap(api.POST("/api/v1/runs/{id}/pause", { params: { path: { id } }, body }));
  await invalidateRun(id);
}

export async function resumeRun(id: string): Promise<void> {
  await unwrap(api.POST("/api/v1/runs/{id}/resume", { params: { path: { id } } }));
  await invalidateRun(id);
}

/** Starts a new run that reuses the succeeded steps: from the failed steps, or from the step `from`. */
export async function retryRun(
  id: string,
  from: string | null,
  note: string,
  key: string,
): Promise<WorkflowRun> {
  const params = { path: { id }, header: { "Idempotency-Key": key } };
  const body = { ...(from && { from }), ...(note && { note }) };
  const run = await unwrap(api.POST("/api/v1/runs/{id}/retry", { params, body }));
  await invalidateRun(id);
  return run;
}

export type Mark = Extract<StepStatus, "succeeded" | "failed" | "skipped">;

export async function markStep(id: string, step: string, status: Mark, note: string): Promise<void> {
  const body = { status, ...(note && { note }) };
  await unwrap(api.POST("/api/v1/runs/{id}/steps/{step}/mark", { params: { path: { id, step } }, body }));
  await invalidateRun(id);
}

export async function approveStep(id: string, step: string, note: string): Promise<void> {
  const body = note ? { note } : {};
  await unwrap(api.POST("/api/v1/runs/{id}/steps/{step}/approve", { params: { path: { id, step } }, body }));
  await invalidateRun(id);
}

export async function rejectStep(id: string, step: string, note: string): Promise<void> {
  const body = note ? { note } : {};
  await unwrap(api.POST("/api/v1/runs/{id}/steps/{step}/reject", { params: { path: { id, step } }, body }));
  await invalidateRun(id);
}

/** Any JSON. */
export type EventPayload = NonNullable<
  paths["/api/v1/runs/{id}/events/{event}"]["post"]["requestBody"]
>["content"]["application/json"];

/** Sends an event to a run. Returns the number of steps that accepted it. */
export async function sendEvent(id: string, event: string, payload: EventPayload): Promise<number> {
  const params = { path: { id, event } };
  const accepted = await unwrap(api.POST("/api/v1/runs/{id}/events/{event}", { params, body: payload }));
  await invalidateRun(id);
  return accepted.steps;
}

async function invalidateRun(id: string): Promise<void> {
  await invalidate(["run", id], ["runs"], [PAGED_RUNS], ["workflows"]);
}

async function invalidate(...keys: string[][]): Promise<void> {
  await Promise.all(keys.map((queryKey) => queryClient.invalidateQueries({ queryKey })));
}
