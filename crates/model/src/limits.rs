//! Limits of all input. An error message names the limit that was exceeded.
//!
//! The first line of each doc comment is a row of `docs/src/reference/limits.md`, so it must be one line.

use crate::quantity::{Bytes, Millicores};
use crate::time::Duration;

/// Maximum memory that a job may request.
pub const MEMORY_MAX: Bytes = Bytes(1 << 50);
/// Maximum CPU that a job may request.
pub const CPU_MAX: Millicores = Millicores(1_000_000_000);
/// Maximum size of a spec, as JSON.
pub const SPEC_BYTES_MAX: usize = 256 * 1024;
/// Maximum size of the request body for a single object.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;
/// Maximum size of the request body for a batch.
pub const BATCH_BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Maximum number of jobs in one submission.
pub const BATCH_JOBS_MAX: usize = 10_000;
/// Maximum length of the name of a job, queue, namespace or artifact, in characters.
pub const NAME_LEN_MAX: usize = 63;
/// Maximum length of an owner, in bytes.
pub const OWNER_LEN_MAX: usize = 128;
/// Minimum length of a password, in characters.
pub const PASSWORD_LEN_MIN: usize = 12;
/// Maximum length of a password, in characters.
pub const PASSWORD_LEN_MAX: usize = 128;
/// Maximum size of the request body for a login or a password.
pub const LOGIN_BODY_BYTES_MAX: usize = 8 * 1024;
/// Maximum number of labels of one object.
pub const LABELS_MAX: usize = 64;
/// Maximum length of a label value, and of a label key after its prefix, in characters.
pub const LABEL_LEN_MAX: usize = 63;
/// Maximum length of the prefix of a label key (`prefix/key`), in characters.
pub const LABEL_PREFIX_LEN_MAX: usize = 253;
/// Maximum number of arguments of a command.
pub const COMMAND_ARGS_MAX: usize = 1_000;
/// Maximum number of sidecars of a job.
pub const SIDECARS_MAX: usize = 8;
/// Maximum number of hooks before, and after, the process of a job.
pub const HOOKS_MAX: usize = 16;
/// Maximum length of the name of an image, in bytes.
pub const IMAGE_LEN_MAX: usize = 512;
/// Maximum number of headers of a request.
pub const HTTP_HEADERS_MAX: usize = 100;
/// Maximum number of outputs that a job takes from a response.
pub const HTTP_OUTPUTS_MAX: usize = 64;
/// Maximum number of entries in `success_status`.
pub const HTTP_STATUS_RANGES_MAX: usize = 32;
/// Maximum `request_timeout` of a request.
pub const REQUEST_TIMEOUT_MAX: Duration = Duration::from_hours(24);
/// Minimum interval of polling.
pub const POLL_INTERVAL_MIN: Duration = Duration::from_secs(1);
/// Maximum interval of polling.
pub const POLL_INTERVAL_MAX: Duration = Duration::from_hours(1);
/// Maximum number of environment variables of a job.
pub const ENV_VARS_MAX: usize = 1_000;
/// Maximum size of an environment variable: name and value together.
pub const ENV_VAR_BYTES_MAX: usize = 32 * 1024;
/// Maximum number of inputs of a job, and of outputs.
pub const FILES_MAX: usize = 100;
/// Maximum length of the path of an input or output, in bytes.
pub const PATH_LEN_MAX: usize = 1024;
/// Maximum number of placement constraints of a job.
pub const CONSTRAINTS_MAX: usize = 32;
/// Maximum number of upstream jobs of a job (`after`).
pub const UPSTREAM_JOBS_MAX: usize = 100;
/// Maximum number of services that a job requires (`requires`).
pub const REQUIRED_SERVICES_MAX: usize = 16;
/// Maximum number of jobs that wait for the end of one job (`after`).
pub const DOWNSTREAM_JOBS_MAX: usize = 10_000;
/// Maximum number of custom resources of a job.
pub const CUSTOM_RESOURCES_MAX: usize = 16;
/// Maximum number of retries of a job after failed executions, failed starts, and losses each.
pub const RETRIES_MAX: u32 = 1_000;
/// Maximum number of delays in a list of delays before retries.
pub const DELAYS_MAX: usize = 100;
/// Maximum delay before a retry.
pub const BACKOFF_MAX: Duration = Duration::from_hours(24);
/// Maximum timeout of an execution.
pub const TIMEOUT_MAX: Duration = Duration::from_hours(24 * 366);
/// Maximum grace period between SIGTERM and SIGKILL.
pub const GRACE_MAX: Duration = Duration::from_hours(1);
/// Maximum time from now to the `run_at` of a job; also limits start deadlines and waits.
pub const AHEAD_MAX: Duration = Duration::from_hours(24 * 366 * 10);
/// Maximum concurrency limit of a key, a queue or a worker.
pub const CONCURRENCY_MAX: u32 = 1_000_000;
/// Maximum length of a concurrency key or idempotency key, in bytes.
pub const KEY_LEN_MAX: usize = 255;
/// Maximum retention of an ended job.
pub const RETENTION_MAX: Duration = Duration::from_hours(24 * 366 * 10);
/// Default retention of an idempotency key (`server.key_retention`).
pub const IDEMPOTENCY_KEY_RETENTION: Duration = Duration::from_hours(24 * 7);
/// Maximum size of the output of an execution (`$BELFRY_OUTPUT`).
pub const OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// Maximum size of a checkpoint (`$BELFRY_CHECKPOINT`).
pub const CHECKPOINT_BYTES_MAX: usize = 64 * 1024;
/// Maximum length of the content type of a checkpoint, in bytes.
pub const CONTENT_TYPE_LEN_MAX: usize = 127;
/// Maximum number of stored transitions of one job: the first quarter, and the newest ones.
pub const HISTORY_MAX: usize = 400;
/// Maximum number of exit codes in each list of a retry policy.
pub const EXIT_CODES_MAX: usize = 256;
/// Largest number of jobs with the same name on one worker (`spread.max_per_worker`).
pub const SPREAD_MAX: u32 = 1_000;
/// Default of the maximum size of the stored log of one execution.
pub const LOG_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Smallest maximum size of the stored log of one execution (`log.max_size`).
pub const LOG_SIZE_MIN: Bytes = Bytes(1 << 20);
/// Largest maximum size of the stored log of one execution (`log.max_size`).
pub const LOG_SIZE_MAX: Bytes = Bytes(1 << 30);
/// Maximum number of items of one page.
pub const PAGE_MAX: usize = 1_000;
/// Default number of items of one page.
pub const PAGE_DEFAULT: usize = 50;
/// Highest value of the quota of jobs of a namespace.
pub const NAMESPACE_JOBS_MAX: u64 = 100_000_000;
/// Highest priority; the lowest is 0.
pub const PRIORITY_MAX: u8 = 100;
/// Maximum number of steps of one calendar.
pub const CALENDAR_STEPS_MAX: usize = 1_000;
/// Maximum number of dates of one calendar; a range of days counts as one.
pub const CALENDAR_DATES_MAX: usize = 20_000;
/// Maximum depth of references between calendars.
pub const CALENDAR_DEPTH_MAX: usize = 8;
/// Maximum number of compiled steps (layers) of one calendar, with those of the calendars that it refers to.
pub const CALENDAR_COST_MAX: usize = 10_000;
/// Maximum size of an imported iCalendar file.
pub const ICALENDAR_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Maximum number of events in an iCalendar file.
pub const ICALENDAR_EVENTS_MAX: usize = 20_000;
/// Maximum number of schedules in one request.
pub const BATCH_SCHEDULES_MAX: usize = 10_000;
/// Maximum number of rules of one timing.
pub const RULES_MAX: usize = 64;
/// Maximum number of filters in `only`, and in `exclude`, of one timing.
pub const FILTERS_MAX: usize = 64;
/// Maximum limit of concurrent runs of one schedule (`overlap.limit`).
pub const OVERLAP_MAX: u32 = 1_000;
/// Maximum number of waiting firings of one schedule.
pub const BUFFER_MAX: u32 = 1_000;
/// Maximum jitter: the random delay of a firing.
pub const JITTER_MAX: Duration = Duration::from_hours(24);
/// Maximum number of missed firings that `fire_last` catches up.
pub const MISSED_LAST_MAX: u32 = 1_000;
/// Maximum value of `missed.limit`: missed firings of one outage that `fire_all` catches up.
pub const MISSED_LIMIT_MAX: u32 = 10_000;
/// Maximum catch-up window.
pub const CATCH_UP_WINDOW_MAX: Duration = Duration::from_hours(24 * 366 * 10);
/// Maximum time before a firing in which resources are reserved for it (`reserve_ahead`).
pub const RESERVE_AHEAD_MAX: Duration = Duration::from_hours(24);
/// Maximum length of a description, note or reason, in bytes.
pub const NOTE_LEN_MAX: usize = 1_000;
/// Maximum number of scheduled times of one backfill.
pub const BACKFILL_TIMES_MAX: usize = 10_000;
/// Maximum number of concurrent runs of one backfill.
pub const BACKFILL_CONCURRENCY_MAX: u32 = 1_000;
/// Maximum number of firings of one preview.
pub const PREVIEW_MAX: usize = 1_000;
/// Maximum number of steps of one workflow, in all sections together.
pub const STEPS_MAX: usize = 10_000;
/// Maximum number of dependencies between the steps of one workflow.
pub const EDGES_MAX: usize = 100_000;
/// Maximum size of a workflow, as JSON.
pub const WORKFLOW_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Maximum depth of calls between workflows.
pub const CALL_DEPTH_MAX: usize = 8;
/// Maximum number of workflows that one workflow calls, directly or through others.
pub const CALLS_MAX: usize = 100;
/// Maximum length of an expression.
pub const EXPRESSION_BYTES_MAX: usize = 2_000;
/// Maximum number of parameters of one workflow, and of outputs.
pub const PARAMETERS_MAX: usize = 100;
/// Maximum size of the parameters of a run, as JSON.
pub const RUN_PARAMETERS_BYTES_MAX: usize = 1024 * 1024;
/// Maximum number of elements of a mapped step.
pub const ITEMS_MAX: usize = 100_000;
/// Maximum size of an element of a mapped step, as JSON.
pub const ITEM_BYTES_MAX: usize = 1024;
/// Maximum number of elements that a task adds at once.
pub const ADDED_MAX: usize = 1_000;
/// Maximum length of the name of a batch of elements that a task adds.
pub const BATCH_NAME_BYTES_MAX: usize = 128;
/// Maximum size of the list of outputs of a mapped step that expressions can refer to, as JSON.
pub const COLLECTED_BYTES_MAX: usize = 192 * 1024;
/// Maximum number of waiting runs of one workflow.
pub const WAITING_RUNS_MAX: usize = 10_000;
/// Maximum number of triggers of one workflow.
pub const TRIGGERS_MAX: usize = 32;
/// Maximum number of sources that one trigger joins.
pub const TRIGGER_SOURCES_MAX: usize = 8;
/// Maximum number of consecutive runs that trigger each other.
pub const TRIGGER_CHAIN_MAX: usize = 32;
/// Maximum number of runs that the end of one job or run starts.
pub const TRIGGERED_RUNS_MAX: usize = 1_000;
/// Maximum size of an output that a trigger stores while it waits for its other sources.
pub const STORED_OUTPUT_BYTES_MAX: usize = 8 * 1024;
/// Maximum number of late workers that a mapped step over workers lists.
pub const LATE_WORKERS_NAMED_MAX: usize = 100;
/// Maximum number of approvers of a step.
pub const APPROVERS_MAX: usize = 100;
/// Maximum number of channels that an alert rule notifies.
pub const RULE_CHANNELS_MAX: usize = 10;
/// Maximum count in the condition of an alert rule.
pub const ALERT_COUNT_MAX: u32 = 1_000;
/// Maximum period or delay in the condition of an alert rule.
pub const ALERT_PERIOD_MAX: Duration = Duration::from_hours(24 * 31);
/// Minimum time between two notifications about the same alert.
pub const REPEAT_MIN: Duration = Duration::from_secs(60);
/// Maximum time between two notifications about the same alert.
pub const REPEAT_MAX: Duration = Duration::from_hours(24 * 7);
/// Maximum length of a silence.
pub const SILENCE_MAX: Duration = Duration::from_hours(24 * 366);
/// Maximum length of a URL in an alert rule, a channel or a request, in bytes.
pub const URL_LEN_MAX: usize = 2_000;
/// Maximum length of a secret of a channel, in bytes.
pub const SECRET_LEN_MAX: usize = 4_096;
/// Maximum number of additional headers of a channel.
pub const HEADERS_MAX: usize = 20;
/// Maximum number of recipients of an e-mail channel.
pub const RECIPIENTS_MAX: usize = 20;
/// Maximum number of alert rules in a namespace.
pub const ALERT_RULES_MAX: usize = 1_000;
/// Maximum number of channels in a namespace.
pub const CHANNELS_MAX: usize = 100;
/// Maximum number of silences in a namespace.
pub const SILENCES_MAX: usize = 1_000;
/// Maximum number of monitors in a namespace.
pub const MONITORS_MAX: usize = 1_000;
/// Minimum period of a monitor.
pub const MONITOR_PERIOD_MIN: Duration = Duration::from_secs(60);
/// Maximum period of a monitor.
pub const MONITOR_PERIOD_MAX: Duration = Duration::from_hours(24 * 366);
/// Maximum length of a cron expression of a monitor or of a silence, in bytes.
pub const ALERT_CRON_LEN_MAX: usize = 256;
/// Maximum size of the body of a ping, in bytes.
pub const PING_BODY_BYTES_MAX: usize = 100_000;
/// Maximum length of the stored text of a ping, in characters.
pub const PING_MESSAGE_LEN_MAX: usize = 500;
/// Maximum number of stored pings of a monitor.
pub const PINGS_MAX: usize = 20;

/// Maximum number of ports of a job.
pub const PORTS_MAX: usize = 16;
/// Maximum length of the name of a port, in bytes.
pub const PORT_NAME_LEN_MAX: usize = 15;
/// Maximum number of volumes of a job.
pub const VOLUMES_MAX: usize = 16;
/// Maximum number of values of secrets of a job.
pub const SECRET_REFERENCES_MAX: usize = 64;
/// Maximum number of secrets in a namespace.
pub const SECRETS_MAX: usize = 1_000;
/// Maximum number of values of a secret.
pub const SECRET_VALUES_MAX: usize = 64;
/// Maximum length of a key of a secret, and of the name of a file of a secret, in bytes.
pub const SECRET_KEY_LEN_MAX: usize = 255;
/// Maximum size of a value of a secret, in bytes.
pub const SECRET_VALUE_BYTES_MAX: usize = 64 << 10;
/// Maximum size of all values of a secret together, in bytes.
pub const SECRET_BYTES_MAX: usize = 256 << 10;
/// Minimum length of a line of a value that logs hide, in bytes. A shorter text occurs in logs by chance.
pub const SECRET_MASKED_MIN: usize = 4;
/// Maximum number of volumes of a worker.
pub const WORKER_VOLUMES_MAX: usize = 256;
/// Maximum interval and initial delay of a health check.
pub const CHECK_INTERVAL_MAX: Duration = Duration::from_hours(1);
/// Maximum time of one health check.
pub const CHECK_TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// Maximum threshold of a health check.
pub const CHECK_THRESHOLD_MAX: u32 = 1_000;
/// Maximum number of replicas of a service.
pub const REPLICAS_MAX: u32 = 1_000;
/// Maximum number of schedules that scale a service.
pub const SCALING_SCHEDULES_MAX: usize = 16;
/// Maximum number of metrics that scale a service.
pub const SCALING_METRICS_MAX: usize = 8;
/// Maximum of the stabilization windows of the scaling of a service.
pub const SCALING_WINDOW_MAX: Duration = Duration::from_secs(3_600);
/// Maximum length of the URL of a metric that scales a service, in bytes.
pub const METRIC_URL_LEN_MAX: usize = 2_000;
/// Maximum length of the query of a metric that scales a service, in bytes.
pub const METRIC_QUERY_LEN_MAX: usize = 4_000;
/// Number of revisions that are kept of a service.
pub const REVISIONS_MAX: usize = 10;
/// Maximum time for which a replica must be healthy before it is available.
pub const MIN_HEALTHY_MAX: Duration = Duration::from_hours(1);
/// Maximum progress deadline of a rollout.
pub const PROGRESS_DEADLINE_MAX: Duration = Duration::from_hours(24);
/// Maximum number of services in one request.
pub const BATCH_SERVICES_MAX: usize = 1_000;
