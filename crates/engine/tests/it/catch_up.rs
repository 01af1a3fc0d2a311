//! Missed firings: catch-up, backfills and pauses. The past never delays the present.
//!
//! The first half covers catch-up together with jitter, pauses and restarts; the second half covers triggers
//! by hand, buffered firings, backfills and fixed delays. `owed_firings` tests the order in which owed
//! firings run beside current ones, and `schedules` has one basic test for each policy.
//!
//! Most scenarios have no worker: jobs stay waiting, and the ledger alone shows which firings were decided,
//! and when.

use engine::input::Key;
use engine::{Reply, ScheduleRequest};
use model::firing::{FiringOutcome, ScheduleStatus, Work};
use model::schedule::{Jitter, MissedPolicy, OverlapPolicy, Spread};
use model::timing::{Every, Rule};
use model::{Duration, JobStatus, Refusal, ScheduleId};

use crate::scenario::Scenario;

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn every(period: u64) -> Rule {
    Rule::Every(Every { period: seconds(period), phase: Duration::ZERO })
}

/// B3. Current firings are on time during catch-up, and catch-up keeps to its rate.
#[test]
fn current_firings_are_on_time_during_catch_up() {
    let mut t = Scenario::new();
    let schedule = t
        .schedule("s")
        .rule(every(10))
        .overlap(OverlapPolicy::AllowAll)
        .missed(MissedPolicy::FireAll)
        .spec(|s| s.missed.catch_up_per_minute = Some(1))
        .apply();
    t.outage(seconds(65));
    t.until(t.now + seconds(56));
    insta::assert_snapshot!(t.ledger(schedule), @"
    08:00:10 fired_late (catch_up)
    08:01:00 fired_late (timer)
    08:01:10 fired (timer)
    08:01:20 fired (timer)
    08:01:30 fired (timer)
    08:01:40 fired (timer)
    08:01:50 fired (timer)
    08:02:00 fired (timer)
    ");
    t.until(t.now + seconds(300));
    assert!(t.schedule_state(schedule).owed.is_empty());
    let ledger = t.ledger(schedule);
    assert_eq!(ledger.matches("fired_late (catch_up)").count(), 5, "{ledger}");
    assert_eq!(ledger.matches("(timer)").count(), 37, "{ledger}");
}

/// B3. A restart does not circumvent the catch-up rate.
#[test]
fn restart_keeps_the_catch_up_rate() {
    let mut t = Scenario::new();
    let schedule = t
        .schedule("s")
        .rule(every(600))
        .overlap(OverlapPolicy::AllowAll)
        .missed(MissedPolicy::FireAll)
        .spec(|s| s.missed.catch_up_per_minute = Some(1))
        .apply();
    t.outage(seconds(6_100));
    assert_eq!(t.runs(schedule).len(), 1);
    for _ in 0..5 {
        t.restart();
        t.until(t.now + seconds(2));
    }
    assert_eq!(t.runs(schedule).len(), 1);
    t.until(t.now + seconds(60));
    assert_eq!(t.runs(schedule).len(), 2);
}

/// B3, I18. Jitter causes no further missed firings, and no caught-up firing counts as on time.
#[test]
fn jitter_does_not_change_catch_up() {
    for (spread, max) in [(Spread::Stable, 3_600), (Spread::Random, 3_600), (Spread::Stable, 120)] {
        for name in ["a", "b", "c", "d"] {
            let mut t = Scenario::new();
            let schedule = t
                .schedule(name)
                .rule(every(600))
                .overlap(OverlapPolicy::AllowAll)
                .missed(MissedPolicy::FireOnce)
                .spec(|s| s.jitter = Some(Jitter { max: seconds(max), spread }))
                .apply();
            t.outage(seconds(7_200));
            let made_up = t.ledger(schedule).matches("fired_late (catch_up)").count();
            assert_eq!(made_up, 1, "{spread:?} {}", t.ledger(schedule));
        }
    }
}

/// B5. However long the jitter: firings that are on time do not count as missed.
#[test]
fn random_jitter_keeps_the_order_of_firings_and_loses_none() {
    let mut t = Scenario::new();
    let schedule = t
        .schedule("s")
        .rule(every(60))
        .overlap(OverlapPolicy::AllowAll)
        .missed(MissedPolicy::Skip)
        .spec(|s| s.jitter = Some(Jitter { max: seconds(300), spread: Spread::Random }))
        .apply();
    t.until(t.now + seconds(3_600));
    let ledger = t.ledger(schedule);
    assert!(ledger.lines().all(|line| line.ends_with("fired (timer)")), "{ledger}");
    assert!(t.runs(schedule).len() >= 59, "{ledger}");
}

/// B5. Only a change of the timing replaces a firing that its jitter has delayed.
#[test]
fn policy_change_keeps_a_firing_delayed_by_jitter() {
    let mut t = Scenario::new();
    let apply = |t: &mut Scenario, pause_after| {
        t.schedule("s")
            .rule(every(600))
            .overlap(OverlapPolicy::AllowAll)
            .spec(|s| {
                s.jitter = Some(Jitter { max: seconds(550), spread: Spread::Stable });
                s.pause_after_failures = pause_after;
            })
            .apply()
    };
    let schedule = apply(&mut t, None);
    t.until(t.now + seconds(605));
    assert_eq!(t.ledger(schedule), "", "its jitter is longer than that");
    apply(&mut t, Some(3));
    t.until(t.now + seconds(550));
    assert_eq!(t.ledger(schedule), "08:10:00 fired (timer)");
}

/// B5, B6.
#[test]
fn buffered_firing_does_not_start_while_its_schedule_is_paused() {
    let mut t = Scenario::new();
    t.worker().join();
    let schedule = t
        .schedule("s")
        .rule(every(10))
        .overlap(OverlapPolicy::BufferAll)
        .spec(|s| s.pause_after_failures = Some(1))
        .apply();
    t.pass(35);
    let first = t.runs(schedule)[0];
    t.fail(first, 1);
    assert_eq!(t.schedule_state(schedule).status, ScheduleStatus::Paused);
    assert_eq!(t.runs(schedule).len(), 1, "{}", t.ledger(schedule));
    t.pass(20);
    assert_eq!(t.runs(schedule).len(), 1);
    t.resume(schedule);
    assert_eq!(t.runs(schedule).len(), 2, "{}", t.ledger(schedule));
}

/// B5. Firings that were due during a pause never run after it.
#[test]
fn firings_due_during_a_pause_are_skipped() {
    let mut t = Scenario::new();
    let schedule = t
        .schedule("s")
        .rule(every(1))
        .overlap(OverlapPolicy::AllowAll)
        .spec(|s| s.missed.threshold = seconds(3_600))
        .apply();
    t.pause(schedule);
    t.outage(seconds(1_800));
    t.resume(schedule);
    assert_eq!(t.runs(schedule).len(), 0, "{}", t.ledger(schedule));
}

/// B3, B5. Firings that were owed before a pause are owed after it.
#[test]
fn pause_holds_owed_firings() {
    let mut t = Scenario::new();
    let schedule = t
        .schedule("s")
        .rule(every(60))
        .overlap(OverlapPolicy::AllowAll)
        .missed(MissedPolicy::FireAll)
        .spec(|s| s.missed.catch_up_per_minute = Some(6))
        .apply();
    t.outage(seconds(330));
    t.pause(schedule);
    t.until(t.now + seconds(30));
    assert_eq!(t.runs(schedule).len(), 1);
    t.resume(schedule);
    t.until(t.now + seconds(50));
    assert_eq!(t.ledger(schedule).matches("catch_up").count(), 5, "{}", t.ledger(schedule));
}

fn trigger(t: &mut Scenario, schedule: ScheduleId) -> Reply {
    let key = Some(Key { key: 7, body: 8 });
    t.request(ScheduleRequest::Trigger { schedule, overlap: None, reason: None, key }).unwrap()
}

/// A10. Also if the first reply said that the firing is buffered.
#[test]
fn repeated_trigger_is_buffered_once() {
    let mut t = Scenario::new();
    t.worker().join();
    let schedule = t.schedule("s").rule(every(3_600)).overlap(OverlapPolicy::BufferAll).apply();
    let (_, running) = t.trigger(schedule);
    let first = trigger(&mut t, schedule);
    assert!(matches!(first, Reply::Triggered { outcome: FiringOutcome::Buffered, .. }));
    t.pass(1);
    t.restart();
    assert_eq!(trigger(&mut t, schedule), first);
    t.pass(1);
    let worker = *t.players.keys().next().unwrap();
    t.rejoin(worker);
    t.succeed(running.unwrap());
    let Reply::Triggered { outcome, work, .. } = trigger(&mut t, schedule) else { panic!() };
    let job = work.and_then(Work::job);
    assert_eq!((outcome, job), (FiringOutcome::Fired, t.runs(schedule).get(1).copied()));
    assert_eq!(t.runs(schedule).len(), 2);
}

/// B4. A buffered firing past its start deadline does not block later ones.
#[test]
fn expired_buffered_firing_does_not_block_later_firings() {
    let mut t = Scenario::new();
    t.worker().join();
    let schedule = t
        .schedule("s")
        .rule(every(600))
        .overlap(OverlapPolicy::BufferOne)
        .spec(|s| s.start_deadline = Some(seconds(300)))
        .apply();
    t.pass(601);
    let first = t.runs(schedule)[0];
    t.start(first);
    t.pass(3_100);
    t.succeed(first);
    insta::assert_snapshot!(t.ledger(schedule), @"
    08:10:00 fired (timer)
    08:20:00 skipped_deadline (timer)
    08:30:00 skipped_deadline (timer)
    08:40:00 skipped_deadline (timer)
    08:50:00 skipped_deadline (timer)
    09:00:00 fired_late (timer)
    ");
}

/// B5. The maximum counts firings that ran, not buffered firings that were dropped.
#[test]
fn schedule_completes_after_its_last_firing_and_keeps_its_pause() {
    let mut t = Scenario::new();
    t.worker().join();
    let apply = |t: &mut Scenario, most| {
        t.schedule("s")
            .rule(every(60))
            .overlap(OverlapPolicy::BufferOne)
            .spec(|s| s.max_firings = Some(most))
            .apply()
    };
    let schedule = apply(&mut t, 2);
    t.pass(150);
    assert_eq!(t.schedule_state(schedule).status, ScheduleStatus::Active, "the second waits");
    t.succeed(t.runs(schedule)[0]);
    assert_eq!(t.schedule_state(schedule).status, ScheduleStatus::Completed);
    apply(&mut t, 5);
    t.pause(schedule);
    apply(&mut t, 2);
    assert_eq!(t.schedule_state(schedule).status, ScheduleStatus::Completed);
    apply(&mut t, 5);
    assert_eq!(t.schedule_state(schedule).status, ScheduleStatus::Paused);
}

/// B5. A current firing comes before the next run of a backfill.
#[test]
fn current_firing_starts_before_the_next_backfill_run() {
    let mut t = Scenario::new();
    t.worker().join();
    let schedule = t.schedule("s").rule(every(600)).apply();
    let days = ["2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z", "2026-11-03T00:00:00Z"];
    t.backfill(schedule, &days, 1);
    t.pass(610);
    t.succeed(t.runs(schedule)[0]);
    assert_eq!(t.ledger(schedule).lines().last(), Some("08:10:00 fired_late (timer)"));
    assert_eq!(t.open_runs(schedule).len(), 1);
    t.succeed(t.runs(schedule)[1]);
    assert_eq!(t.open_runs(schedule).len(), 1, "then the backfill continues");
}

/// B5, I14. A repeated request runs nothing twice.
#[test]
fn scheduled_time_is_in_at_most_one_running_backfill() {
    let mut t = Scenario::new();
    let schedule = t.schedule("s").rule(every(600)).apply();
    let days = ["2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z", "2026-11-03T00:00:00Z"];
    let running = t.backfill(schedule, &days, 1);
    let again = t.try_backfill(schedule, &days[1..], 1);
    assert!(matches!(again, Err(Refusal::NothingToBackfill { running: Some(known) }) if known == running));
    let undecided = t.try_backfill(schedule, &["2026-11-21T08:10:00Z"], 1);
    assert!(matches!(undecided, Err(Refusal::NothingToBackfill { .. })), "{undecided:?}");
}

/// B1, B5. A fixed delay ends within start and end, and not while its schedule is paused.
#[test]
fn fixed_delay_respects_start_end_and_pause() {
    let mut t = Scenario::new();
    t.worker().join();
    let (start, end) = (t.now + seconds(600), t.now + seconds(1_200));
    let schedule = t
        .schedule("s")
        .rule(Rule::After(seconds(60)))
        .spec(|s| (s.timing.start, s.timing.end) = (Some(start), Some(end)))
        .apply();
    t.pass(599);
    assert_eq!(t.ledger(schedule), "");
    t.pass(2);
    assert_eq!(t.ledger(schedule), "08:10:00 fired (timer)");
    t.succeed(t.runs(schedule)[0]);
    t.pause(schedule);
    t.pass(300);
    assert_eq!(t.ledger(schedule), "08:10:00 fired (timer)", "it has no scheduled time while it is paused");
    t.resume(schedule);
    t.pass(1);
    assert_eq!(t.runs(schedule).len(), 2);
    t.pass(600);
    t.succeed(t.runs(schedule)[1]);
    assert_eq!(t.schedule_state(schedule).status, ScheduleStatus::Completed);
}

/// B4. A run that is being stopped is killed when a later firing with `terminate_other` needs its place.
#[test]
fn terminate_other_does_not_wait_for_the_grace_of_an_earlier_stop() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let schedule = t
        .schedule("s")
        .rule(every(60))
        .overlap(OverlapPolicy::TerminateOther)
        .spec(|s| s.job_mut().unwrap().grace = seconds(3_600))
        .apply();
    t.pass(61);
    let run = t.runs(schedule)[0];
    let execution = t.start(run);
    t.cancel(run).unwrap();
    assert_eq!(t.players[&worker].graces.get(&execution), Some(&seconds(3_600)));
    t.pass(60);
    assert_eq!(t.players[&worker].graces.get(&execution), Some(&Duration::ZERO));
    assert_eq!(t.status(run), JobStatus::Running);
}

/// I14. Found by the simulator (seed 117060): the wall clock was set back, so engine time stood still across
/// a restart.
#[test]
fn manual_runs_have_distinct_times_while_engine_time_stands_still() {
    let mut t = Scenario::new();
    let schedule = t.schedule("s").rule(every(3_600)).overlap(OverlapPolicy::AllowAll).apply();
    for _ in 0..3 {
        t.trigger(schedule);
        t.trigger(schedule);
        t.restart();
    }
    assert_eq!(t.runs(schedule).len(), 6);
    assert_eq!(t.records(schedule).len(), 6);
}
