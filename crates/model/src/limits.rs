//! Every bound that input is held to. A refusal names the bound; the docs list them from here.

use crate::quantity::{Bytes, Millicores};
use crate::time::Duration;

/// The most memory that a job may ask for: more than any machine has.
pub const MEMORY_MAX: Bytes = Bytes(1 << 50);
/// The most CPU that a job may ask for: more than any machine has.
pub const CPU_MAX: Millicores = Millicores(1_000_000_000);
/// The largest spec, as JSON.
pub const SPEC_BYTES_MAX: usize = 256 * 1024;
/// The largest request body of a single object.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;
/// The largest request body of a batch.
pub const BATCH_BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The most jobs in one submission.
pub const BATCH_JOBS_MAX: usize = 10_000;
/// The longest name of a job, queue, namespace or artifact.
pub const NAME_LEN_MAX: usize = 63;
/// The longest name of an owner.
pub const OWNER_LEN_MAX: usize = 128;
/// The most labels of one object.
pub const LABELS_MAX: usize = 64;
/// The longest label key or value.
pub const LABEL_LEN_MAX: usize = 63;
/// The most arguments of a command.
pub const COMMAND_ARGS_MAX: usize = 1_000;
/// The most environment variables.
pub const ENV_VARS_MAX: usize = 1_000;
/// The longest environment variable, name and value.
pub const ENV_VAR_BYTES_MAX: usize = 32 * 1024;
/// The most inputs, and the most outputs.
pub const FILES_MAX: usize = 100;
/// The longest path of an input or output.
pub const PATH_LEN_MAX: usize = 1024;
/// The most placement constraints.
pub const CONSTRAINTS_MAX: usize = 32;
/// The most custom resources.
pub const CUSTOM_RESOURCES_MAX: usize = 16;
/// The most retries of either kind.
pub const RETRIES_MAX: u32 = 1_000;
/// The longest backoff between tries.
pub const BACKOFF_MAX: Duration = Duration::from_hours(24);
/// The longest run timeout.
pub const TIMEOUT_MAX: Duration = Duration::from_hours(24 * 366);
/// The longest grace between SIGTERM and SIGKILL.
pub const GRACE_MAX: Duration = Duration::from_hours(1);
/// How far ahead a job may be submitted.
pub const AHEAD_MAX: Duration = Duration::from_hours(24 * 366 * 10);
/// The largest concurrency limit of a key, a queue or a worker.
pub const CONCURRENCY_MAX: u32 = 1_000_000;
/// The longest concurrency or idempotency key.
pub const KEY_LEN_MAX: usize = 255;
/// The shortest and longest retention of an ended job.
pub const RETENTION_MAX: Duration = Duration::from_hours(24 * 366 * 10);
/// How long an idempotency key is remembered.
pub const IDEMPOTENCY_KEPT: Duration = Duration::from_hours(24 * 7);
/// The largest output value (`$BELFRY_OUTPUT`).
pub const OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// The largest checkpoint (`$BELFRY_CHECKPOINT`).
pub const CHECKPOINT_BYTES_MAX: usize = 64 * 1024;
/// The longest content type of a checkpoint.
pub const CONTENT_TYPE_LEN_MAX: usize = 127;
/// The most transitions of one job that are kept: the first quarter, and the newest.
pub const HISTORY_MAX: usize = 400;
/// The most exit codes in each list of a retry policy.
pub const EXIT_CODES_MAX: usize = 256;
/// The most bytes of log kept of one execution (half from its head, half from its tail).
pub const LOG_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// The longest log line before it is cut.
pub const LOG_LINE_BYTES_MAX: usize = 1024 * 1024;
/// The most items of one page, and how many without asking.
pub const PAGE_MAX: usize = 1_000;
/// Items of a page without asking.
pub const PAGE_DEFAULT: usize = 50;
/// Priorities go from 0 (last) to this (first).
pub const PRIORITY_MAX: u8 = 100;
/// The most steps of one calendar.
pub const CALENDAR_STEPS_MAX: usize = 1_000;
/// The most dates of one calendar, a range of days counting once.
pub const CALENDAR_DATES_MAX: usize = 20_000;
/// The most calendars that refer to each other in a row.
pub const CALENDAR_DEPTH_MAX: usize = 8;
/// The most layers of one calendar, together with those of the calendars that it refers to.
pub const CALENDAR_COST_MAX: usize = 10_000;
/// The largest iCalendar text that is imported.
pub const ICALENDAR_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The most events of an iCalendar text.
pub const ICALENDAR_EVENTS_MAX: usize = 20_000;
/// The most schedules in one request.
pub const BATCH_SCHEDULES_MAX: usize = 10_000;
/// The most rules of one timing.
pub const RULES_MAX: usize = 64;
/// The most filters in each list of a timing.
pub const FILTERS_MAX: usize = 64;
/// The most runs of one schedule at the same time before its overlap policy applies.
pub const OVERLAP_MAX: u32 = 1_000;
/// The most firings of one schedule that wait for their turn.
pub const BUFFER_MAX: u32 = 1_000;
/// The most that a jitter puts off a firing.
pub const JITTER_MAX: Duration = Duration::from_hours(24);
/// The most missed firings that `fire_last` makes up for.
pub const MISSED_LAST_MAX: u32 = 1_000;
/// The largest `missed.limit`: missed firings of one outage that `fire_all` makes up for.
pub const MISSED_LIMIT_MAX: u32 = 10_000;
/// The longest catch-up window.
pub const CATCH_UP_WINDOW_MAX: Duration = Duration::from_hours(24 * 366 * 10);
/// How long ahead of a firing room may be kept for it.
pub const RESERVE_AHEAD_MAX: Duration = Duration::from_hours(24);
/// The longest text for people: a description, a note, a reason.
pub const NOTE_LEN_MAX: usize = 1_000;
/// The most instants of one backfill.
pub const BACKFILL_INSTANTS_MAX: usize = 10_000;
/// The most runs of one backfill at the same time.
pub const BACKFILL_CONCURRENCY_MAX: u32 = 1_000;
/// The most firings of one preview.
pub const PREVIEW_MAX: usize = 1_000;
/// The most steps of one workflow, in all sections together.
pub const STEPS_MAX: usize = 10_000;
/// The most edges between the steps of one workflow.
pub const EDGES_MAX: usize = 100_000;
/// The largest workflow, as JSON.
pub const WORKFLOW_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How deep workflows call each other.
pub const CALL_DEPTH_MAX: usize = 8;
/// The most workflows that one calls, directly or through others.
pub const CALLS_MAX: usize = 100;
/// The longest expression.
pub const EXPRESSION_BYTES_MAX: usize = 2_000;
/// The most parameters, and the most outputs, of one workflow.
pub const PARAMETERS_MAX: usize = 100;
/// The most bytes of a run's parameters, as JSON.
pub const RUN_PARAMETERS_BYTES_MAX: usize = 1024 * 1024;
/// The most elements that a step goes over.
pub const ITEMS_MAX: usize = 100_000;
/// The largest element, as JSON.
pub const ITEM_BYTES_MAX: usize = 1024;
/// The most elements that a task adds at once.
pub const ADDED_MAX: usize = 1_000;
/// The longest name of what a task adds at once.
pub const BATCH_NAME_BYTES_MAX: usize = 128;
/// The largest list of what the elements of a step gave that can be referred to, as JSON.
pub const COLLECTED_BYTES_MAX: usize = 192 * 1024;
/// The most runs of one workflow that wait for their turn.
pub const WAITING_RUNS_MAX: usize = 10_000;
/// The most triggers of one workflow.
pub const TRIGGERS_MAX: usize = 32;
/// The most sources that one trigger joins.
pub const TRIGGER_SOURCES_MAX: usize = 8;
/// The most ends in a row that start runs of each other.
pub const TRIGGER_CHAIN_MAX: usize = 32;
/// The most runs that one end starts.
pub const TRIGGERED_RUNS_MAX: usize = 1_000;
/// The largest output that a trigger keeps of an end while it waits for the others.
pub const KEPT_OUTPUT_BYTES_MAX: usize = 8 * 1024;
/// The most workers that come late which a step over workers names.
pub const LATE_WORKERS_NAMED_MAX: usize = 100;
/// The most who may approve a step.
pub const APPROVERS_MAX: usize = 100;
