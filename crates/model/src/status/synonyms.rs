//! Words of other schedulers for our statuses.
//!
//! A user who filters by `pending` or `SUCCESS` gets an error that names our word. The words come from Airflow, Celery,
//! DolphinScheduler, GitHub Actions, Kubernetes, Nomad, Sidekiq, Slurm, Temporal and XXL-JOB. No word is an alias: the
//! same word often means something else elsewhere, so the user decides.

/// Words of other schedulers, in lower case with `_`, and our words with a similar meaning, the likeliest first.
type Synonyms = (&'static [&'static str], &'static [&'static str]);

/// Statuses of jobs, executions, runs and steps. Only the words of the enum in question are named.
const WORK: &[Synonyms] = &[
    (
        &["pending", "queued", "enqueued", "submitted", "accepted", "created", "new", "idle", "pd"],
        &["pending", "ready", "waiting", "assigned"],
    ),
    (&["scheduled", "delayed", "deferred", "planned", "none"], &["ready", "pending", "waiting", "assigned"]),
    (&["waiting", "blocked", "on_hold", "held", "hold"], &["ready", "pending", "assigned"]),
    (&["ready", "available", "runnable"], &["waiting", "pending", "assigned"]),
    (&["assigned", "allocated", "dispatched", "dispatch", "starting", "configuring"], &["running"]),
    (&["active", "started", "executing", "in_progress", "processing", "live", "r"], &["running"]),
    (&["suspended", "suspend", "pause", "ready_pause"], &["paused"]),
    (&["retry", "up_for_retry", "retryable", "rescheduled", "requeued", "backoff"], &["retrying"]),
    (
        &["success", "successful", "completed", "complete", "finished", "done", "ok", "passed", "cd"],
        &["succeeded"],
    ),
    (
        &["failure", "fail", "error", "errored", "crashed", "dead", "discarded", "out_of_memory", "oom", "f"],
        &["failed"],
    ),
    (
        &[
            "canceled",
            "cancel",
            "aborted",
            "abort",
            "killed",
            "kill",
            "terminated",
            "revoked",
            "stopped",
            "stop",
            "removed",
            "ca",
        ],
        &["cancelled"],
    ),
    (&["cancelling", "canceling", "terminating", "ready_stop"], &["stopping"]),
    (&["timed_out", "timeout", "time_out", "to"], &["failed", "expired"]),
    (&["expired", "deadline_exceeded", "missed", "overdue"], &["expired", "failed"]),
    (&["stalled", "zombie", "orphaned", "node_fail", "preempted", "evicted", "nf"], &["lost", "retrying"]),
    (&["skip", "excluded", "omitted"], &["skipped"]),
    (&["dependency_failed", "dep_failed"], &["upstream_failed", "cancelled"]),
    (&["rejected", "declined"], &["refused"]),
];

/// Statuses of schedules.
const SCHEDULES: &[Synonyms] = &[
    (&["enabled", "on", "online", "running", "ready", "started", "scheduled"], &["active"]),
    (&["disabled", "off", "offline", "suspended", "stopped", "inactive"], &["paused"]),
    (&["done", "finished", "ended", "expired", "complete"], &["completed"]),
];

/// Statuses of the connections of workers.
const WORKERS: &[Synonyms] = &[
    (&["online", "up", "connected", "alive", "active", "healthy", "idle", "running"], &["ready"]),
    (&["offline", "down", "disconnected", "dead", "not_ready", "unreachable", "gone"], &["lost"]),
    (&["unknown", "pending", "connecting", "joining"], &["expected"]),
];

/// What our words mean, where a reader could take one for another: the enum, the word, the meaning.
const MEANINGS: &[(&str, &str, &str)] = &[
    ("a status of a job", "ready", "scheduled for later, or upstream jobs have not ended"),
    ("a status of a job", "waiting", "in its queue"),
    ("a status of a job", "retrying", "until its retry delay has passed"),
    ("a status of a job", "expired", "its start deadline passed"),
    ("a status of an execution", "assigned", "sent to a worker, but not started yet"),
    ("a status of an execution", "lost", "its worker was lost, or interrupted it"),
    ("a status of a run", "waiting", "at the limit of concurrent runs"),
    ("a status of a step", "pending", "not started yet"),
    ("a status of a step", "waiting", "for an approval, an event or a time"),
    ("a status of a worker", "expected", "has not reconnected since the leader changed"),
];

/// Returns our words of an enum for a word of another scheduler, as in "`ready` (…) or `waiting` (…)". `None` if the
/// enum has none with a similar meaning.
pub(super) fn of(text: &str, what: &str, known: &[&'static str]) -> Option<String> {
    let table = match what {
        "a status of a job" | "a status of an execution" | "a status of a run" | "a status of a step" => WORK,
        "a status of a schedule" => SCHEDULES,
        "a status of a worker" => WORKERS,
        _ => &[],
    };
    let word = text.trim().to_ascii_lowercase().replace(['-', ' '], "_");
    let ours = match known.iter().find(|known| **known == word) {
        Some(same) => vec![*same],
        None => {
            let row = table.iter().find(|(foreign, _)| foreign.contains(&word.as_str()));
            row.map_or_else(Vec::new, |(_, ours)| {
                ours.iter().filter(|ours| known.contains(ours)).copied().collect()
            })
        }
    };
    let shown = ours.into_iter().map(|ours| {
        let meaning = MEANINGS.iter().find(|(of, word, _)| (*of, *word) == (what, ours));
        meaning.map_or_else(|| format!("`{ours}`"), |(_, _, meaning)| format!("`{ours}` ({meaning})"))
    });
    let shown = shown.collect::<Vec<_>>().join(" or ");
    (!shown.is_empty()).then_some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::firing::ScheduleStatus;
    use crate::run::{RunStatus, StepStatus};
    use crate::status::{ExecutionStatus, JobStatus};
    use crate::worker::WorkerStatus;

    fn ours<T: std::str::FromStr<Err = crate::status::UnknownWord>>(text: &str) -> String {
        let error = text.parse::<T>().err().expect("a word of another scheduler").to_string();
        let named = error.split_once("Belfry calls it ").and_then(|(_, rest)| rest.split_once("; expected"));
        named.map_or_else(|| panic!("{error}"), |(named, _)| named.to_owned())
    }

    #[test]
    fn words_of_other_schedulers_are_answered_with_ours() {
        let table = [
            (
                ours::<JobStatus>("pending"),
                "`ready` (scheduled for later, or upstream jobs have not ended) or `waiting` (in its queue)",
            ),
            (ours::<JobStatus>("SUCCESS"), "`succeeded`"),
            (ours::<JobStatus>("Completed"), "`succeeded`"),
            (ours::<JobStatus>("canceled"), "`cancelled`"),
            (ours::<JobStatus>("killed"), "`cancelled`"),
            (ours::<JobStatus>("up-for-retry"), "`retrying` (until its retry delay has passed)"),
            (ours::<JobStatus>("timeout"), "`failed` or `expired` (its start deadline passed)"),
            (ours::<JobStatus>("FAILED"), "`failed`"),
            (ours::<ExecutionStatus>("queued"), "`assigned` (sent to a worker, but not started yet)"),
            (ours::<ExecutionStatus>("zombie"), "`lost` (its worker was lost, or interrupted it)"),
            (ours::<RunStatus>("queued"), "`waiting` (at the limit of concurrent runs)"),
            (ours::<RunStatus>("suspended"), "`paused`"),
            (ours::<RunStatus>("expired"), "`failed`"),
            (
                ours::<StepStatus>("scheduled"),
                "`pending` (not started yet) or `waiting` (for an approval, an event or a time)",
            ),
            (ours::<StepStatus>("skip"), "`skipped`"),
            (ours::<ScheduleStatus>("enabled"), "`active`"),
            (ours::<ScheduleStatus>("disabled"), "`paused`"),
            (ours::<WorkerStatus>("offline"), "`lost`"),
        ];
        for (named, expected) in table {
            assert_eq!(named, expected);
        }
    }

    /// A user who has no idea of our words tries those of the own scheduler.
    #[test]
    fn every_common_word_is_known_for_jobs() {
        for word in [
            "pending",
            "queued",
            "scheduled",
            "completed",
            "success",
            "done",
            "error",
            "failure",
            "killed",
            "canceled",
            "aborted",
            "active",
            "started",
            "blocked",
            "timed_out",
            "terminated",
            "in_progress",
        ] {
            assert!(!ours::<JobStatus>(word).is_empty());
        }
    }

    #[test]
    fn each_word_is_in_one_row_of_a_table_and_written_as_it_is_compared() {
        for table in [WORK, SCHEDULES, WORKERS] {
            let words: Vec<_> = table.iter().flat_map(|(foreign, _)| *foreign).collect();
            for word in &words {
                assert_eq!(**word, word.to_ascii_lowercase().replace(['-', ' '], "_"));
                assert_eq!(words.iter().filter(|other| other == &word).count(), 1, "{word}");
            }
        }
    }

    #[test]
    fn a_word_without_a_similar_meaning_gets_the_list_only() {
        insta::assert_snapshot!("skipped".parse::<JobStatus>().unwrap_err(),
            @"`skipped` is not a status of a job: expected one of ready, waiting, running, retrying, succeeded, failed, cancelled, expired");
    }
}
