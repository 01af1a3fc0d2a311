//! What of a schedule is late or stuck at this moment, by its runs that are not over.

use model::api::{ScheduleHealth, TroubledRun};
use model::firing::FiringCause;
use model::{Duration, JobStatus, ScheduleSpec, Timestamp};
use store::query::{JobFilter, JobRow, Page, ScheduleRow};

use super::super::Api;
use super::super::problem::Trouble;
use crate::node::{Clock, SystemClock};

/// As many runs are looked at; a schedule rarely has more than one.
const RUNS_MAX: usize = 200;
/// A run is never stuck earlier, where nothing says how long it may take.
const STUCK_MIN: Duration = Duration::from_secs(60);
/// Where nothing else says how long a run may take: so many times as long as 95 of 100 runs took.
const STUCK_FACTOR: u64 = 3;

pub(super) async fn of(api: &Api, row: &ScheduleRow, spec: &ScheduleSpec) -> Result<ScheduleHealth, Trouble> {
    let live = JobStatus::ALL.iter().copied().filter(|status| !status.is_final()).collect();
    let filter = JobFilter { schedule: Some(row.id), statuses: live, ..JobFilter::default() };
    let page = Page { after: None, limit: RUNS_MAX };
    let runs = api.node.store().jobs(&filter, page).await?.items;
    let p95 = row.state.track.as_deref().and_then(|track| track.percentile(95));
    Ok(judge(&runs, spec, p95, SystemClock.now()))
}

fn judge(runs: &[JobRow], spec: &ScheduleSpec, p95: Option<Duration>, now: Timestamp) -> ScheduleHealth {
    let mut health = ScheduleHealth { open_runs: runs.len() as u64, ..ScheduleHealth::default() };
    for run in runs {
        let Some(origin) = &run.origin else { continue };
        let troubled =
            |expected_by| TroubledRun { job_id: run.id, scheduled_for: origin.scheduled_for, expected_by };
        if let Some(by) = start_by(run, spec).filter(|&by| by < now && run.state.started_at.is_none()) {
            health.late_now.push(troubled(by));
        }
        if let Some(by) = end_by(run, spec, p95).filter(|&by| by < now) {
            health.stuck_now.push(troubled(by));
        }
    }
    health
}

/// When a run should have started: soon after its time, or after it was asked for, if that was later.
fn start_by(run: &JobRow, spec: &ScheduleSpec) -> Option<Timestamp> {
    let origin = run.origin.as_deref()?;
    let asked_for = run.id.created_at();
    let jitter = spec.jitter.map_or(Duration::ZERO, |jitter| jitter.max);
    let from = match origin.cause {
        FiringCause::Timer => asked_for.max(origin.scheduled_for + jitter),
        // A backfill's runs wait for their turn by design.
        FiringCause::Backfill => return None,
        FiringCause::CatchUp | FiringCause::Manual | FiringCause::Retry => asked_for.max(run.state.due_at),
    };
    Some(from + spec.expect.start_within)
}

/// When a run that goes on should have ended.
fn end_by(run: &JobRow, spec: &ScheduleSpec, p95: Option<Duration>) -> Option<Timestamp> {
    if run.state.status != JobStatus::Running {
        return None;
    }
    let usual = || p95.map(|p95| Duration::from_millis(p95.as_millis() * STUCK_FACTOR).max(STUCK_MIN));
    Some(run.state.started_at? + spec.expect.run_within.or_else(usual)?)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use model::firing::Origin;
    use model::record::JobState;
    use model::timing::Timing;
    use model::{JobId, JobSpec, ScheduleId};

    use super::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::default() + Duration::from_secs(secs)
    }

    /// A run for second 1,000 that was created then, and started at `started`.
    fn run(cause: FiringCause, started: Option<u64>) -> JobRow {
        let origin = Origin {
            schedule: ScheduleId::from_bits(1),
            name: "nightly".into(),
            generation: 1,
            scheduled_for: at(1_000),
            interval_start: None,
            interval_end: at(1_000),
            cause,
            backfill: None,
            start_by: None,
        };
        let status = if started.is_some() { JobStatus::Running } else { JobStatus::Waiting };
        let id = model::id::IdSource::default().next(at(1_000), model::ShardId(0), 0);
        JobRow {
            id: JobId::from_bits(id),
            body: "{}".into(),
            retry_of: None,
            origin: Some(Arc::new(origin)),
            step: None,
            state: JobState {
                status,
                version: 1,
                updated_at: at(1_000),
                due_at: at(1_000),
                queued_at: Some(at(1_000)),
                started_at: started.map(at),
                finished_at: None,
                executions: 1,
                run_failures: 0,
                start_failures: 0,
                fence: model::Fence(1),
                execution: None,
                worker: None,
                cancel_requested_at: None,
                outcome: None,
                history: Vec::new(),
                expires_at: None,
                checkpoint: None,
            },
        }
    }

    fn spec() -> ScheduleSpec {
        ScheduleSpec::new("nightly", Timing::default(), JobSpec::command(["true"]))
    }

    fn trouble(run: JobRow, spec: &ScheduleSpec, p95: Option<u64>, now: u64) -> (usize, usize) {
        let health = judge(&[run], spec, p95.map(Duration::from_secs), at(now));
        (health.late_now.len(), health.stuck_now.len())
    }

    /// B6.
    #[test]
    fn a_run_that_has_not_started_in_time_is_late() {
        let late = |cause, now| trouble(run(cause, None), &spec(), None, now).0;
        assert_eq!((late(FiringCause::Timer, 1_060), late(FiringCause::Timer, 1_061)), (0, 1));
        assert_eq!(late(FiringCause::Manual, 1_061), 1);
        assert_eq!(late(FiringCause::Backfill, 9_999), 0, "a backfill waits for its turn");
        let mut spread = spec();
        spread.jitter =
            Some(model::schedule::Jitter { max: Duration::from_secs(30), spread: Default::default() });
        assert_eq!(trouble(run(FiringCause::Timer, None), &spread, None, 1_080).0, 0, "jitter puts it off");
        assert_eq!(
            trouble(run(FiringCause::Timer, Some(1_500)), &spec(), None, 1_501).0,
            0,
            "it has started"
        );
    }

    /// B6.
    #[test]
    fn a_run_that_takes_far_longer_than_usual_is_stuck() {
        let stuck =
            |spec: &ScheduleSpec, p95, now| trouble(run(FiringCause::Timer, Some(1_000)), spec, p95, now).1;
        assert_eq!(stuck(&spec(), None, 99_999), 0, "nothing is usual yet");
        assert_eq!((stuck(&spec(), Some(100), 1_300), stuck(&spec(), Some(100), 1_301)), (0, 1));
        assert_eq!(
            (stuck(&spec(), Some(1), 1_060), stuck(&spec(), Some(1), 1_061)),
            (0, 1),
            "never before a minute"
        );
        let mut expected = spec();
        expected.expect.run_within = Some(Duration::from_secs(5));
        assert_eq!(stuck(&expected, Some(100), 1_006), 1, "what is expected goes before what is usual");
    }
}
