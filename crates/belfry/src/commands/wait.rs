//! Waiting for jobs (`job wait`, `submit --wait`, `schedule trigger --wait`).
//!
//! The exit code is that of the first job, in the order of the arguments, that did not succeed: its own exit code, 128
//! plus the signal, or 1. At most [`WATCHED_MAX`] jobs are watched concurrently.

use std::collections::BTreeMap;

use client::Client;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use model::api::Job;
use model::{Duration, JobId, JobStatus};
use tokio::time::Instant;

use super::Context;
use crate::failure::{Exit, Failure};
use crate::output::Format;
use crate::output::progress::{Progress, ended};

/// Maximum number of jobs or runs that are watched concurrently; each needs a stream.
pub(super) const WATCHED_MAX: usize = 16;
/// Hint after a wait has timed out.
pub(super) const JOB_CONTINUES_HINT: &str = "the job continues: run `belfry why JOB` for its waiting reasons, or `belfry job cancel JOB` to cancel it";

/// Waits until all jobs have ended. Fails with the exit code of the first job that did not succeed.
pub(super) async fn for_jobs(
    context: &Context,
    client: &Client,
    ids: &[JobId],
    timeout: Option<Duration>,
) -> Result<(), Failure> {
    context.if_interrupted(continues(ids));
    let mut progress = Progress::new(context.out);
    let ended = within(timeout, JOB_CONTINUES_HINT, watch_all(client, ids, &mut progress)).await;
    progress.clear();
    let jobs = ended?;
    report(context, &jobs)?;
    match jobs.iter().find_map(failed) {
        Some(exit) => Err(Failure::silent(exit)),
        None => Ok(()),
    }
}

/// Note for a user who interrupts the wait for jobs.
pub(super) fn continues(ids: &[JobId]) -> String {
    match ids {
        [id] => format!(
            "the job continues: run `belfry job get {id}` to see it, or `belfry job cancel {id}` to cancel it"
        ),
        ids => format!(
            "the {} jobs continue: run `belfry job get JOB` to see one, or `belfry job cancel JOB` to cancel it",
            ids.len()
        ),
    }
}

/// Delay after which a note says how to find out why a job is waiting.
const WAITING_NOTE_AFTER: std::time::Duration = std::time::Duration::from_secs(5);

/// Decides when to say that a job has been waiting for some time. Only the first such job is reported.
#[derive(Debug, Default)]
struct WaitingNote {
    since: BTreeMap<JobId, Instant>,
    is_told: bool,
}

impl WaitingNote {
    /// Notes the status of a job.
    fn see(&mut self, id: JobId, status: JobStatus, now: Instant) {
        if status == JobStatus::Waiting {
            self.since.entry(id).or_insert(now);
        } else {
            self.since.remove(&id);
        }
    }

    /// Returns the job that is reported next, and the time of its report.
    fn next(&self) -> Option<(JobId, Instant)> {
        let (id, since) = self.since.iter().min_by_key(|(_, since)| **since).filter(|_| !self.is_told)?;
        Some((*id, *since + WAITING_NOTE_AFTER))
    }
}

async fn watch_all(client: &Client, ids: &[JobId], progress: &mut Progress) -> Result<Vec<Job>, Failure> {
    let mut rest = ids.iter().copied();
    let mut watched: FuturesUnordered<_> =
        rest.by_ref().take(WATCHED_MAX).map(|id| next(client.watch(id))).collect();
    let mut ended = BTreeMap::new();
    // Without a terminal, the notes about each status are in a log, where a hint has no reader.
    let mut note = WaitingNote { is_told: !progress.is_redrawn(), ..WaitingNote::default() };
    loop {
        let waiting = note.next();
        let next_note = async {
            match waiting {
                Some((id, at)) => {
                    tokio::time::sleep_until(at).await;
                    id
                }
                None => std::future::pending().await,
            }
        };
        let (job, watch) = tokio::select! {
            watched = watched.next() => match watched {
                Some(watched) => watched,
                None => break,
            },
            id = next_note => {
                progress.hint(format!("the job is still waiting: run `belfry why {id}` for the reason"));
                note.is_told = true;
                continue;
            }
        };
        let Some(job) = job? else { continue };
        progress.job(&job);
        note.see(job.id, job.status, Instant::now());
        if job.status.is_final() {
            ended.insert(job.id, job);
            watched.extend(rest.next().map(|id| next(client.watch(id))));
        } else {
            watched.push(next(watch));
        }
    }
    Ok(ids.iter().filter_map(|id| ended.get(id).cloned()).collect())
}

type Watched = (Result<Option<Job>, Failure>, client::Items<Job>);

async fn next(mut watch: client::Items<Job>) -> Watched {
    let job = watch.next().await.transpose().map_err(Failure::from);
    (job, watch)
}

/// Runs `work` with a timeout. After the timeout it fails with [`Exit::TimedOut`] and the hint `help`.
pub(super) async fn within<T>(
    timeout: Option<Duration>,
    help: &str,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let Some(timeout) = timeout else { return work.await };
    match tokio::time::timeout(timeout.to_std(), work).await {
        Ok(result) => result,
        Err(_) => Err(Failure::message(Exit::TimedOut, format!("wait timed out after {timeout}")).help(help)),
    }
}

/// Reports how jobs ended: as notes for tables, and as data for all other formats.
pub(super) fn report(context: &Context, jobs: &[Job]) -> Result<(), Failure> {
    match (context.out.look.format, jobs) {
        (Format::Table, all) => {
            all.iter().for_each(|job| context.out.note(ended(job)));
            Ok(())
        }
        (_, [one]) => context.out.one(one),
        (_, all) => context.out.list(all, "jobs"),
    }
}

/// Returns the exit code for a job that did not succeed: its own, 128 plus the signal that ended it, or 1. `None` if
/// the job succeeded.
pub(super) fn failed(job: &Job) -> Option<Exit> {
    if job.status == JobStatus::Succeeded {
        return None;
    }
    let result = job.result.as_ref().filter(|_| job.status == JobStatus::Failed);
    let code = result.and_then(|r| r.exit_code.or_else(|| r.signal.map(|s| 128 + s)));
    Some(Exit::Job(code.and_then(|code| u8::try_from(code).ok()).filter(|code| *code != 0).unwrap_or(1)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn code(status: &str, result: Value) -> Option<u8> {
        let job: Job = serde_json::from_value(json!({
            "id": "job_01k9zq3m6c0000000000000000", "name": "j", "namespace": "default", "queue": "default",
            "priority": 50, "status": status, "version": 1, "created_at": "2026-11-21T08:00:00Z",
            "due_at": "2026-11-21T08:00:00Z", "updated_at": "2026-11-21T08:00:00Z",
            "executions": 1, "run_failures": 0, "start_failures": 0, "result": result,
        }))
        .unwrap();
        failed(&job).map(Exit::code)
    }

    #[test]
    fn the_job_that_has_waited_longest_is_reported_once() {
        let (a, b, start) = (JobId::from_bits(1), JobId::from_bits(2), Instant::now());
        let second = std::time::Duration::from_secs(1);
        let mut note = WaitingNote::default();
        assert_eq!(note.next(), None);
        note.see(b, JobStatus::Waiting, start);
        note.see(a, JobStatus::Waiting, start + second);
        note.see(b, JobStatus::Waiting, start + second);
        assert_eq!(note.next(), Some((b, start + WAITING_NOTE_AFTER)));
        note.see(b, JobStatus::Running, start + second);
        assert_eq!(note.next(), Some((a, start + second + WAITING_NOTE_AFTER)));
        note.is_told = true;
        assert_eq!(note.next(), None);
    }

    #[test]
    fn an_interrupted_wait_names_the_job() {
        let id = JobId::from_bits(1);
        let told = continues(&[id]);
        assert!(told.contains("continues") && told.contains(&format!("belfry job cancel {id}")), "{told}");
        assert!(continues(&[id, id]).contains("the 2 jobs continue"));
    }

    #[test]
    fn a_wait_ends_as_the_job_did() {
        assert_eq!(code("succeeded", json!({"exit_code": 0})), None);
        assert_eq!(code("failed", json!({"exit_code": 7})), Some(7));
        assert_eq!(code("failed", json!({"signal": 9})), Some(137));
    }

    #[test]
    fn a_job_that_ended_badly_never_ends_with_0() {
        assert_eq!(code("failed", json!({"exit_code": 0, "error": "output_missing"})), Some(1));
        assert_eq!(code("failed", json!({"exit_code": 256})), Some(1));
        assert_eq!(code("failed", json!({"exit_code": -1})), Some(1));
        assert_eq!(code("failed", json!({"error": "start_failed"})), Some(1));
        assert_eq!(code("cancelled", json!({"exit_code": 0})), Some(1));
        assert_eq!(code("expired", Value::Null), Some(1));
    }
}
