//! Examples of expressions, rules, filters and clock changes, with their firings.
//!
//! Each test shows the first firings of a timing, mostly around a change of the clocks in Berlin in 2026.
//! They are meant to be read: a question such as "does a job at 02:30 run in the night of the change?" has
//! its answer here.
//!
//! `oracle` compares random timings with a slow, independent evaluation; `golden` and `croner` compare with
//! other programs. The values of `hashed_times_never_change` are part of the interface.

use model::Duration;
use model::timing::{Dst, Every, Filter, Fold, Gap, Rule, Timing, Weekday, Window};
use timetable::{FilterKind, Next, Timetable};

use crate::common::{at, between, compile, cron, preview, quartz, timing};

const BEFORE_SPRING: &str = "2026-03-28T12:00:00Z";
const BEFORE_AUTUMN: &str = "2026-10-24T12:00:00Z";

/// B1.
#[test]
fn a_fixed_time_in_the_gap_fires_at_its_end_and_in_the_overlap_once() {
    let timing = cron("30 2 * * *", "Europe/Berlin");
    insta::assert_snapshot!(preview(&timing, BEFORE_SPRING, 2), @r"
    2026-03-29T03:00:00+02:00 * gap_shifted
    2026-03-30T02:30:00+02:00
    ");
    insta::assert_snapshot!(preview(&timing, BEFORE_AUTUMN, 2), @r"
    2026-10-25T02:30:00+02:00 * overlap_first
    2026-10-26T02:30:00+01:00
    ");
}

/// B1.
#[test]
fn a_repeating_time_follows_the_local_clock() {
    let timing = cron("*/30 * * * *", "Europe/Berlin");
    insta::assert_snapshot!(preview(&timing, "2026-03-29T00:29:00Z", 3), @r"
    2026-03-29T01:30:00+01:00 *
    2026-03-29T03:00:00+02:00 *
    2026-03-29T03:30:00+02:00 *
    ");
    insta::assert_snapshot!(preview(&timing, "2026-10-24T23:59:00Z", 5), @r"
    2026-10-25T02:00:00+02:00 * overlap_first
    2026-10-25T02:30:00+02:00 * overlap_first
    2026-10-25T02:00:00+01:00 * overlap_second
    2026-10-25T02:30:00+01:00 * overlap_second
    2026-10-25T03:00:00+01:00 *
    ");
}

/// B1.
#[test]
fn the_dst_policy_of_the_timing_applies() {
    let mut fixed = cron("15,45 2 * * *", "Europe/Berlin");
    fixed.dst = Dst { gap: Some(Gap::Skip), overlap: Some(Fold::Both) };
    insta::assert_snapshot!(preview(&fixed, BEFORE_SPRING, 2), @r"
    2026-03-30T02:15:00+02:00
    2026-03-30T02:45:00+02:00
    ");
    insta::assert_snapshot!(preview(&fixed, BEFORE_AUTUMN, 5), @r"
    2026-10-25T02:15:00+02:00 * overlap_first
    2026-10-25T02:45:00+02:00 * overlap_first
    2026-10-25T02:15:00+01:00 * overlap_second
    2026-10-25T02:45:00+01:00 * overlap_second
    2026-10-26T02:15:00+01:00
    ");
    let mut repeating = cron("*/30 * * * *", "Europe/Berlin");
    repeating.dst = Dst { gap: Some(Gap::Shift), overlap: Some(Fold::First) };
    insta::assert_snapshot!(preview(&repeating, "2026-10-24T23:59:00Z", 5), @r"
    2026-10-25T02:00:00+02:00 * overlap_first
    2026-10-25T02:30:00+02:00 * overlap_first
    2026-10-25T03:00:00+01:00 *
    2026-10-25T03:30:00+01:00 *
    2026-10-25T04:00:00+01:00 *
    ");
    let at_a_gap = |gap| Timing {
        dst: Dst { gap: Some(gap), overlap: None },
        ..timing([Rule::At("2026-03-29T02:30".into())], "Europe/Berlin")
    };
    insta::assert_snapshot!(preview(&at_a_gap(Gap::Shift), BEFORE_SPRING, 2), @"2026-03-29T03:00:00+02:00 * gap_shifted");
    insta::assert_snapshot!(preview(&at_a_gap(Gap::Skip), BEFORE_SPRING, 2), @"");
}

/// B1. Samoa changed to the other side of the date line and had no 30 December 2011.
#[test]
fn a_missing_day_fires_at_its_end() {
    insta::assert_snapshot!(preview(&cron("0 9 * * *", "Pacific/Apia"), "2011-12-29T00:00:00Z", 4), @r"
    2011-12-29T09:00:00-10:00
    2011-12-31T00:00:00+14:00 * gap_shifted
    2011-12-31T09:00:00+14:00 *
    2012-01-01T09:00:00+14:00
    ");
}

/// B1.
#[test]
fn clock_changes_do_not_affect_a_rate() {
    let every = Rule::Every(Every { period: Duration::from_hours(6), phase: Duration::from_hours(1) });
    insta::assert_snapshot!(preview(&timing([every], "Europe/Berlin"), BEFORE_AUTUMN, 4), @r"
    2026-10-24T15:00:00+02:00
    2026-10-24T21:00:00+02:00
    2026-10-25T02:00:00+01:00 * overlap_second
    2026-10-25T08:00:00+01:00 *
    ");
    insta::assert_snapshot!(preview(&cron("@every 90m", "UTC"), BEFORE_AUTUMN, 2), @r"
    2026-10-24T13:30:00+00:00
    2026-10-24T15:00:00+00:00
    ");
}

/// B1.
#[test]
fn a_fixed_delay_has_no_scheduled_times() {
    let timetable = compile(&timing([Rule::After(Duration::from_secs(90))], "UTC"));
    assert_eq!(timetable.delay(), Some(Duration::from_secs(90)));
    assert_eq!(timetable.step(at(BEFORE_SPRING)), None);
    assert_eq!(timetable.next(at(BEFORE_SPRING)), Next::Never);
}

/// B1.
#[test]
fn a_single_time_is_exact_to_the_microsecond() {
    let timetable = compile(&timing([Rule::At("2026-12-01T09:00:00.25+08:00".into())], "Europe/Berlin"));
    assert_eq!(timetable.next(at(BEFORE_SPRING)), Next::At(at("2026-12-01T01:00:00.25Z")));
    assert_eq!(timetable.next(at("2026-12-01T01:00:00.25Z")), Next::Never);
}

/// B1. Two restricted day fields are alternatives, unless one begins with `*`.
#[test]
fn day_of_month_and_day_of_week_follow_crontab() {
    insta::assert_snapshot!(preview(&cron("0 0 13 * FRI", "UTC"), "2026-11-01T00:00:00Z", 4), @r"
    2026-11-06T00:00:00+00:00
    2026-11-13T00:00:00+00:00
    2026-11-20T00:00:00+00:00
    2026-11-27T00:00:00+00:00
    ");
    insta::assert_snapshot!(preview(&cron("0 0 */10 * FRI", "UTC"), "2026-11-01T00:00:00Z", 3), @r"
    2026-12-11T00:00:00+00:00
    2027-01-01T00:00:00+00:00
    2027-05-21T00:00:00+00:00
    ");
}

/// B1, H5.
#[test]
fn quartz_weeks_start_on_sunday_and_ranges_wrap_around() {
    insta::assert_snapshot!(preview(&quartz("0 0 2 ? * 1"), "2026-11-01T02:00:00Z", 2), @r"
    2026-11-08T02:00:00+00:00
    2026-11-15T02:00:00+00:00
    ");
    insta::assert_snapshot!(preview(&quartz("30 0 22-2/2 ? * FRI-MON"), "2026-11-20T12:00:00Z", 5), @r"
    2026-11-20T22:00:30+00:00
    2026-11-21T00:00:30+00:00
    2026-11-21T02:00:30+00:00
    2026-11-21T22:00:30+00:00
    2026-11-22T00:00:30+00:00
    ");
    insta::assert_snapshot!(preview(&quartz("0 0 12 L-3W * ? 2026-2027"), "2026-11-20T12:00:00Z", 3), @r"
    2026-11-27T12:00:00+00:00
    2026-12-28T12:00:00+00:00
    2027-01-28T12:00:00+00:00
    ");
}

/// B1.
#[test]
fn words_stand_for_fields() {
    for (word, fields) in [
        ("@yearly", "0 0 1 1 *"),
        ("@ANNUALLY", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        (" @midnight ", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
    ] {
        let zone = "America/New_York";
        assert_eq!(
            preview(&cron(word, zone), BEFORE_SPRING, 5),
            preview(&cron(fields, zone), BEFORE_SPRING, 5)
        );
    }
}

/// B1. These values are part of the interface: they must not change from release to release.
#[test]
fn hashed_times_never_change() {
    insta::assert_snapshot!(preview(&cron("H H(0-6) H * *", "UTC"), BEFORE_SPRING, 2), @r"
    2026-04-16T06:03:00+00:00
    2026-05-16T06:03:00+00:00
    ");
    insta::assert_snapshot!(preview(&cron("H/20 3 * * ~", "UTC"), BEFORE_SPRING, 4), @r"
    2026-03-30T03:03:00+00:00
    2026-03-30T03:23:00+00:00
    2026-03-30T03:43:00+00:00
    2026-04-06T03:03:00+00:00
    ");
    assert!(Timetable::is_seeded(&cron("0 0 5~20 * *", "UTC")));
    assert!(!Timetable::is_seeded(&cron("0 0 * * THU", "UTC")));
}

/// B5.
#[test]
fn an_excluded_time_is_returned_with_its_filter() {
    let mut timing = cron("0 9,20 * * *", "UTC");
    timing.only =
        vec![Filter::Window(Window { from: "08:00".into(), until: "18:00".into(), weekdays: vec![] })];
    timing.exclude = vec![
        Filter::Weekdays(vec![Weekday::Saturday, Weekday::Sunday]),
        Filter::Dates(vec!["2026-11-20".parse().unwrap()]),
    ];
    let timetable = compile(&timing);
    let held = |after: &str| timetable.step(at(after)).unwrap().held.unwrap();
    assert_eq!(timetable.step(at("2026-11-19T00:00:00Z")).unwrap().held, None);
    let evening = held("2026-11-19T10:00:00Z");
    assert_eq!((evening.by, &*evening.filter), (FilterKind::Window, "only[0]: window 08:00..18:00"));
    let friday = held("2026-11-20T00:00:00Z");
    assert_eq!((friday.by, &*friday.filter), (FilterKind::Calendar, "exclude[1]: dates 2026-11-20"));
    assert_eq!(&*held("2026-11-21T00:00:00Z").filter, "exclude[0]: weekdays sat,sun");
    assert_eq!(timetable.next(at("2026-11-19T09:00:00Z")), Next::At(at("2026-11-23T09:00:00Z")));
}

/// B5.
#[test]
fn start_and_end_are_inclusive() {
    let timing = Timing {
        start: Some(at("2026-11-20T09:00:00Z")),
        end: Some(at("2026-11-21T09:00:00Z")),
        ..cron("0 9 * * *", "UTC")
    };
    let found = between(&compile(&timing), at("2020-01-01T00:00:00Z"), at("2030-01-01T00:00:00Z"));
    assert_eq!(found, [at("2026-11-20T09:00:00Z"), at("2026-11-21T09:00:00Z")]);
}

/// B1. A time of several rules is one firing.
#[test]
fn rules_that_meet_make_one_firing() {
    let mut timing = cron("0 * * * *", "UTC");
    timing.rules.extend(cron("0,30 12 * * *", "UTC").rules);
    let firings = compile(&timing).preview(at("2026-11-21T11:30:00Z"), 3);
    let rules: Vec<_> = firings.iter().map(|firing| firing.rules.clone()).collect();
    assert_eq!(rules, [vec![0, 1], vec![1], vec![0]]);
}

/// B5. A cron filter without a field for seconds matches whole minutes.
#[test]
fn a_cron_filter_without_seconds_matches_whole_minutes() {
    let every = Rule::Every(Every { period: Duration::from_secs(30), phase: Duration::ZERO });
    let mut timing = timing([every], "UTC");
    timing.only = vec![Filter::Cron(model::timing::Cron::new("* 9 * * *"))];
    let table = compile(&timing);
    let hour = between(&table, at("2026-11-21T08:00:00Z"), at("2026-11-21T11:00:00Z"));
    assert_eq!(hour.len(), 120);
    timing.only = vec![Filter::Cron(model::timing::Cron::new("0 * 9 * * *"))];
    let seconds = between(&compile(&timing), at("2026-11-21T08:00:00Z"), at("2026-11-21T11:00:00Z"));
    assert_eq!(seconds.len(), 60);
}
