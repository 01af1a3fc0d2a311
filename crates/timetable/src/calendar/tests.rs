//! Comparison of compiled calendars with a direct evaluation of their steps, and of China's days with another
//! source.
//!
//! The examples cover the order of steps, bounded searches, problems with their paths, limits, and references
//! between calendars with their cycles. The built-in Chinese calendars are compared, day by day, with
//! `china.golden`, which was generated with the Python package `chinesecalendar`.
//!
//! The properties compile random steps and compare every day of three years with `belongs`, which implements
//! the documentation directly, and each search with a walk over the days.

use jiff::civil::date;
use model::calendar::{CalendarStep, Days};
use model::limits;
use model::timing::{DateRange, Weekday};
use proptest::prelude::*;

use super::*;

fn spec(name: &str, steps: Vec<CalendarStep>) -> CalendarSpec {
    CalendarSpec {
        known_until: None,
        name: name.into(),
        namespace: "default".into(),
        owner: None,
        labels: BTreeMap::new(),
        description: None,
        steps,
    }
}

fn include(days: Days) -> CalendarStep {
    CalendarStep::Include(days)
}

fn exclude(days: Days) -> CalendarStep {
    CalendarStep::Exclude(days)
}

fn named(name: &str) -> Days {
    Days::Calendar(name.into())
}

fn dates(ranges: &[&str]) -> Days {
    Days::Dates(ranges.iter().map(|range| range.parse().unwrap()).collect())
}

fn compiled(steps: Vec<CalendarStep>) -> DaySet {
    DaySet::compile(&spec("test", steps), &BuiltinCalendars).unwrap()
}

fn problems(spec: &CalendarSpec, others: &dyn Calendars) -> String {
    match DaySet::compile(spec, others) {
        Ok(_) => "fine".into(),
        Err(problems) => problems.iter().map(|p| format!("{}: {}\n", p.path, p.message)).collect(),
    }
}

/// B5. The calendar of a company: working days, without its holidays, with one Saturday worked.
#[test]
fn the_last_step_that_contains_a_day_decides() {
    let days = compiled(vec![
        include(named("belfry.cn-workdays")),
        exclude(Days::Yearly(vec!["12-24".into()])),
        exclude(dates(&["2026-11-23..2026-11-27"])),
        include(dates(&["2026-11-25", "2026-11-28"])),
    ]);
    let november: Vec<i8> = (20..=30).filter(|day| days.contains(date(2026, 11, *day))).collect();
    assert_eq!(november, [20, 25, 28, 30]);
    assert!(!days.contains(date(2026, 12, 24)));
    assert!(days.contains(date(2026, 12, 25)));
}

/// B5.
#[test]
fn the_29th_of_february_is_a_day_of_leap_years_only() {
    let days = compiled(vec![include(Days::Yearly(vec!["02-29".into()]))]);
    assert_eq!(days.next_day_in(date(2026, 1, 1), 3_660), Some(date(2028, 2, 29)));
    assert_eq!(days.previous_day_in(date(2026, 1, 1), 3_660), Some(date(2024, 2, 29)));
}

/// B5.
#[test]
fn a_search_ends_at_its_bound_and_counts_the_day_it_begins_with() {
    let days = compiled(vec![include(dates(&["2026-10-10", "2030-01-01"]))]);
    assert_eq!(days.next_day_in(date(2026, 10, 10), 0), Some(date(2026, 10, 10)));
    assert_eq!(days.next_day_in(date(2026, 10, 1), 8), None);
    assert_eq!(days.next_day_in(date(2026, 10, 1), 9), Some(date(2026, 10, 10)));
    assert_eq!(days.previous_day_in(date(2030, 1, 9), 7), None);
    assert_eq!(days.previous_day_in(date(2030, 1, 9), 8), Some(date(2030, 1, 1)));
    assert_eq!(days.next_day_outside(date(2026, 10, 10), 5), Some(date(2026, 10, 11)));
    assert_eq!(days.previous_day_outside(date(2026, 10, 10), 0), None);
    assert_eq!(days.next_day_in(jiff::civil::Date::MAX, u32::MAX), None);
    assert_eq!(days.previous_day_in(jiff::civil::Date::MIN, u32::MAX), None);
}

/// B5. All kinds of problems are reported at once.
#[test]
fn problems_of_a_calendar_have_paths() {
    insta::assert_snapshot!(problems(
        &spec("shop", vec![
            exclude(Days::Weekdays(vec![])),
            include(Days::Dates(vec![])),
            include(Days::Yearly(vec!["12-24".into(), "02-30".into(), "1-1".into(), "\u{1b}[31m".into()])),
            exclude(Days::Yearly(vec![])),
            include(named("shop")),
            include(named("belfry.cn-workday")),
            exclude(named("whatever")),
        ]),
        &BuiltinCalendars,
    ), @"
    steps[0].exclude.weekdays: is empty: expected a weekday
    steps[1].include.dates: is empty: expected a date
    steps[2].include.yearly[1]: `02-30` is not a day of the year: expected `MM-DD`, such as `12-24`
    steps[2].include.yearly[2]: `1-1` is not a day of the year: expected `MM-DD`, such as `12-24`
    steps[2].include.yearly[3]: `[31m` is not a day of the year: expected `MM-DD`, such as `12-24`
    steps[3].exclude.yearly: is empty: expected a day of the year, such as `12-24`
    steps[4].include.calendar: `shop` is the calendar itself: expected another calendar
    steps[5].include.calendar: unknown calendar `belfry.cn-workday`: did you mean `belfry.cn-workdays`?
    steps[6].exclude.calendar: unknown calendar `whatever`: expected a calendar of the namespace, or a built-in one such as `belfry.cn-workdays`
    ");
    insta::assert_snapshot!(problems(&spec("belfry.mine", vec![exclude(Days::All {})]), &BuiltinCalendars), @"
    steps: includes no day: expected at least one `include`, such as `include: {all: {}}`
    name: names that begin with `belfry.` are reserved for built-in calendars
    ");
}

/// B5.
#[test]
fn the_size_of_a_calendar_is_bounded() {
    let steps = vec![include(Days::All {}); limits::CALENDAR_STEPS_MAX + 1];
    assert_eq!(
        problems(&spec("a", steps), &BuiltinCalendars),
        "steps: has 1001 steps: expected at most 1000\n"
    );
    let day = DateRange { first: date(2026, 1, 1), last: date(2026, 1, 1) };
    let steps = vec![include(Days::Dates(vec![day; limits::CALENDAR_DATES_MAX + 1]))];
    assert!(problems(&spec("a", steps), &BuiltinCalendars).starts_with("steps: has 20001 dates: "));
}

/// B5. Each calendar refers to all earlier ones. Without the bound, each calendar would double the cost of a lookup.
#[test]
fn the_cost_of_nested_calendars_is_bounded() {
    let mut map = CalendarMap::default();
    let mut last = String::new();
    for i in 0..=limits::CALENDAR_DEPTH_MAX {
        let mut steps = vec![include(dates(&["2026-01-01"]))];
        steps.extend((0..i).map(|other| include(named(&format!("c{other}")))));
        match DaySet::compile(&spec(&format!("c{i}"), steps), &map) {
            Ok(days) => {
                assert!(days.cost <= limits::CALENDAR_COST_MAX);
                map.insert(days);
            }
            Err(problems) => last = problems[0].message.clone(),
        }
    }
    assert_eq!(last, "the references between calendars are 9 levels deep: expected at most 8");
}

/// B5.
#[test]
fn calendars_are_compiled_in_the_order_of_their_references() {
    let specs = [
        spec("a", vec![include(named("b")), exclude(dates(&["2026-01-02"]))]),
        spec("b", vec![include(named("c"))]),
        spec("c", vec![include(dates(&["2026-01-01..2026-01-03"]))]),
    ];
    let (map, wrong) = CalendarMap::compile(&specs);
    assert!(wrong.is_empty(), "{wrong:?}");
    let a = map.days("a").unwrap();
    assert!(a.contains(date(2026, 1, 1)) && !a.contains(date(2026, 1, 2)) && a.contains(date(2026, 1, 3)));
    assert!(map.days("belfry.cn-holidays").is_some());
    assert_eq!(specs.iter().flat_map(calendar_references).collect::<Vec<_>>(), ["b", "c"]);
    assert_eq!(map.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "b", "c"]);
}

/// B5.
#[test]
fn reference_cycles_are_rejected_with_their_calendars() {
    let specs = [
        spec("a", vec![include(Days::All {}), exclude(named("b"))]),
        spec("b", vec![include(named("c"))]),
        spec("c", vec![include(named("a"))]),
        spec("leads-in", vec![include(named("b"))]),
        spec("bad", vec![include(named("nope"))]),
        spec("needs-bad", vec![include(named("bad"))]),
        spec("fine", vec![include(Days::All {})]),
    ];
    let (map, wrong) = CalendarMap::compile(&specs);
    let told: String =
        wrong.iter().map(|(name, p)| format!("{name}: {}: {}\n", p[0].path, p[0].message)).collect();
    insta::assert_snapshot!(told, @"
    a: steps[1].exclude.calendar: the references between calendars have a cycle: a → b → c → a
    b: steps[0].include.calendar: the references between calendars have a cycle: b → c → a → b
    bad: steps[0].include.calendar: unknown calendar `nope`: expected a calendar of the namespace, or a built-in one such as `belfry.cn-workdays`
    c: steps[0].include.calendar: the references between calendars have a cycle: c → a → b → c
    leads-in: steps[0].include.calendar: the references between calendars have a cycle: leads-in → b → c → a → b
    needs-bad: steps[0].include.calendar: calendar `bad` is invalid: correct it first
    ");
    assert_eq!(map.iter().count(), 1);
}

/// B5. `b` refers to `a`; then `a` is changed to refer to `b`.
#[test]
fn a_change_that_creates_a_cycle_is_rejected() {
    let (mut map, _) =
        CalendarMap::compile(&[spec("a", vec![include(Days::All {})]), spec("b", vec![include(named("a"))])]);
    let change = spec("a", vec![include(named("b"))]);
    insta::assert_snapshot!(problems(&change, &map), @"steps[0].include.calendar: creates a reference cycle: a → b → a");
    assert!(map.remove("b").is_some());
    assert!(problems(&change, &map).contains("unknown calendar `b`"));
}

/// B5.
#[test]
fn an_empty_calendar_is_detected() {
    let all_but_all = vec![include(dates(&["2026-01-01"])), exclude(Days::All {})];
    assert!(compiled(all_but_all).is_empty());
    let work = Days::Weekdays(vec![Weekday::Monday]);
    assert!(compiled(vec![include(work.clone()), exclude(work.clone())]).is_empty());
    assert!(compiled(vec![include(dates(&["1066-10-14"]))]).is_empty());
    assert!(!compiled(vec![include(work)]).is_empty());
    assert!(!builtin("belfry.cn-makeup-days").unwrap().is_empty());
}

/// B5. Compares every day with `chinesecalendar` (PyPI).
#[test]
fn chinese_holidays_match_chinesecalendar() {
    let [holidays, makeup, work] =
        ["holidays", "makeup-days", "workdays"].map(|name| builtin(&format!("belfry.cn-{name}")).unwrap());
    let mut compared = 0;
    for line in include_str!("china.golden").lines().filter(|line| !line.starts_with('#')) {
        let (year, marks) = line.split_once(' ').unwrap();
        let mut day = date(year.parse().unwrap(), 1, 1);
        for mark in marks.chars() {
            assert_eq!(holidays.contains(day), mark == 'H', "holiday {day}");
            assert_eq!(makeup.contains(day), mark == 'W', "make-up day {day}");
            assert_eq!(work.contains(day), matches!(mark, 'w' | 'W'), "working day {day}");
            day = day.tomorrow().unwrap();
            compared += 1;
        }
        assert_eq!((day.month(), day.day()), (1, 1), "{year} is complete");
    }
    assert_eq!(compared, 8_401);
}

/// B5.
#[test]
fn unpublished_years_have_only_weekends() {
    let work = builtin("belfry.cn-workdays").unwrap();
    assert_eq!(work.known_until(), Some(date(2026, 12, 31)));
    assert!(work.contains(date(2031, 10, 1)) && !work.contains(date(2031, 10, 4)));
    assert_eq!(builtin("belfry.cn-holidays").unwrap().next_day_in(date(2027, 1, 1), u32::MAX), None);
    let through_another = compiled(vec![include(named("belfry.cn-workdays"))]);
    assert_eq!(through_another.known_until(), Some(date(2026, 12, 31)));
    assert_eq!(compiled(vec![include(Days::All {})]).known_until(), None);
    for name in builtin_names() {
        assert_eq!(builtin(name).unwrap().name(), name);
    }
}

#[test]
fn only_a_similar_name_is_suggested() {
    let names = ["Asia/Shanghai", "Asia/Shanghay2", "Europe/Berlin"];
    assert_eq!(nearest("asia/shangai", names), Some("Asia/Shanghai"));
    assert_eq!(nearest("Tokyo", names), None);
    assert_eq!(nearest("", names), None);
    assert_eq!(nearest("a", ["b", "ab"]), Some("b"));
}

fn some_day() -> impl Strategy<Value = jiff::civil::Date> {
    (0..800_i64).prop_map(|days| date(2023, 11, 1).saturating_add(jiff::Span::new().days(days)))
}

fn some_days() -> impl Strategy<Value = Days> {
    let range = (some_day(), 0..40_i64).prop_map(|(first, length)| DateRange {
        first,
        last: first.saturating_add(jiff::Span::new().days(length)),
    });
    let weekday = prop::sample::select(vec![
        Weekday::Monday,
        Weekday::Tuesday,
        Weekday::Wednesday,
        Weekday::Thursday,
        Weekday::Friday,
        Weekday::Saturday,
        Weekday::Sunday,
    ]);
    let yearly = some_day().prop_map(|day| format!("{:02}-{:02}", day.month(), day.day()));
    prop_oneof![
        1 => Just(Days::All {}),
        3 => prop::collection::vec(weekday, 1..4).prop_map(Days::Weekdays),
        6 => prop::collection::vec(range, 1..6).prop_map(Days::Dates),
        3 => prop::collection::vec(yearly, 1..6).prop_map(Days::Yearly),
        2 => prop::sample::select(vec!["belfry.cn-holidays", "belfry.cn-makeup-days"]).prop_map(named),
    ]
}

fn some_steps() -> impl Strategy<Value = Vec<CalendarStep>> {
    let step = (some_days(), any::<bool>())
        .prop_map(|(days, included)| if included { include(days) } else { exclude(days) });
    prop::collection::vec(step, 0..12).prop_map(|mut steps| {
        steps.push(include(Days::Yearly(vec!["07-01".into()])));
        steps
    })
}

/// Returns whether the calendar contains a day, by a direct implementation of its documentation.
fn belongs(steps: &[CalendarStep], day: jiff::civil::Date) -> bool {
    let speaks = |days: &Days| match days {
        Days::All {} => true,
        Days::Weekdays(weekdays) => {
            weekdays.iter().any(|w| *w as i8 == day.weekday().to_monday_zero_offset())
        }
        Days::Dates(ranges) => ranges.iter().any(|r| r.first <= day && day <= r.last),
        Days::Yearly(texts) => texts.contains(&format!("{:02}-{:02}", day.month(), day.day())),
        Days::Calendar(name) => builtin(name).unwrap().contains(day),
        _ => unreachable!("not generated"),
    };
    let verdict = steps.iter().rev().find_map(|step| match step {
        CalendarStep::Include(days) => speaks(days).then_some(true),
        CalendarStep::Exclude(days) => speaks(days).then_some(false),
    });
    verdict.unwrap_or(false)
}

proptest! {
    /// B5. The compilation to layers does not change the set of days.
    #[test]
    fn a_compiled_calendar_matches_its_steps(steps in some_steps()) {
        let days = compiled(steps.clone());
        let mut day = date(2023, 10, 1);
        while day < date(2026, 6, 1) {
            prop_assert_eq!(days.contains(day), belongs(&steps, day), "{}", day);
            day = day.tomorrow().unwrap();
        }
    }

    /// B5.
    #[test]
    fn searches_find_the_nearest_day(steps in some_steps(), from in some_day(), within in 0..400_u32) {
        let days = compiled(steps);
        let at = |n: u32, sign: i64| from.saturating_add(jiff::Span::new().days(i64::from(n) * sign));
        let found = |sign, wanted| (0..=within).map(|n| at(n, sign)).find(|day| days.contains(*day) == wanted);
        prop_assert_eq!(days.next_day_in(from, within), found(1, true));
        prop_assert_eq!(days.previous_day_in(from, within), found(-1, true));
        prop_assert_eq!(days.next_day_outside(from, within), found(1, false));
        prop_assert_eq!(days.previous_day_outside(from, within), found(-1, false));
    }
}
