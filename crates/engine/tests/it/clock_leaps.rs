//! Wall clocks that leap ahead: which readings are accepted, how the problem is reported, and the reset of
//! engine time.
//!
//! A leap is ignored unless the steady clock confirms it; small leaps, and a machine that slept, are
//! followed. At the start of a server there is no earlier reading to compare with, so a wrong clock is
//! accepted, and engine time stays ahead after the clock is corrected. The last three tests repair this as
//! `belfry store reset-clock` does.
//!
//! The helpers on [`Scenario`] move the two clocks apart: `pass_ahead` while a server runs, `start_ahead` at
//! its start. `reset_clock` also checks that an interrupted reset can be repeated.

use engine::input::ExecutionEnd;
use engine::{LEAP_MAX, Now, Rewind};
use model::firing::ScheduleStatus;
use model::record::Change;
use model::schedule::{MissedPolicy, OverlapPolicy};
use model::timing::{Every, Rule};
use model::why::Reason;
use model::workflow::{Action, Wait};
use model::{Duration, JobStatus, RunStatus, ScheduleId, StepStatus, Timestamp, WorkflowSpec};

use crate::scenario::{Scenario, finished};
use crate::workflow::{act, job};

const DAY: Duration = Duration::from_hours(24);

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

impl Scenario {
    fn every(&mut self, period: u64) -> ScheduleId {
        self.schedule("s")
            .rule(Rule::Every(Every { period: seconds(period), phase: Duration::ZERO }))
            .overlap(OverlapPolicy::AllowAll)
            .missed(MissedPolicy::FireAll)
            .apply()
    }

    /// Lets time pass with a wall clock that is ahead.
    fn pass_ahead(&mut self, length: u64, ahead: Duration) {
        for _ in 0..length {
            self.now = self.now + seconds(1);
            self.flush_at(Now { wall: self.now + ahead, steady: self.now });
        }
    }

    /// Starts a server while its clock is ahead, which it cannot detect; then corrects the clock.
    fn start_ahead(&mut self, ahead: Duration, length: u64) {
        let right = self.now;
        self.now = right + ahead;
        self.restart();
        // Writes a row with the engine time.
        self.job().submit();
        self.until(self.now + seconds(length));
        self.now = right + seconds(length);
        self.restart();
    }

    /// Does what `belfry store reset-clock` does between two servers. Returns the number of changed rows.
    fn reset_clock(&mut self) -> usize {
        let rewind = Rewind { from: self.engine_time(), to: self.now };
        let count = self.rewind(rewind);
        assert_eq!(self.rewind(rewind), 0, "an interrupted reset can be repeated");
        self.start_over();
        count
    }

    fn rewind(&mut self, rewind: Rewind) -> usize {
        let changes: Vec<Change> = self.rows.live().into_iter().flat_map(|row| rewind.row(row)).collect();
        let count = changes.len();
        for change in changes {
            match change {
                // No commit of an engine moves a cursor back, but a reset does.
                Change::Schedule { id, head: Some(head), state, .. } => {
                    self.rows.schedules.insert(id, ((*head).clone(), *state));
                }
                change => self.rows.apply(change),
            }
        }
        count
    }

    /// Returns engine time according to the rows.
    fn engine_time(&self) -> Timestamp {
        self.now + self.engine.view().clock.ahead
    }
}

/// B3. Ten days ahead for four seconds, then correct again: no future firing runs early, and no firing is
/// delayed.
#[test]
fn a_leap_that_the_steady_clock_does_not_confirm_changes_nothing() {
    let mut t = Scenario::new();
    let schedule = t.every(10);
    t.until(t.now + seconds(11));
    t.pass_ahead(14, Duration::from_hours(240));
    assert!(t.engine.view().clock.trouble().unwrap().contains("jumped ahead by 10d"));
    t.until(t.now + seconds(16));
    assert_eq!(t.engine.view().clock.trouble(), None);
    insta::assert_snapshot!(t.ledger(schedule), @"
    08:00:10 fired (timer)
    08:00:20 fired (timer)
    08:00:30 fired (timer)
    08:00:40 fired (timer)
    ");
}

/// A9. A retry requested during the leap starts without delay.
#[test]
fn leap_does_not_delay_a_retry() {
    let mut t = Scenario::new();
    t.worker().join();
    let job = t.job().retries(1).submit();
    t.start(job);
    t.pass_ahead(1, DAY);
    let report = finished(ExecutionEnd::Failed, Some(1));
    t.end_with(job, report);
    assert!(t.state(job).due_at < t.now + seconds(60), "{}", t.state(job).due_at);
}

/// B3. A sleeping machine is not a machine with a wrong clock.
#[test]
fn machine_that_slept_for_a_day_continues_in_the_present() {
    let mut t = Scenario::new();
    t.schedule("s").rule(Rule::Every(Every { period: seconds(600), phase: Duration::ZERO })).apply();
    t.now = t.now + DAY;
    t.flush();
    assert_eq!(t.engine.view().clock.trouble(), None);
    assert_eq!(t.engine.view().clock.ahead, Duration::ZERO);
}

/// A clock that is a few minutes ahead is followed.
#[test]
fn a_small_leap_is_followed() {
    let mut t = Scenario::new();
    let schedule = t.every(60);
    t.pass_ahead(1, LEAP_MAX);
    assert!(t.ledger(schedule).starts_with("08:01:00"), "{}", t.ledger(schedule));
}

/// A6. The explanation says why a retry waits for ten days.
#[test]
fn explanation_names_engine_time_that_is_ahead() {
    let mut t = Scenario::new();
    t.worker().join();
    let job = t.job().retries(1).submit();
    t.start(job);
    t.start_ahead(DAY, 5);
    t.rejoin_all();
    t.fail(job, 1);
    assert_eq!(t.status(job), JobStatus::Retrying);
    let why = t.why(job);
    assert!(matches!(why[0], Reason::ClockBehind { by } if by > Duration::from_hours(23)), "{why:?}");
    assert!(matches!(why[1], Reason::Backoff { .. }), "{why:?}");
    let trouble = t.engine.view().clock.trouble().unwrap();
    assert!(trouble.contains("belfry store reset-clock"), "{trouble}");
}

/// A3. A start has to accept its clock; it deletes almost nothing before an operator can notice a wrong
/// clock.
#[test]
fn start_in_the_far_future_purges_no_key() {
    let mut t = Scenario::new();
    t.job().key(7, 7).submit();
    t.start_ahead(Duration::from_hours(24 * 400), 1_300);
    assert_eq!(t.rows.keys.len(), 1);
    let again = t.job().key(7, 7).try_submit().unwrap();
    assert!(!again.new, "{again:?}");
    t.until(t.now + Duration::from_hours(24 * 8));
    assert_eq!(t.rows.keys.len(), 0, "it expires after a normal week");
}

/// B3, I14. After the reset, schedules fire at their times, each once, also if they had fired early.
#[test]
fn reset_continues_schedules_and_retries() {
    let mut t = Scenario::new();
    t.worker().join();
    let schedule = t.every(10);
    let job = t.job().retries(1).submit();
    t.start(job);
    t.pass(15);
    let right = t.now;
    t.now = right + seconds(3_600);
    t.restart();
    t.rejoin_all();
    t.fail(job, 1);
    t.now = right + seconds(60);
    t.restart();
    let early = t.runs(schedule).len();
    assert!(early > 300, "{early}");
    let left = t.state(job).due_at.since(t.engine_time());
    t.pass(60);
    assert_eq!(t.runs(schedule).len(), early, "without a reset time stands still");
    assert!(t.reset_clock() >= 2);
    assert_eq!(t.engine.view().clock.ahead, Duration::ZERO);
    assert_eq!(t.state(job).due_at, t.now + left);
    t.pass(60);
    assert_eq!(t.runs(schedule).len(), early + 6);
    assert_ne!(t.status(job), JobStatus::Retrying);
    assert_eq!(t.reset_clock(), 0, "there is nothing left to reset");
}

/// B3. After the reset, the timeout of a run and the timer of a step count from the present, and a schedule
/// that seemed completed continues.
#[test]
fn reset_continues_runs_and_completed_schedules() {
    let mut t = Scenario::with_room();
    let right = t.now;
    let until = right + seconds(1_800);
    let rule = Rule::Every(Every { period: seconds(60), phase: Duration::ZERO });
    let mut builder = t.schedule("s").rule(rule).overlap(OverlapPolicy::AllowAll);
    builder.spec.timing.end = Some(until);
    let schedule = builder.apply();
    t.pass(1);
    t.now = right + seconds(7_200);
    t.restart();
    t.rejoin_all();
    let mut spec = WorkflowSpec::new(
        "w",
        vec![act("pause", &[], Action::Wait(Wait::For(seconds(100)))), job("work", &[])],
    );
    spec.timeout = Some(seconds(600));
    let run = t.run(&spec);
    assert_eq!(t.schedule_state(schedule).status, ScheduleStatus::Completed);
    t.now = right + seconds(60);
    t.restart();
    t.reset_clock();
    t.rejoin_all();
    t.pass(101);
    assert_eq!(t.row(run, "pause").unwrap().status, StepStatus::Succeeded);
    assert_eq!(t.schedule_state(schedule).status, ScheduleStatus::Active);
    t.pass(600);
    assert_eq!(t.status_of_run(run), RunStatus::Stopping, "the timeout counts from the reset");
}

/// B3. For a job that runs across a reset, the run time counts from the reset.
#[test]
fn a_reset_moves_the_start_of_a_running_job() {
    let mut t = Scenario::new();
    t.worker().join();
    let right = t.now;
    t.now = right + DAY;
    t.restart();
    t.rejoin_all();
    let job = t.job().submit();
    t.start(job);
    t.now = right + seconds(10);
    t.restart();
    t.reset_clock();
    let execution = t.execution(job);
    assert_eq!((execution.assigned_at, execution.started_at), (t.now, Some(t.now)));
}
