//! Descriptions of many timings in both languages. Different timings must have different descriptions.
//!
//! The first tests compare English and Chinese descriptions of cron expressions, other rules and filters with
//! snapshots. A new kind of rule or filter belongs into `EXPRESSIONS`, `rules` or `filters`, which the
//! properties use too.
//!
//! The others compare descriptions with each other, because a description that omits a part of a timing would
//! mislead: all combinations of cron fields, and random timings that differ in one part.

use std::collections::BTreeMap;

use model::timing::{
    CalendarRule, CalendarUnit, Cron, Dialect, Dst, Every, Filter, Fold, Gap, Roll, RollTo, Rule, Weekday,
    Window,
};
use proptest::prelude::*;

use super::*;

const EXPRESSIONS: &[&str] = &[
    "* * * * *",
    "*/15 * * * *",
    "0,15,30,45 * * * *",
    "5/15 * * * *",
    "*/7 * * * *",
    "5 * * * *",
    "0,20,50 * * * *",
    "10-20 * * * *",
    "0 * * * *",
    "0 2 * * *",
    "30 2,14 * * *",
    "0,30 9-17 * * *",
    "*/10 9-17 * * *",
    "* 9 * * *",
    "0 9-17 * * 1-5",
    "15 */2 * * *",
    "0 */5 * * *",
    "*/30 */6 * * *",
    "* 1,4,9 * * *",
    "0 0 1 * *",
    "0 0 1,15 * *",
    "0 0 1-7 * *",
    "0 0 */2 * *",
    "0 0 L * *",
    "0 0 L-1 * *",
    "0 0 L-3 * *",
    "0 0 15W * *",
    "0 0 LW * *",
    "0 0 L-2W * *",
    "0 0 1,15,L * *",
    "0 0 31 1,3 *",
    "0 0 * 1 *",
    "0 0 * 3-6 *",
    "0 0 * */3 *",
    "* * * jun *",
    "0 9 * * MON",
    "0 9 * * 0",
    "0 9 * * 7",
    "0 9 * * sat,sun",
    "0 9 * * FRI-SUN",
    "0 9 * * 5#3",
    "0 9 * * 5L",
    "0 9 * * 1,5#1,5L",
    "0 9 * 1,7 1-5",
    "0 0 13 * 5",
    "0 0 13 6 5",
    "0 0 */2 * 1",
    "0 0 1-7 * */2",
    "0 0 1-31 * 1",
    "0 0 29 2 *",
    "30 0 9 * * *",
    "* * * * * *",
    "*/10 * * * * *",
    "30 * * * * *",
    "*/5 0-4 * * * *",
    "0,30 15 9-11 * * *",
    "15 30 9-11 * * *",
    "0 0 0 1 1 * 2027",
    "0 0 0 1 1 * 2027-2030",
    "0 0 0 1 1 * 2026-2035/3,2040",
    "0 0 0 1 1 * *",
    "H 2 * * *",
    "H H * * *",
    "H/15 * * * *",
    "H(0-29)/10 * * * *",
    "5~20 3 * * *",
    "~ * * * *",
    "0,H * * * *",
    "0 3 H * *",
    "0 3 * * H",
    "0 3 1 H *",
    "@yearly",
    "@weekly",
    "@Daily",
    "@hourly",
    "@every 90s",
    "@every 1h30m",
];

fn both(timing: &Timing) -> String {
    format!("{}\n    {}\n", describe(timing, Language::English), describe(timing, Language::Chinese))
}

fn cron(expression: &str) -> Timing {
    Timing { rules: vec![Rule::Cron(Cron::new(expression))], ..Timing::default() }
}

fn quartz(expression: &str) -> Timing {
    let cron = Cron { expression: expression.into(), dialect: Dialect::Quartz };
    Timing { rules: vec![Rule::Cron(cron)], ..Timing::default() }
}

/// B1.
#[test]
fn cron_expressions_are_described_in_plain_words() {
    let told: String = EXPRESSIONS.iter().map(|text| format!("{text}\n    {}", both(&cron(text)))).collect();
    insta::assert_snapshot!(told);
}

/// B1.
#[test]
fn the_dialect_decides_what_a_number_means() {
    let told: String =
        ["0 0 9 ? * 1", "0 0 9 ? * 2-6", "0 0 9 ? * 6#3", "0 0 9 ? * L", "0 0 9 L * ?", "0 0 22-4 * * ?"]
            .iter()
            .map(|text| format!("{text}\n    {}", both(&quartz(text))))
            .collect();
    insta::assert_snapshot!(told);
}

/// B1. The description quotes an invalid expression and adds nothing.
#[test]
fn an_invalid_expression_is_quoted() {
    for text in ["", "60 * * * *", "0 9 * * MOON", "@never", "a\u{1b}b"] {
        let english = describe(&cron(text), Language::English);
        let quoted = format!("`{}`", text.replace('\u{1b}', ""));
        assert!(english.contains(&quoted) && english.contains("invalid"), "{english}");
        assert!(describe(&cron(text), Language::Chinese).contains(&quoted));
    }
}

fn minutes(n: u64) -> model::Duration {
    model::Duration::from_secs(n * 60)
}

fn calendar(change: impl FnOnce(&mut CalendarRule)) -> Rule {
    let mut rule = CalendarRule {
        every: 1,
        unit: CalendarUnit::Days,
        months: vec![],
        days: vec![],
        weekdays: vec![],
        nth: vec![],
        times: vec![],
        from: None,
    };
    change(&mut rule);
    Rule::Calendar(rule)
}

fn rules() -> Vec<Rule> {
    use CalendarUnit::{Months, Weeks, Years};
    use Weekday::{Friday, Monday, Thursday, Wednesday};
    let from = jiff::civil::date(2026, 11, 26);
    vec![
        Rule::Every(Every { period: minutes(15), phase: model::Duration::ZERO }),
        Rule::Every(Every { period: minutes(60), phase: minutes(5) }),
        Rule::Every(Every { period: minutes(1_501), phase: model::Duration::ZERO }),
        Rule::After(minutes(10)),
        Rule::At("2026-12-01T09:00".into()),
        Rule::At("2026-12-01T09:00:00Z".into()),
        calendar(|_| {}),
        calendar(|r| r.times = vec!["09:00".into(), "17:30".into()]),
        calendar(|r| (r.every, r.from) = (3, Some(from))),
        calendar(|r| (r.every, r.weekdays) = (3, vec![Monday, Friday])),
        calendar(|r| r.unit = Weeks),
        calendar(|r| (r.unit, r.every, r.weekdays) = (Weeks, 2, vec![Friday, Monday])),
        calendar(|r| (r.unit, r.every, r.from) = (Weeks, 2, Some(from))),
        calendar(|r| r.unit = Months),
        calendar(|r| (r.unit, r.days) = (Months, vec![1, 15, -1])),
        calendar(|r| (r.unit, r.days) = (Months, vec![-2])),
        calendar(|r| (r.unit, r.weekdays, r.nth) = (Months, vec![Friday], vec![1, -1, -2])),
        calendar(|r| (r.unit, r.weekdays) = (Months, vec![Monday, Wednesday])),
        calendar(|r| (r.unit, r.days, r.weekdays) = (Months, vec![13], vec![Friday])),
        calendar(|r| (r.unit, r.every, r.from) = (Months, 3, Some(from))),
        calendar(|r| r.unit = Years),
        calendar(|r| (r.unit, r.months, r.weekdays, r.nth) = (Years, vec![11], vec![Thursday], vec![4])),
        calendar(|r| (r.unit, r.every, r.months, r.days) = (Years, 4, vec![2, 8], vec![29])),
        calendar(|r| (r.unit, r.from) = (Years, Some(from))),
    ]
}

/// B1.
#[test]
fn other_rules_are_described_in_plain_words() {
    let timing = |rule| Timing { rules: vec![rule], zone: "Europe/Berlin".into(), ..Timing::default() };
    let told: String = rules().into_iter().map(|rule| both(&timing(rule))).collect();
    insta::assert_snapshot!(told);
}

fn filters() -> Vec<Filter> {
    use Weekday::{Friday, Monday, Saturday, Sunday, Thursday, Tuesday, Wednesday};
    let window = |from: &str, until: &str, weekdays| {
        Filter::Window(Window { from: from.into(), until: until.into(), weekdays })
    };
    let dates = |texts: &[&str]| Filter::Dates(texts.iter().map(|text| text.parse().unwrap()).collect());
    vec![
        Filter::Calendar("belfry.cn-holidays".into()),
        Filter::Weekdays(vec![Saturday, Sunday]),
        Filter::Weekdays(vec![Monday, Tuesday, Wednesday, Thursday, Friday]),
        window("09:00", "17:00", vec![]),
        window("22:00", "06:00", vec![Friday]),
        window("09:00", "09:00:00", vec![]),
        dates(&["2026-10-01..2026-10-07", "2026-12-31"]),
        Filter::Cron(Cron::new("* 2 * * *")),
    ]
}

/// B1, B5.
#[test]
fn filters_and_limits_are_described_in_plain_words() {
    let daily = || Timing { zone: "Asia/Shanghai".into(), ..cron("0 2 * * *") };
    let mut timings: Vec<Timing> = Vec::new();
    for filter in filters() {
        timings.push(Timing { only: vec![filter.clone()], ..daily() });
        timings.push(Timing { exclude: vec![filter], ..daily() });
    }
    let everything = Timing {
        rules: vec![Rule::Cron(Cron::new("0 2 * * *")), rules()[0].clone()],
        only: filters()[..2].to_vec(),
        exclude: filters()[6..].to_vec(),
        roll: Some(Roll { to: RollTo::Next, calendar: "belfry.cn-workdays".into() }),
        dst: Dst { gap: Some(Gap::Shift), overlap: Some(Fold::Both) },
        start: Some(model::Timestamp::from_millis(1_800_000_000_000)),
        end: Some(model::Timestamp::from_millis(1_900_000_000_000)),
        ..daily()
    };
    timings.push(everything.clone());
    timings.push(Timing {
        rules: vec![],
        only: vec![],
        exclude: vec![],
        roll: Some(Roll { to: RollTo::Previous, calendar: "work".into() }),
        dst: Dst { gap: Some(Gap::Skip), overlap: Some(Fold::First) },
        ..everything
    });
    timings.push(Timing::default());
    insta::assert_snapshot!(timings.iter().map(both).collect::<String>());
}

/// B1. Compares all combinations of fields with different meanings.
#[test]
fn expressions_that_differ_in_a_field_read_differently() {
    let fields: [&[&str]; 5] = [
        &["*", "0", "5", "*/15", "5/15", "*/7", "10-20", "1,2,9", "H", "H/15", "5~20"],
        &["*", "2", "9-17", "*/2", "1,5", "H"],
        &["*", "1", "13,L", "L-3", "15W", "LW", "*/2", "1-7", "H"],
        &["*", "1", "3-6", "*/3"],
        &["*", "1", "1-5", "5#3", "5L", "0,6", "H"],
    ];
    let mut expressions = vec![String::new()];
    for field in fields {
        expressions =
            expressions.iter().flat_map(|e| field.iter().map(move |f| format!("{e} {f}"))).collect();
    }
    for language in [Language::English, Language::Chinese] {
        let mut seen: BTreeMap<String, &str> = BTreeMap::new();
        for expression in &expressions {
            let text = describe(&cron(expression), language);
            if let Some(other) = seen.insert(text.clone(), expression) {
                panic!("`{expression}` and `{other}` read alike: {text}");
            }
        }
    }
}

#[test]
fn a_language_has_one_name() {
    for language in [Language::English, Language::Chinese] {
        assert_eq!(language.to_string().parse(), Ok(language));
        let json = serde_json::to_string(&language).unwrap();
        assert_eq!(json, format!("\"{language}\""));
        assert_eq!(serde_json::from_str::<Language>(&json).unwrap(), language);
    }
    assert_eq!(
        "fr".parse::<Language>().unwrap_err().to_string(),
        "unknown language `fr`: expected `en` or `zh-CN`"
    );
}

fn maybe<T: Clone + fmt::Debug + 'static>(choices: Vec<T>) -> impl Strategy<Value = Option<T>> {
    prop::option::of(prop::sample::select(choices))
}

fn some_timing() -> impl Strategy<Value = Timing> {
    let cron = "[-*0-9LWH#~?/,A-Z@ ]{0,24}".prop_map(|text| Rule::Cron(Cron::new(text)));
    let rule = prop_oneof![prop::sample::select(rules()), cron];
    let filters = || prop::collection::vec(prop::sample::select(filters()), 0..3);
    let instants = || maybe([0, 1_800_000_000_000].map(model::Timestamp::from_millis).to_vec());
    let roll = maybe(vec![
        Roll { to: RollTo::Next, calendar: "a".into() },
        Roll { to: RollTo::Previous, calendar: "a".into() },
        Roll { to: RollTo::Next, calendar: "b".into() },
    ]);
    let dst = (maybe(vec![Gap::Skip, Gap::Shift]), maybe(vec![Fold::First, Fold::Both]));
    let zone = prop::sample::select(vec!["UTC", "Asia/Shanghai"]);
    (prop::collection::vec(rule, 0..3), filters(), filters(), roll, dst, (instants(), instants()), zone)
        .prop_map(|(rules, only, exclude, roll, (gap, overlap), (start, end), zone)| Timing {
            rules,
            only,
            exclude,
            roll,
            zone: zone.into(),
            dst: Dst { gap, overlap },
            start,
            end,
        })
}

fn known_timing() -> impl Strategy<Value = Timing> {
    (some_timing(), prop::collection::vec(prop::sample::select(rules()), 0..3))
        .prop_map(|(timing, rules)| Timing { rules, ..timing })
}

proptest! {
    /// B1.
    #[test]
    fn any_timing_has_a_description(timing in some_timing(), text in any::<String>()) {
        for timing in [timing, cron(&text), quartz(&text)] {
            prop_assert!(describe(&timing, Language::English).chars().count() > 5);
            prop_assert!(describe(&timing, Language::Chinese).chars().count() > 5);
        }
    }

    /// B1.
    #[test]
    fn timings_that_differ_in_a_part_read_differently(a in known_timing(), b in known_timing()) {
        let with = [
            Timing { rules: b.rules.clone(), ..a.clone() },
            Timing { only: b.only.clone(), ..a.clone() },
            Timing { exclude: b.exclude.clone(), ..a.clone() },
            Timing { roll: b.roll.clone(), ..a.clone() },
            Timing { zone: b.zone.clone(), ..a.clone() },
            Timing { dst: b.dst, ..a.clone() },
            Timing { start: b.start, ..a.clone() },
            Timing { end: b.end, ..a.clone() },
        ];
        for other in with {
            for language in [Language::English, Language::Chinese] {
                prop_assert_eq!(a == other, describe(&a, language) == describe(&other, language));
            }
        }
    }
}
