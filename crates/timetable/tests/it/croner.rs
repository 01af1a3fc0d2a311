//! Comparison with the crate `croner`, on local times without a time zone.

use croner::parser::{CronParser, Seconds};
use jiff::civil::DateTime;
use model::timing::Rule;
use timetable::Next;

use crate::common::{at, compile, cron};
use crate::draw::{Draw, DrawnRule};

/// B1. Compares 100 times of each expression; the scanning oracle examines only some periods.
#[test]
fn expressions_name_the_times_that_croner_reads() {
    let parser = CronParser::builder().seconds(Seconds::Optional).build();
    let mut compared = 0;
    for seed in 0..400 {
        let Rule::Cron(ours) = DrawnRule::vixie(&mut Draw::new(seed)).timing.rules.remove(0) else {
            unreachable!()
        };
        // In croner, a day must match only one of the day fields, unless the expression has a `+`.
        let fields: Vec<&str> = ours.expression.split_whitespace().collect();
        let both = [fields[2], fields[4]].iter().any(|field| field.starts_with('*') && *field != "*");
        if both || ours.expression.contains("L-") {
            continue;
        }
        // croner rejects some valid crontab expressions, such as `3/2`.
        let Ok(theirs) = parser.parse(&fields.join(" ")) else { continue };
        let timetable = compile(&cron(&ours.expression, "UTC"));
        let mut last = at("2019-12-31T23:59:59Z");
        let mut wall: DateTime = "2019-12-31T23:59:59".parse().unwrap();
        for _ in 0..100 {
            let Ok(next) = theirs.find_next_occurrence(&wall, false) else {
                assert!(
                    !matches!(timetable.next(last), Next::At(found) if found < at("2400-01-01T00:00:00Z")),
                    "{}",
                    ours.expression
                );
                break;
            };
            let expected = at(&format!("{next}Z"));
            assert_eq!(timetable.next(last), Next::At(expected), "after {last}: {}", ours.expression);
            (last, wall) = (expected, next);
            compared += 1;
        }
    }
    assert!(compared > 20_000, "only {compared} times were compared");
}
