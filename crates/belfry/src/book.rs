//! Tests of tables in the book against the code: firings of timings, and parts of schedule specs.

use std::path::Path;

use model::ScheduleSpec;
use model::timing::Timing;
use serde_json::{Value, json};
use server::preview::{TimingContext, preview};
use timetable::{CalendarMap, Zones};

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// Returns the rows of all tables between `<!-- checked: NAME -->` and `<!-- end -->`, without their headings.
fn rows(page: &str, name: &str) -> Vec<Vec<String>> {
    let mark = format!("<!-- checked: {name} -->");
    let parts = page.split(mark.as_str()).skip(1);
    let tables = parts.map(|part| part.split("<!-- end -->").next().unwrap());
    let lines = tables.flat_map(|table| table.lines().filter(|line| line.starts_with('|')).skip(2));
    lines.map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// Returns the code spans of a cell.
fn codes(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("`{text}`: {error}"))
}

/// Returns the local times, with offsets, at which a timing fires on a day.
fn firings(timing: &Timing, day: &str) -> Vec<String> {
    let (zones, calendars) = (Zones::bundled(), CalendarMap::default());
    let reading = TimingContext { zones: &zones, calendars: &calendars, seed: 1 };
    let day_before = day.parse::<jiff::civil::Date>().unwrap().yesterday().unwrap();
    let from = format!("{day_before}T12:00:00Z").parse().unwrap();
    let all = preview(timing, &reading, from, 100).unwrap().firings;
    let of_day = all.iter().filter_map(|firing| firing.local.strip_prefix(day)?.strip_prefix('T'));
    // The book omits seconds: `03:00+02:00` for `03:00:00+02:00`.
    of_day.map(|time| format!("{}{}", &time[..5], &time[8..])).collect()
}

/// B1.
#[test]
fn the_firings_that_the_book_shows_are_those_of_the_timetable() {
    let [english, chinese] =
        ["guide/schedules.md", "guide/schedules.zh-CN.md"].map(|name| rows(&page(name), "clocks"));
    assert!(english.len() >= 6, "{english:?}");
    assert_eq!(english.len(), chinese.len());
    for row in english.iter().chain(&chinese) {
        let dst = codes(&row[1]).first().map_or_else(|| json!({}), |dst| yaml(&format!("{{{dst}}}")));
        let timing = json!({"rules": [{"cron": codes(&row[0])[0]}], "zone": "Europe/Berlin", "dst": dst});
        let timing: Timing = serde_json::from_value(timing).unwrap();
        for (day, cell) in [("2027-03-28", &row[2]), ("2027-10-31", &row[3])] {
            assert_eq!(firings(&timing, day), codes(cell), "{row:?} on {day}");
        }
    }
}

/// H5. Every part of a spec in the migration guide is accepted by a server.
#[test]
fn every_part_of_a_spec_that_the_book_shows_is_valid() {
    let (zones, calendars) = (Zones::bundled(), CalendarMap::default());
    let mut checked = 0;
    let [english, chinese] = ["migration.md", "migration.zh-CN.md"].map(|name| rows(&page(name), "parts"));
    assert_eq!(english.len(), chinese.len());
    for row in english.iter().chain(&chinese) {
        assert_eq!(row.len(), 2, "{row:?}");
        for part in codes(&row[1]).into_iter().filter(|code| code.contains(": ")) {
            let mut spec = json!({"name": "x", "job": {"run": {"process": {"command": ["true"]}}}});
            merge(&mut spec, yaml(part));
            let mut spec: ScheduleSpec =
                serde_json::from_value(spec).unwrap_or_else(|error| panic!("`{part}`: {error}"));
            spec.fill();
            let now = "2026-11-21T08:00:00Z".parse().unwrap();
            model::validate::schedule(&spec, now).unwrap_or_else(|error| panic!("`{part}`: {error}"));
            timetable::Timetable::compile(&spec.timing, 1, &zones, &calendars)
                .unwrap_or_else(|error| panic!("`{part}`: {error:?}"));
            checked += 1;
        }
    }
    assert!(checked >= 80, "only {checked} parts were found");
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}
