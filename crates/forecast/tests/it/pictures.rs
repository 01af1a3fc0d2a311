//! Pictures: content, escaping of names, and the picture in the book.

use std::path::Path;

use forecast::{Plan, QualifiedName, RunHistory, RunTimes, Schedule, picture};
use jiff::tz::TimeZone;
use model::schedule::OverlapPolicy;
use model::{Bytes, Duration, Millicores};

use crate::scenario::{Build as _, hours, minutes, schedule, secs, time};

#[test]
fn a_picture_shows_the_answer() {
    let mut plan = hours(24).worker("w<1>", 1).worker("w2", 1);
    for name in ["a", "b & c", "d", "e"] {
        plan = plan.with(schedule(name, "0 */6 * * *"), minutes(20));
    }
    let answer = plan.answer();
    let zone = TimeZone::get("Asia/Shanghai").unwrap();
    let drawn = picture(&answer, &zone);
    assert_eq!(drawn, picture(&answer, &zone));
    for shown in [
        "Forecast for Sat 21 Nov 08:00 – Sun 22 Nov 08:00",
        "16 firings of 4 schedules",
        "w&lt;1&gt;",
        "insufficient CPU",
    ] {
        assert!(drawn.contains(shown), "`{shown}` is not in {drawn}");
    }
    for unwanted in ["<script", "href", "url(", "w<1>", "NaN", "inf"] {
        assert!(!drawn.contains(unwanted), "`{unwanted}` is in {drawn}");
    }
    let open = drawn.matches("<rect").count();
    assert_eq!(
        open,
        drawn.matches("</rect>").count() + drawn.matches("/>").count()
            - drawn.matches("<line").count()
            - drawn.matches("<path").count()
    );
}

#[test]
fn a_picture_of_an_empty_plan_is_valid() {
    let drawn = picture(&hours(1).answer(), &TimeZone::UTC);
    assert!(drawn.contains("no overload") && !drawn.contains("NaN"), "{drawn}");
}

/// Returns a day of a small company: backups and reports at night, syncs and invoices by day.
fn small_company() -> Plan {
    let from = time("2026-11-22T23:00:00Z");
    let mut plan = Plan::new(from, from + Duration::from_hours(24));
    for (name, cpus) in [("build-1", 8), ("build-2", 8), ("build-3", 4), ("edge-1", 2)] {
        plan = plan.worker(name, cpus);
    }
    let mut add =
        |name: String, expression: &str, cpus: u32, (usual, long): (Duration, Duration), failed: f64| {
            let mut spec = schedule(&name, expression);
            spec.timing.zone = "Europe/Berlin".into();
            spec.overlap.policy = OverlapPolicy::BufferOne;
            let job = spec.job_mut().unwrap();
            job.resources.cpu = Some(Millicores(cpus * 1_000));
            job.resources.memory = Some(Bytes((u64::from(cpus) * 700) << 20));
            job.retry.max_retries = 1;
            let run_times = RunTimes::of_percentiles(&[(50, usual), (90, long), (99, long + usual)]).unwrap();
            plan.history
                .schedules
                .insert(QualifiedName::new("default", name), RunHistory { run_times, failed });
            plan.schedules.push(Schedule::from(spec));
        };
    for shop in 1..=24 {
        add(format!("backup-shop-{shop}"), "H(0-20) 2 * * *", 2, (minutes(18), minutes(35)), 0.01);
    }
    for report in 1..=9 {
        add(format!("report-{report}"), "0 6 * * mon-fri", 4, (minutes(12), minutes(20)), 0.05);
    }
    for sync in 1..=12 {
        add(format!("sync-{sync}"), "H/15 * * * *", 1, (secs(90), minutes(4)), 0.02);
    }
    add("invoices".into(), "0 9-17 * * mon-fri", 4, (minutes(8), minutes(14)), 0.0);
    plan
}

/// Compares the picture in the book with the current one. `BELFRY_UPDATE=1` updates the book.
#[test]
fn the_picture_in_the_book_is_current() {
    let answer = small_company().answer();
    assert!(answer.overloads.len() >= 2 && answer.summary.late > 20, "{:#?}", answer.summary);
    let drawn = picture(&answer, &TimeZone::get("Europe/Berlin").unwrap());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/images/forecast.svg");
    if std::env::var_os("BELFRY_UPDATE").is_some() {
        std::fs::write(&path, &drawn).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(known == drawn, "docs/src/images/forecast.svg is outdated: run the test with BELFRY_UPDATE=1");
}
