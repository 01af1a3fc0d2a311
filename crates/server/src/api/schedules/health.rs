//! Health of a schedule: late and stuck runs among its open runs.
//!
//! - A run is late if it has not started in time: `expect.start_within` after its scheduled time and jitter.
//! - A run is stuck if it executes for too long: longer than `expect.run_within`, or without it three times the 95th
//!   percentile of past runs, but at least a minute.
//! - Runs of backfills are never late, because they wait for their turn.
//!
//! # Cost
//! Two queries for each schedule.

use std::sync::Arc;

use model::api::{LateOrStuckRun, ScheduleHealth};
use model::firing::{FiringCause, Origin, Work};
use model::run::RunStatus;
use model::{Duration, JobStatus, ScheduleSpec, Timestamp};
use store::query::{JobFilter, JobRow, Page, RunFilter, RunRow, ScheduleRow};

use crate::api::Api;
use crate::api::problem::ApiError;
use crate::clock::{Clock, SystemClock};

/// Most open jobs, and most open runs, that are examined; a schedule rarely has more than one.
const RUNS_MAX: usize = 200;
/// A run without an expected duration is not stuck before this time.
const STUCK_MIN: Duration = Duration::from_secs(60);
/// A run without an expected duration is stuck after this multiple of the 95th percentile.
const STUCK_FACTOR: u64 = 3;

pub(super) async fn of(
    api: &Api,
    row: &ScheduleRow,
    spec: &ScheduleSpec,
) -> Result<ScheduleHealth, ApiError> {
    let live = JobStatus::ALL.iter().copied().filter(|status| !status.is_final()).collect();
    let jobs = JobFilter { schedule: Some(row.id), statuses: live, ..JobFilter::default() };
    let live = RunStatus::ALL.iter().copied().filter(|status| !status.is_final()).collect();
    let runs = RunFilter { schedule: Some(row.id), statuses: live, ..RunFilter::default() };
    let store = api.node.store();
    // Both kinds: work that started before a change of the spec may still run.
    let (jobs, runs) = futures::try_join!(
        store.jobs(&jobs, Page { after: None, limit: RUNS_MAX }),
        store.runs(&runs, Page { after: None, limit: RUNS_MAX }),
    )?;
    let jobs = jobs.items.into_iter().filter_map(OpenRun::of_job);
    let open: Vec<_> = jobs.chain(runs.items.into_iter().filter_map(OpenRun::of_run)).collect();
    let p95 = row.state.statistics.as_deref().and_then(|track| track.percentile(95));
    Ok(evaluate(&open, spec, p95, SystemClock.now()))
}

/// A job or a run of a schedule that has not ended.
struct OpenRun {
    work: Work,
    origin: Arc<Origin>,
    due_at: Timestamp,
    started_at: Option<Timestamp>,
    /// Whether it is executing now, not waiting or paused.
    is_executing: bool,
}

impl OpenRun {
    fn of_job(row: JobRow) -> Option<Self> {
        Some(Self {
            work: Work::Job(row.id),
            origin: row.origin?,
            due_at: row.state.due_at,
            started_at: row.state.started_at,
            is_executing: row.state.status == JobStatus::Running,
        })
    }

    fn of_run(row: RunRow) -> Option<Self> {
        Some(Self {
            work: Work::Run(row.id),
            origin: Arc::clone(row.head.origin.as_ref()?),
            due_at: row.state.created_at,
            started_at: row.state.started_at,
            is_executing: matches!(row.state.status, RunStatus::Running | RunStatus::Stopping),
        })
    }
}

fn evaluate(runs: &[OpenRun], spec: &ScheduleSpec, p95: Option<Duration>, now: Timestamp) -> ScheduleHealth {
    let mut health = ScheduleHealth { open_runs: runs.len() as u64, ..ScheduleHealth::default() };
    for run in runs {
        let troubled = |expected_by| LateOrStuckRun {
            job_id: run.work.job(),
            run_id: run.work.run(),
            scheduled_for: run.origin.scheduled_for,
            expected_by,
        };
        if let Some(by) = start_by(run, spec).filter(|&by| by < now && run.started_at.is_none()) {
            health.late_runs.push(troubled(by));
        }
        if let Some(by) = end_by(run, spec, p95).filter(|&by| by < now) {
            health.stuck_runs.push(troubled(by));
        }
    }
    health
}

/// Returns the expected start: soon after the scheduled time, or after the creation of the run if that was later.
fn start_by(run: &OpenRun, spec: &ScheduleSpec) -> Option<Timestamp> {
    let asked_for = run.work.created_at();
    let jitter = spec.jitter.map_or(Duration::ZERO, |jitter| jitter.max);
    let from = match run.origin.cause {
        FiringCause::Timer => asked_for.max(run.origin.scheduled_for + jitter),
        // Runs of a backfill wait for their turn by design.
        FiringCause::Backfill => return None,
        FiringCause::CatchUp | FiringCause::Manual | FiringCause::Retry => asked_for.max(run.due_at),
    };
    Some(from + spec.expect.start_within)
}

/// Returns the expected end of a run that is executing.
fn end_by(run: &OpenRun, spec: &ScheduleSpec, p95: Option<Duration>) -> Option<Timestamp> {
    if !run.is_executing {
        return None;
    }
    let usual = || p95.map(|p95| Duration::from_millis(p95.as_millis() * STUCK_FACTOR).max(STUCK_MIN));
    Some(run.started_at? + spec.expect.run_within.or_else(usual)?)
}

#[cfg(test)]
mod tests {
    use model::timing::Timing;
    use model::{JobId, JobSpec, RunId, ScheduleId};

    use super::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::default() + Duration::from_secs(secs)
    }

    /// Returns a run for second 1,000, created at that time and started at `started`.
    fn run(cause: FiringCause, started: Option<u64>) -> OpenRun {
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
        let id = model::id::IdSource::default().next(at(1_000), model::ShardId(0), 0);
        OpenRun {
            work: Work::Job(JobId::from_bits(id)),
            origin: Arc::new(origin),
            due_at: at(1_000),
            started_at: started.map(at),
            is_executing: started.is_some(),
        }
    }

    fn spec() -> ScheduleSpec {
        ScheduleSpec::new("nightly", Timing::default(), JobSpec::command(["true"]))
    }

    fn trouble(run: OpenRun, spec: &ScheduleSpec, p95: Option<u64>, now: u64) -> (usize, usize) {
        let health = evaluate(&[run], spec, p95.map(Duration::from_secs), at(now));
        (health.late_runs.len(), health.stuck_runs.len())
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

    /// B6, C1. Like a job, it is late while it waits. A paused run is not stuck.
    #[test]
    fn a_run_of_a_workflow_is_late_and_stuck_likewise() {
        let of_workflow = |started| {
            let run = run(FiringCause::Timer, started);
            OpenRun { work: Work::Run(RunId::from_bits(run.work.to_bits())), ..run }
        };
        let late = evaluate(&[of_workflow(None)], &spec(), None, at(1_061));
        assert_eq!((late.open_runs, late.late_runs[0].job_id), (1, None));
        assert!(late.late_runs[0].run_id.is_some());
        let p95 = Some(Duration::from_secs(100));
        assert_eq!(evaluate(&[of_workflow(Some(1_000))], &spec(), p95, at(1_301)).stuck_runs.len(), 1);
        let paused = OpenRun { is_executing: false, ..of_workflow(Some(1_000)) };
        assert_eq!(evaluate(&[paused], &spec(), p95, at(1_301)).stuck_runs, []);
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
