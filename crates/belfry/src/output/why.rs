//! Reasons in words: what holds a job back, the first thing first.

use std::fmt::Write as _;

use model::JobStatus;
use model::why::{Misfit, Misfits, OpenEnum, Reason, Why};

use super::text::{bytes, clean, count, in_words};
use super::time::exact;
use super::{Format, Look};
use crate::failure::Failure;

/// How many workers are told about one by one.
const WORKERS_SHOWN: usize = 10;

/// A job's reasons as text in the format that is wanted.
pub(crate) fn why(look: &Look, why: &Why) -> Result<String, Failure> {
    Ok(match look.format {
        Format::Json => super::json(why)?,
        Format::Yaml => super::yaml(why)?,
        Format::Name => format!("{}\n", why.job),
        Format::Table | Format::Wide => words(look, why),
    })
}

fn words(look: &Look, why: &Why) -> String {
    let mut text = match why.status {
        JobStatus::Retrying => format!("{} failed, and waits to be tried again.\n", why.job),
        live if !live.is_final() => format!("{} is {live}.\n", why.job),
        ended => format!("{} has ended: it {}.\n", why.job, past(ended)),
    };
    for reason in &why.reasons {
        let _ = writeln!(text, "- {}", in_words(reason, |reason| sentence(look, reason)));
        if let OpenEnum::Known(Reason::NoWorkerFits { workers, more }) = reason {
            text.push_str(&misfits(look, workers, *more));
        }
    }
    text
}

fn past(status: JobStatus) -> &'static str {
    match status {
        JobStatus::Cancelled => "was cancelled",
        other => other.as_str(),
    }
}

fn sentence(look: &Look, reason: &Reason) -> String {
    match reason {
        Reason::NotDue { until } => format!("Its time has not come: it is due at {}.", exact(look, *until)),
        Reason::Backoff { until, failures } => {
            let times = count(u64::from(*failures), "time");
            format!("It failed {times}, and is tried again at {}.", exact(look, *until))
        }
        Reason::QueuePaused { queue, note } => {
            let note = note.as_ref().map(|n| format!(" (\"{}\")", clean(n))).unwrap_or_default();
            format!("Its queue `{0}` is paused{note}. `belfry queue resume {0}` lets it go on.", clean(queue))
        }
        Reason::QueueConcurrency { queue, running, limit } => {
            format!(
                "Its queue `{}` runs {running} of at most {} at once.",
                clean(queue),
                count(u64::from(*limit), "job")
            )
        }
        Reason::QueueRate { queue, until } => format!(
            "Its queue `{}` has started as many jobs as its rate allows; the next may start at {}.",
            clean(queue),
            exact(look, *until)
        ),
        Reason::ConcurrencyKey { key, running, limit } => format!(
            "{} with its concurrency key `{}` run{}, and at most {limit} may.",
            count(u64::from(*running), "job"),
            clean(key),
            if *running == 1 { "s" } else { "" }
        ),
        Reason::Behind { waiting } => {
            format!("Others come first: {} wait in its queue.", count(*waiting, "job"))
        }
        Reason::ClockBehind { by } => format!(
            "The server's clock was wrong: engine time is {by} ahead of it, and nothing that waits for a time happens \
             until the clock has caught up. Stop the servers and run `belfry store reset-clock` to repair it."
        ),
        Reason::Reconciling { until } => format!(
            "The store has lost its last commits, and this job must not run twice: every worker is heard first, until {}.",
            exact(look, *until)
        ),
        Reason::StorageFull => {
            "The volume of the server's store is full: no job is started until there is space again."
                .to_owned()
        }
        Reason::NoWorkers => {
            "There is no worker. `belfry worker --server URL --token-file FILE` starts one.".into()
        }
        Reason::NoWorkerFits { workers, more } => {
            let all = workers.len() as u64 + more;
            format!("None of {} can take it now:", count(all, "worker"))
        }
        Reason::Placeable { worker } => format!("It can start: its place is on {worker}."),
        Reason::Runs { worker, since: Some(since) } => {
            format!("It runs on {worker} since {}.", exact(look, *since))
        }
        Reason::Runs { worker, since: None } => {
            format!("It was given to {worker}, which has not started it yet.")
        }
        Reason::WorkerSilent { worker, until } => {
            format!(
                "Its worker {worker} has not been heard of, and is taken for lost at {}.",
                exact(look, *until)
            )
        }
        Reason::OutcomeUnknown { worker, until } => {
            format!(
                "Its worker {worker} is lost, and it may not be started twice. It fails at {} unless the worker comes back \
                 with the outcome before.",
                exact(look, *until)
            )
        }
        Reason::Reserved { worker } => {
            format!("Room is kept for it on {worker}: its schedule reserves ahead.")
        }
        Reason::Stopping { since } => {
            format!("It was cancelled, and is being stopped since {}.", exact(look, *since))
        }
    }
}

fn misfits(look: &Look, workers: &[Misfits], more: u64) -> String {
    let shown = if look.wide() { workers.len() } else { WORKERS_SHOWN.min(workers.len()) };
    let mut text = String::new();
    for worker in &workers[..shown] {
        let all: Vec<_> = worker.misfits.iter().map(|one| in_words(one, |one| misfit(look, one))).collect();
        let _ = writeln!(text, "    {} ({}): {}", clean(&worker.name), worker.worker, all.join("; "));
    }
    let hidden = (workers.len() - shown) as u64 + more;
    if hidden > 0 {
        let _ = writeln!(text, "    … and {}", count(hidden, "more worker"));
    }
    text
}

fn misfit(look: &Look, misfit: &Misfit) -> String {
    match misfit {
        Misfit::Lost => "is lost".into(),
        Misfit::Silent => "is not connected".into(),
        Misfit::Cordoned => "is cordoned".into(),
        Misfit::Draining => "is being drained".into(),
        Misfit::Unhealthy { trouble } => format!("is unhealthy: {}", clean(trouble)),
        Misfit::Runtime { runtime } => format!("cannot run `{}`", clean(runtime)),
        Misfit::Limit { limit } => format!("cannot enforce the limit `{}`", clean(limit)),
        Misfit::Constraint { label, value: Some(value) } => {
            format!("has label {}={}", clean(label), clean(value))
        }
        Misfit::Constraint { label, value: None } => format!("has no label `{}` that fits", clean(label)),
        Misfit::Cpu { needed, free, capacity } => {
            format!("CPU: needs {needed}, {free} of {capacity} are free")
        }
        Misfit::Memory { needed, free, capacity } => {
            format!("memory: needs {}, {} of {} are free", bytes(needed.0), bytes(free.0), bytes(capacity.0))
        }
        Misfit::Custom { resource, needed, free, capacity } => {
            format!("{}: needs {needed}, {free} of {capacity} are free", clean(resource))
        }
        Misfit::Declined => "declined work a moment ago".into(),
        Misfit::Slots { slots } => {
            format!("runs {}, as many as it may", count(u64::from(*slots), "execution"))
        }
        Misfit::Reserved { schedule, until } => {
            format!("has room, but keeps it for schedule `{}` at {}", clean(schedule), exact(look, *until))
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
                {"reason": "behind", "waiting": 3},
                {"reason": "storage_full"},
                {"reason": "no_workers"},
                {"reason": "no_worker_fits", "more": 2, "workers": [
                    {"worker": worker, "name": "w1", "misfits": [
                        {"misfit": "cpu", "needed": "2", "free": "500m", "capacity": "4"},
                        {"misfit": "memory", "needed": "1GiB", "free": "512MiB", "capacity": "2GiB"},
                        {"misfit": "constraint", "label": "zone", "value": "b"},
                    ]},
                    {"worker": worker, "name": "w2", "misfits": [
                        {"misfit": "lost"}, {"misfit": "silent"}, {"misfit": "cordoned"}, {"misfit": "draining"},
                        {"misfit": "unhealthy", "trouble": "disk almost full"}, {"misfit": "runtime", "runtime": "wasm"},
                        {"misfit": "limit", "limit": "memory"}, {"misfit": "constraint", "label": "gpu"},
                        {"misfit": "custom", "resource": "gpu", "needed": 1, "free": 0, "capacity": 1},
                        {"misfit": "slots", "slots": 16}, {"misfit": "declined"}, {"misfit": "reserved", "schedule": "nightly", "until": at},
                        {"misfit": "moon", "phase": "full"},
                    ]},
                ]},
                {"reason": "placeable", "worker": worker},
                {"reason": "runs", "worker": worker, "since": at},
                {"reason": "runs", "worker": worker},
                {"reason": "worker_silent", "worker": worker, "until": at},
                {"reason": "outcome_unknown", "worker": worker, "until": at},
                {"reason": "reserved", "worker": worker},
                {"reason": "stopping", "since": at},
                {"reason": "quota", "limit": 3},
            ],
        }))
        .unwrap();
        let now: Timestamp = "2026-11-21T08:00:00Z".parse().unwrap();
        let look = Look { format: Format::Table, color: false, now };
        insta::assert_snapshot!(why(&look, &told).unwrap());
    }
}
