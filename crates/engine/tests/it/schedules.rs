//! Schedules: every scheduled time is decided once, recorded, and run or skipped by the policies.
//!
//! In order: firings and the ledger, missed firings, overlap, pauses, triggers, jitter, calendars, changes of
//! a schedule, failures, reservations, clocks, and bounds on the work of one batch. Each policy has one basic
//! test here; `catch_up` and `owed_firings` combine policies, and `ledger_properties` draws random
//! combinations.
//!
//! A test compares the ledger as text, one record a line: scheduled time, outcome, cause. Schedules that
//! start runs of workflows are in `workflow::scheduled`.

use engine::{Expected, Reply, ScheduleRequest};
use model::api::ApplyChange;
use model::calendar::{CalendarSpec, CalendarStep, Days};
use model::firing::{BackfillStatus, FiringCause, FiringOutcome, ScheduleStatus, Work};
use model::schedule::{Jitter, MissedPolicy, OverlapPolicy, Spread};
use model::timing::{Every, Filter, Rule};
use model::why::{FailedFilter, Reason};
use model::{Duration, JobStatus, Refusal, Timestamp};

use crate::scenario::Scenario;
use crate::schedule_scenario::minutes;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// B1, B2, B6. A firing creates a job, moves the cursor and is recorded.
#[test]
fn schedule_fires_at_its_scheduled_times_and_records_each() {
    let mut t = Scenario::new();
    let schedule = t.schedule("s").cron("*/5 * * * *").overlap(OverlapPolicy::AllowAll).apply();
    assert_eq!(t.schedule_state(schedule).next_at, Some(at("2026-11-21T08:05:00Z")));
    t.until(at("2026-11-21T08:12:00Z"));
    insta::assert_snapshot!(t.ledger(schedule), @"
    08:05:00 fired (timer)
    08:10:00 fired (timer)
    ");
    assert_eq!(t.run_status(schedule), [JobStatus::Waiting; 2]);
    let (head, state) = &t.rows.jobs[&t.runs(schedule)[1]];
    let origin = head.origin.as_deref().unwrap();
    assert_eq!(origin.scheduled_for, at("2026-11-21T08:10:00Z"));
    assert_eq!(origin.interval_start, Some(at("2026-11-21T08:05:00Z")));
    assert_eq!((origin.cause, &*origin.name), (FiringCause::Timer, "s"));
    assert_eq!(state.history[0].cause, model::Cause::Fired);
    assert_eq!(t.schedule_state(schedule).fired, 2);
}

/// B2, D5: rule 1 of the design. A restart at any moment loses and doubles nothing.
#[test]
fn a_restart_around_a_firing_neither_loses_nor_repeats_it() {
    let mut t = Scenario::new();
    let schedule = t.schedule("s").cron("* * * * *").overlap(OverlapPolicy::AllowAll).apply();
    for _ in 0..3 {
        t.until(t.now + Duration::from_secs(59));
        t.restart();
        t.until(t.now + Duration::from_secs(1));
        t.restart();
    }
    insta::assert_snapshot!(t.ledger(schedule), @"
    08:01:00 fired (timer)
    08:02:00 fired (timer)
    08:03:00 fired (timer)
    ");
    assert_eq!(t.runs(schedule).len(), 3);
}

fn after_an_outage(policy: MissedPolicy) -> String {
    let mut t = Scenario::new();
    let schedule = t
        .schedule("s")
        .cron("*/10 * * * *")
        .overlap(OverlapPolicy::AllowAll)
        .missed(policy)
        .spec(|s| s.missed.last = 2)
        .apply();
    t.until(at("2026-11-21T08:11:00Z"));
    t.outage(minutes(45));
    t.until(at("2026-11-21T09:05:00Z"));
    assert_eq!(t.runs(schedule).len(), t.ledger(schedule).matches("fired").count());
    t.ledger(schedule)
}

/// B3, I18.
#[test]
fn missed_firings_are_caught_up_by_policy() {
    insta::assert_snapshot!(after_an_outage(MissedPolicy::Skip), @"
    08:10:00 fired (timer)
    08:20:00..08:50:00 x4 skipped_policy (catch_up)
    09:00:00 fired (timer)
    ");
    insta::assert_snapshot!(after_an_outage(MissedPolicy::FireOnce), @"
    08:10:00 fired (timer)
    08:20:00..08:40:00 x3 coalesced (catch_up)
    08:50:00 fired_late (catch_up)
    09:00:00 fired (timer)
    ");
    insta::assert_snapshot!(after_an_outage(MissedPolicy::FireLast), @"
    08:10:00 fired (timer)
    08:20:00..08:30:00 x2 skipped_policy (catch_up)
    08:40:00 fired_late (catch_up)
    08:50:00 fired_late (catch_up)
    09:00:00 fired (timer)
    ");
    insta::assert_snapshot!(after_an_outage(MissedPolicy::FireAll), @"
    08:10:00 fired (timer)
    08:20:00 fired_late (catch_up)
    08:30:00 fired_late (catch_up)
    08:40:00 fired_late (catch_up)
    08:50:00 fired_late (catch_up)
    09:00:00 fired (timer)
    ");
}

/// B3.
#[test]
fn firings_older_than_the_window_or_the_start_deadline_are_skipped() {
    let mut t = Scenario::new();
    let window = t
        .schedule("window")
        .cron("*/10 * * * *")
        .overlap(OverlapPolicy::AllowAll)
        .missed(MissedPolicy::FireAll)
        .spec(|s| s.missed.catch_up_window = minutes(25))
        .apply();
    let deadline = t
        .schedule("deadline")
        .cron("*/10 * * * *")
        .overlap(OverlapPolicy::AllowAll)
        .missed(MissedPolicy::FireAll)
        .spec(|s| s.start_deadline = Some(minutes(15)))
        .apply();
    t.outage(minutes(46));
    insta::assert_snapshot!(t.ledger(window), @"
    08:10:00..08:20:00 x2 skipped_policy (catch_up)
    08:30:00 fired_late (catch_up)
    08:40:00 fired_late (catch_up)
    ");
    insta::assert_snapshot!(t.ledger(deadline), @"
    08:10:00..08:30:00 x3 skipped_deadline (catch_up)
    08:40:00 fired_late (catch_up)
    ");
}

/// B3. The catch-up rate is kept, also across a restart.
#[test]
fn catching_up_keeps_its_rate_and_its_order() {
    let mut t = Scenario::new();
    let schedule = t
        .schedule("s")
        .cron("*/10 * * * *")
        .overlap(OverlapPolicy::AllowAll)
        .missed(MissedPolicy::FireAll)
        .spec(|s| s.missed.catch_up_per_minute = Some(2))
        .apply();
    t.outage(minutes(45));
    assert_eq!(t.runs(schedule).len(), 1);
    t.until(t.now + Duration::from_secs(31));
    assert_eq!(t.runs(schedule).len(), 2);
    t.restart();
    t.until(t.now + minutes(3));
    let fired = t.ledger(schedule);
    insta::assert_snapshot!(fired, @"
    08:10:00 fired_late (catch_up)
    08:20:00 fired_late (catch_up)
    08:30:00 fired_late (catch_up)
    08:40:00 fired_late (catch_up)
    ");
}

/// B4, I17.
#[test]
fn firing_during_a_run_follows_the_overlap_policy() {
    let ledger_under = |policy| {
        let mut t = Scenario::new();
        t.worker().join();
        let schedule = t.schedule("s").cron("* * * * *").overlap(policy).apply();
        t.pass(190);
        let open = t.open_runs(schedule).len();
        (t.ledger(schedule), open)
    };
    let (ledger, open) = ledger_under(OverlapPolicy::Skip);
    insta::assert_snapshot!(ledger, @"
    08:01:00 fired (timer)
    08:02:00..08:03:00 x2 skipped_overlap (timer)
    ");
    assert_eq!(open, 1);
    let (ledger, open) = ledger_under(OverlapPolicy::BufferOne);
    insta::assert_snapshot!(ledger, @"
    08:01:00 fired (timer)
    08:02:00 buffered (timer)
    08:03:00 coalesced (timer)
    ");
    assert_eq!(open, 1);
    let (ledger, open) = ledger_under(OverlapPolicy::BufferAll);
    insta::assert_snapshot!(ledger, @"
    08:01:00 fired (timer)
    08:02:00 buffered (timer)
    08:03:00 buffered (timer)
    ");
    assert_eq!(open, 1);
    let (ledger, open) = ledger_under(OverlapPolicy::AllowAll);
    assert_eq!((ledger.matches("fired").count(), open), (3, 3));
}

/// B4. Buffered firings start in order after the run before them, and are recorded as late.
#[test]
fn buffered_firings_start_in_order() {
    let mut t = Scenario::new();
    t.worker().join();
    let schedule = t.schedule("s").cron("* * * * *").overlap(OverlapPolicy::BufferAll).apply();
    t.pass(150);
    t.restart();
    let workers: Vec<_> = t.players.keys().copied().collect();
    t.rejoin(workers[0]);
    t.succeed_all(schedule);
    insta::assert_snapshot!(t.ledger(schedule), @"
    08:01:00 fired (timer)
    08:02:00 fired_late (timer)
    ");
    assert_eq!(t.open_runs(schedule).len(), 1);
}

/// B4.
#[test]
fn firings_beyond_the_buffer_are_shed() {
    let mut t = Scenario::new();
    let schedule = t
        .schedule("s")
        .cron("* * * * *")
        .overlap(OverlapPolicy::BufferAll)
        .spec(|s| s.overlap.buffer = 1)
        .apply();
    t.until(t.now + minutes(4));
    insta::assert_snapshot!(t.ledger(schedule), @"
    08:01:00 fired (timer)
    08:02:00 buffered (timer)
    08:03:00..08:04:00 x2 skipped_limit (timer)
    ");
}

/// B4.
#[test]
fn cancel_other_starts_once_the_cancelled_run_has_ended() {
    let mut t = Scenario::new();
    t.worker().join();
    let schedule = t.schedule("s").cron("* * * * *").overlap(OverlapPolicy::CancelOther).apply();
    t.pass(60);
    let first = t.runs(schedule)[0];
    t.start(first);
    t.pass(60);
    assert_eq!(t.runs(schedule).len(), 1, "it waits for the end of the other");
    t.end_with(first, crate::scenario::finished(engine::input::ExecutionEnd::Stopped, None));
    assert_eq!(t.run_status(schedule), [JobStatus::Cancelled, JobStatus::Running]);
    insta::assert_snapshot!(t.ledger(schedule), @"
    08:01:00 fired (timer)
    08:02:00 fired (timer)
    ");
}

/// B4, I17: nomad#5487. The limit counts runs of every cause.
#[test]
fn the_overlap_limit_counts_manual_runs_backfills_and_retries() {
    let mut t = Scenario::new();
    t.worker().join();
    let schedule = t.schedule("s").cron("*/10 * * * *").limit(2).apply();
    let (outcome, first) = t.trigger(schedule);
    assert_eq!(outcome, FiringOutcome::Fired);
    let backfill = t.backfill(schedule, &["2026-11-20T00:00:00Z", "2026-11-20T00:10:00Z"], 2);
    assert_eq!(t.open_runs(schedule).len(), 2);
    assert_eq!(t.trigger(schedule), (FiringOutcome::SkippedOverlap, None));
    t.succeed(first.unwrap());
    assert_eq!(t.open_runs(schedule).len(), 2, "the backfill continues with the free capacity");
    let origin = t.rows.jobs[&first.unwrap()].0.origin.clone();
    let mut head = (*t.job().head()).clone();
    head.origin = origin;
    let new = engine::NewJob { head: head.into(), key: None, actor: "alice".into(), ended: Vec::new() };
    let reply = t.ask(|ticket| engine::Input::Submit { ticket, jobs: vec![new] });
    assert!(matches!(reply, Err(Refusal::ScheduleRunLimit { runs: 2, .. })), "{reply:?}");
    let (outcome, _) = t.trigger_with(schedule, Some(OverlapPolicy::AllowAll));
    assert_eq!((outcome, t.open_runs(schedule).len()), (FiringOutcome::Fired, 3));
    t.succeed_all(schedule);
    assert_eq!(t.rows.backfills[&backfill].1.status, BackfillStatus::Completed);
}

/// B5, I11. No other event would continue the backfill until a run of the schedule ends.
#[test]
fn backfill_continues_when_a_new_generation_raises_the_limit() {
    let mut t = Scenario::new();
    t.worker().join();
    let schedule = t.schedule("s").cron("*/10 * * * *").limit(1).apply();
    t.trigger(schedule);
    t.backfill(schedule, &["2026-11-20T00:00:00Z", "2026-11-20T00:10:00Z"], 1);
    assert_eq!(t.open_runs(schedule).len(), 1);
    t.schedule("s").cron("*/10 * * * *").limit(2).apply();
    assert_eq!(t.open_runs(schedule).len(), 2);
}

/// B5.
#[test]
fn paused_schedule_records_skips_and_continues_when_resumed() {
    let mut t = Scenario::new();
    let schedule = t.schedule("s").cron("* * * * *").overlap(OverlapPolicy::AllowAll).apply();
    t.until(at("2026-11-21T08:01:30Z"));
    t.pause(schedule);
    t.until(at("2026-11-21T08:03:30Z"));
    t.outage(minutes(2));
    t.resume(schedule);
    t.until(at("2026-11-21T08:06:30Z"));
    insta::assert_snapshot!(t.ledger(schedule), @"
    08:01:00 fired (timer)
    08:02:00..08:03:00 x2 skipped_pause (timer)
    08:04:00..08:05:00 x2 skipped_pause (catch_up)
    08:06:00 fired (timer)
    ");
    let detail = t.records(schedule)[1].detail.clone();
    assert_eq!(detail.as_deref(), Some("paused by alice: month end"));
}

/// B5. A manual run is recorded with its user and reason, also while paused.
#[test]
fn trigger_runs_while_paused_and_records_user_and_reason() {
    let mut t = Scenario::new();
    let schedule = t.schedule("s").cron("0 0 1 1 *").apply();
    t.pause(schedule);
    let (outcome, job) = t.trigger(schedule);
    assert_eq!(outcome, FiringOutcome::Fired);
    let records = t.records(schedule);
    assert_eq!((records[0].cause, records[0].work), (FiringCause::Manual, job.map(Work::Job)));
    assert_eq!(records[0].detail.as_deref(), Some("alice: test"));
}

/// A10. A repeated trigger with the same key creates one job.
#[test]
fn a_repeated_trigger_with_a_key_answers_with_the_first_job() {
    let mut t = Scenario::new();
    let schedule = t.schedule("s").overlap(OverlapPolicy::AllowAll).apply();
    let mut trigger = || {
        let key = Some(engine::input::Key { key: 7, body: 7 });
        match t.request(ScheduleRequest::Trigger { schedule, overlap: None, reason: None, key }) {
            Ok(Reply::Triggered { work, .. }) => work.and_then(Work::job).unwrap(),
            other => panic!("{other:?}"),
        }
    };
    let first = trigger();
    assert_eq!(first, trigger());
    assert_eq!(t.runs(schedule).len(), 1);
}

/// B1. The delay counts from the end of the run.
#[test]
fn a_fixed_delay_counts_from_the_end_of_the_last_run() {
    let mut t = Scenario::new();
    t.worker().join();
    let schedule = t.schedule("s").rule(Rule::After(minutes(10))).apply();
    t.pass(10 * 60);
    assert_eq!(t.runs(schedule).len(), 1);
    t.pass(30 * 60);
    assert_eq!(t.runs(schedule).len(), 1, "it runs for half an hour");
    t.succeed_all(schedule);
    t.restart();
    t.pass(10 * 60);
    let workers: Vec<_> = t.players.keys().copied().collect();
    t.rejoin(workers[0]);
    assert_eq!(t.runs(schedule).len(), 2);
    insta::assert_snapshot!(t.ledger(schedule), @"
    08:10:00 fired (timer)
    08:50:00 fired (timer)
    ");
}

/// B5.
#[test]
fn schedule_completes_after_its_last_scheduled_time_or_its_maximum() {
    let mut t = Scenario::new();
    let once = t.schedule("once").rule(Rule::At("2026-11-21T08:30:00Z".into())).apply();
    let twice = t.schedule("twice").cron("*/10 * * * *").limit(9).spec(|s| s.max_firings = Some(2)).apply();
    t.until(at("2026-11-21T09:00:00Z"));
    for schedule in [once, twice] {
        assert_eq!(t.schedule_state(schedule).status, ScheduleStatus::Completed);
        assert_eq!(t.schedule_state(schedule).next_at, None);
    }
    assert_eq!((t.runs(once).len(), t.runs(twice).len()), (1, 2));
    t.restart();
    t.until(at("2026-11-21T10:00:00Z"));
    assert_eq!((t.runs(once).len(), t.runs(twice).len()), (1, 2));
}

/// B5. Stable jitter is one offset per schedule; the scheduled time is recorded without it.
#[test]
fn jitter_delays_a_firing_but_not_its_scheduled_time() {
    let mut t = Scenario::new();
    let jitter = |spread| Some(Jitter { max: minutes(5), spread });
    let stable = t
        .schedule("stable")
        .cron("*/10 * * * *")
        .overlap(OverlapPolicy::AllowAll)
        .spec(|s| s.jitter = jitter(Spread::Stable))
        .apply();
    let random = t
        .schedule("random")
        .cron("*/10 * * * *")
        .overlap(OverlapPolicy::AllowAll)
        .spec(|s| s.jitter = jitter(Spread::Random))
        .apply();
    t.until(at("2026-11-21T10:00:00Z"));
    let offsets = |schedule| {
        let records = t.records(schedule);
        records.iter().map(|r| r.decided_at.since(r.first).as_millis()).collect::<Vec<_>>()
    };
    let (stable, random) = (offsets(stable), offsets(random));
    assert!(stable.windows(2).all(|pair| pair[0] == pair[1]) && stable[0] > 0, "{stable:?}");
    assert!(random.windows(2).any(|pair| pair[0] != pair[1]), "{random:?}");
    assert!(stable.iter().chain(&random).all(|&millis| millis <= 300_000));
}

/// B5, B6. Scheduled times that a filter holds are recorded too, in ranges.
#[test]
fn excluded_scheduled_times_are_recorded_and_not_run() {
    let mut t = Scenario::new();
    let window = model::timing::Window { from: "08:00".into(), until: "08:10".into(), weekdays: vec![] };
    let schedule = t
        .schedule("s")
        .cron("*/5 * * * *")
        .overlap(OverlapPolicy::AllowAll)
        .spec(|s| s.timing.exclude.push(Filter::Window(window)))
        .apply();
    t.until(at("2026-11-21T08:16:00Z"));
    insta::assert_snapshot!(t.ledger(schedule), @"
    08:05:00 skipped_window (timer)
    08:10:00 fired (timer)
    08:15:00 fired (timer)
    ");
}

fn holiday(dates: &str) -> CalendarSpec {
    CalendarSpec {
        known_until: None,
        name: "holidays".into(),
        namespace: "default".into(),
        owner: None,
        labels: Default::default(),
        description: None,
        steps: vec![CalendarStep::Include(Days::Dates(vec![dates.parse().unwrap()]))],
    }
}

/// B5.
#[test]
fn a_changed_calendar_applies_to_later_firings() {
    let mut t = Scenario::new();
    let set = |t: &mut Scenario, dates| {
        let spec = Box::new(holiday(dates));
        t.request(ScheduleRequest::SetCalendar { spec, expected_version: None })
    };
    set(&mut t, "2026-11-22").unwrap();
    let schedule = t
        .schedule("s")
        .cron("0 12 * * *")
        .overlap(OverlapPolicy::AllowAll)
        .spec(|s| s.timing.exclude.push(Filter::Calendar("holidays".into())))
        .apply();
    t.until(at("2026-11-22T13:00:00Z"));
    let refused = t.request(ScheduleRequest::RemoveCalendar {
        namespace: "default".into(),
        name: "holidays".into(),
        expected_version: None,
    });
    assert!(matches!(refused, Err(Refusal::CalendarInUse { .. })), "{refused:?}");
    set(&mut t, "2026-11-24").unwrap();
    t.restart();
    t.until(at("2026-11-24T13:00:00Z"));
    let days: Vec<_> = t.records(schedule).iter().map(|r| (r.first.to_string(), r.outcome)).collect();
    let day = |day: u32| format!("2026-11-{day}T12:00:00Z");
    assert_eq!(
        days,
        [
            (day(21), FiringOutcome::Fired),
            (day(22), FiringOutcome::SkippedCalendar),
            (day(23), FiringOutcome::Fired),
            (day(24), FiringOutcome::SkippedCalendar),
        ]
    );
}

/// A schedule that names an unknown calendar is refused with the path of the field.
#[test]
fn an_unknown_calendar_is_refused_with_its_path() {
    let mut t = Scenario::new();
    let refused = t
        .schedule("s")
        .cron("0 12 * * *")
        .spec(|s| s.timing.exclude.push(Filter::Calendar("nowhere".into())))
        .try_apply();
    match refused {
        Err(Refusal::InvalidTiming { index: 0, problems }) => {
            assert!(problems[0].path.starts_with("timing.exclude[0]"), "{problems:?}");
        }
        other => panic!("{other:?}"),
    }
    assert!(t.rows.schedules.is_empty());
}

/// B5. A new generation owes nothing before its start; earlier scheduled times are decided by the old one.
#[test]
fn a_changed_schedule_follows_its_new_rules_from_now_on() {
    let mut t = Scenario::new();
    let schedule = t.schedule("s").cron("*/10 * * * *").overlap(OverlapPolicy::AllowAll).apply();
    t.until(at("2026-11-21T08:15:00Z"));
    let same = t.schedule("s").cron("*/10 * * * *").overlap(OverlapPolicy::AllowAll).change();
    assert_eq!(same, ApplyChange::Unchanged);
    let changed = t.schedule("s").cron("*/7 * * * *").overlap(OverlapPolicy::AllowAll).change();
    assert_eq!(changed, ApplyChange::Changed);
    t.until(at("2026-11-21T08:25:00Z"));
    insta::assert_snapshot!(t.ledger(schedule), @"
    08:10:00 fired (timer)
    08:21:00 fired (timer)
    ");
    assert_eq!(t.schedule_state(schedule).generation, 2);
}

/// ETags prevent lost updates.
#[test]
fn schedule_changes_only_with_the_expected_version() {
    let mut t = Scenario::new();
    t.schedule("s").cron("0 0 * * *").apply();
    let again = t.schedule("s").cron("0 1 * * *").expect(Expected::Absent).try_apply();
    assert!(matches!(again, Err(Refusal::ScheduleExists { .. })), "{again:?}");
    let stale = t.schedule("s").cron("0 1 * * *").expect(Expected::Version(7)).try_apply();
    assert_eq!(stale.unwrap_err(), Refusal::VersionMismatch { expected: 7, found: 1 });
    t.schedule("s").cron("0 1 * * *").expect(Expected::Version(1)).apply();
}

/// A deleted schedule no longer fires; its runs continue; its name can be reused.
#[test]
fn a_deleted_schedule_does_not_fire_and_keeps_its_runs_and_ledger() {
    let mut t = Scenario::new();
    t.worker().join();
    let schedule = t.schedule("s").cron("* * * * *").apply();
    t.pass(61);
    t.delete(schedule);
    t.pass(120);
    assert_eq!((t.runs(schedule).len(), t.open_runs(schedule).len()), (1, 1));
    t.succeed_all(schedule);
    assert_eq!(t.ledger(schedule), "08:01:00 fired (timer)");
    let again = t.schedule("s").cron("* * * * *").apply();
    assert_ne!(again, schedule);
}

/// B6.
#[test]
fn a_schedule_pauses_itself_after_failures_in_a_row() {
    let mut t = Scenario::new();
    t.worker().join();
    let schedule = t.schedule("s").cron("* * * * *").spec(|s| s.pause_after_failures = Some(2)).apply();
    for _ in 0..2 {
        t.pass(60);
        let run = t.open_runs(schedule)[0];
        t.fail(run, 1);
    }
    let state = t.schedule_state(schedule);
    assert_eq!(state.status, ScheduleStatus::Paused);
    assert_eq!(state.pause.as_ref().unwrap().note.as_deref(), Some("2 consecutive failed runs"));
    let track = state.statistics.as_ref().unwrap();
    assert_eq!((track.failed, track.streak), (2, -2));
    t.resume(schedule);
    t.pass(60);
    t.succeed_all(schedule);
    let track = t.schedule_state(schedule).statistics.clone().unwrap();
    assert_eq!((track.succeeded, track.streak, track.durations.len()), (1, 1, 1));
}

/// B3. A job that cannot start before its deadline is recorded as missed.
#[test]
fn a_firing_whose_job_cannot_start_in_time_is_recorded_as_missed() {
    let mut t = Scenario::new();
    let schedule = t.schedule("s").cron("*/10 * * * *").spec(|s| s.start_deadline = Some(minutes(2))).apply();
    t.until(at("2026-11-21T08:13:00Z"));
    assert_eq!(t.run_status(schedule), [JobStatus::Expired]);
    insta::assert_snapshot!(t.ledger(schedule), @"08:10:00 skipped_deadline (timer)");
}

/// B8. In a full cluster, freed capacity is reserved for the schedule.
#[test]
fn reservation_precedes_waiting_jobs() {
    let mut t = Scenario::new();
    t.worker().cpu(1_000).join();
    let running = t.job().cpu(1_000).submit();
    let schedule = t
        .schedule("payroll")
        .cron("0 * * * *")
        .spec(|s| {
            s.reserve_ahead = Some(minutes(10));
            s.job_mut().unwrap().resources.cpu = Some(model::Millicores(1_000));
        })
        .apply();
    let waiting = t.job().cpu(500).priority(100).submit();
    t.pass(55 * 60);
    t.succeed(running);
    assert_eq!(t.status(waiting), JobStatus::Waiting);
    let why = t.why(waiting);
    let reserved = why.iter().any(|reason| match reason {
        Reason::NoEligibleWorker { workers, .. } => workers[0].failed_filters.iter().any(
            |m| matches!(m.known(), Some(FailedFilter::Reserved { schedule, .. }) if schedule == "payroll"),
        ),
        _ => false,
    });
    assert!(reserved, "{why:?}");
    assert_eq!(t.engine.view().workers[0].reservations[0].schedule.as_deref(), Some("payroll"));
    t.pass(5 * 60 - 1);
    t.now = t.now + Duration::from_secs(1);
    let flushes = t.flushes;
    t.flush();
    assert_eq!(t.flushes, flushes + 1, "nothing is left to do after the placement");
    assert_eq!(t.run_status(schedule), [JobStatus::Running]);
    let reservations = &t.engine.view().workers[0].reservations;
    assert!(reservations.iter().all(|kept| kept.schedule.is_none()), "{reservations:?}");
    t.succeed_all(schedule);
    assert_eq!(t.status(waiting), JobStatus::Running, "the capacity is free for other jobs again");
}

/// B8. The reservation of a skipped firing is released.
#[test]
fn skipped_firing_releases_its_reservation() {
    let mut t = Scenario::new();
    t.worker().cpu(1_000).join();
    let schedule = t
        .schedule("s")
        .cron("0 * * * *")
        .spec(|s| {
            s.reserve_ahead = Some(minutes(10));
            s.job_mut().unwrap().resources.cpu = Some(model::Millicores(1_000));
        })
        .apply();
    t.pass(52 * 60);
    assert_eq!(t.engine.view().workers[0].reservations.len(), 1);
    let waiting = t.job().cpu(1_000).submit();
    t.pause(schedule);
    assert_eq!(t.status(waiting), JobStatus::Running);
}

/// Rule 8 of the design. The clock leaps ahead: an outage, not a thousand due minutes. The clock is set back:
/// nothing fires twice.
#[test]
fn a_forward_clock_leap_is_an_outage_and_a_step_back_repeats_nothing() {
    let mut t = Scenario::new();
    let schedule = t.schedule("s").cron("* * * * *").overlap(OverlapPolicy::AllowAll).apply();
    t.until(at("2026-11-21T08:01:00Z"));
    t.now = at("2026-11-21T10:00:30Z");
    t.flush();
    t.now = at("2026-11-21T08:01:30Z");
    t.flush();
    t.until(at("2026-11-21T10:01:00Z"));
    insta::assert_snapshot!(t.ledger(schedule), @"
    08:01:00 fired (timer)
    08:02:00..09:59:00 x118 coalesced (catch_up)
    10:00:00 fired_late (catch_up)
    10:01:00 fired (timer)
    ");
}

/// An outage of years is decided in bounded batches.
#[test]
fn an_outage_of_years_is_recorded_in_one_bounded_row() {
    let mut t = Scenario::new();
    let every = Every { period: Duration::from_secs(1), phase: Duration::ZERO };
    let schedule = t.schedule("s").rule(Rule::Every(every)).overlap(OverlapPolicy::AllowAll).apply();
    t.outage(Duration::from_hours(24 * 300));
    let records = t.records(schedule);
    assert_eq!((records[0].outcome, records[0].exact), (FiringOutcome::Coalesced, false));
    assert_eq!((records[1].outcome, records[1].cause), (FiringOutcome::FiredLate, FiringCause::CatchUp));
    assert_eq!(t.now.since(records[1].first), Duration::from_secs(11));
    // A firing that is late by less than the threshold is not missed.
    assert!(records[2..].iter().all(|record| record.outcome.fired() && record.cause == FiringCause::Timer));
    assert_eq!(records.len(), 2 + 11);
}

/// B5. Buffered firings count towards the maximum number of firings.
#[test]
fn buffered_firings_count_towards_max_firings() {
    let mut t = Scenario::new();
    let schedule = t
        .schedule("s")
        .cron("* * * * *")
        .overlap(OverlapPolicy::BufferAll)
        .spec(|s| s.max_firings = Some(2))
        .apply();
    t.until(at("2026-11-21T08:05:00Z"));
    t.restart();
    let first = t.runs(schedule)[0];
    t.cancel(first).unwrap();
    t.until(at("2026-11-21T08:10:00Z"));
    assert_eq!(t.runs(schedule).len(), 2);
    assert_eq!(t.schedule_state(schedule).status, ScheduleStatus::Completed);
}

/// B3. A new job with the same timing keeps the owed firings.
#[test]
fn job_change_keeps_owed_firings() {
    let mut t = Scenario::new();
    let apply = |t: &mut Scenario, priority| {
        t.schedule("s")
            .cron("*/10 * * * *")
            .overlap(OverlapPolicy::AllowAll)
            .missed(MissedPolicy::FireAll)
            .spec(|s| {
                s.missed.catch_up_per_minute = Some(1);
                s.job_mut().unwrap().priority = priority;
            })
            .apply()
    };
    let schedule = apply(&mut t, 1);
    t.outage(minutes(35));
    apply(&mut t, 2);
    t.until(t.now + minutes(4));
    assert_eq!(t.ledger(schedule).matches("fired_late").count(), 3);
    let priorities: Vec<u8> = t.runs(schedule).iter().map(|run| t.rows.jobs[run].0.spec.priority).collect();
    assert_eq!(priorities, [1, 2, 2]);
}

/// Rule 11 of the design. However large the backlog, a batch stays small enough to commit.
#[test]
fn large_backlog_is_decided_in_bounded_batches() {
    let mut t = Scenario::new();
    let every = Every { period: Duration::from_secs(1), phase: Duration::ZERO };
    let rule = Rule::Every(every);
    for name in ["a", "b"] {
        t.schedule(name)
            .rule(rule.clone())
            .overlap(OverlapPolicy::AllowAll)
            .missed(MissedPolicy::FireAll)
            .spec(|s| s.missed.limit = 10_000)
            .apply();
    }
    t.now = t.now + Duration::from_hours(2);
    let output = t.engine.flush(t.now);
    let jobs = output.batch.changes.iter().filter(|c| matches!(c, model::record::Change::Job { .. })).count();
    assert!((1..=10_000).contains(&jobs), "{jobs} jobs in one batch");
    assert!(!t.engine.is_idle());
}
