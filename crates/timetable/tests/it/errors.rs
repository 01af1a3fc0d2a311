//! Error messages of invalid timings.

use std::fmt::Write as _;

use model::timing::{Dialect, Timing};
use timetable::{BuiltinCalendars, Timetable};

use crate::common::ZONES;

/// Compares with a snapshot whose header omits the Rust expression; the messages contain the cron expressions.
macro_rules! assert_messages {
    ($messages:expr) => {
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!($messages) });
    };
}

fn problems(timing: serde_json::Value) -> String {
    let timing: Timing = serde_json::from_value(timing).unwrap();
    let problems = Timetable::compile(&timing, 0, &ZONES, &BuiltinCalendars).unwrap_err();
    problems.iter().fold(String::new(), |mut text, problem| {
        let _ = writeln!(text, "{}: {}", problem.path, problem.message);
        text
    })
}

fn table(dialect: Dialect, expressions: &[&str]) -> String {
    expressions.iter().fold(String::new(), |mut text, expression| {
        let rule = serde_json::json!({ "cron": { "expression": expression, "dialect": dialect } });
        let _ = write!(
            text,
            "{:30} {}",
            format!("{:?}", expression.chars().take(40).collect::<String>()),
            problems(serde_json::json!({ "rules": [rule] })).replace("rules[0].cron: ", "")
        );
        text
    })
}

/// B1, E8.
#[test]
fn an_invalid_expression_is_reported_with_column_and_expectation() {
    let many = format!("{} * * * *", vec!["1"; 65].join(","));
    let long = "0 ".repeat(200);
    assert_messages!(table(
        Dialect::Vixie,
        &[
            "",
            "   ",
            "*",
            "* * * *",
            "* * * * * * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * 32 * *",
            "* * * 13 *",
            "* * * * 8",
            "*/0 * * * *",
            "*/90 * * * *",
            "0 */36 * * *",
            "5- * * * *",
            "-5 * * * *",
            "1,,2 * * * *",
            "1, * * * *",
            "0 22-4 * * *",
            "0 0 * * SAT-MON",
            "0 0 * nov-feb *",
            "0 0 * * MONDAY",
            "0 0 * * L",
            "0 0 * * 5#6",
            "0 0 * * 5#",
            "0 0 L-31 * *",
            "0 0 15Q * *",
            "? * * * *",
            "0 0 ?,1 * *",
            "H(5 * * * *",
            "H(9-3) * * * *",
            "20~5 * * * *",
            "5~x * * * *",
            "0 0 * * ☃",
            "0 0 * * 1 echo",
            "CRON_TZ=Europe/Berlin 0 2 * * *",
            "TZ=UTC 0 2 * * *",
            "@reboot",
            "@daily 5",
            "@every",
            "@every 5",
            "@every 100ms",
            "0 0 0 1 1 * 1969",
            "0 0 0 1 1 * H",
            "99999999999999999999 * * * *",
            "0x5 * * * *",
            "1.5 * * * *",
            "*5 * * * *",
            "\u{1} * * * *",
            &many,
            &long,
        ]
    ));
}

/// B1, H5.
#[test]
fn an_invalid_quartz_expression_is_reported_with_column_and_expectation() {
    assert_messages!(table(
        Dialect::Quartz,
        &[
            "0 2 * * *",
            "0 0 2 * * *",
            "0 0 2 ? * ?",
            "0 0 2 ? * 0",
            "0 0 2 ? * 8",
            "0 0 2 1 * MON",
            "0 0 2 ? * 7#6",
            "0 0 2 ? * MON 2030-2026",
            "0 0 2 ? * L-3",
            "60 0 2 * * ?",
        ]
    ));
}

/// B1, B5.
#[test]
fn all_problems_of_a_timing_are_reported_at_once() {
    assert_messages!(problems(serde_json::json!({
        "zone": "Europe/Berln",
        "rules": [
            { "cron": "61 * * * *" },
            { "every": "500ms" },
            { "after": "0s" },
            { "after": "5m" },
            { "at": "tomorrow" },
            { "at": "2026-13-01T00:00" },
            { "at": "2026-12-01T09:00:00.5" },
            { "at": "2026-12-01T09:00[Europe/Berlin]" },
            { "calendar": { "unit": "days", "every": 0, "days": [1], "nth": [1], "months": [1] } },
            { "calendar": { "unit": "years", "months": [0, 13], "days": [0, 32, -32], "nth": [6], "weekdays": ["mon"] } },
            { "calendar": { "unit": "months", "nth": [1], "times": ["24:00", "9:00", "noon"] } },
        ],
        "only": [{ "calendar": "ours" }, { "weekdays": [] }, { "window": { "from": "9", "until": "25:00" } }],
        "exclude": [{ "cron": "@every 5m" }, { "dates": [] }, { "cron": "* * * *" }],
        "roll": { "to": "next", "calendar": "ours" },
        "start": "2027-01-01T00:00:00Z",
        "end": "2026-01-01T00:00:00Z",
    })));
}
