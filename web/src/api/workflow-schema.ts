/**
 * What the API says of workflows and runs, in the form of the generated `schema.d.ts`: types of bodies, and
 * the paths that answer with them.
 */

import type {
  ApplyChange,
  Constraint,
  FeedEvent,
  Job,
  JobId,
  JobSpec,
  Origin,
  Pause,
  paths as OtherPaths,
  Warning,
} from "./schema";

export type RunStatus =
  "waiting" | "running" | "paused" | "stopping" | "succeeded" | "failed" | "cancelled";
export type StepStatus =
  | "pending"
  | "running"
  | "waiting"
  | "succeeded"
  | "failed"
  | "upstream_failed"
  | "skipped"
  | "cancelled";
export type Section = "steps" | "on_failure" | "finally";
export type StepKind = "job" | "workflow" | "approval" | "wait";
export type JoinRule =
  | "all_success"
  | "all_failed"
  | "all_done"
  | "all_done_min_one_success"
  | "all_skipped"
  | "one_failed"
  | "one_success"
  | "one_done"
  | "none_failed"
  | "none_failed_min_one_success"
  | "none_skipped"
  | "always";
export type RunCause =
  | "started"
  | "queued"
  | "turn"
  | "succeeded"
  | "step_failed"
  | "fail_fast"
  | "timed_out"
  | "cancel_requested"
  | "pause_requested"
  | "resume_requested"
  | "output_failed"
  | "parent_stopped";
export type StepCause =
  | "needs_over"
  | "rule"
  | "condition"
  | "condition_failed"
  | "bad_reference"
  | "job_succeeded"
  | "job_failed"
  | "job_cancelled"
  | "job_expired"
  | "run_succeeded"
  | "run_failed"
  | "run_cancelled"
  | "items_over"
  | "items_failed"
  | "approved"
  | "rejected"
  | "time_came"
  | "event_came"
  | "timed_out"
  | "marked"
  | "stopped"
  | "carried"
  | "job_missing";
export type ParameterType = "string" | "integer" | "number" | "boolean" | "array" | "object";

export interface Parameter {
  type: ParameterType;
  default?: unknown;
  schema?: unknown;
  description?: string | null;
}

export interface ForEach {
  over: { items: unknown[] } | { list: string } | { shards: number } | { workers: Constraint[] };
  max_parallel?: number | null;
  max_failed?: number;
  enough?: number | null;
}

export interface StepSpec {
  name: string;
  description?: string | null;
  needs?: string[];
  join?: JoinRule;
  when?: string | null;
  for_each?: ForEach | null;
  job?: JobSpec | null;
  workflow?: { name: string; parameters?: Record<string, unknown> } | null;
  approval?: {
    approvers?: string[];
    message?: string | null;
    on_timeout?: "fail" | "succeed" | "skip";
  } | null;
  wait?: Record<string, unknown> | null;
  continue_on_failure?: boolean;
  timeout?: string | null;
}

export interface WorkflowSpec {
  name: string;
  namespace?: string;
  owner?: string | null;
  labels?: Record<string, string>;
  description?: string | null;
  parameters?: Record<string, Parameter>;
  steps: StepSpec[];
  on_failure?: StepSpec[];
  finally?: StepSpec[];
  outputs?: Record<string, unknown>;
  failure?: "finish_what_can" | "fail_fast";
  max_parallel_steps?: number | null;
  max_parallel_runs?: number | null;
  timeout?: string | null;
  priority?: number;
  queue?: string;
  retention?: string | null;
}

export interface RecentRun {
  id: string;
  number: number;
  status: RunStatus;
  created_at: string;
  started_at?: string | null;
  finished_at?: string | null;
}

export interface Workflow {
  id: string;
  name: string;
  namespace: string;
  owner?: string | null;
  labels?: Record<string, string>;
  description?: string | null;
  generation: number;
  version: number;
  created_at: string;
  updated_at: string;
  steps: number;
  parameters?: Record<string, Parameter>;
  runs: number;
  recent?: RecentRun[] | null;
  spec?: WorkflowSpec | null;
  warnings?: Warning[];
}

export interface AppliedWorkflow {
  id?: string | null;
  name: string;
  namespace: string;
  change: ApplyChange;
  generation: number;
  version: number;
  warnings?: Warning[];
}

export interface StartRun {
  parameters?: Record<string, unknown>;
  priority?: number | null;
  note?: string | null;
}

export interface PlannedStep {
  name: string;
  section: Section;
  kind: StepKind;
  needs: string[];
  level: number;
  total?: number | null;
  command?: string[] | null;
}

export interface RunPlan {
  parameters: Record<string, unknown>;
  steps: PlannedStep[];
}

export type StepCounts = Partial<Record<StepStatus, number>>;

export interface RunHistoryEntry {
  at: string;
  from?: RunStatus | null;
  to: RunStatus;
  cause: RunCause;
  detail?: string | null;
}

export interface WorkflowRun {
  id: string;
  workflow_id?: string | null;
  workflow: string;
  namespace: string;
  generation: number;
  number: number;
  status: RunStatus;
  section: Section;
  version: number;
  created_at: string;
  started_at?: string | null;
  finished_at?: string | null;
  updated_at: string;
  parameters: Record<string, unknown>;
  actor: string;
  note?: string | null;
  caller?: { run: string; step: number; item?: number | null } | null;
  retry_of?: string | null;
  priority?: number | null;
  origin?: Origin | null;
  pause?: Pause | null;
  stopping?: RunCause | null;
  steps: StepCounts;
  output?: unknown;
  history?: RunHistoryEntry[];
  spec?: WorkflowSpec | null;
}

export interface Said {
  at: string;
  by: string;
  note?: string | null;
}

export interface RunStepState {
  status: StepStatus;
  cause?: StepCause | null;
  job_id?: JobId | null;
  called?: string | null;
  started_at?: string | null;
  finished_at?: string | null;
  wake_at?: string | null;
  total?: number | null;
  tally?: { succeeded: number; failed: number } | null;
  output?: unknown;
  message?: string | null;
  said?: Said | null;
}

export interface RunStep extends RunStepState {
  name: string;
  number: number;
  section: Section;
  kind: StepKind;
  needs?: string[];
  join: JoinRule;
  for_each: boolean;
}

export interface RunItem extends RunStepState {
  index: number;
}

export interface RunSteps {
  version: number;
  steps: RunStep[];
}

export type StepReason =
  | { reason: "run_waits"; running: number; limit: number; ahead: number }
  | { reason: "later_section"; section: Section; now: Section }
  | { reason: "paused"; by: string; since: string }
  | { reason: "needs"; join: JoinRule; needs: Array<{ step: string; status: StepStatus }>; more: number }
  | { reason: "parallel_steps"; running: number; limit: number }
  | { reason: "next_batch" }
  | { reason: "job"; job: string }
  | { reason: "called"; run: string }
  | { reason: "elements"; total: number; running: number; succeeded: number; failed: number }
  | { reason: "approval"; approvers: string[]; until?: string | null }
  | { reason: "event"; event: string; until?: string | null }
  | { reason: "time"; until?: string | null }
  | { reason: "stopping"; becomes: StepStatus; cause: StepCause }
  | { reason: "over"; cause: StepCause; message?: string | null };

export interface StepWhy {
  run: string;
  step: string;
  status: StepStatus;
  reasons: StepReason[];
}

/** Which run and step a job belongs to. */
export interface StepOrigin {
  run: string;
  workflow: string;
  name: string;
  step: number;
  item?: { index: number; total: number; value: string } | null;
}

export type JobOfStep = Job & { step?: StepOrigin | null };

interface List<T> {
  items: T[];
  next_cursor?: string | null;
}

interface Operation<Query, Path, Header, Body, Status extends number, Answer> {
  parameters: { query?: Query; header?: Header; cookie?: never } & ([Path] extends [never]
    ? { path?: never }
    : { path: Path });
  requestBody?: { content: { "application/json": Body } };
  responses: Record<Status, { headers: Record<string, unknown>; content: { "application/json": Answer } }>;
}

type Get<Query, Path, Answer> = {
  parameters: { query?: never; path?: never; header?: never; cookie?: never };
  get: Operation<Query, Path, never, never, 200, Answer>;
};
type Post<Path, Body, Answer, Status extends number = 200, Query = never> = {
  parameters: { query?: never; path?: never; header?: never; cookie?: never };
  post: Operation<Query, Path, { "Idempotency-Key"?: string }, Body, Status, Answer>;
};
type Paged = { limit?: number; cursor?: string };
type Named = { name: string };
type OfRun = { id: string };
type OfStep = { id: string; step: string };
type Conditions = { "If-Match"?: string; "If-None-Match"?: string };

interface WorkflowPaths {
  "/api/v1/workflows": Get<
    Paged & { namespace?: string; owner?: string; text?: string; label?: string[]; runs?: number },
    never,
    List<Workflow>
  >;
  "/api/v1/workflows/{name}": Get<{ namespace?: string; generation?: number }, Named, Workflow> & {
    put: Operation<{ namespace?: string; dry_run?: boolean }, Named, Conditions, WorkflowSpec, 200, Workflow>;
    delete: Operation<{ namespace?: string }, Named, never, never, 200, never>;
  };
  "/api/v1/workflows/{name}/start": Post<Named, StartRun, WorkflowRun, 201, { namespace?: string }>;
  "/api/v1/workflows/{name}/plan": Post<Named, StartRun, RunPlan, 200, { namespace?: string }>;
  "/api/v1/runs": Get<
    Paged & {
      namespace?: string;
      workflow?: string;
      status?: string;
      caller?: string;
      schedule?: string;
      backfill?: string;
    },
    never,
    List<WorkflowRun>
  >;
  "/api/v1/runs/{id}": Get<never, OfRun, WorkflowRun>;
  "/api/v1/runs/{id}/steps": Get<never, OfRun, RunSteps>;
  "/api/v1/runs/{id}/steps/{step}/items": Get<Paged, OfStep, List<RunItem>>;
  "/api/v1/runs/{id}/steps/{step}/why": Get<never, OfStep, StepWhy>;
  "/api/v1/runs/{id}/cancel": Post<OfRun, { reason?: string; skip_finally?: boolean }, WorkflowRun>;
  "/api/v1/runs/{id}/pause": Post<OfRun, { note?: string }, WorkflowRun>;
  "/api/v1/runs/{id}/resume": Post<OfRun, never, WorkflowRun>;
  "/api/v1/runs/{id}/retry": Post<OfRun, { from?: string; note?: string }, WorkflowRun, 201>;
  "/api/v1/runs/{id}/steps/{step}/mark": Post<OfStep, { status: StepStatus; note?: string }, WorkflowRun>;
  "/api/v1/runs/{id}/steps/{step}/approve": Post<OfStep, { note?: string }, WorkflowRun>;
  "/api/v1/runs/{id}/steps/{step}/reject": Post<OfStep, { note?: string }, WorkflowRun>;
  "/api/v1/runs/{id}/events/{event}": Post<{ id: string; event: string }, unknown, { steps: number }>;
}

export type paths = OtherPaths & WorkflowPaths;

/** An event of the feed, with what it says of runs. */
export type RunEvent = FeedEvent & {
  run_id?: string | null;
  workflow?: string | null;
  step?: string | null;
};
