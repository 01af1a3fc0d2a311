//! Firings that replace runs which have not started: the runs end immediately, so the firing starts in the same
//! decision, before anything else of the schedule is decided.

use model::firing::FiringOutcome;
use model::schedule::OverlapPolicy;
use model::{Duration, JobStatus, ScheduleId};

use crate::scenario::Scenario;
use crate::schedule_scenario::minutes;

/// A schedule that replaces its runs every minute, and its first run, which waits because there is no worker.
fn with_waiting_run() -> (Scenario, ScheduleId) {
    let mut t = Scenario::new();
    let schedule = t
        .schedule("s")
        .cron("* * * * *")
        .overlap(OverlapPolicy::CancelOther)
        .spec(|s| s.missed.threshold = minutes(60))
        .apply();
    t.pass(60);
    assert_eq!(t.run_status(schedule), [JobStatus::Waiting]);
    (t, schedule)
}

/// B4.
#[test]
fn each_of_several_due_firings_replaces_the_one_before() {
    let (mut t, schedule) = with_waiting_run();
    t.now = t.now + minutes(2);
    t.flush();
    insta::assert_snapshot!(t.ledger(schedule), @"
    08:01:00 fired (timer)
    08:02:00 fired_late (timer)
    08:03:00 fired (timer)
    ");
    assert_eq!(t.run_status(schedule), [JobStatus::Cancelled, JobStatus::Cancelled, JobStatus::Waiting]);
    t.check_rebuilt();
}

/// B4. A request first decides what is due.
#[test]
fn pausing_a_schedule_at_a_due_time_still_replaces_the_run() {
    let (mut t, schedule) = with_waiting_run();
    t.now = t.now + minutes(1);
    t.pause(schedule);
    assert_eq!(t.run_status(schedule), [JobStatus::Cancelled, JobStatus::Waiting]);
    insta::assert_snapshot!(t.ledger(schedule), @"
    08:01:00 fired (timer)
    08:02:00 fired (timer)
    ");
}

/// B4. A request first decides what is due.
#[test]
fn deleting_a_schedule_at_a_due_time_still_replaces_the_run() {
    let (mut t, schedule) = with_waiting_run();
    t.now = t.now + minutes(1);
    t.delete(schedule);
    assert_eq!(t.run_status(schedule), [JobStatus::Cancelled, JobStatus::Waiting]);
    assert!(t.ledger(schedule).ends_with("08:02:00 fired (timer)"), "{}", t.ledger(schedule));
}

/// B4. With a limit of two runs, two due firings replace two runs.
#[test]
fn two_due_firings_replace_two_waiting_runs() {
    let mut t = Scenario::new();
    let schedule = t
        .schedule("s")
        .cron("* * * * *")
        .overlap(OverlapPolicy::TerminateOther)
        .limit(2)
        .spec(|s| s.missed.threshold = minutes(60))
        .apply();
    t.pass(120);
    t.now = t.now + minutes(2);
    t.flush();
    let (replaced, waits) = (JobStatus::Cancelled, JobStatus::Waiting);
    assert_eq!(t.run_status(schedule), [replaced, replaced, waits, waits]);
}

/// B4, B7. The first firing of the timer has no data interval, also if it replaces a manual run.
#[test]
fn the_first_firing_has_no_interval_start_when_it_replaces_a_manual_run() {
    let mut t = Scenario::new();
    let schedule = t.schedule("s").cron("*/10 * * * *").overlap(OverlapPolicy::CancelOther).apply();
    t.trigger(schedule);
    t.pass(600);
    let first = *t.runs(schedule).last().unwrap();
    let origin = t.rows.jobs[&first].0.origin.clone().unwrap();
    assert_eq!(origin.interval_start, None);
}

/// B8. The reservation for a firing is used by its job, also if the firing replaces a waiting run.
#[test]
fn a_replacing_firing_uses_its_reservation() {
    let mut t = Scenario::new();
    t.worker().cpu(1_000).join();
    let running = t.job().cpu(1_000).submit();
    let schedule = t
        .schedule("payroll")
        .cron("0 * * * *")
        .overlap(OverlapPolicy::CancelOther)
        .spec(|s| {
            s.reserve_ahead = Some(minutes(10));
            s.job_mut().unwrap().resources.cpu = Some(model::Millicores(1_000));
        })
        .apply();
    t.trigger(schedule);
    let competitor = t.job().cpu(1_000).priority(100).submit();
    t.pass(3_600);
    t.succeed(running);
    assert_eq!(t.run_status(schedule), [JobStatus::Cancelled, JobStatus::Running]);
    assert_eq!(t.status(competitor), JobStatus::Waiting);
}

/// B4. The reply to a trigger is about its own firing, not about one of the timer at the same time.
#[test]
fn a_trigger_that_waits_at_a_scheduled_time_is_not_answered_with_the_run_of_the_timer() {
    let mut t = Scenario::new();
    let schedule = t.schedule("s").cron("*/10 * * * *").overlap(OverlapPolicy::BufferAll).apply();
    t.pass(600);
    assert_eq!(t.trigger(schedule), (FiringOutcome::Buffered, None));
}

/// B4. A trigger that replaces a waiting run is answered with its own run.
#[test]
fn a_trigger_that_replaces_a_waiting_run_is_answered_with_its_run() {
    let (mut t, schedule) = with_waiting_run();
    t.now = t.now + Duration::from_secs(5);
    let (outcome, run) = t.trigger(schedule);
    assert_eq!((outcome, run), (FiringOutcome::Fired, t.runs(schedule).last().copied()));
}
