//! Comparison of random rules with an oracle.
//!
//! The oracle shares only the offsets of jiff with the product. It scans every minute, evaluates a predicate, and finds
//! gaps and overlaps by comparing consecutive local times.
//!
//! Each rule is generated as a text and as a predicate, so the comparison also finds parser errors.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp as Instant, ToSpan as _};
use model::calendar::CalendarSpec;
use model::timing::{Fold, Gap};
use timetable::{BuiltinCalendars, Calendars, DaySet, Timetable};

use crate::common::{ZONES, between};
use crate::draw::{Draw, DrawnRule};

/// Time zones with all kinds of clock changes, and some without clock changes.
const NAMES: [&str; 44] = [
    "UTC",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Africa/El_Aaiun",
    "Africa/Johannesburg",
    "America/Adak",
    "America/Anchorage",
    "America/Asuncion",
    "America/Caracas",
    "America/Chicago",
    "America/Godthab",
    "America/Havana",
    "America/Los_Angeles",
    "America/Mexico_City",
    "America/New_York",
    "America/Phoenix",
    "America/Santiago",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Antarctica/Troll",
    "Asia/Amman",
    "Asia/Beirut",
    "Asia/Dhaka",
    "Asia/Gaza",
    "Asia/Jerusalem",
    "Asia/Kathmandu",
    "Asia/Kolkata",
    "Asia/Pyongyang",
    "Asia/Shanghai",
    "Asia/Tehran",
    "Asia/Tokyo",
    "Atlantic/Azores",
    "Australia/Adelaide",
    "Australia/Lord_Howe",
    "Australia/Sydney",
    "Europe/Berlin",
    "Europe/Dublin",
    "Europe/Istanbul",
    "Europe/London",
    "Europe/Moscow",
    "Pacific/Apia",
    "Pacific/Auckland",
    "Pacific/Chatham",
    "Pacific/Kiritimati",
];

/// Number of random rules for each time zone (1,056 in total), and of rules with filters or a roll.
const RULES: u64 = 24;
const FILTERED_RULES: u64 = 12;

/// A minute, with its local date and minute of the day.
struct Moment {
    at: Instant,
    date: Date,
    minute: usize,
    /// Whether this is the first occurrence of the local time.
    first: bool,
    /// Local dates and minutes that a clock change skipped directly before.
    skipped: Vec<(Date, usize)>,
}

/// Returns critical periods of at least ten years (clock changes, new years, ends of February), and some random ones.
fn stretches(zone: &TimeZone, draw: &mut Draw) -> Vec<(Instant, Instant)> {
    let mut stretches = Vec::new();
    let instant =
        |date: Date| TimeZone::UTC.to_timestamp(date.to_datetime(jiff::civil::Time::midnight())).unwrap();
    let first_year =
        if zone.iana_name() == Some("Pacific/Apia") { 2006 } else { draw.between(1985, 2035) as i16 };
    let mut hour = instant(jiff::civil::date(first_year, 1, 1));
    let end = instant(jiff::civil::date(first_year + 11, 1, 1));
    while hour < end {
        let next = hour + 1.hour();
        if zone.to_offset(hour) != zone.to_offset(next) {
            stretches.push((hour - 8.hours(), hour + 8.hours()));
        }
        hour = next;
    }
    for year in (first_year..first_year + 11).chain([2099, 2100, 2400]) {
        let new_year = instant(jiff::civil::date(year, 1, 1));
        stretches.push((new_year - 6.hours(), new_year + 6.hours()));
        let march = instant(jiff::civil::date(year, 3, 1));
        stretches.push((march - 30.hours(), march + 6.hours()));
    }
    for _ in 0..3 {
        let begin = instant(jiff::civil::date(first_year, 1, 1)) + (draw.below(11 * 8_766) as i64).hours();
        stretches.push((begin, begin + (5 * 24).hours()));
    }
    stretches
}

fn moments(zone: &TimeZone, (begin, end): (Instant, Instant)) -> Vec<Moment> {
    let wall = |at: Instant| zone.to_datetime(at);
    let minute = |t: jiff::civil::DateTime| t.hour() as usize * 60 + t.minute() as usize;
    let mut moments = Vec::new();
    let mut at = begin;
    while at < end {
        let local = wall(at);
        let mut skipped = Vec::new();
        let mut missing = wall(at - 1.minute()) + 1.minute();
        while missing < local {
            skipped.push((missing.date(), minute(missing)));
            missing += 1.minute();
        }
        let first = zone.to_ambiguous_timestamp(local).earlier().unwrap() == at;
        moments.push(Moment { at, date: local.date(), minute: minute(local), first, skipped });
        at += 1.minute();
    }
    moments
}

/// Returns the expected firings, by the predicates of the rule.
fn expected(rule: &DrawnRule, moments: &[Moment]) -> Vec<model::Timestamp> {
    let matches = |date: Date, minute: usize| rule.minutes[minute] && (rule.day)(date);
    let fires = |moment: &&Moment| {
        let on_the_wall = (moment.first || rule.overlap == Fold::Both) && matches(moment.date, moment.minute);
        let after_a_gap =
            rule.gap == Gap::Shift && moment.skipped.iter().any(|(date, minute)| matches(*date, *minute));
        (on_the_wall || after_a_gap) && (rule.passes)(moment.date, moment.minute)
    };
    moments.iter().filter(fires).map(|moment| moment.at.into()).collect()
}

fn check(rule: &DrawnRule, all: &[Vec<Moment>], zone: &str, calendars: &dyn Calendars) -> usize {
    let mut fired = 0;
    let mut timing = rule.timing.clone();
    for moments in all {
        let second = |at: Instant| model::Timestamp::from(at - 1.second());
        let (begin, end) = (moments[0].at, moments[moments.len() - 1].at + 1.minute());
        // Without an end, filters that exclude everything would cause a search to its bound in each period.
        timing.end = Some(end.into());
        let timetable = Timetable::compile(&timing, 0, &ZONES, calendars)
            .unwrap_or_else(|problems| panic!("{timing:?}: {problems:?}"));
        let found = between(&timetable, second(begin), second(end));
        let expected = expected(rule, moments);
        if found != expected {
            let found: BTreeSet<_> = found.into_iter().collect();
            let expected: BTreeSet<_> = expected.into_iter().collect();
            let missing: Vec<_> = expected.difference(&found).take(5).collect();
            let extra: Vec<_> = found.difference(&expected).take(5).collect();
            panic!("in {zone}: missing {missing:?}, extra {extra:?} of {:#?}", rule.timing);
        }
        fired += found.len();
    }
    fired
}

/// Compares random rules in a quarter of the time zones; `share` is 0 to 3.
fn agree(share: usize, rules: u64, draw_rule: impl Fn(&mut Draw) -> DrawnRule, calendars: &dyn Calendars) {
    let mut fired = 0;
    for (i, name) in NAMES.iter().enumerate().filter(|(i, _)| i % 4 == share) {
        let zone = ZONES.get(name).unwrap();
        let mut draw = Draw::new(i as u64);
        let all: Vec<Vec<Moment>> =
            stretches(&zone, &mut draw).into_iter().map(|stretch| moments(&zone, stretch)).collect();
        for _ in 0..rules {
            let mut rule = draw_rule(&mut draw);
            rule.timing.zone = (*name).to_owned();
            fired += check(&rule, &all, name, calendars);
        }
    }
    assert!(fired > 10_000, "only {fired} firings were compared");
}

/// Calendar of the working days of [`crate::draw::is_workday`].
pub(crate) struct Workdays(Arc<DaySet>);

impl Workdays {
    pub(crate) fn new() -> Self {
        let spec: CalendarSpec = serde_json::from_value(serde_json::json!({
            "name": "workdays",
            "steps": [
                { "include": { "weekdays": ["mon", "tue", "wed", "thu", "fri"] } },
                { "exclude": { "yearly": ["01-01", "05-01", "12-25", "12-26", "12-31"] } },
            ],
        }))
        .unwrap();
        Self(Arc::new(DaySet::compile(&spec, &BuiltinCalendars).unwrap()))
    }
}

impl Calendars for Workdays {
    fn days(&self, name: &str) -> Option<Arc<DaySet>> {
        (name == "workdays").then(|| Arc::clone(&self.0))
    }
}

fn any_rule(draw: &mut Draw) -> DrawnRule {
    match draw.below(4) {
        0 => DrawnRule::quartz(draw),
        1 => DrawnRule::calendar(draw),
        _ => DrawnRule::vixie(draw),
    }
}

fn any_timing(draw: &mut Draw) -> DrawnRule {
    let rule = any_rule(draw);
    match draw.below(3) {
        0 => rule.filtered(draw),
        1 => rule.rolled(draw),
        _ => rule.rolled(draw).filtered(draw),
    }
}

/// B1. A quarter of the zones, so that the quarters run beside each other.
#[test]
fn rules_fire_as_in_a_scan_1() {
    agree(0, RULES, any_rule, &BuiltinCalendars);
}

/// B1, B5.
#[test]
fn filtered_and_rolled_rules_fire_as_in_a_scan_1() {
    agree(0, FILTERED_RULES, any_timing, &Workdays::new());
}

/// B1. A quarter of the zones, so that the quarters run beside each other.
#[test]
fn rules_fire_as_in_a_scan_2() {
    agree(1, RULES, any_rule, &BuiltinCalendars);
}

/// B1, B5.
#[test]
fn filtered_and_rolled_rules_fire_as_in_a_scan_2() {
    agree(1, FILTERED_RULES, any_timing, &Workdays::new());
}

/// B1. A quarter of the zones, so that the quarters run beside each other.
#[test]
fn rules_fire_as_in_a_scan_3() {
    agree(2, RULES, any_rule, &BuiltinCalendars);
}

/// B1, B5.
#[test]
fn filtered_and_rolled_rules_fire_as_in_a_scan_3() {
    agree(2, FILTERED_RULES, any_timing, &Workdays::new());
}

/// B1. A quarter of the zones, so that the quarters run beside each other.
#[test]
fn rules_fire_as_in_a_scan_4() {
    agree(3, RULES, any_rule, &BuiltinCalendars);
}

/// B1, B5.
#[test]
fn filtered_and_rolled_rules_fire_as_in_a_scan_4() {
    agree(3, FILTERED_RULES, any_timing, &Workdays::new());
}
