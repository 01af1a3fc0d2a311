//! Waiting reasons of a job as text (`belfry why`).
//!
//! The engine determines the reasons; this module only formats them, in the order of the engine. If no worker is
//! eligible, each worker is listed with the filters that reject it, at most [`WORKERS_SHOWN`] without `-o wide`. The
//! reasons of steps are in `step_why`; the dashboard has its own texts for the same reasons.
//!
//! # Invariants
//! - A reason names the object that blocks the job, and the command that resolves it, if there is one.
//! - A reason of a newer server is shown as JSON, not omitted.
//! - Names and notes are escaped: they come from users.

use std::fmt::Write as _;

use model::spec::{FinishAction, UpstreamCondition};
use model::why::{
    FailedFilter, OpenEnum, Reason, UnavailableService, WaitingUpstreamJob, Why, WorkerMismatch,
};
use model::{JobStatus, Millicores};

use super::text::{bytes, count, escape, format_open_enum};
use super::time::exact;
use super::{Format, OutputOptions};
use crate::failure::Failure;

/// Maximum number of workers that are listed in narrow tables.
const WORKERS_SHOWN: usize = 10;

/// Maximum number of upstream jobs that are listed.
const UPSTREAM_SHOWN: usize = 10;

/// Formats the waiting reasons of a job.
pub(crate) fn why(look: &OutputOptions, why: &Why) -> Result<String, Failure> {
    Ok(match look.format {
        Format::Json => super::json(why)?,
        Format::Yaml => super::yaml(why)?,
        Format::Name => format!("{}\n", why.job),
        Format::Table | Format::Wide => words(look, why),
    })
}

fn words(look: &OutputOptions, why: &Why) -> String {
    let mut text = match why.status {
        JobStatus::Retrying => format!("{} is waiting for its next attempt.\n", why.job),
        live if !live.is_final() => format!("{} is {live}.\n", why.job),
        ended => format!("{} has ended: it {}.\n", why.job, past(ended)),
    };
    for reason in &why.reasons {
        let _ = writeln!(text, "- {}", format_open_enum(reason, |reason| sentence(look, reason)));
        if let OpenEnum::Known(Reason::NoEligibleWorker { workers, more }) = reason {
            text.push_str(&ineligible_workers(look, workers, *more));
        }
    }
    if let Some(at) = why.start_by {
        let _ = writeln!(text, "- Start deadline: {}; the job then expires.", exact(look, at));
    }
    if let (Some(at), Some(action)) = (why.finish_by, why.finish_action) {
        let then = match action {
            FinishAction::Fail => "the job then fails",
            FinishAction::Cancel => "the job is then cancelled",
            FinishAction::Report => "it is only reported, and the job continues",
        };
        let _ = writeln!(text, "- Completion deadline: {}; {then}.", exact(look, at));
    }
    text
}

fn past(status: JobStatus) -> &'static str {
    match status {
        JobStatus::Cancelled => "was cancelled",
        other => other.as_str(),
    }
}

fn sentence(look: &OutputOptions, reason: &Reason) -> String {
    match reason {
        Reason::NotDue { until } => format!("The job is scheduled for {}.", exact(look, *until)),
        Reason::UpstreamJobs { jobs } => upstream(jobs),
        Reason::RequiredServices { services } => required_services(services),
        Reason::Backoff { until, failures, losses } => {
            let times = |n: u32| count(u64::from(n), "time");
            let past = match (failures, losses) {
                (failures, 0) => format!("failed {}", times(*failures)),
                (0, losses) => format!("was lost or interrupted {}", times(*losses)),
                (failures, losses) => {
                    format!("failed {}, and was lost or interrupted {}", times(*failures), times(*losses))
                }
            };
            format!("The job {past}; the next attempt starts at {}.", exact(look, *until))
        }
        Reason::QueuePaused { queue, note } => {
            let note = note.as_ref().map(|n| format!(" (\"{}\")", escape(n))).unwrap_or_default();
            format!("Queue `{0}` is paused{note}. Run `belfry queue resume {0}` to resume it.", escape(queue))
        }
        Reason::NamespaceQuota { namespace, resource, used, needed, limit, note } => {
            let amount = |of: u64| match resource.as_str() {
                "cpu" => format!("{} CPU", Millicores(u32::try_from(of).unwrap_or(u32::MAX))),
                "memory" => format!("{} of memory", bytes(of)),
                "running" => count(of, "running job"),
                name => format!("{of} {}", escape(name)),
            };
            let note = note.as_ref().map_or_else(String::new, |note| format!(" ({})", escape(note)));
            format!(
                "The quota of namespace `{}` is {}{note}: its jobs use {}, and the job needs {}.",
                escape(namespace),
                amount(*limit),
                amount(*used),
                amount(*needed)
            )
        }
        Reason::QueueConcurrency { queue, running, limit } => {
            format!(
                "Queue `{}` has reached its limit of concurrent jobs ({running} of {limit} running).",
                escape(queue)
            )
        }
        Reason::QueueRate { queue, until } => format!(
            "Queue `{}` has reached its rate limit; the next job can start at {}.",
            escape(queue),
            exact(look, *until)
        ),
        Reason::ConcurrencyKey { key, running, limit } => format!(
            "Concurrency key `{}` has reached its limit of concurrent jobs ({running} of {limit} running).",
            escape(key)
        ),
        Reason::QueuedBehind { waiting } => {
            format!(
                "Other jobs are ahead in the queue ({} waiting, including this one).",
                count(*waiting, "job")
            )
        }
        Reason::ClockBehind { by } => format!(
            "The clock of the server was wrong: engine time is {by} ahead of the clock. Scheduled times, \
             retries and timeouts wait until the clock has caught up. To solve this, correct the clock, stop \
             the servers, and run `belfry store reset-clock`."
        ),
        Reason::Reconciling { until } => format!(
            "The store lost its last commits, and this job must not run twice. The server waits for reports from all \
             workers until {} at the latest.",
            exact(look, *until)
        ),
        Reason::StorageFull => {
            "The disk volume of the server's store is full: no job starts until space is free.".to_owned()
        }
        Reason::NoWorkers => {
            "No worker is registered. Run `belfry worker --server URL --token-file FILE` to start one.".into()
        }
        Reason::NoEligibleWorker { workers, more } => {
            let all = workers.len() as u64 + more;
            format!("0/{all} workers are eligible:")
        }
        Reason::Placeable { worker } => format!("The job is about to start on worker {worker}."),
        Reason::Running { worker, since: Some(since) } => {
            format!("The job has been running on worker {worker} since {}.", exact(look, *since))
        }
        Reason::Running { worker, since: None } => {
            format!("The job is assigned to worker {worker}, which has not reported its start yet.")
        }
        Reason::WorkerDisconnected { worker, until } => {
            format!(
                "Worker {worker} is not connected. It is marked as lost at {} unless it reconnects.",
                exact(look, *until)
            )
        }
        Reason::OutcomeUnknown { worker, until } => {
            format!(
                "Worker {worker} is lost, and the job is not started again. The job fails at {} unless \
                 the worker reconnects and reports the result.",
                exact(look, *until)
            )
        }
        Reason::Reserved { worker } => {
            format!(
                "Capacity is reserved for the job on worker {worker}, because its schedule reserves in advance."
            )
        }
        Reason::Preempting { worker, victims } => match victims.len() {
            0 => format!(
                "The job is about to start on worker {worker}, in the place of jobs that it preempted."
            ),
            jobs => format!(
                "The job preempts {} of a lower priority class on worker {worker}, and starts when {}: {}.",
                count(jobs as u64, "job"),
                if jobs == 1 { "it has stopped" } else { "they have stopped" },
                victims.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            ),
        },
        Reason::CapacityReserved { worker, until } => {
            let end = until.map(|until| format!(", at {} at the latest", exact(look, until)));
            format!(
                "The job waited long, so the next free capacity of worker {worker} is reserved for the job. The job \
                 starts when enough running jobs have ended{}.",
                end.unwrap_or_default()
            )
        }
        Reason::Preempted { by } => format!(
            "Job {by} of a higher priority class preempts the job. The job is being stopped, and starts again later."
        ),
        Reason::Stopping { since } => {
            format!("The job was cancelled at {} and is being stopped.", exact(look, *since))
        }
    }
}

fn upstream(jobs: &[WaitingUpstreamJob]) -> String {
    let described = |of: &WaitingUpstreamJob| {
        let must = match of.condition {
            UpstreamCondition::Success => "must succeed",
            UpstreamCondition::Failure => "must fail or expire",
            UpstreamCondition::Any => "must end",
        };
        let status = of.status.map_or("its row in the store is damaged", JobStatus::as_str);
        format!("{} ({must}; now: {status})", of.job)
    };
    let shown: Vec<_> = jobs.iter().take(UPSTREAM_SHOWN).map(described).collect();
    let more = match jobs.len().saturating_sub(UPSTREAM_SHOWN) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!("The job waits for {}: {}{more}.", count(jobs.len() as u64, "upstream job"), shown.join(", "))
}

fn required_services(services: &[UnavailableService]) -> String {
    let described = |one: &UnavailableService| {
        let name = escape(&one.service);
        match one.available {
            None => format!("{name} (it does not exist)"),
            Some(available) => format!("{name} ({available} of {} replicas available)", one.min_available),
        }
    };
    let described: Vec<_> = services.iter().map(described).collect();
    format!(
        "The job waits for {} that it requires: {}.",
        count(services.len() as u64, "service"),
        described.join(", ")
    )
}

fn ineligible_workers(look: &OutputOptions, workers: &[WorkerMismatch], more: u64) -> String {
    let shown = if look.wide() { workers.len() } else { WORKERS_SHOWN.min(workers.len()) };
    let mut text = String::new();
    for worker in &workers[..shown] {
        let all: Vec<_> = worker
            .failed_filters
            .iter()
            .map(|one| format_open_enum(one, |one| failed_filter(look, one)))
            .collect();
        let _ = writeln!(text, "    {} ({}): {}", escape(&worker.name), worker.worker, all.join("; "));
    }
    let hidden = (workers.len() - shown) as u64 + more;
    if hidden > 0 {
        let _ = writeln!(text, "    … and {}", count(hidden, "more worker"));
    }
    text
}

fn failed_filter(look: &OutputOptions, filter: &FailedFilter) -> String {
    match filter {
        FailedFilter::Lost => "lost".into(),
        FailedFilter::Disconnected => "not connected".into(),
        FailedFilter::Cordoned => "cordoned".into(),
        FailedFilter::Draining => "draining".into(),
        FailedFilter::Unhealthy { problem } => format!("unhealthy: {}", escape(problem)),
        FailedFilter::Runtime { runtime } => format!("does not support runtime `{}`", escape(runtime)),
        FailedFilter::Limit { limit } => format!("cannot enforce the `{}` limit", escape(limit)),
        FailedFilter::Constraint { label, value: Some(value) } => {
            format!("label {}={} does not match the constraint", escape(label), escape(value))
        }
        FailedFilter::Constraint { label, value: None } => format!("no matching label `{}`", escape(label)),
        FailedFilter::Cpu { needed, free, capacity } => {
            format!("insufficient CPU (requested {needed}, free {free} of {capacity})")
        }
        FailedFilter::Memory { needed, free, capacity } => {
            format!(
                "insufficient memory (requested {}, free {} of {})",
                bytes(needed.0),
                bytes(free.0),
                bytes(capacity.0)
            )
        }
        FailedFilter::Custom { resource, needed, free, capacity } => {
            format!("insufficient {} (requested {needed}, free {free} of {capacity})", escape(resource))
        }
        FailedFilter::PortInUse { port } => format!("port {port} is in use"),
        FailedFilter::Spread { running, max_per_worker } => {
            format!("already runs {running} of at most {max_per_worker} jobs with this name")
        }
        FailedFilter::Volume { volume } => format!("no volume {}", escape(volume)),
        FailedFilter::HealthChecks => {
            "does not support ports and health checks: its version is too old".into()
        }
        FailedFilter::Sandbox { level } => {
            format!(
                "cannot create a sandbox of the level `{level}`: its kernel lacks a feature or forbids it"
            )
        }
        FailedFilter::Declined => "declined an execution recently".into(),
        FailedFilter::Slots { slots } => format!("no free slot ({slots} of {slots} in use)"),
        FailedFilter::ReservedForJob { job } => format!("capacity reserved for job {job}"),
        FailedFilter::Reserved { schedule, until } => {
            format!("capacity reserved for schedule `{}` at {}", escape(schedule), exact(look, *until))
        }
    }
}

#[cfg(test)]
mod tests {
    use model::Timestamp;
    use serde_json::json;

    use super::*;

    #[test]
    fn every_reason_is_told_in_words() {
        let (worker, at) = ("wkr_01k9zq3m6c0000000000000000", "2026-11-21T08:00:30Z");
        let told: Why = serde_json::from_value(json!({
            "job": "job_01k9zq3m6c0000000000000000", "status": "waiting",
            "reasons": [
                {"reason": "not_due", "until": at},
                {"reason": "backoff", "until": at, "failures": 2},
                {"reason": "queue_paused", "queue": "mail", "note": "night\u{1b} shift"},
                {"reason": "queue_concurrency", "queue": "mail", "running": 1, "limit": 1},
                {"reason": "queue_rate", "queue": "mail", "until": at},
                {"reason": "concurrency_key", "key": "db", "running": 1, "limit": 1},
                {"reason": "queued_behind", "waiting": 3},
                {"reason": "storage_full"},
                {"reason": "no_workers"},
                {"reason": "no_eligible_worker", "more": 2, "workers": [
                    {"worker": worker, "name": "w1", "failed_filters": [
                        {"filter": "cpu", "needed": "2", "free": "500m", "capacity": "4"},
                        {"filter": "memory", "needed": "1GiB", "free": "512MiB", "capacity": "2GiB"},
                        {"filter": "constraint", "label": "zone", "value": "b"},
                    ]},
                    {"worker": worker, "name": "w2", "failed_filters": [
                        {"filter": "lost"}, {"filter": "disconnected"}, {"filter": "cordoned"}, {"filter": "draining"},
                        {"filter": "unhealthy", "problem": "disk almost full"}, {"filter": "runtime", "runtime": "wasm"},
                        {"filter": "limit", "limit": "memory"}, {"filter": "constraint", "label": "gpu"},
                        {"filter": "custom", "resource": "gpu", "needed": 1, "free": 0, "capacity": 1},
                        {"filter": "slots", "slots": 16}, {"filter": "port_in_use", "port": 8080}, {"filter": "health_checks"},
                        {"filter": "declined"}, {"filter": "reserved", "schedule": "nightly", "until": at},
                        {"filter": "moon", "phase": "full"},
                    ]},
                ]},
                {"reason": "placeable", "worker": worker},
                {"reason": "running", "worker": worker, "since": at},
                {"reason": "running", "worker": worker},
                {"reason": "worker_disconnected", "worker": worker, "until": at},
                {"reason": "outcome_unknown", "worker": worker, "until": at},
                {"reason": "reserved", "worker": worker},
                {"reason": "stopping", "since": at},
                {"reason": "quota", "limit": 3},
            ],
        }))
        .unwrap();
        let now: Timestamp = "2026-11-21T08:00:00Z".parse().unwrap();
        let look = OutputOptions { format: Format::Table, color: false, now, width: None };
        insta::assert_snapshot!(why(&look, &told).unwrap());
    }

    #[test]
    fn unavailable_services_are_named_with_their_replicas() {
        let unavailable = |service: &str, available, min_available| UnavailableService {
            service: service.into(),
            available,
            min_available,
        };
        let told = required_services(&[unavailable("db", Some(1), 2), unavailable("cache", None, 1)]);
        assert_eq!(
            told,
            "The job waits for 2 services that it requires: db (1 of 2 replicas available), cache (it does not exist)."
        );
    }
}
