//! Comparison of rates with a roll, and of rules with seconds, with a scan.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::civil::Date;
use jiff::{Timestamp as Instant, ToSpan as _};
use model::Duration;
use model::timing::{Every, Fold, Roll, RollTo, Rule, Timing};
use timetable::{BuiltinCalendars, Calendars, Timetable};

use crate::common::{ZONES, at, between, compile, cron, timing};
use crate::draw::is_workday;
use crate::oracle::Workdays;

fn moved(date: Date, to: RollTo) -> Date {
    let step = if to == RollTo::Next { 1 } else { -1 };
    (0..60).map(|n| date + (n * step).days()).find(|date| is_workday(*date)).unwrap()
}

/// B1, B5. In these time zones, clocks change on Sundays, so the roll moves no time into a gap.
#[test]
fn a_rate_is_moved_as_a_scan_moves_it() {
    let calendars = Workdays::new();
    for (zone, seconds, to) in [
        ("UTC", 86_400, RollTo::Next),
        ("Europe/Berlin", 1_800, RollTo::Next),
        ("Europe/Berlin", 1_800, RollTo::Previous),
        ("America/St_Johns", 5_400, RollTo::Previous),
        ("America/New_York", 11 * 3_600, RollTo::Next),
        ("Australia/Lord_Howe", 40 * 86_400, RollTo::Next),
        ("Australia/Lord_Howe", 61 * 3_600, RollTo::Previous),
    ] {
        let every = Rule::Every(Every {
            period: Duration::from_secs(seconds as u64),
            phase: Duration::from_secs(600),
        });
        let roll = Some(Roll { to, calendar: "workdays".into() });
        let timing = Timing { roll, ..timing([every], zone) };
        let timetable = Timetable::compile(&timing, 0, &ZONES, &calendars as &dyn Calendars).unwrap();
        let tz = ZONES.get(zone).unwrap();
        for (begin, days) in
            [("2026-03-20T11:00:00Z", 30), ("2026-10-01T00:00:00Z", 40), ("2026-12-15T05:00:00Z", 400)]
        {
            let begin: Instant = begin.parse().unwrap();
            let end = begin + (days * 24).hours();
            let first = (begin.as_second() - 20 * 86_400).div_euclid(seconds) * seconds + 600;
            let expected: BTreeSet<model::Timestamp> = (first..end.as_second() + 20 * 86_400)
                .step_by(seconds as usize)
                .map(|second| Instant::from_second(second).unwrap())
                .map(|instant| {
                    let local = tz.to_datetime(instant);
                    let target = moved(local.date(), to);
                    if target == local.date() {
                        return instant;
                    }
                    tz.to_ambiguous_timestamp(target.to_datetime(local.time())).earlier().unwrap()
                })
                .filter(|instant| begin < *instant && *instant <= end)
                .map(Into::into)
                .collect();
            let found = between(&timetable, begin.into(), end.into());
            assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{timing:?}");
        }
    }
}

/// B1. Compares every second around clock changes.
#[test]
fn seconds_follow_the_local_clock() {
    for (zone, change) in [
        ("Europe/Berlin", "2026-03-29T01:00:00Z"),
        ("Europe/Berlin", "2026-10-25T01:00:00Z"),
        ("Australia/Lord_Howe", "2026-04-04T15:00:00Z"),
        ("Pacific/Apia", "2011-12-30T10:00:00Z"),
    ] {
        let tz = ZONES.get(zone).unwrap();
        let change: Instant = change.parse().unwrap();
        let (begin, end) = (change - 3.hours(), change + 3.hours());
        for (expression, seconds, minutes) in
            [("*/7 * * * * *", 0..60, 0..60), ("3-50/11 20-40 * * * *", 3..51, 20..41)]
        {
            let step = if seconds.start == 0 { 7 } else { 11 };
            for overlap in [Fold::First, Fold::Both] {
                let mut timing = cron(expression, zone);
                timing.dst.overlap = Some(overlap);
                let expected: Vec<model::Timestamp> = (begin.as_second() + 1..=end.as_second())
                    .map(|second| Instant::from_second(second).unwrap())
                    .filter(|instant| {
                        let local = tz.to_datetime(*instant);
                        let first = tz.to_ambiguous_timestamp(local).earlier().unwrap() == *instant;
                        seconds.contains(&local.second())
                            && (local.second() - seconds.start) % step == 0
                            && minutes.contains(&local.minute())
                            && (first || overlap == Fold::Both)
                    })
                    .map(Into::into)
                    .collect();
                assert_eq!(
                    between(&compile(&timing), begin.into(), end.into()),
                    expected,
                    "{expression} in {zone}"
                );
            }
        }
    }
}

/// B5. With a calendar whose last working day is long past, the search ends within a bound.
#[test]
fn nothing_is_moved_where_no_day_is_a_working_day() {
    struct NoDays(Arc<timetable::DaySet>);
    impl Calendars for NoDays {
        fn days(&self, _name: &str) -> Option<Arc<timetable::DaySet>> {
            Some(Arc::clone(&self.0))
        }
    }
    let spec = serde_json::from_value(
        serde_json::json!({ "name": "none", "steps": [{ "include": { "dates": ["1990-01-01"] } }] }),
    )
    .unwrap();
    let none = NoDays(Arc::new(timetable::DaySet::compile(&spec, &BuiltinCalendars).unwrap()));
    let every = Rule::Every(Every { period: Duration::from_secs(60), phase: Duration::ZERO });
    for to in [RollTo::Next, RollTo::Previous] {
        for rule in
            [every.clone(), Rule::At("2026-12-01T00:00:00Z".into()), cron("* * * * *", "UTC").rules.remove(0)]
        {
            let timing = Timing {
                roll: Some(Roll { to, calendar: "none".into() }),
                ..timing([rule], "Europe/Berlin")
            };
            let timetable = Timetable::compile(&timing, 0, &ZONES, &none).unwrap();
            assert_eq!(timetable.step(at("2026-11-21T00:00:00Z")), None, "{timing:?}");
        }
    }
}
