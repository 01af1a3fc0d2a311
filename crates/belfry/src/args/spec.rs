//! Options for the spec of a job, as a JSON merge patch, and parsers of values that several commands share.
//!
//! - [`SpecArgs`], [`DueArgs`] and [`ProcessArgs`] with [`RuntimeArgs`]: the options. `submit` has all of them, `schedule create` has no
//!   scheduled time, and `job update` has no process.
//! - [`runtime`]: the options for containers and requests.
//! - [`Patch`]: the merge patch that the options become.
//! - [`instant`] and [`past`]: times. A time of day is the next one for a scheduled time, and the last one
//!   for a filter.
//! - [`word`]: a name of the API, such as `at_least_once`. [`parse_pair`]: `NAME=VALUE`. [`read_text`]: a file, or
//!   standard input for `-`.
//!
//! `submit` applies the patch to the spec in a file, or to a spec of defaults; `job update` sends the patch to the
//! server. So an option means the same in both.
//!
//! # Invariants
//! - Only given options are in the patch, so an option that is not given changes no field.
//! - A command replaces a script, and a script replaces a command: [`ProcessArgs::patch`] sets the replaced field to
//!   null.
//! - The defaults in the help texts are those of [`model::JobSpec`]; a test compares them.

mod runtime;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use model::id::ParseIdError;
use model::spec::{
    Delivery, Enforcement, FinishAction, LogKeep, Placement, PriorityClass, StopSignal, UpstreamCondition,
};
use model::status::UnknownWord;
use model::{Bytes, Duration, JobId, Millicores, Timestamp};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::reference::Reference;
use crate::failure::Failure;
use runtime::RuntimeArgs;

/// Name and value of a `NAME=VALUE` argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pair(pub(crate) String, pub(crate) String);

pub(crate) fn parse_pair(text: &str) -> Result<Pair, String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok(Pair(name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".into()),
    }
}

/// Parses `NAME=VALUE`, or `NAME` for the value of that variable in this environment.
fn variable(text: &str) -> Result<Pair, String> {
    if text.contains('=') {
        return parse_pair(text);
    }
    std::env::var(text).map(|value| Pair(text.to_owned(), value)).map_err(|_| {
        format!(
            "environment variable `{text}` is not set: expected NAME=VALUE, or the name of a variable that is set"
        )
    })
}

fn count_pair(text: &str) -> Result<(String, u64), String> {
    let Pair(name, count) = parse_pair(text)?;
    count
        .parse()
        .map(|n| (name, n))
        .map_err(|_| format!("expected NAME=N with a whole number but got `{count}`"))
}

/// Parses a constraint: `zone=a,b`, `zone!=a`, `gpu` or `!gpu`.
fn constraint(text: &str) -> Result<Value, String> {
    let values = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
    let (label, operator, values) = if let Some((label, right)) = text.split_once("!=") {
        (label, "not_in", values(right))
    } else if let Some((label, right)) = text.split_once('=') {
        (label, "in", values(right))
    } else if let Some(label) = text.strip_prefix('!') {
        (label, "absent", Vec::new())
    } else {
        (text, "exists", Vec::new())
    };
    if label.is_empty() {
        return Err("expected LABEL=VALUE,…, LABEL!=VALUE,…, LABEL or !LABEL".into());
    }
    Ok(json!({"label": label, "operator": operator, "values": values}))
}

/// Parses a required service: `NAME`, or `NAME=N` for a minimum number of available replicas.
fn required_service(text: &str) -> Result<Value, String> {
    match text.split_once('=') {
        None => Ok(json!({"service": text})),
        Some(_) => count_pair(text).map(|(name, count)| json!({"service": name, "min_available": count})),
    }
}

/// Parses a time: RFC 3339, a local time, or the next occurrence of a time of day.
pub(crate) fn instant(text: &str) -> Result<Timestamp, String> {
    instant_at(text, &jiff::Zoned::now())
}

/// Parses a past time: a duration ago, the last occurrence of a time of day, `today`, `yesterday`, or an exact time.
pub(crate) fn past(text: &str) -> Result<Timestamp, String> {
    past_at(text, &jiff::Zoned::now())
}

fn past_at(text: &str, now: &jiff::Zoned) -> Result<Timestamp, String> {
    if let Ok(ago) = text.parse::<Duration>() {
        return Ok(Timestamp::from(now.timestamp()) - ago);
    }
    let midnight = |date: jiff::civil::Date| date.to_zoned(now.time_zone().clone()).ok();
    let day = match text {
        "today" => midnight(now.date()),
        "yesterday" => now.date().yesterday().ok().and_then(midnight),
        _ => None,
    };
    if let Some(day) = day {
        return Ok(day.timestamp().into());
    }
    if let Ok(date) = text.parse::<jiff::civil::Date>()
        && let Some(day) = midnight(date).filter(|_| !text.contains(['T', ' ']))
    {
        return Ok(day.timestamp().into());
    }
    if let Some(time) = time_of_day(text) {
        let local = |date: jiff::civil::Date| date.to_datetime(time).to_zoned(now.time_zone().clone()).ok();
        let today = local(now.date()).filter(|at| at <= now);
        let last = today.or_else(|| local(now.date().yesterday().ok()?));
        return last.map(|at| at.timestamp().into()).ok_or_else(|| "the time is out of range".into());
    }
    instant_at(text, now).map_err(|_| {
        "expected a time such as 1h (ago), 08:00 (most recent), yesterday, 2026-11-21T08:00 (local) or \
         2026-11-21T08:00:00Z"
            .into()
    })
}

/// Parses a time of day; `None` for a text with a date.
fn time_of_day(text: &str) -> Option<jiff::civil::Time> {
    (text.contains(':') && !text.contains(['-', 'T', ' '])).then(|| text.parse().ok())?
}

fn instant_at(text: &str, now: &jiff::Zoned) -> Result<Timestamp, String> {
    if let Ok(exact) = text.parse::<jiff::Timestamp>() {
        return Ok(exact.into());
    }
    if let Ok(zoned) = text.parse::<jiff::Zoned>() {
        return Ok(zoned.timestamp().into());
    }
    let local = |civil: jiff::civil::DateTime| civil.to_zoned(now.time_zone().clone()).ok();
    // A time of day also parses as a civil date and time, so it is tried first.
    if let Some(time) = time_of_day(text) {
        let today = local(now.date().to_datetime(time)).filter(|at| at > now);
        let next = today.or_else(|| local(now.date().tomorrow().ok()?.to_datetime(time)));
        return next.map(|at| at.timestamp().into()).ok_or_else(|| "the time is out of range".into());
    }
    let civil = text.parse::<jiff::civil::DateTime>().ok().and_then(local);
    civil.map(|at| at.timestamp().into()).ok_or_else(|| {
        "expected a time such as 2026-11-21T08:00:00Z, 2026-11-21T08:00 (local) or 08:00 (next)".into()
    })
}

/// Completion deadline of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FinishByArg {
    At(Timestamp),
    After(Duration),
}

fn finish_by(text: &str) -> Result<FinishByArg, String> {
    if let Ok(after) = text.parse() {
        return Ok(FinishByArg::After(after));
    }
    instant(text).map(FinishByArg::At).map_err(|_| {
        "expected a duration such as 6h, or a time such as 2026-11-21T08:00:00Z, 2026-11-21T08:00 (local) or \
         08:00 (next)"
            .into()
    })
}

fn delivery(text: &str) -> Result<Delivery, String> {
    word(text, &["at_least_once", "at_most_once", "exactly_once"])
}

fn priority_class(text: &str) -> Result<PriorityClass, String> {
    word(text, &["high", "normal", "preemptible"])
}

fn placement(text: &str) -> Result<Placement, String> {
    word(text, &["pack", "spread"])
}

fn enforcement(text: &str) -> Result<Enforcement, String> {
    word(text, &["required", "best_effort"])
}

/// Parses a name of the API, such as `at_least_once`; `-` may replace `_`.
pub(crate) fn word<T: serde::de::DeserializeOwned>(text: &str, known: &[&str]) -> Result<T, String> {
    serde_json::from_value(Value::String(text.replace('-', "_")))
        .map_err(|_| format!("expected one of {}", known.join(", ")))
}

/// Upstream job of a job: `JOB`, or `JOB:CONDITION`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct After {
    pub(crate) job: Reference<JobId>,
    pub(crate) condition: UpstreamCondition,
}

pub(crate) fn after(text: &str) -> Result<After, String> {
    let (job, condition) = text.split_once(':').unwrap_or((text, UpstreamCondition::default().as_str()));
    Ok(After {
        job: job.parse().map_err(|error: ParseIdError| error.to_string())?,
        condition: condition.parse().map_err(|error: UnknownWord| error.to_string())?,
    })
}

/// Options for the scheduled time of a job.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct DueArgs {
    /// Scheduled time: 2026-11-21T08:00:00Z, 2026-11-21T08:00 (local), 08:00 (next) [default: now]
    #[arg(long, value_name = "TIME", value_parser = instant, conflicts_with = "delay", help_heading = "Scheduling")]
    pub(crate) at: Option<Timestamp>,
    /// Delay until the scheduled time, instead of a time: 90s, 1h30m, 2d
    #[arg(long = "in", id = "delay", value_name = "DURATION", help_heading = "Scheduling")]
    pub(crate) delay: Option<Duration>,
}

impl DueArgs {
    /// Adds the given options to a patch.
    pub(crate) fn patch(&self, patch: &mut Patch, now: Timestamp) -> Result<(), Failure> {
        patch.set("run_at", self.at.or_else(|| self.delay.map(|delay| now + delay)))
    }
}

/// Options for the spec of a job.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct SpecArgs {
    /// Name of the job; need not be unique [default: the name of its command, or of its schedule]
    #[arg(long, value_name = "NAME", help_heading = "Job")]
    pub(crate) name: Option<String>,
    /// Owner of the job [default: your user name]
    #[arg(long, value_name = "NAME", help_heading = "Job")]
    pub(crate) owner: Option<String>,
    /// Label of the job; repeatable
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = parse_pair, help_heading = "Job")]
    pub(crate) labels: Vec<Pair>,
    /// Retention of the job after it has ended, for example 7d [default: the retention of the server, usually 30d]
    #[arg(long, value_name = "DURATION", help_heading = "Job")]
    pub(crate) retention: Option<Duration>,

    /// Queue of the job [default: default]
    #[arg(long, value_name = "NAME", help_heading = "Scheduling")]
    pub(crate) queue: Option<String>,
    /// Priority class: high, normal or preemptible; a job of a higher class starts first and preempts jobs of lower classes
    /// if no worker has enough free capacity [default: normal]
    #[arg(long, value_name = "CLASS", value_parser = priority_class, help_heading = "Scheduling")]
    pub(crate) priority_class: Option<PriorityClass>,
    /// Priority within the queue and the priority class, from 0 (last) to 100 (first) [default: 50]
    #[arg(long, value_name = "0-100", help_heading = "Scheduling")]
    pub(crate) priority: Option<u8>,
    /// Start deadline: maximum delay of the first start after the scheduled time, for example 1h; a job that has not
    /// started by then expires [default: unlimited]
    #[arg(long, value_name = "DURATION", help_heading = "Scheduling")]
    pub(crate) deadline: Option<Duration>,
    /// Completion deadline, over waiting and all retries: a duration after the scheduled time, for example 6h, or a time
    /// [default: unlimited]
    #[arg(long, value_name = "DURATION|TIME", value_parser = finish_by, help_heading = "Scheduling")]
    pub(crate) finish_by: Option<FinishByArg>,
    /// What happens to the job at its completion deadline: fail, cancel, or report (the job continues) [default: fail]
    #[arg(long, value_name = "ACTION", requires = "finish_by", help_heading = "Scheduling")]
    pub(crate) finish_action: Option<FinishAction>,
    /// Service that must be available before each execution starts; NAME=N for N available replicas; repeatable
    #[arg(long, value_name = "SERVICE", value_parser = required_service, help_heading = "Scheduling")]
    pub(crate) requires: Vec<Value>,
    /// Worker constraint, for example `zone=a,b`, `zone!=a`, `gpu`, `!gpu`; repeat to require all
    #[arg(long = "constraint", value_name = "RULE", value_parser = constraint, help_heading = "Scheduling")]
    pub(crate) constraints: Vec<Value>,
    /// Placement among the eligible workers: spread (least loaded first), pack (most loaded first) [default: spread]
    #[arg(long, value_name = "STRATEGY", value_parser = placement, help_heading = "Scheduling")]
    pub(crate) placement: Option<Placement>,
    /// Label of workers over whose values running jobs with the same name are distributed, for example zone
    #[arg(long, value_name = "LABEL", help_heading = "Scheduling")]
    pub(crate) spread_over: Option<String>,
    /// Maximum number of running jobs with the same name on one worker [default: unlimited]
    #[arg(long, value_name = "N", help_heading = "Scheduling")]
    pub(crate) max_per_worker: Option<u32>,
    /// Concurrency key: jobs of a namespace with the same key share one limit, across all queues
    #[arg(long, value_name = "KEY", help_heading = "Scheduling")]
    pub(crate) concurrency_key: Option<String>,
    /// Maximum number of concurrent jobs with the concurrency key [default: 1]
    #[arg(long, value_name = "N", requires = "concurrency_key", help_heading = "Scheduling")]
    pub(crate) concurrency_limit: Option<u32>,

    /// Timeout of each execution, for example 30m [default: unlimited]
    #[arg(long, value_name = "DURATION", help_heading = "Failure")]
    pub(crate) timeout: Option<Duration>,
    /// Grace period between the stop signal and SIGKILL when an execution is stopped [default: 10s]
    #[arg(long, value_name = "DURATION", help_heading = "Failure")]
    pub(crate) grace: Option<Duration>,
    /// Signal that asks the task to stop: SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2 or SIGWINCH
    /// [default: SIGTERM]
    #[arg(long, value_name = "SIGNAL", help_heading = "Failure")]
    pub(crate) stop_signal: Option<StopSignal>,
    /// Maximum number of retries after executions that failed [default: 0]
    #[arg(long, value_name = "N", help_heading = "Failure")]
    pub(crate) retries: Option<u32>,
    /// Maximum number of retries after executions that could not start [default: 3]
    #[arg(long, value_name = "N", help_heading = "Failure")]
    pub(crate) start_retries: Option<u32>,
    /// Maximum number of retries after executions that were lost with their worker or interrupted by it [default: 5]
    #[arg(long, value_name = "N", help_heading = "Failure")]
    pub(crate) max_lost: Option<u32>,
    /// Delay before the first retry [default: 1s]
    #[arg(long, value_name = "DURATION", help_heading = "Failure")]
    pub(crate) backoff: Option<Duration>,
    /// Factor by which the delay grows with each retry [default: 2]
    #[arg(long, value_name = "FACTOR", help_heading = "Failure")]
    pub(crate) backoff_factor: Option<f64>,
    /// Maximum delay between retries [default: 5m]
    #[arg(long, value_name = "DURATION", help_heading = "Failure")]
    pub(crate) backoff_max: Option<Duration>,
    /// Random variation of each delay, as a fraction from 0 to 1 [default: 0.2]
    #[arg(long, value_name = "FRACTION", help_heading = "Failure")]
    pub(crate) backoff_jitter: Option<f64>,
    /// Delays before the first, second, … retry, for example 1m,5m,10m, instead of a growing delay
    #[arg(
        long,
        value_name = "DURATIONS",
        value_delimiter = ',',
        conflicts_with_all = ["backoff", "backoff_factor", "backoff_max"],
        help_heading = "Failure"
    )]
    pub(crate) backoff_delays: Vec<Duration>,
    /// Exit codes to retry, for example 1,75; all other failures are then final [default: every failure is retried]
    #[arg(long, value_name = "CODES", value_delimiter = ',', help_heading = "Failure")]
    pub(crate) retry_on: Vec<i32>,
    /// Exit codes not to retry, for example 2,64 [default: none]
    #[arg(long, value_name = "CODES", value_delimiter = ',', help_heading = "Failure")]
    pub(crate) no_retry_on: Vec<i32>,
    /// Delivery level if a worker is lost: at_least_once (start again), at_most_once (never start again),
    /// exactly_once (start again after the lost execution has certainly ended or is frozen) [default: at_least_once]
    #[arg(long, value_name = "LEVEL", value_parser = delivery, help_heading = "Failure")]
    pub(crate) delivery: Option<Delivery>,

    /// CPU request: 2, 0.5, 500m [default: 100m]
    #[arg(long, value_name = "CORES", help_heading = "Resources")]
    pub(crate) cpu: Option<Millicores>,
    /// Memory request: 256MiB, 2GB [default: 64MiB]
    #[arg(long, value_name = "BYTES", help_heading = "Resources")]
    pub(crate) memory: Option<Bytes>,
    /// Custom resource request: gpu=1; repeatable
    #[arg(long = "resource", value_name = "NAME=N", value_parser = count_pair, help_heading = "Resources")]
    pub(crate) resources: Vec<(String, u64)>,
    /// Volume that the job needs: a directory of its worker; repeatable
    #[arg(long = "volume", value_name = "NAME", help_heading = "Resources")]
    pub(crate) volumes: Vec<String>,
    /// Environment variable with a value of a secret: DB_PASSWORD=db/password; repeatable
    #[arg(long = "env-from", value_name = "NAME=SECRET/KEY", value_parser = value_of, help_heading = "Secrets")]
    pub(crate) env_from: Vec<(String, String, String)>,
    /// File with a value of a secret, in $BELFRY_SECRETS: ca.pem=db/ca; repeatable
    #[arg(long = "file-from", value_name = "FILE=SECRET/KEY", value_parser = value_of, help_heading = "Secrets")]
    pub(crate) file_from: Vec<(String, String, String)>,
    /// CPU limit; the job is throttled when it reaches the limit [default: unlimited]
    #[arg(long, value_name = "CORES", help_heading = "Resources")]
    pub(crate) cpu_limit: Option<Millicores>,
    /// Memory limit; the job is killed when it exceeds the limit [default: unlimited]
    #[arg(long, value_name = "BYTES", help_heading = "Resources")]
    pub(crate) memory_limit: Option<Bytes>,
    /// Maximum number of processes and threads [default: unlimited]
    #[arg(long, value_name = "N", help_heading = "Resources")]
    pub(crate) pids_limit: Option<u32>,
    /// Enforcement of the limits: required (only on workers that can enforce them), best_effort (on any worker)
    /// [default: required]
    #[arg(long, value_name = "MODE", value_parser = enforcement, help_heading = "Resources")]
    pub(crate) limits: Option<Enforcement>,

    /// Maximum size of the kept log of each execution, from 1MiB to 1GiB [default: 64MiB]
    #[arg(long, value_name = "BYTES", help_heading = "Log")]
    pub(crate) log_size: Option<Bytes>,
    /// Part of a larger log that is kept: first_and_last, newest [default: first_and_last]
    #[arg(long, value_name = "PART", help_heading = "Log")]
    pub(crate) log_keep: Option<LogKeep>,

    /// Artifact to download to a path before each execution; repeatable
    #[arg(long = "input", value_name = "ARTIFACT=PATH", value_parser = parse_pair, help_heading = "Files")]
    pub(crate) inputs: Vec<Pair>,
    /// Artifact to download to a path as an executable file before each execution; repeatable
    #[arg(long = "program", value_name = "ARTIFACT=PATH", value_parser = parse_pair, help_heading = "Files")]
    pub(crate) programs: Vec<Pair>,
    /// File to store as an artifact after the job succeeds; repeatable
    #[arg(long = "store", value_name = "PATH=ARTIFACT", value_parser = parse_pair, help_heading = "Files")]
    pub(crate) stores: Vec<Pair>,
    /// File to store as an artifact after the job succeeds, if the file exists; repeatable
    #[arg(long = "store-optional", value_name = "PATH=ARTIFACT", value_parser = parse_pair, help_heading = "Files")]
    pub(crate) optional_stores: Vec<Pair>,
}

/// Options for the process of a job.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Process")]
pub(crate) struct ProcessArgs {
    /// Environment variable of the process; NAME alone copies the value from your environment; repeatable
    #[arg(short, long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    pub(crate) env: Vec<Pair>,
    /// File with a script to run instead of a command, `-` for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "command")]
    pub(crate) script: Option<PathBuf>,
    /// Interpreter of the script; repeat the option for its arguments [default: /bin/sh]
    #[arg(long, value_name = "PROGRAM", allow_hyphen_values = true, conflicts_with = "command")]
    pub(crate) interpreter: Vec<String>,
    /// File with the standard input of the process, `-` for your own standard input [default: empty]
    #[arg(long, value_name = "FILE")]
    pub(crate) stdin: Option<PathBuf>,
    /// Working directory on the worker [default: a temporary directory of the execution]
    #[arg(long, value_name = "DIR")]
    pub(crate) workdir: Option<String>,
    /// Shell command to run before the process; if it fails, the execution fails; repeat the option for several
    #[arg(long, value_name = "SCRIPT")]
    pub(crate) pre_start: Vec<String>,
    /// Shell command to run when the process has exited, also after a failure or a stop; repeat the option for several
    #[arg(long, value_name = "SCRIPT")]
    pub(crate) post_stop: Vec<String>,
    #[command(flatten)]
    pub(crate) runtime: RuntimeArgs,
    /// Command and arguments, after `--`
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub(crate) command: Vec<String>,
}

/// A JSON merge patch (RFC 7386) under construction.
#[derive(Debug, Default)]
pub(crate) struct Patch(Map<String, Value>);

impl Patch {
    /// Sets the field at a dotted path, if there is a value.
    fn set(&mut self, path: &str, value: Option<impl Serialize>) -> Result<(), Failure> {
        let Some(value) = value else { return Ok(()) };
        let value = serde_json::to_value(value).map_err(anyhow::Error::from)?;
        let (folders, last) = path.rsplit_once('.').unwrap_or(("", path));
        let mut at = &mut self.0;
        for name in folders.split('.').filter(|name| !name.is_empty()) {
            let next = at.entry(name).or_insert_with(|| json!({}));
            // A value that is not an object, such as a list, has no fields to set.
            let Value::Object(next) = next else { return Ok(()) };
            at = next;
        }
        at.insert(last.to_owned(), value);
        Ok(())
    }

    fn set_list<T: Serialize>(&mut self, path: &str, list: &[T]) -> Result<(), Failure> {
        self.set(path, (!list.is_empty()).then_some(list))
    }

    fn set_map(&mut self, path: &str, pairs: &[Pair]) -> Result<(), Failure> {
        let map: Map<_, _> = pairs.iter().map(|Pair(k, v)| (k.clone(), v.clone().into())).collect();
        self.set(path, (!map.is_empty()).then_some(map))
    }

    /// The patch.
    pub(crate) fn into_value(self) -> Value {
        Value::Object(self.0)
    }
}

impl SpecArgs {
    /// Adds the given options to a patch.
    pub(crate) fn patch(&self, patch: &mut Patch) -> Result<(), Failure> {
        patch.set("name", self.name.as_ref())?;
        patch.set("owner", self.owner.as_ref())?;
        patch.set_map("labels", &self.labels)?;
        patch.set("retention", self.retention)?;
        self.patch_placement(patch)?;
        self.patch_failure(patch)?;
        self.patch_resources(patch)?;
        patch.set("log.max_size", self.log_size)?;
        patch.set("log.keep", self.log_keep)?;
        self.patch_files(patch)
    }

    fn patch_placement(&self, patch: &mut Patch) -> Result<(), Failure> {
        patch.set("queue", self.queue.as_ref())?;
        patch.set("priority_class", self.priority_class)?;
        patch.set("priority", self.priority)?;
        patch.set("start_deadline", self.deadline)?;
        if let Some(finish_by) = self.finish_by {
            // A job has one of the two fields, so the other one is removed.
            let (at, after) = match finish_by {
                FinishByArg::At(at) => (json!(at), Value::Null),
                FinishByArg::After(after) => (Value::Null, json!(after)),
            };
            patch.set("finish_by.at", Some(at))?;
            patch.set("finish_by.after", Some(after))?;
            patch.set("finish_by.action", self.finish_action)?;
        }
        patch.set_list("requires", &self.requires)?;
        patch.set_list("constraints", &self.constraints)?;
        patch.set("placement", self.placement)?;
        patch.set("spread.over", self.spread_over.as_deref())?;
        patch.set("spread.max_per_worker", self.max_per_worker)?;
        patch.set("concurrency.key", self.concurrency_key.as_ref())?;
        patch.set("concurrency.limit", self.concurrency_limit)
    }

    fn patch_failure(&self, patch: &mut Patch) -> Result<(), Failure> {
        patch.set("timeout", self.timeout)?;
        patch.set("grace", self.grace)?;
        patch.set("stop_signal", self.stop_signal)?;
        patch.set("retry.max_retries", self.retries)?;
        patch.set("retry.max_start_retries", self.start_retries)?;
        patch.set("retry.max_lost", self.max_lost)?;
        let grows = self.backoff.is_some() || self.backoff_factor.is_some() || self.backoff_max.is_some();
        if !self.backoff_delays.is_empty() {
            // A list and a growing delay exclude each other.
            for field in ["initial", "factor", "max"] {
                patch.set(&format!("retry.backoff.{field}"), Some(Value::Null))?;
            }
        } else if grows {
            patch.set("retry.backoff.delays", Some(Value::Null))?;
        }
        patch.set_list("retry.backoff.delays", &self.backoff_delays)?;
        patch.set("retry.backoff.initial", self.backoff)?;
        patch.set("retry.backoff.factor", self.backoff_factor)?;
        patch.set("retry.backoff.max", self.backoff_max)?;
        patch.set("retry.backoff.jitter", self.backoff_jitter)?;
        patch.set_list("retry.retry_exit_codes", &self.retry_on)?;
        patch.set_list("retry.final_exit_codes", &self.no_retry_on)?;
        patch.set("delivery", self.delivery)
    }

    fn patch_resources(&self, patch: &mut Patch) -> Result<(), Failure> {
        patch.set("resources.cpu", self.cpu)?;
        patch.set("resources.memory", self.memory)?;
        let custom: Map<_, _> = self.resources.iter().map(|(k, n)| (k.clone(), (*n).into())).collect();
        patch.set("resources.custom", (!custom.is_empty()).then_some(custom))?;
        let volumes: Vec<_> = self.volumes.iter().map(|name| json!({"name": name})).collect();
        patch.set_list("volumes", &volumes)?;
        let reference = |field: &'static str| move |(name, secret, key): &(String, String, String)| json!({"secret": secret, "key": key, field: name});
        let variables = self.env_from.iter().map(reference("env"));
        let secrets: Vec<_> = variables.chain(self.file_from.iter().map(reference("file"))).collect();
        patch.set_list("secrets", &secrets)?;
        patch.set("resources.limits.cpu", self.cpu_limit)?;
        patch.set("resources.limits.memory", self.memory_limit)?;
        patch.set("resources.limits.pids", self.pids_limit)?;
        patch.set("resources.limits.enforcement", self.limits)
    }

    fn patch_files(&self, patch: &mut Patch) -> Result<(), Failure> {
        let input = |executable| move |Pair(artifact, path): &Pair| json!({"artifact": artifact, "path": path, "executable": executable});
        let inputs: Vec<_> =
            self.inputs.iter().map(input(false)).chain(self.programs.iter().map(input(true))).collect();
        patch.set_list("inputs", &inputs)?;
        let output = |optional| move |Pair(path, artifact): &Pair| json!({"artifact": artifact, "path": path, "optional": optional});
        let outputs: Vec<_> = self
            .stores
            .iter()
            .map(output(false))
            .chain(self.optional_stores.iter().map(output(true)))
            .collect();
        patch.set_list("outputs", &outputs)
    }
}

impl ProcessArgs {
    /// Whether the patch names something to run.
    pub(crate) fn is_some(&self) -> bool {
        self.script.is_some() || !self.command.is_empty() || self.runtime.chosen().is_some()
    }

    /// Adds the given options to a patch for a job with the runtime `of_file`; a command replaces a script, and the other
    /// way round.
    pub(crate) fn patch(&self, patch: &mut Patch, of_file: &str) -> Result<(), Failure> {
        self.runtime.patch(patch)?;
        let runtime = self.runtime.chosen().unwrap_or(of_file);
        let at = |field: &str| format!("run.{runtime}.{field}");
        patch.set_map(&at("env"), &self.env)?;
        patch.set(&at("working_directory"), self.workdir.as_ref())?;
        if let Some(path) = &self.stdin {
            patch.set(&at("stdin"), Some(read_text(path)?))?;
        }
        if let Some(path) = &self.script {
            patch.set(&at("script"), Some(read_text(path)?))?;
            patch.set(&at("command"), Some(Value::Null))?;
        }
        let hook = |script: &String| json!({"command": ["/bin/sh", "-c", script]});
        patch.set_list(&at("pre_start"), &self.pre_start.iter().map(hook).collect::<Vec<_>>())?;
        patch.set_list(&at("post_stop"), &self.post_stop.iter().map(hook).collect::<Vec<_>>())?;
        patch.set_list(&at("interpreter"), &self.interpreter)?;
        if !self.command.is_empty() {
            patch.set_list(&at("command"), &self.command)?;
            patch.set(&at("script"), Some(Value::Null))?;
            patch.set(&at("interpreter"), Some(Value::Null))?;
        }
        Ok(())
    }
}

/// Parses `NAME=SECRET/KEY`.
fn value_of(text: &str) -> Result<(String, String, String), String> {
    let parts = text.split_once('=').and_then(|(name, rest)| Some((name, rest.split_once('/')?)));
    let (name, (secret, key)) = parts.ok_or("expected NAME=SECRET/KEY")?;
    Ok((name.to_owned(), secret.to_owned(), key.to_owned()))
}

/// Reads a file as text; `-` is standard input.
pub(crate) fn read_text(path: &Path) -> Result<String, Failure> {
    let shown =
        if path == Path::new("-") { "standard input".into() } else { format!("`{}`", path.display()) };
    let read = || -> std::io::Result<Vec<u8>> {
        // Specs are smaller. The limit also ends the read of a device or a wrong file.
        let mut bytes = Vec::new();
        let max = model::limits::BATCH_BODY_BYTES_MAX as u64 + 1;
        if path == Path::new("-") {
            std::io::stdin().lock().take(max).read_to_end(&mut bytes)?;
        } else {
            fs::File::open(path)?.take(max).read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    };
    let bytes = read().map_err(|error| Failure::usage(format!("cannot read {shown}: {error}")))?;
    if bytes.len() > model::limits::BATCH_BODY_BYTES_MAX {
        return Err(Failure::usage(format!(
            "{shown} is larger than {}",
            Bytes(model::limits::BATCH_BODY_BYTES_MAX as u64)
        )));
    }
    String::from_utf8(bytes).map_err(|_| Failure::usage(format!("{shown} is not text: expected UTF-8")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_exact_or_local_or_the_next_of_its_kind() {
        let now: jiff::Zoned = "2026-11-21T09:30:00+08:00[Asia/Shanghai]".parse().unwrap();
        let at = |text: &str| instant_at(text, &now).map(|t| t.to_string());
        for (text, expected) in [
            ("2026-11-21T08:00:00Z", "2026-11-21T08:00:00Z"),
            ("2026-11-21T08:00:00+01:00", "2026-11-21T07:00:00Z"),
            ("2026-11-21T08:00[Europe/Berlin]", "2026-11-21T07:00:00Z"),
            ("2026-12-01T08:00", "2026-12-01T00:00:00Z"),
            ("2026-12-01 08:00", "2026-12-01T00:00:00Z"),
            ("10:00", "2026-11-21T02:00:00Z"),
            ("09:00", "2026-11-22T01:00:00Z"),
        ] {
            assert_eq!(at(text).as_deref(), Ok(expected), "{text}");
        }
        for text in ["", "soon", "25:00", "2026-13-01T00:00", "10"] {
            assert!(at(text).is_err(), "{text}: {:?}", at(text));
        }
    }

    /// A filter by the time of submission looks back.
    #[test]
    fn a_time_of_a_filter_is_the_last_of_its_kind() {
        let now: jiff::Zoned = "2026-11-21T09:30:00+08:00[Asia/Shanghai]".parse().unwrap();
        let at = |text: &str| past_at(text, &now).map(|t| t.to_string());
        for (text, expected) in [
            ("1h", "2026-11-21T00:30:00Z"),
            ("2d", "2026-11-19T01:30:00Z"),
            ("08:00", "2026-11-21T00:00:00Z"),
            ("10:00", "2026-11-20T02:00:00Z"),
            ("today", "2026-11-20T16:00:00Z"),
            ("yesterday", "2026-11-19T16:00:00Z"),
            ("2026-11-01", "2026-10-31T16:00:00Z"),
            ("2026-11-21T08:00", "2026-11-21T00:00:00Z"),
            ("2026-11-21T08:00:00Z", "2026-11-21T08:00:00Z"),
        ] {
            assert_eq!(at(text).as_deref(), Ok(expected), "{text}");
        }
        assert!(at("soon").unwrap_err().contains("yesterday"));
    }

    #[test]
    fn a_constraint_is_a_rule_about_a_label() {
        for (text, expected) in [
            ("zone=a,b", json!({"label": "zone", "operator": "in", "values": ["a", "b"]})),
            ("zone!=a", json!({"label": "zone", "operator": "not_in", "values": ["a"]})),
            ("gpu", json!({"label": "gpu", "operator": "exists", "values": []})),
            ("!gpu", json!({"label": "gpu", "operator": "absent", "values": []})),
        ] {
            assert_eq!(constraint(text).unwrap(), expected);
            serde_json::from_value::<model::spec::Constraint>(expected).unwrap();
        }
        assert!(constraint("").is_err() && constraint("=a").is_err() && constraint("!").is_err());
    }

    #[test]
    fn words_may_be_written_with_hyphens() {
        assert_eq!(delivery("at-most-once"), Ok(Delivery::AtMostOnce));
        assert_eq!(enforcement("best_effort"), Ok(Enforcement::BestEffort));
        assert!(delivery("twice").unwrap_err().contains("at_least_once"));
    }
}
