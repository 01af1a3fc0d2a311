//! Scheduled times of a forecast: the same as those of the engine.

use std::collections::BTreeMap;

use engine::{Config, Engine, Input, NewSchedule, ScheduleRequest, Ticket};
use forecast::{Note, PlanError, Schedule, forecast};
use model::calendar::{CalendarSpec, CalendarStep, Days};
use model::firing::{FiringOutcome, ScheduleHead, ScheduleStatus};
use model::id::Epoch;
use model::record::{Change, Lease};
use model::timing::{Filter, Rule};
use model::{ScheduleSpec, ShardId, Timestamp};

use crate::scenario::{Build as _, FROM, hours, minutes, schedule, secs, time};

#[test]
fn times_excluded_by_a_calendar_are_no_firings() {
    let mut spec = schedule("a", "0 9 * * *");
    spec.timing.only = vec![Filter::Calendar("working-days".into())];
    let mut plan = hours(24 * 7).worker("w1", 1).with(spec, minutes(1));
    plan.calendars.push(CalendarSpec {
        known_until: None,
        name: "working-days".into(),
        namespace: "default".into(),
        owner: None,
        labels: BTreeMap::new(),
        description: None,
        steps: vec![
            CalendarStep::Include(Days::All {}),
            CalendarStep::Exclude(Days::Dates(vec!["2026-11-25".parse().unwrap()])),
        ],
    });
    let answer = plan.answer();
    assert_eq!((answer.summary.firings, answer.summary.held), (6, 1));
    assert_eq!(answer.schedules[0].skipped, BTreeMap::from([(FiringOutcome::SkippedCalendar, 1)]));
    assert_eq!(answer.summary.skipped, BTreeMap::new(), "`skipped` omits times that a filter excludes");
}

#[test]
fn the_range_includes_its_start_but_not_its_end() {
    let answer = hours(2).worker("w1", 1).with(schedule("a", "0 * * * *"), minutes(1)).answer();
    assert_eq!(answer.summary.firings, 2, "at 0:00 and 1:00, and not at 2:00");
}

#[test]
fn paused_and_completed_schedules_do_not_fire() {
    let mut plan = hours(5).worker("w1", 1);
    let mut spent = schedule("spent", "0 * * * *");
    spent.max_firings = Some(10);
    plan.schedules = vec![
        Schedule { status: ScheduleStatus::Paused, ..schedule("paused", "0 * * * *").into() },
        Schedule { fired: 8, ..spent.into() },
    ];
    let answer = plan.answer();
    assert_eq!((answer.schedules[0].firings, answer.schedules[1].firings), (0, 2));
    assert_eq!(answer.schedules[0].skipped, BTreeMap::from([(FiringOutcome::SkippedPause, 5)]));
    assert_eq!(answer.summary.schedules, 1);
}

#[test]
fn a_schedule_whose_runs_fail_pauses_itself() {
    let mut spec = schedule("a", "0 * * * *");
    spec.pause_after_failures = Some(3);
    let mut plan = hours(8).worker("w1", 1).with(spec, minutes(1));
    plan.history.schedules.values_mut().for_each(|past| past.failed = 1.0);
    let answer = plan.answer();
    let line = &answer.schedules[0];
    assert_eq!((line.firings, line.failed), (3, 3));
    assert_eq!(line.paused_at, Some(time(FROM) + minutes(121)));
}

/// A fixed delay starts at the end of the last run.
#[test]
fn a_fixed_delay_starts_at_the_end_of_a_run() {
    let mut spec = schedule("a", "0 0 1 1 *");
    spec.timing.rules = vec![Rule::After(minutes(10))];
    let firings = |run_time| hours(2).worker("w1", 1).with(spec.clone(), run_time).answer().summary.firings;
    assert_eq!((firings(minutes(10)), firings(minutes(20))), (6, 4));
}

#[test]
fn an_unknown_run_time_is_assumed_and_noted() {
    let mut plan = hours(1).worker("w1", 1);
    plan.schedules = vec![schedule("a", "0 0 * * *").into()];
    let answer = plan.answer();
    assert_eq!((answer.schedules[0].busy, answer.schedules[0].assumed), (secs(60), true));
    assert_eq!(
        answer.notes,
        [Note::Assumed { names: 1, such_as: vec!["schedule default/a".into()], run_time: secs(60) }]
    );
}

#[test]
fn a_schedule_with_an_unknown_calendar_is_noted() {
    let mut spec = schedule("a", "0 9 * * *");
    spec.timing.only = vec![Filter::Calendar("nowhere".into())];
    let answer = hours(24).worker("w1", 1).with(spec, minutes(1)).answer();
    assert_eq!(answer.notes, [Note::Unusable { schedules: vec!["a".into()] }]);
    assert_eq!(answer.summary.firings, 0);
}

#[test]
fn an_invalid_plan_is_rejected() {
    let twice = hours(1).with(schedule("a", "@daily"), secs(1)).with(schedule("a", "@hourly"), secs(1));
    let refused = |plan| forecast(&plan, &mut |_| {}).unwrap_err().to_string();
    assert_eq!(refused(twice), "duplicate schedule `default/a`");
    assert!(matches!(forecast(&hours(0), &mut |_| {}), Err(PlanError::EmptyRange { .. })));
    let mut frozen = hours(1);
    frozen.options.slower = 0.0;
    assert!(matches!(forecast(&frozen, &mut |_| {}), Err(PlanError::Slower { .. })));
}

#[test]
fn a_forecast_of_too_many_runs_ends_early_with_a_note() {
    let mut plan = hours(24).worker("w1", 1).with(schedule("a", "* * * * *"), secs(1));
    plan.options.runs_max = 10;
    let answer = plan.answer();
    assert_eq!((answer.summary.firings, answer.until), (10, time(FROM) + minutes(9)));
    assert_eq!(answer.notes, [Note::Cut { at: answer.until, runs_max: 10 }]);
}

/// Returns the number of firings of an engine without the forecast.
fn fired_by_the_engine(specs: &[ScheduleSpec], from: Timestamp, until: Timestamp) -> u64 {
    let lease = Lease { shard: ShardId(0), epoch: Epoch(1) };
    let before = Timestamp::from_micros(from.as_micros() - 1);
    let mut engine = Engine::new(Config::default(), &[lease], 1, before);
    engine.start(before);
    let new = |spec: &ScheduleSpec| NewSchedule {
        head: ScheduleHead { spec: spec.clone().into(), body: serde_json::to_string(spec).unwrap().into() }
            .into(),
        expected: engine::Expected::Any,
    };
    let schedules = specs.iter().map(new).collect();
    let request = Box::new(ScheduleRequest::Apply { schedules });
    engine.handle(before, Input::Schedule { ticket: Ticket(1), request, actor: "test".into() });
    let (mut now, mut fired) = (before, 0);
    while now < until {
        for change in engine.flush(now).batch.changes {
            fired +=
                u64::from(matches!(change, Change::Ledger(line) if line.outcome == FiringOutcome::Fired));
        }
        now = engine.wakeup().unwrap_or(until).max(Timestamp::from_micros(now.as_micros() + 1));
    }
    fired
}

/// Compares different rules over a week with a clock change.
#[test]
fn a_forecast_has_the_firings_of_the_engine() {
    let (from, until) = (time("2026-10-22T00:00:00Z"), time("2026-10-29T00:00:00Z"));
    let mut specs = vec![
        schedule("cron", "*/7 1-3 * * *"),
        schedule("hashed", "H H(0-5) * * *"),
        schedule("rolled", "0 12 * * 1-5"),
        schedule("often", "@hourly"),
    ];
    specs[0].timing.zone = "Europe/Berlin".into();
    for spec in &mut specs {
        spec.overlap.policy = model::schedule::OverlapPolicy::AllowAll;
    }
    let mut plan = forecast::Plan::new(from, until).worker("w1", 4);
    for spec in &specs {
        plan = plan.with(spec.clone(), secs(30));
    }
    let wanted = fired_by_the_engine(&specs, from, until);
    assert!(wanted > 300, "{wanted}");
    assert_eq!(plan.answer().summary.firings, wanted);
}
