//! Every bound that input is held to. A refusal names the bound; the docs list them from here.

use crate::time::Duration;

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
