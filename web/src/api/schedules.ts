/** Requests for schedules, their ledger, backfills and calendars. */

import { infiniteQueryOptions, keepPreviousData, queryOptions } from "@tanstack/react-query";

import { unwrap, api } from "./client";
import { ApiError } from "./errors";
import { PAGED_SCHEDULES, queryClient, VISIBLE_SCHEDULES } from "./queries";
import type {
  Backfill,
  BackfillPlan,
  CalendarSpec,
  FiringCause,
  FiringOutcome,
  ImportedCalendar,
  Schedule,
  ScheduleSpec,
  ScheduleStatus,
  StartBackfill,
  Timing,
  TriggeredSchedule,
  UpcomingFiring,
  Warning,
} from "./schema";

export interface SchedulesFilter {
  status?: ScheduleStatus;
  text?: string;
  owner?: string;
  namespace?: string;
  label?: string[];
}

/** Maximum number of schedules that are read at once and sorted in the page. */
export const SCHEDULES_MAX = 1_000;
/** Page size of longer lists. */
const PAGE = 200;
/** Maximum number of runs of a schedule in a response. */
const RUNS_MAX = 50;
const SCHEDULES_OF_WORKFLOW = "schedules-of-workflow";
/** Runs drawn beside a schedule. */
export const RUNS_SHOWN = 20;

export const schedulesQuery = (filter: SchedulesFilter, limit = SCHEDULES_MAX, health = false) =>
  queryOptions({
    queryKey: ["schedules", filter, limit, health],
    queryFn: () => unwrap(api.GET("/api/v1/schedules", { params: { query: { ...filter, limit, health } } })),
    placeholderData: keepPreviousData,
  });

/** Paginated, in an order that the server supports. */
export const pagedSchedulesQuery = (filter: SchedulesFilter, order: "newest" | "next") =>
  infiniteQueryOptions({
    queryKey: [PAGED_SCHEDULES, filter, order],
    queryFn: ({ pageParam: cursor }) =>
      unwrap(api.GET("/api/v1/schedules", { params: { query: { ...filter, order, limit: PAGE, cursor } } })),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next_cursor ?? undefined,
  });

/** Some schedules with their health and newest runs, in one request. */
export const visibleSchedulesQuery = (ids: readonly string[]) =>
  queryOptions({
    queryKey: [...VISIBLE_SCHEDULES, ids],
    queryFn: () => {
      const query = { id: ids.join(","), health: true, runs: RUNS_SHOWN };
      return unwrap(api.GET("/api/v1/schedules", { params: { query } }));
    },
  });

/** Some schedules with their health. Refetched regularly: a run becomes late without an event. */
export const watchedSchedulesQuery = (ids: readonly string[]) =>
  queryOptions({
    queryKey: ["schedules", "watched", ids],
    queryFn: () => {
      const query = { id: ids.join(","), health: true };
      return unwrap(api.GET("/api/v1/schedules", { params: { query } }));
    },
    enabled: ids.length > 0,
    placeholderData: keepPreviousData,
    refetchInterval: 10_000,
  });

/** The schedules that fire next, in this order. */
export const nextSchedulesQuery = (limit: number) =>
  queryOptions({
    queryKey: ["schedules", "next", limit],
    queryFn: () => unwrap(api.GET("/api/v1/schedules", { params: { query: { order: "next", limit } } })),
  });

/** A few schedules whose name contains a text, for suggestions. Not refetched when a schedule fires. */
export const suggestedSchedulesQuery = (text: string) =>
  queryOptions({
    queryKey: ["suggested-schedules", text],
    queryFn: () =>
      unwrap(api.GET("/api/v1/schedules", { params: { query: { text: text || undefined, limit: 20 } } })),
    placeholderData: keepPreviousData,
    staleTime: 10_000,
  });

/** By id, or by name and namespace. */
export const scheduleQuery = (name: string, namespace?: string) =>
  queryOptions({
    queryKey: ["schedule", name, namespace ?? null],
    queryFn: () =>
      unwrap(api.GET("/api/v1/schedules/{name}", { params: { path: { name }, query: { namespace } } })),
  });

/**
 * The schedules that start a workflow, among the newest schedules of its namespace (`isPartial` if there are more). Not
 * refetched when a schedule fires: the request reads specs.
 */
export const schedulesOfWorkflowQuery = (workflow: string, namespace: string) =>
  queryOptions({
    queryKey: [SCHEDULES_OF_WORKFLOW, namespace, workflow],
    queryFn: async () => {
      const query = { namespace, specs: true, limit: SCHEDULES_MAX };
      const page = await unwrap(api.GET("/api/v1/schedules", { params: { query } }));
      const items = page.items.filter(({ spec }) => spec?.workflow?.name === workflow);
      return { items, isPartial: page.next_cursor != null };
    },
    staleTime: 60_000,
  });

/** The schedule with a name; null if it does not exist. */
export const namedScheduleQuery = (name: string, namespace: string) =>
  queryOptions({
    // Events of jobs do not change whether there is such a schedule.
    queryKey: ["named-schedule", name, namespace],
    queryFn: async () => {
      try {
        const params = { path: { name }, query: { namespace } };
        return await unwrap(api.GET("/api/v1/schedules/{name}", { params }));
      } catch (error) {
        if (ApiError.from(error).code === "schedule_not_found") return null;
        throw error;
      }
    },
    staleTime: 60_000,
  });

/**
 * The newest runs of a schedule, at most `RUNS_MAX`. The query key contains the number of ended runs, so the query is
 * refetched only when a run ends.
 */
export const newestScheduleRunsQuery = (schedule: Schedule) =>
  queryOptions({
    queryKey: ["schedule-runs", schedule.id, schedule.fired, endedRuns(schedule)],
    queryFn: async () => {
      const query = { id: schedule.id, runs: RUNS_MAX };
      const { items } = await unwrap(api.GET("/api/v1/schedules", { params: { query } }));
      return items[0]?.runs ?? [];
    },
    placeholderData: keepPreviousData,
    staleTime: 60_000,
  });

function endedRuns({ statistics }: Schedule): number {
  return statistics.succeeded + statistics.failed;
}

export const nextFiringsQuery = (id: string, count: number) =>
  queryOptions({
    queryKey: ["schedule", id, "next", count],
    queryFn: () =>
      unwrap(api.GET("/api/v1/schedules/{name}/next", { params: { path: { name: id }, query: { count } } })),
    placeholderData: keepPreviousData,
  });

export interface LedgerFilter {
  outcome?: FiringOutcome[];
  cause?: FiringCause;
  backfill?: string;
}

export function fetchLedger(id: string, filter: LedgerFilter, cursor?: string) {
  const query = {
    outcome: filter.outcome?.join(","),
    cause: filter.cause,
    backfill_id: filter.backfill,
    limit: 50,
    cursor,
    counts: cursor === undefined,
  };
  return unwrap(api.GET("/api/v1/schedules/{name}/ledger", { params: { path: { name: id }, query } }));
}

export const backfillsQuery = (schedule_id: string) =>
  queryOptions({
    queryKey: ["schedule", schedule_id, "backfills"],
    queryFn: () => unwrap(api.GET("/api/v1/backfills", { params: { query: { schedule_id, limit: 50 } } })),
  });

/** Maximum number of firings per schedule; the rule is shown instead for a schedule that fires more often. */
const FIRINGS_PER_SCHEDULE_MAX = 200;
/** Maximum number of requests for a timetable; a response has at most 1,000 firings. */
const REQUESTS_MAX = 5;

/** The known firings of one schedule within a span. */
export interface TimetableRow {
  id: string;
  name: string;
  namespace: string;
  /** Summary of its rule; null unless firings are missing. */
  when: string | null;
  /** Median duration of its runs, as a duration string. */
  usualDuration: string | null;
  firings: number[];
  /** Time until which all its firings are known, in ms since the epoch. */
  completeUntil: number;
}

export interface Timetable {
  from: number;
  to: number;
  rows: TimetableRow[];
  /** Time until which all firing schedules are among the rows, in ms since the epoch. */
  completeUntil: number;
}

/** The firings of the next `span` milliseconds, by schedule. */
export const timetableQuery = (span: number) =>
  queryOptions({
    queryKey: ["upcoming", "timetable", span],
    queryFn: async (): Promise<Timetable> => {
      const from = Date.now();
      const to = from + span;
      const until = new Date(to).toISOString();
      const rows = new Map<string, TimetableRow>();
      let completeUntil = from;
      let next: string | undefined;
      for (let i = 0; i < REQUESTS_MAX && completeUntil < to; i += 1) {
        const query = { from: next, until, limit_per_schedule: FIRINGS_PER_SCHEDULE_MAX };
        const page = await unwrap(api.GET("/api/v1/schedules/upcoming", { params: { query } }));
        for (const firing of page.items) addFiring(rows, firing, to);
        for (const id of page.truncated ?? []) truncate(rows.get(id));
        const reached = Date.parse(page.until);
        // No progress: more schedules fire at this time than one response covers.
        if (reached <= completeUntil) break;
        completeUntil = reached;
        next = page.until;
      }
      for (const row of rows.values()) row.completeUntil = Math.min(row.completeUntil, completeUntil);
      await addRules([...rows.values()].filter((row) => row.completeUntil < to));
      return { from, to, rows: [...rows.values()], completeUntil: Math.min(completeUntil, to) };
    },
    placeholderData: keepPreviousData,
    refetchInterval: 60_000,
  });

function addFiring(rows: Map<string, TimetableRow>, firing: UpcomingFiring, to: number): void {
  const { schedule_id: id, name, namespace, duration_p50, at } = firing;
  const row = rows.get(id) ?? {
    ...{ id, name, namespace, when: null, usualDuration: duration_p50 ?? null },
    ...{ firings: [], completeUntil: to },
  };
  rows.set(id, row);
  // After a gap, single firings would look as if they were all.
  if (row.completeUntil < to) return;
  row.firings.push(Date.parse(at));
}

function truncate(row: TimetableRow | undefined): void {
  const last = row?.firings.at(-1);
  if (row && last !== undefined) row.completeUntil = Math.min(row.completeUntil, last);
}

/** Adds the rule summaries of these schedules, at most 100 (one request). */
async function addRules(rows: TimetableRow[]): Promise<void> {
  const listed = rows.slice(0, 100);
  if (listed.length === 0) return;
  const query = { id: listed.map((row) => row.id).join(",") };
  const { items } = await unwrap(api.GET("/api/v1/schedules", { params: { query } }));
  const rules = new Map(items.map(({ id, when }) => [id, when]));
  for (const row of listed) row.when = rules.get(row.id) ?? null;
}

export async function previewTiming(
  draft: { timing: Timing; name?: string; namespace?: string },
  count: number,
  signal?: AbortSignal,
) {
  return unwrap(api.POST("/api/v1/schedules/preview", { body: { ...draft, count }, signal }));
}

function invalidate(...ids: string[]): void {
  for (const key of [
    ["schedules"],
    [SCHEDULES_OF_WORKFLOW],
    ["upcoming"],
    ...ids.map((id) => ["schedule", id]),
  ]) {
    void queryClient.invalidateQueries({ queryKey: key });
  }
}

/**
 * Validates a spec on the server and returns it with defaults; stores nothing. Throws an ApiError if the spec is
 * invalid.
 */
export async function checkSchedule(spec: ScheduleSpec, signal?: AbortSignal): Promise<ScheduleSpec> {
  const params = { path: { name: spec.name }, query: { dry_run: true, namespace: spec.namespace } };
  const checked: unknown = await unwrap(api.PUT("/api/v1/schedules/{name}", { params, body: spec, signal }));
  return checked as ScheduleSpec;
}

/**
 * Returns the policies that contradict the guarantee of a valid spec; stores nothing. Empty if the spec is the stored
 * one: the server warns only about new and changed schedules.
 */
export async function contradictionsOf(spec: ScheduleSpec, signal?: AbortSignal): Promise<Warning[]> {
  if (!spec.guarantee) return [];
  const params = { query: { dry_run: true } };
  const body = { schedules: [spec] };
  const applied = await unwrap(api.POST("/api/v1/schedules/apply", { params, body, signal }));
  const warnings = applied.schedules.flatMap(({ warnings }) => warnings ?? []);
  return warnings.filter(({ code }) => code === "contradicts_guarantee");
}

/** Creates a schedule (`version` null), or replaces the spec of the schedule with this version. */
export async function saveSchedule(spec: ScheduleSpec, version: number | null): Promise<Schedule> {
  const header = version === null ? { "If-None-Match": "*" } : { "If-Match": `"${version}"` };
  const params = { path: { name: spec.name }, query: { namespace: spec.namespace }, header };
  const saved = (await unwrap(api.PUT("/api/v1/schedules/{name}", { params, body: spec }))) as Schedule;
  invalidate(saved.id);
  return saved;
}

/** Returns the defaults that the server adds to a spec. */
export async function scheduleDefaults(spec: ScheduleSpec): Promise<object> {
  // The defaults of policies depend on the guarantee.
  const { name, namespace, owner, guarantee, job, workflow } = spec;
  const starts = job ? { job: { run: job.run } } : { workflow };
  const { job: filled, ...defaults } = await checkSchedule({ name, namespace, owner, guarantee, ...starts });
  const written = { owner: undefined, guarantee: undefined, workflow: undefined };
  return { ...defaults, ...written, job: filled && { ...filled, run: undefined } };
}

export async function pauseSchedule(id: string, note: string): Promise<void> {
  const body = note === "" ? {} : { note };
  await unwrap(api.POST("/api/v1/schedules/{name}/pause", { params: { path: { name: id } }, body }));
  invalidate(id);
}

export async function resumeSchedule(id: string): Promise<void> {
  await unwrap(api.POST("/api/v1/schedules/{name}/resume", { params: { path: { name: id } } }));
  invalidate(id);
}

export async function triggerSchedule(id: string, reason: string, key: string): Promise<TriggeredSchedule> {
  const params = { path: { name: id }, header: { "Idempotency-Key": key } };
  const body = reason === "" ? {} : { reason };
  const triggered = await unwrap(api.POST("/api/v1/schedules/{name}/trigger", { params, body }));
  invalidate(id);
  return triggered;
}

export async function deleteSchedule(id: string): Promise<void> {
  await unwrap(api.DELETE("/api/v1/schedules/{name}", { params: { path: { name: id } } }));
  invalidate(id);
}

export async function planBackfill(
  id: string,
  body: StartBackfill,
  signal: AbortSignal,
): Promise<BackfillPlan> {
  const params = { path: { name: id }, query: { dry_run: true } };
  const plan = await unwrap(api.POST("/api/v1/schedules/{name}/backfills", { params, body, signal }));
  return plan as BackfillPlan;
}

export async function startBackfill(id: string, body: StartBackfill): Promise<Backfill> {
  const params = { path: { name: id } };
  const created = await unwrap(api.POST("/api/v1/schedules/{name}/backfills", { params, body }));
  invalidate(id);
  return created as Backfill;
}

export async function cancelBackfill(backfill: Backfill): Promise<void> {
  const params = { path: { id: backfill.id } };
  await unwrap(api.POST("/api/v1/backfills/{id}/cancel", { params, body: {} }));
  invalidate(backfill.schedule_id);
}

export const calendarsQuery = queryOptions({
  queryKey: ["calendars"],
  queryFn: () => unwrap(api.GET("/api/v1/calendars", { params: { query: { namespace: "*" } } })),
});

export const calendarQuery = (name: string, namespace?: string) =>
  queryOptions({
    queryKey: ["calendars", name, namespace ?? null],
    queryFn: () =>
      unwrap(api.GET("/api/v1/calendars/{name}", { params: { path: { name }, query: { namespace } } })),
  });

export const calendarDaysQuery = (name: string, namespace: string | undefined, year: number) =>
  queryOptions({
    queryKey: ["calendars", name, namespace ?? null, year],
    queryFn: () => {
      const query = { namespace, from: `${year}-01-01`, until: `${year}-12-31` };
      return unwrap(api.GET("/api/v1/calendars/{name}/days", { params: { path: { name }, query } }));
    },
  });

export async function checkCalendar(spec: CalendarSpec, signal?: AbortSignal): Promise<void> {
  const params = { path: { name: spec.name }, query: { dry_run: true, namespace: spec.namespace } };
  await unwrap(api.PUT("/api/v1/calendars/{name}", { params, body: spec, signal }));
}

export async function saveCalendar(spec: CalendarSpec, version: number | null): Promise<void> {
  const header = version === null ? { "If-None-Match": "*" } : { "If-Match": `"${version}"` };
  const params = { path: { name: spec.name }, query: { namespace: spec.namespace }, header };
  await unwrap(api.PUT("/api/v1/calendars/{name}", { params, body: spec }));
  await queryClient.invalidateQueries({ queryKey: ["calendars"] });
}

export async function deleteCalendar(name: string, namespace?: string): Promise<void> {
  await unwrap(api.DELETE("/api/v1/calendars/{name}", { params: { path: { name }, query: { namespace } } }));
  await queryClient.invalidateQueries({ queryKey: ["calendars"] });
}

/** Parses an iCalendar text on the server; stores nothing. */
export async function parseIcs(text: string): Promise<ImportedCalendar> {
  return unwrap(
    api.POST("/api/v1/calendars/import", {
      body: text,
      bodySerializer: (body: string) => body,
      headers: { "content-type": "text/calendar" },
    }),
  );
}
