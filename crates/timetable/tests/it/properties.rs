//! Properties of all timings and of arbitrary texts.
//!
//! The first group draws timings from all kinds of rules and filters, and compares `next`, `last`, previews
//! and unions with each other. The second group passes arbitrary and almost valid expressions to the parser,
//! which must neither panic nor take long. The last test covers timings that never fire.
//!
//! `oracle` checks that firings are correct; this module checks that the functions agree, and that their cost
//! is bounded.

use std::time::{Duration as Elapsed, Instant};

use model::timing::{Cron, Dialect, Every, Filter, Rule, Timing, Window};
use model::{Duration, Timestamp};
use proptest::prelude::*;
use timetable::{BuiltinCalendars, Next, Timetable};

use crate::common::{ZONES, at, between, compile, cron, timing};
use crate::draw::{Draw, DrawnRule};

/// Generous for a debug build on a busy machine; an unbounded search takes far longer.
const TIME_LIMIT: Elapsed = Elapsed::from_secs(5);

fn zone() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just("UTC"),
        Just("Europe/Berlin"),
        Just("America/St_Johns"),
        Just("Pacific/Apia"),
        Just("Africa/Casablanca"),
        Just("Australia/Lord_Howe"),
    ]
}

/// Timings with one to three rules of all kinds.
fn any_timing() -> impl Strategy<Value = Timing> {
    let rule = (any::<u64>(), 0..6).prop_map(|(seed, kind)| {
        let mut draw = Draw::new(seed);
        let every = |millis: u64| Every {
            period: Duration::from_millis(millis),
            phase: Duration::from_millis(millis / 3),
        };
        match kind {
            0 => Rule::Every(every(60_000 + draw.below(900_000_000))),
            1 => Rule::At(format!("2026-{:02}-25T02:30", 1 + draw.below(12))),
            2 => DrawnRule::calendar(&mut draw).timing.rules.remove(0),
            3 => DrawnRule::quartz(&mut draw).timing.rules.remove(0),
            _ => DrawnRule::vixie(&mut draw).timing.rules.remove(0),
        }
    });
    let filters = any::<u64>().prop_map(|seed| {
        let mut timing = DrawnRule::vixie(&mut Draw::new(seed)).filtered(&mut Draw::new(seed)).timing;
        timing.only.retain(|filter| !matches!(filter, Filter::Calendar(_)));
        timing.exclude.retain(|filter| !matches!(filter, Filter::Calendar(_)));
        (timing.only, timing.exclude)
    });
    (proptest::collection::vec(rule, 1..4), zone(), filters, any::<bool>()).prop_map(
        |(rules, zone, filters, filtered)| {
            let mut made = timing(rules, zone);
            if filtered {
                (made.only, made.exclude) = filters;
            }
            made
        },
    )
}

/// Times from 2023 to 2030, in microseconds.
fn instant() -> impl Strategy<Value = Timestamp> {
    (1_700_000_000_i64..1_900_000_000, 0..1_000_000_i64)
        .prop_map(|(s, us)| Timestamp::from_micros(s * 1_000_000 + us))
}

/// Returns all scheduled times in `(after, until]`, excluded or not.
fn steps(timetable: &Timetable, after: Timestamp, until: Timestamp) -> Vec<timetable::ScheduledTime> {
    let mut found = Vec::new();
    let mut last = after;
    while let Some(step) = timetable.step(last).filter(|step| step.at <= until) {
        assert!(step.at > last);
        last = step.at;
        found.push(step);
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// B1, B5.
    #[test]
    fn next_returns_the_steps_that_no_filter_excludes(timing in any_timing(), after in instant()) {
        let timing = Timing { end: Some(after + Duration::from_hours(40)), ..timing };
        let timetable = compile(&timing);
        let until = after + Duration::from_hours(48);
        let free: Vec<_> = steps(&timetable, after, until).into_iter().filter(|s| s.held.is_none()).map(|s| s.at).collect();
        prop_assert_eq!(between(&timetable, after, until), free);
    }

    /// B6.
    #[test]
    fn last_returns_the_latest_result_of_next(timing in any_timing(), after in instant(), hours in 0..60_u64) {
        let until = after + Duration::from_hours(hours) + Duration::from_millis(hours * 977);
        let timing = Timing { end: Some(until + Duration::from_hours(1)), ..timing };
        let timetable = compile(&timing);
        prop_assert_eq!(timetable.last(after, until), between(&timetable, after, until).last().copied());
    }

    /// B1.
    #[test]
    fn a_union_is_its_parts_merged(timing in any_timing(), after in instant()) {
        let until = after + Duration::from_hours(40);
        let timing = Timing { end: Some(until), ..timing };
        let mut merged: Vec<Timestamp> = Vec::new();
        for rule in &timing.rules {
            merged.extend(between(&compile(&Timing { rules: vec![rule.clone()], ..timing.clone() }), after, until));
        }
        merged.sort_unstable();
        merged.dedup();
        prop_assert_eq!(between(&compile(&timing), after, until), merged);
    }

    /// B1.
    #[test]
    fn a_preview_is_what_next_gives(timing in any_timing(), after in instant()) {
        let timing = Timing { end: Some(after + Duration::from_hours(40)), ..timing };
        let timetable = compile(&timing);
        let firings = timetable.preview(after, 20);
        let expected: Vec<_> = between(&timetable, after, Timestamp::MAX).into_iter().take(20).collect();
        prop_assert_eq!(firings.iter().map(|f| f.at).collect::<Vec<_>>(), expected);
        for firing in firings {
            prop_assert_eq!(firing.local.parse::<Timestamp>().unwrap(), firing.at);
            prop_assert!(!firing.rules.is_empty());
        }
    }

    /// B1. The same seed gives the same times on every server and in every release.
    #[test]
    fn hashed_values_lie_in_their_range_and_depend_on_the_seed_only(seed in any::<u64>()) {
        let compile = |text: &str| Timetable::compile(&cron(text, "UTC"), seed, &ZONES, &BuiltinCalendars).unwrap();
        let start = at("2026-01-01T00:00:00Z");
        let minutes = |text: &str| -> Vec<i64> {
            let found = between(&compile(text), start, start + Duration::from_hours(24));
            found.into_iter().map(|t| t.as_micros() / 60_000_000 % 60).collect()
        };
        prop_assert_eq!(minutes("H * * * *"), minutes("H * * * *"));
        prop_assert_eq!(minutes("H 5 * * *").len(), 1);
        prop_assert!((10..20).contains(&minutes("H(10-19) 0 * * *")[0]));
        prop_assert!((5..=20).contains(&minutes("5~20 0 * * *")[0]));
        prop_assert!(minutes("~7 0 * * *")[0] <= 7);
        let quarters = minutes("H/15 3 * * *");
        prop_assert_eq!(quarters.len(), 4);
        prop_assert!(quarters[0] < 15 && quarters.windows(2).all(|pair| pair[1] - pair[0] == 15));
        prop_assert_eq!(minutes("H(0-29)/10 0 * * *").len(), 3);
    }
}

/// Pieces of expressions, and other texts.
const PIECES: &str = "(\\*|[0-9]{1,4}|[HLW?~#/,()-]|MON|jan|sun-|@every|@daily| |  |\t|=|TZ=|\\PC)";

fn nearly_an_expression() -> impl Strategy<Value = String> {
    let texts = |pattern: String| prop::string::string_regex(&pattern).unwrap();
    prop_oneof![
        texts(".{0,60}".into()),
        texts(format!("{PIECES}{{0,24}}")),
        texts(format!("({PIECES}{{1,4}} ){{5,7}}")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// B1, F8.
    #[test]
    fn no_text_panics_or_is_slow(
        text in nearly_an_expression(),
        quartz in any::<bool>(),
        zone in zone(),
        after in any::<i64>(),
    ) {
        let dialect = if quartz { Dialect::Quartz } else { Dialect::Vixie };
        let timing = timing([Rule::Cron(Cron { expression: text, dialect })], zone);
        let started = Instant::now();
        if let Ok(timetable) = Timetable::compile(&timing, 1, &ZONES, &BuiltinCalendars) {
            for after in [after, 0, i64::MIN, i64::MAX] {
                let after = Timestamp::from_micros(after);
                if let Next::At(next) = timetable.next(after) {
                    prop_assert!(next > after);
                }
                timetable.last(after, Timestamp::from_micros(after.as_micros().saturating_add(1 << 50)));
            }
        }
        prop_assert!(started.elapsed() < TIME_LIMIT, "{timing:?} took {:?}", started.elapsed());
    }

    /// B1. Almost valid expressions reach more of the parser than arbitrary texts.
    #[test]
    fn no_expression_with_a_change_panics(seed in any::<u64>(), place in any::<prop::sample::Index>(), with in any::<char>()) {
        let Rule::Cron(mut cron) = DrawnRule::vixie(&mut Draw::new(seed)).timing.rules.remove(0) else { unreachable!() };
        let mut letters: Vec<char> = cron.expression.chars().collect();
        *place.get_mut(&mut letters) = with;
        cron.expression = letters.into_iter().collect();
        let timing = timing([Rule::Cron(cron)], "Europe/Berlin");
        if let Err(problems) = Timetable::compile(&timing, 1, &ZONES, &BuiltinCalendars) {
            prop_assert!(problems[0].message.starts_with("at column"), "{problems:?}");
        }
    }
}

/// B1. An expression that never matches is detected immediately; a contradiction of filters, within a bound.
#[test]
fn impossible_timings_are_detected_within_a_bound() {
    let now = at("2026-11-21T00:00:00Z");
    let started = Instant::now();
    for text in ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 0 1 1 * 2020-2025", "0 0 0 29 2 * 2027/4"] {
        assert_eq!(compile(&cron(text, "Europe/Berlin")).next(now), Next::Never, "{text}");
    }
    let mut contradiction = cron("0 1 * * *", "Europe/Berlin");
    contradiction.only =
        vec![Filter::Window(Window { from: "03:00".into(), until: "04:00".into(), weekdays: vec![] })];
    assert!(matches!(compile(&contradiction).next(now), Next::NotUntil(until) if until > now));
    contradiction.exclude = vec![Filter::Dates(vec!["0001-01-01..9999-12-31".parse().unwrap()])];
    assert_eq!(compile(&contradiction).next(now), Next::Never);
    assert!(started.elapsed() < TIME_LIMIT);
}
