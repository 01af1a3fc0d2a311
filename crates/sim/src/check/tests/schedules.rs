//! Schedules that fire every ten seconds from the start.
//!
//! `scheduled` starts a history with one such schedule. `schedule_row` moves its cursor, `line` is one ledger
//! entry, and `run_of` the job of a firing; all times are in seconds.
//!
//! A test ends with `holds` or with `breaks` and the violated invariant. The two histories of a pair differ
//! only in the part that the test is about.

use model::ScheduleSpec;
use model::firing::{FiringCause, FiringOutcome, LedgerRecord, Origin, ScheduleStatus, Work};
use model::schedule::{MissedPolicy, OverlapPolicy};
use model::timing::{Cron, Every, Filter, Rule, Timing};

use super::*;
use crate::history::ScheduleRow;

pub(super) fn schedule_spec() -> ScheduleSpec {
    let rule = Rule::Every(Every { period: Duration::from_secs(10), phase: Duration::ZERO });
    let timing = Timing { rules: vec![rule], ..Timing::default() };
    let mut spec = ScheduleSpec::new("s", timing, JobSpec::command(["true"]));
    spec.overlap.policy = OverlapPolicy::AllowAll;
    spec
}

fn schedule_row(new: bool, cursor: i64, spec: Option<ScheduleSpec>) -> Row {
    Row::Schedule(Box::new(ScheduleRow {
        schedule: SCHEDULE,
        new,
        spec: spec.map(Arc::new),
        generation: 1,
        status: ScheduleStatus::Active,
        cursor: second(cursor),
        owed: Vec::new(),
        created_at: second(0),
    }))
}

fn line(at: i64, outcome: FiringOutcome, cause: FiringCause, job: Option<JobId>, decided: i64) -> Row {
    Row::Ledger(Box::new(LedgerRecord {
        schedule: SCHEDULE,
        generation: 1,
        first: second(at),
        last: second(at),
        count: 1,
        exact: true,
        outcome,
        cause,
        backfill: None,
        work: job.map(Work::Job),
        decided_at: second(decided),
        detail: None,
        tzdb: "none".into(),
    }))
}

fn run_of(job: JobId, nominal: i64, cause: FiringCause) -> Row {
    let story = Story::new();
    let at = second(nominal);
    let origin = Origin {
        schedule: SCHEDULE,
        name: "s".into(),
        generation: 1,
        scheduled_for: at,
        interval_start: None,
        interval_end: at,
        cause,
        backfill: None,
        start_by: Some(at + Duration::from_secs(5)),
    };
    let step = HistoryEntry {
        at: at + Duration::from_secs(1),
        from: None,
        to: JobStatus::Waiting,
        cause: Cause::Fired,
        execution: None,
        detail: None,
    };
    Row::Job(Box::new(JobRow {
        job,
        spec: Some(Arc::new(story.spec)),
        origin: Some(Arc::new(origin)),
        version: 1,
        steps: vec![step],
        ..story.row
    }))
}

pub(super) fn scheduled(spec: ScheduleSpec) -> Story {
    let mut story = Story::new();
    story.commit(vec![schedule_row(true, 0, Some(spec))]);
    story
}

const TIMER: FiringCause = FiringCause::Timer;
const CATCH_UP: FiringCause = FiringCause::CatchUp;

/// I14.
#[test]
fn a_scheduled_time_has_exactly_one_ledger_entry() {
    let fired = |at| line(at, FiringOutcome::SkippedPause, TIMER, None, at);
    let mut story = scheduled(schedule_spec());
    story.commit(vec![schedule_row(false, 20, None), fired(10), fired(20)]).holds();
    let mut story = scheduled(schedule_spec());
    story.commit(vec![schedule_row(false, 20, None), fired(20)]).breaks(Invariant::I14);
    let twice = line(10, FiringOutcome::SkippedPolicy, CATCH_UP, None, 10);
    let mut story = scheduled(schedule_spec());
    story.commit(vec![schedule_row(false, 10, None), fired(10), twice]).breaks(Invariant::I14);
}

/// I14.
#[test]
fn a_firing_is_one_commit() {
    let line = || line(10, FiringOutcome::Fired, TIMER, Some(JOB), 10);
    let mut story = scheduled(schedule_spec());
    story.commit(vec![run_of(JOB, 10, TIMER), schedule_row(false, 10, None), line()]).holds();
    let mut story = scheduled(schedule_spec());
    story.commit(vec![run_of(JOB, 10, TIMER), schedule_row(false, 0, None), line()]).breaks(Invariant::I14);
    let mut story = scheduled(schedule_spec());
    let rows = vec![run_of(JOB, 10, TIMER), schedule_row(false, 10, None)];
    story.commit(rows).commit(vec![line()]).breaks(Invariant::I14);
}

/// I15.
#[test]
fn a_time_outside_the_rules_is_reported() {
    let wrong = line(7, FiringOutcome::SkippedPause, TIMER, None, 7);
    scheduled(schedule_spec()).commit(vec![schedule_row(false, 7, None), wrong]).breaks(Invariant::I15);
}

/// I15. The first six scheduled times of the rule are in an excluded minute.
#[test]
fn exactly_the_excluded_scheduled_times_do_not_run() {
    let mut spec = schedule_spec();
    spec.timing.exclude.push(Filter::Cron(Cron::new("*/2 * * * *")));
    let held = |at| line(at, FiringOutcome::SkippedWindow, TIMER, None, at);
    let skipped = |at| line(at, FiringOutcome::SkippedPause, TIMER, None, at);
    let until = |at| schedule_row(false, at, None);
    let minute = || (1..6).map(|n| held(10 * n));
    let story = |rows: Vec<Row>| {
        let mut story = scheduled(spec.clone());
        story.commit(rows);
        story
    };
    story([until(60), skipped(60)].into_iter().chain(minute()).collect()).holds();
    story([until(60), held(60)].into_iter().chain(minute()).collect()).breaks(Invariant::I15);
    story(vec![until(10), skipped(10)]).breaks(Invariant::I15);
}

/// I16.
#[test]
fn an_early_decision_and_a_late_start_are_reported() {
    let early = line(10, FiringOutcome::SkippedPause, TIMER, None, 9);
    scheduled(schedule_spec()).commit(vec![schedule_row(false, 10, None), early]).breaks(Invariant::I16);
    let fired = line(10, FiringOutcome::Fired, TIMER, Some(JOB), 10);
    let mut story = scheduled(schedule_spec());
    story.commit(vec![run_of(JOB, 10, TIMER), schedule_row(false, 10, None), fired]);
    story.now = 30;
    story.placed().breaks(Invariant::I16);
}

/// I17.
#[test]
fn runs_beyond_the_overlap_limit_are_reported() {
    let mut spec = schedule_spec();
    spec.overlap.policy = OverlapPolicy::Skip;
    let other = JobId::from_bits(9 << 64);
    let mut rows = vec![schedule_row(false, 20, None)];
    for (at, job) in [(10, JOB), (20, other)] {
        rows.push(run_of(job, at, TIMER));
        rows.push(line(at, FiringOutcome::Fired, TIMER, Some(job), at));
    }
    scheduled(spec).commit(rows).breaks(Invariant::I17);
}

/// I18.
#[test]
fn too_many_or_unordered_catch_up_runs_are_reported() {
    let both = |first: i64, second_: i64, spec: ScheduleSpec| {
        let other = JobId::from_bits(9 << 64);
        let mut rows = vec![schedule_row(false, 20, None)];
        for (at, job) in [(first, JOB), (second_, other)] {
            rows.push(run_of(job, at, CATCH_UP));
            rows.push(line(at, FiringOutcome::FiredLate, CATCH_UP, Some(job), 40));
        }
        let mut story = scheduled(spec);
        story.commit(rows);
        story
    };
    both(10, 20, schedule_spec()).breaks(Invariant::I18);
    let mut all = schedule_spec();
    all.missed.policy = MissedPolicy::FireAll;
    both(10, 20, all.clone()).holds();
    both(20, 10, all).breaks(Invariant::I18);
}

/// I18.
#[test]
fn too_many_skipped_missed_runs_are_reported() {
    let given_up = |policy: MissedPolicy, at: i64, outcome: FiringOutcome| {
        let mut spec = schedule_spec();
        (spec.missed.policy, spec.missed.last) = (policy, 2);
        spec.missed.threshold = Duration::from_secs(5);
        let mut rows = vec![schedule_row(false, 40, None)];
        for n in 1..=4 {
            let past = if n * 10 == at { outcome } else { FiringOutcome::SkippedPause };
            rows.push(line(n * 10, past, CATCH_UP, None, 45));
        }
        let mut story = scheduled(spec);
        story.commit(rows);
        story
    };
    use FiringOutcome::{Coalesced, SkippedPolicy};
    given_up(MissedPolicy::FireOnce, 30, Coalesced).holds();
    given_up(MissedPolicy::FireOnce, 40, Coalesced).breaks(Invariant::I18);
    given_up(MissedPolicy::FireLast, 20, SkippedPolicy).holds();
    given_up(MissedPolicy::FireLast, 30, SkippedPolicy).breaks(Invariant::I18);
    given_up(MissedPolicy::FireAll, 10, SkippedPolicy).breaks(Invariant::I18);
    given_up(MissedPolicy::Skip, 40, SkippedPolicy).holds();
}
