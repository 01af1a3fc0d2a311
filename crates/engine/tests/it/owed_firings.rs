//! Owed firings: they wait for their turn, and current firings come first.
//!
//! A firing is owed from the time at which its schedule should have fired until it runs or is given up. The
//! tests cover, in order: catch-up with each overlap policy, firings that wait for a run whose worker has not
//! reconnected after an outage, bounds on the number and age of owed firings, and the concurrency of
//! backfills.
//!
//! `Scenario::run_for` plays a worker whose runs all take the same time. The helpers after it count ledger
//! records by outcome and cause. `catch_up` covers rates, jitter and pauses.

use engine::input::ExecutionEnd;
use model::firing::{FiringCause, FiringOutcome};
use model::record::Usage;
use model::schedule::{MissedPolicy, OverlapPolicy};
use model::timing::{Every, Rule};
use model::{Duration, JobStatus, ScheduleId};

use crate::scenario::{Scenario, finished};

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn every(period: u64) -> Rule {
    Rule::Every(Every { period: seconds(period), phase: Duration::ZERO })
}

impl Scenario {
    /// Lets time pass, second by second; each run of the schedule takes `takes` seconds.
    fn run_for(&mut self, schedule: ScheduleId, length: u64, takes: u64) {
        for _ in 0..length {
            self.pass(1);
            self.end_what_is_done(schedule, takes);
        }
    }

    fn end_what_is_done(&mut self, schedule: ScheduleId, takes: u64) {
        for run in self.open_runs(schedule) {
            if self.status(run) != JobStatus::Running {
                continue;
            }
            if self.execution(run).started_at.is_none() {
                self.start(run);
            }
            let started = self.execution(run).started_at.unwrap();
            if self.now.since(started) >= seconds(takes) {
                self.succeed(run);
            }
        }
    }

    /// Returns the number of scheduled times with an outcome and a cause.
    fn count(&self, schedule: ScheduleId, outcome: FiringOutcome, cause: FiringCause) -> u64 {
        let records = self.records(schedule).into_iter();
        records.filter(|r| r.outcome == outcome && r.cause == cause).map(|r| r.count).sum()
    }

    fn made_up_for(&self, schedule: ScheduleId) -> u64 {
        self.count(schedule, FiringOutcome::FiredLate, FiringCause::CatchUp)
    }

    /// Returns the number of current scheduled times without a run.
    fn skipped_today(&self, schedule: ScheduleId) -> u64 {
        let records = self.records(schedule).into_iter();
        records.filter(|r| !r.outcome.fired() && r.cause == FiringCause::Timer).map(|r| r.count).sum()
    }

    fn late_and_early(&self, schedule: ScheduleId) -> (usize, usize) {
        (self.open_runs(schedule).len(), self.schedule_state(schedule).owed.len())
    }
}

/// B3, B4. Every policy catches up all four, one after the other, and no current firing is lost.
#[test]
fn missed_firings_are_caught_up_with_every_overlap_policy() {
    use OverlapPolicy::{AllowAll, BufferAll, BufferOne, CancelOther, Skip, TerminateOther};
    for policy in [Skip, BufferOne, BufferAll, CancelOther, TerminateOther, AllowAll] {
        let mut t = Scenario::new();
        t.worker().join();
        let schedule = t.schedule("s").rule(every(10)).overlap(policy).missed(MissedPolicy::FireAll).apply();
        t.run_for(schedule, 4, 1);
        t.outage(seconds(51));
        t.rejoin_all();
        t.run_for(schedule, 60, 1);
        assert_eq!(t.made_up_for(schedule), 4, "{policy:?}\n{}", t.ledger(schedule));
        assert_eq!(t.skipped_today(schedule), 0, "{policy:?}\n{}", t.ledger(schedule));
        assert_eq!(t.late_and_early(schedule), (0, 0), "{policy:?}");
        assert!(t.run_status(schedule).iter().all(|status| *status == JobStatus::Succeeded), "{policy:?}");
    }
}

/// B3. The run from before the outage has ended; only its disconnected worker has the result.
#[test]
fn coalesced_firing_waits_for_the_run_before_the_outage() {
    let mut t = Scenario::new();
    t.worker().join();
    let schedule = t.schedule("s").rule(every(20)).missed(MissedPolicy::FireOnce).apply();
    t.run_for(schedule, 21, 4);
    let before = t.runs(schedule)[0];
    assert_eq!(t.status(before), JobStatus::Running);
    t.outage(seconds(50));
    t.pass(3);
    assert_eq!(t.runs(schedule).len(), 1);
    t.rejoin_all();
    t.succeed(before);
    t.pass(1);
    insta::assert_snapshot!(t.ledger(schedule), @"
    08:00:20 fired (timer)
    08:00:40 coalesced (catch_up)
    08:01:00 fired_late (catch_up)
    ");
}

/// B3. The same if the worker never returns: its lease ends, then the wait for its result, and its run is
/// lost.
#[test]
fn coalesced_firing_waits_for_the_lease_of_a_lost_worker() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let schedule = t
        .schedule("s")
        .rule(every(600))
        .missed(MissedPolicy::FireOnce)
        .spec(|s| s.job_mut().unwrap().delivery = model::spec::Delivery::AtMostOnce)
        .apply();
    t.pass(600);
    t.start(t.runs(schedule)[0]);
    t.outage(seconds(1_000));
    assert_eq!(t.runs(schedule).len(), 1);
    t.lose(worker);
    t.pass(60);
    assert_eq!(t.run_status(schedule), [JobStatus::Failed, JobStatus::Waiting]);
    assert_eq!(t.made_up_for(schedule), 1);
}

/// B3. "The past never blocks the present": a current firing waits for the end of a run of the past.
#[test]
fn current_firing_is_not_skipped_because_of_a_past_run() {
    let mut t = Scenario::new();
    t.worker().join();
    let schedule = t.schedule("s").rule(every(10)).missed(MissedPolicy::FireAll).apply();
    t.run_for(schedule, 29, 7);
    t.outage(seconds(49));
    t.rejoin_all();
    t.run_for(schedule, 900, 7);
    assert_eq!(t.late_and_early(schedule).1, 0, "{}", t.ledger(schedule));
    assert_eq!(t.skipped_today(schedule), 0, "{}", t.ledger(schedule));
}

/// B3, B4. A run whose worker has not reconnected since the takeover may have ended: a firing that would be
/// skipped waits.
#[test]
fn firing_waits_for_the_worker_of_a_run_after_a_takeover() {
    for is_over in [true, false] {
        let mut t = Scenario::new();
        t.worker().join();
        let schedule = t.schedule("s").rule(every(10)).apply();
        t.run_for(schedule, 11, 9);
        t.outage(seconds(8));
        t.pass(3);
        assert_eq!(t.ledger(schedule), "08:00:10 fired (timer)", "08:00:20 is not decided");
        for held in t.players.values_mut().flat_map(|player| player.held.values_mut()) {
            held.1 = !is_over;
        }
        t.rejoin_all();
        if is_over {
            t.succeed(t.runs(schedule)[0]);
        }
        t.pass(1);
        let outcome = if is_over { "fired_late" } else { "skipped_overlap" };
        assert_eq!(t.ledger(schedule).lines().last().unwrap(), format!("08:00:20 {outcome} (timer)"));
    }
}

/// B3, B4. A worker that returns without having started the run answers the question too.
#[test]
fn a_firing_does_not_wait_for_a_run_that_its_worker_has_not_started() {
    let mut t = Scenario::new();
    t.worker().join();
    let schedule = t.schedule("s").rule(every(10)).apply();
    t.pass(11);
    t.outage(seconds(8));
    t.pass(3);
    assert_eq!(t.ledger(schedule), "08:00:10 fired (timer)", "08:00:20 is not decided");
    t.rejoin_all();
    t.pass(1);
    assert_eq!(t.ledger(schedule).lines().last(), Some("08:00:20 skipped_overlap (timer)"));
}

/// B3, B4. The same if the worker does not return within its lease.
#[test]
fn a_firing_waits_no_longer_than_a_lease_for_a_worker() {
    let mut t = Scenario::new();
    t.worker().join();
    let schedule = t.schedule("s").rule(every(10)).apply();
    t.run_for(schedule, 11, 9);
    t.restart();
    for player in t.players.values_mut() {
        player.silent = true;
    }
    t.pass(16);
    assert_eq!(t.ledger(schedule).lines().last(), Some("08:00:20 skipped_overlap (timer)"));
}

/// B3. Runs longer than their period skip firings as usual, once the past is caught up.
#[test]
fn runs_longer_than_their_period_skip_firings() {
    let mut t = Scenario::new();
    t.worker().join();
    let schedule = t.schedule("s").rule(every(10)).missed(MissedPolicy::FireAll).apply();
    t.run_for(schedule, 40, 12);
    t.outage(seconds(60));
    t.rejoin_all();
    t.run_for(schedule, 600, 12);
    assert_eq!(t.late_and_early(schedule).1, 0, "{}", t.ledger(schedule));
    let fired = t.count(schedule, FiringOutcome::Fired, FiringCause::Timer);
    t.run_for(schedule, 200, 12);
    let more = t.count(schedule, FiringOutcome::Fired, FiringCause::Timer) - fired;
    assert_eq!(more, 10, "every second one, on time\n{}", t.ledger(schedule));
}

/// B3, A7. Owed firings are part of the row.
#[test]
fn owed_firings_survive_restarts() {
    let mut t = Scenario::new();
    t.worker().join();
    let schedule = t.schedule("s").rule(every(600)).missed(MissedPolicy::FireAll).apply();
    t.outage(seconds(3_700));
    t.rejoin_all();
    for _ in 0..6 {
        t.run_for(schedule, 3, 2);
        t.restart();
        t.rejoin_all();
    }
    t.run_for(schedule, 20, 2);
    assert_eq!(t.made_up_for(schedule), 6, "{}", t.ledger(schedule));
}

/// B3. A manual trigger comes before owed firings too.
#[test]
fn manual_trigger_comes_before_owed_firings() {
    let mut t = Scenario::new();
    t.worker().join();
    let schedule = t.schedule("s").rule(every(600)).missed(MissedPolicy::FireAll).apply();
    t.pass(600);
    t.start(t.runs(schedule)[0]);
    t.outage(seconds(2_400));
    t.rejoin_all();
    let first = t.runs(schedule)[0];
    // The run ends, and a user triggers the schedule before the engine has acted.
    let execution = t.execution(first).clone();
    let session = t.players[&execution.worker].session.unwrap();
    let report = finished(ExecutionEnd::Succeeded, Some(0));
    let said = engine::Input::Report {
        worker: execution.worker,
        session,
        execution: execution.id,
        fence: execution.fence,
        report,
    };
    t.engine.handle(t.now, said);
    assert_eq!(t.trigger(schedule).0, FiringOutcome::Fired);
    assert_eq!(t.made_up_for(schedule), 0);
    t.succeed_all(schedule);
    assert_eq!(t.made_up_for(schedule), 1);
}

/// B3. Of 57,600 missed firings, most are not run; the ledger records the limit.
#[test]
fn fire_all_catches_up_a_thousand_at_most() {
    let mut t = Scenario::new();
    let apply = |t: &mut Scenario, name: &str, limit: Option<u32>| {
        t.schedule(name)
            .rule(every(5))
            .overlap(OverlapPolicy::AllowAll)
            .missed(MissedPolicy::FireAll)
            .spec(|s| s.missed.limit = limit.unwrap_or(s.missed.limit))
            .apply()
    };
    let by_default = apply(&mut t, "by-default", None);
    let three = apply(&mut t, "three", Some(3));
    t.outage(seconds(2 * 3_600));
    assert_eq!(t.made_up_for(by_default), 1_000);
    assert_eq!(t.made_up_for(three), 3);
    let cut = t.records(three)[0];
    assert_eq!((cut.outcome, cut.count), (FiringOutcome::SkippedPolicy, 2 * 720 - 3 - 3));
    assert_eq!(cut.detail.as_deref(), Some("only the last 3 missed firings are caught up"));
}

/// B3. Firings that are owed for longer than the catch-up window are given up, with a record.
#[test]
fn firings_owed_longer_than_the_window_are_given_up() {
    let mut t = Scenario::new();
    t.worker().join();
    let schedule = t
        .schedule("s")
        .rule(every(600))
        .missed(MissedPolicy::FireAll)
        .spec(|s| s.missed.catch_up_window = seconds(3_600))
        .apply();
    t.pass(600);
    t.start(t.runs(schedule)[0]);
    t.outage(seconds(1_300));
    t.rejoin_all();
    t.run_for(schedule, 5_000, 5_000);
    assert_eq!(t.made_up_for(schedule), 0);
    let given_up = t.count(schedule, FiringOutcome::SkippedPolicy, FiringCause::CatchUp);
    assert_eq!(given_up, 2, "{}", t.ledger(schedule));
}

/// B5. The requested concurrency applies, even if the schedule allows only one run.
#[test]
fn backfill_uses_its_requested_concurrency() {
    let mut t = Scenario::new();
    t.worker().join();
    let schedule = t.schedule("s").rule(every(600)).apply();
    let days =
        ["2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z", "2026-11-03T00:00:00Z", "2026-11-04T00:00:00Z"];
    t.backfill(schedule, &days, 3);
    assert_eq!(t.open_runs(schedule).len(), 3);
    t.succeed(t.runs(schedule)[0]);
    assert_eq!(t.open_runs(schedule).len(), 3);
    // A firing of the schedule waits for one of them and starts next.
    t.pass(600);
    assert_eq!(t.ledger(schedule).lines().last(), Some("08:10:00 buffered (timer)"));
    t.succeed(t.runs(schedule)[1]);
    assert_eq!(t.ledger(schedule).lines().last(), Some("08:10:00 fired (timer)"));
    t.succeed(t.runs(schedule)[2]);
    // The number of its own runs stays within its limit.
    assert_eq!(t.trigger(schedule).0, FiringOutcome::SkippedOverlap);
    t.succeed_all(schedule);
    assert_eq!(t.open_runs(schedule).len(), 0);
}

/// B5. It also allows a buffered firing to start.
#[test]
fn backfill_concurrency_allows_a_buffered_firing() {
    let mut t = Scenario::new();
    t.worker().join();
    let schedule = t.schedule("s").rule(every(600)).apply();
    t.backfill(schedule, &["2026-11-01T00:00:00Z"], 1);
    t.pass(600);
    assert_eq!(t.ledger(schedule).lines().last(), Some("08:10:00 buffered (timer)"));
    t.backfill(schedule, &["2026-11-02T00:00:00Z", "2026-11-03T00:00:00Z"], 3);
    assert_eq!(t.ledger(schedule).lines().last(), Some("08:10:00 fired (timer)"));
    assert_eq!(t.open_runs(schedule).len(), 3);
    t.check_rebuilt();
}

/// B4, B5. A waiting firing expires when the next one is decided, and no longer holds up the backfill.
#[test]
fn a_waiting_firing_that_expires_lets_a_backfill_continue() {
    let mut t = Scenario::new();
    t.worker().join();
    let schedule = t
        .schedule("s")
        .rule(every(600))
        .missed(MissedPolicy::FireOnce)
        .spec(|s| s.start_deadline = Some(seconds(500)))
        .apply();
    t.outage(seconds(700));
    t.rejoin_all();
    t.start(t.runs(schedule)[0]);
    // The run of the present waits for the catch-up run, and the backfill waits behind it.
    t.pass(500);
    assert_eq!(t.ledger(schedule).lines().last(), Some("08:20:00 buffered (timer)"));
    t.backfill(schedule, &["2026-11-01T00:00:00Z"], 2);
    assert_eq!(t.open_runs(schedule).len(), 1);
    t.pass(550);
    assert_eq!(t.trigger(schedule).0, FiringOutcome::SkippedOverlap);
    assert_eq!(t.skipped_today(schedule), 1, "{}", t.ledger(schedule));
    assert_eq!(t.open_runs(schedule).len(), 2);
    t.check_rebuilt();
}

/// B4, B5. A firing that replaces earlier runs stops as few as necessary, so a backfill with several
/// concurrent runs loses one; a run of the schedule itself is replaced first.
#[test]
fn replacing_firing_stops_as_few_backfill_runs_as_necessary() {
    let mut t = Scenario::new();
    t.worker().join();
    let schedule = t.schedule("s").rule(every(600)).overlap(OverlapPolicy::CancelOther).apply();
    let days = ["2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z", "2026-11-03T00:00:00Z"];
    t.backfill(schedule, &days, 3);
    let past = t.open_runs(schedule);
    past.iter().for_each(|&run| _ = t.start(run));
    let stopped = |t: &Scenario| {
        t.runs(schedule)
            .into_iter()
            .filter(|&run| t.state(run).cancel_requested_at.is_some())
            .collect::<Vec<_>>()
    };
    t.pass(600);
    assert_eq!(stopped(&t), past[..1]);
    t.end_with(past[0], finished(ExecutionEnd::Stopped, None));
    assert_eq!(t.ledger(schedule).lines().last(), Some("08:10:00 fired (timer)"));
    let present = *t.runs(schedule).last().unwrap();
    t.start(present);
    t.pass(600);
    assert_eq!(stopped(&t), [past[0], present]);
    t.end_with(present, finished(ExecutionEnd::Stopped, None));
    assert_eq!(t.open_runs(schedule).len(), 3);
    assert_eq!(t.ledger(schedule).lines().last(), Some("08:20:00 fired (timer)"));
    t.check_rebuilt();
}

/// B6. On time means within a second; every other delay is recorded in the ledger.
#[test]
fn outcome_fired_means_on_time() {
    let mut t = Scenario::new();
    let schedule = t
        .schedule("s")
        .rule(every(10))
        .overlap(OverlapPolicy::AllowAll)
        .spec(|s| s.missed.threshold = seconds(40))
        .apply();
    t.until(t.now + seconds(15));
    t.outage(seconds(35));
    t.until(t.now + seconds(11));
    insta::assert_snapshot!(t.ledger(schedule), @"
    08:00:10 fired (timer)
    08:00:20 fired_late (timer)
    08:00:30 fired_late (timer)
    08:00:40 fired_late (timer)
    08:00:50 fired (timer)
    08:01:00 fired (timer)
    ");
}

/// B6, E3. A task that ended while no server was running has its own run time.
#[test]
fn outage_does_not_extend_run_times() {
    let mut t = Scenario::new();
    t.worker().join();
    let schedule = t.schedule("s").rule(every(600)).apply();
    t.pass(600);
    let run = t.runs(schedule)[0];
    t.start(run);
    t.pass(1);
    t.outage(seconds(45));
    t.rejoin_all();
    let mut report = finished(ExecutionEnd::Succeeded, Some(0));
    if let engine::Report::Finished { usage, .. } = &mut report {
        *usage = Usage { run_time: seconds(4), ..Usage::default() };
    }
    t.end_with(run, report);
    let track = t.schedule_state(schedule).statistics.clone().unwrap();
    assert_eq!(track.durations, [4_000]);
    let state = t.state(run);
    assert_eq!(state.finished_at.unwrap().since(state.started_at.unwrap()), seconds(4));
}
