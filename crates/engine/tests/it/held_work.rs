//! A store without free space: running jobs continue and end; new work starts once there is space.

use model::firing::BackfillStatus;
use model::schedule::{MissedPolicy, OverlapPolicy};
use model::why::Reason;
use model::{JobStatus, ScheduleId};

use crate::scenario::Scenario;
use crate::workflow::job;

/// F7.
#[test]
fn no_waiting_job_is_placed_while_new_work_is_held() {
    let mut t = Scenario::new();
    t.worker().slots(1).join();
    let [running, waiting] = [t.job().submit(), t.job().submit()];
    t.start(running);
    t.engine.hold_new_work(true);
    t.succeed(running);
    t.pass(5);
    assert_eq!([t.status(running), t.status(waiting)], [JobStatus::Succeeded, JobStatus::Waiting]);
    assert!(matches!(t.why(waiting)[..], [Reason::StorageFull]), "{:?}", t.why(waiting));
    t.engine.hold_new_work(false);
    t.flush();
    assert_eq!(t.status(waiting), JobStatus::Running);
}

/// F7, B7. Firings during the hold are missed, and caught up by the policy of the schedule.
#[test]
fn no_schedule_fires_while_new_work_is_held() {
    let mut t = Scenario::new();
    let of = |t: &mut Scenario, name: &str, policy| {
        t.schedule(name).cron("* * * * *").overlap(OverlapPolicy::AllowAll).missed(policy).apply()
    };
    let all = of(&mut t, "all", MissedPolicy::FireAll);
    let none = of(&mut t, "none", MissedPolicy::Skip);
    t.pass(90);
    assert_eq!([t.runs(all).len(), t.runs(none).len()], [1, 1]);
    t.engine.hold_new_work(true);
    t.pass(600);
    assert_eq!([t.runs(all).len(), t.runs(none).len()], [1, 1]);
    t.engine.hold_new_work(false);
    t.flush();
    assert_eq!(t.runs(all).len(), 11);
    assert!(t.runs(none).len() < 5, "{}", t.ledger(none));
}

/// F7. The end of a step is recorded; the next step starts once there is space. A restart changes nothing.
#[test]
fn no_step_of_a_run_begins_while_new_work_is_held() {
    for restarts in [false, true] {
        let mut t = Scenario::with_room();
        let run = t.run(&model::WorkflowSpec::new("w", vec![job("a", &[]), job("b", &["a"])]));
        t.start(t.job_of(run, "a"));
        t.engine.hold_new_work(true);
        t.succeed_step(run, "a");
        t.pass(5);
        insta::allow_duplicates! {
            insta::assert_snapshot!(t.steps(run), @"a succeeded (job_succeeded), b pending");
        }
        if restarts {
            t.restart();
            t.rejoin_all();
        } else {
            t.engine.hold_new_work(false);
            t.flush();
        }
        t.start(t.job_of(run, "b"));
        t.succeed_step(run, "b");
        assert_eq!(t.status_of_run(run), model::RunStatus::Succeeded);
    }
}

impl Scenario {
    /// Ends the hold of new work.
    fn end_of_hold(&mut self) {
        self.engine.hold_new_work(false);
        self.flush();
    }

    /// Creates a schedule with a run and a firing buffered behind it.
    fn schedule_with_a_waiting_firing(&mut self) -> ScheduleId {
        self.worker().join();
        let schedule = self.schedule("s").cron("* * * * *").overlap(OverlapPolicy::BufferOne).apply();
        self.pass(60);
        self.start(self.runs(schedule)[0]);
        self.pass(60);
        insta::allow_duplicates! {
            insta::assert_snapshot!(self.ledger(schedule), @"
            08:01:00 fired (timer)
            08:02:00 buffered (timer)
            ");
        }
        schedule
    }
}

/// F7, B4. The end of a run does not start the buffered firing during a hold; a restart changes nothing.
#[test]
fn no_buffered_firing_starts_while_new_work_is_held() {
    for restarts in [false, true] {
        let mut t = Scenario::new();
        let schedule = t.schedule_with_a_waiting_firing();
        t.engine.hold_new_work(true);
        t.succeed(t.runs(schedule)[0]);
        t.pass(5);
        assert_eq!(t.run_status(schedule), [JobStatus::Succeeded]);
        if restarts {
            t.restart_full();
            t.rejoin_all();
            t.pass(5);
            assert_eq!(t.run_status(schedule), [JobStatus::Succeeded]);
        }
        t.end_of_hold();
        assert_eq!(t.run_status(schedule), [JobStatus::Succeeded, JobStatus::Running]);
    }
}

/// F7, B5. The same for the next run of a backfill.
#[test]
fn a_backfill_starts_nothing_while_new_work_is_held() {
    for restarts in [false, true] {
        let mut t = Scenario::new();
        t.worker().join();
        let schedule = t.schedule("s").cron("*/10 * * * *").apply();
        let days = ["2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z"];
        let backfill = t.backfill(schedule, &days, 1);
        t.engine.hold_new_work(true);
        t.succeed(t.runs(schedule)[0]);
        t.pass(5);
        assert_eq!(t.run_status(schedule), [JobStatus::Succeeded]);
        if restarts {
            t.restart_full();
            t.rejoin_all();
            t.pass(5);
            assert_eq!(t.run_status(schedule), [JobStatus::Succeeded]);
        }
        t.end_of_hold();
        assert_eq!(t.open_runs(schedule).len(), 1);
        t.succeed_all(schedule);
        assert_eq!(t.rows.backfills[&backfill].1.status, BackfillStatus::Completed);
    }
}

/// F7. A backfill ends with its last run, also during a hold.
#[test]
fn a_backfill_ends_while_new_work_is_held() {
    let mut t = Scenario::new();
    t.worker().join();
    let schedule = t.schedule("s").cron("*/10 * * * *").apply();
    let backfill = t.backfill(schedule, &["2026-11-01T00:00:00Z"], 1);
    t.engine.hold_new_work(true);
    t.succeed(t.runs(schedule)[0]);
    assert_eq!(t.rows.backfills[&backfill].1.status, BackfillStatus::Completed);
}

/// F7, B5. A pause decides the firings that are due: they are missed, and caught up after the hold.
#[test]
fn a_pause_fires_nothing_while_new_work_is_held() {
    let mut t = Scenario::new();
    t.worker().join();
    let schedule = t.schedule("s").cron("* * * * *").missed(MissedPolicy::FireAll).apply();
    t.engine.hold_new_work(true);
    t.pass(62);
    t.pause(schedule);
    t.pass(60);
    t.resume(schedule);
    assert_eq!(t.run_status(schedule), []);
    t.end_of_hold();
    t.succeed_all(schedule);
    insta::assert_snapshot!(t.ledger(schedule), @"
    08:01:00 fired_late (catch_up)
    08:02:00 skipped_pause (catch_up)
    ");
}

/// F7. Deleting a schedule removes its buffered firings.
#[test]
fn deleted_schedule_drops_its_held_firings() {
    let mut t = Scenario::new();
    let schedule = t.schedule_with_a_waiting_firing();
    t.engine.hold_new_work(true);
    t.succeed(t.runs(schedule)[0]);
    t.delete(schedule);
    t.end_of_hold();
    assert_eq!(t.run_status(schedule), [JobStatus::Succeeded]);
}
