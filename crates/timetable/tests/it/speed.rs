//! Benchmark of searches. Run it in release: `cargo test --release -p belfry-timetable -- --ignored`.

use std::time::Instant;

use model::Duration;
use model::timing::{Every, Filter, Rule, Weekday};

use crate::common::{at, between, compile, cron, timing};

#[test]
#[ignore = "a measurement, not a test"]
#[expect(clippy::print_stdout, reason = "the figures are the result")]
fn nanoseconds_of_a_search() {
    let every = Rule::Every(Every { period: Duration::from_secs(90), phase: Duration::ZERO });
    let mut weekdays = cron("* * * * * *", "Europe/Berlin");
    weekdays.only = vec![Filter::Weekdays(vec![Weekday::Monday])];
    let cases = [
        ("*/5 * * * * Europe/Berlin", cron("*/5 * * * *", "Europe/Berlin")),
        ("*/5 * * * * UTC", cron("*/5 * * * *", "UTC")),
        ("0 2 * * * Europe/Berlin", cron("0 2 * * *", "Europe/Berlin")),
        ("0 2 * * * Asia/Shanghai", cron("0 2 * * *", "Asia/Shanghai")),
        ("0 0 29 2 1 Europe/Berlin", cron("0 0 29 2 */1", "Europe/Berlin")),
        ("0 0 30 2 *", cron("0 0 30 2 *", "Europe/Berlin")),
        ("every 90s", timing([every], "UTC")),
        ("* * * * * * on Mondays", weekdays),
    ];
    for (name, timing) in cases {
        let started = Instant::now();
        let timetable = compile(&timing);
        let compiled = started.elapsed();
        let started = Instant::now();
        let mut now = at("2026-01-01T00:00:00Z");
        let count = 100_000;
        for _ in 0..count {
            match timetable.next(now) {
                timetable::Next::At(next) => now = next,
                _ => now = at("2026-01-01T00:00:00Z"),
            }
        }
        let next = started.elapsed() / count;
        let started = Instant::now();
        for _ in 0..1_000 {
            std::hint::black_box(timetable.last(at("2025-06-01T00:00:00Z"), at("2026-06-01T00:00:30Z")));
        }
        let last = started.elapsed() / 1_000;
        println!("{name:30} compile {compiled:?}, next {next:?}, last of a year {last:?}");
    }
    let started = Instant::now();
    let count = between(
        &compile(&cron("* * * * *", "Europe/Berlin")),
        at("2025-06-01T00:00:00Z"),
        at("2026-06-01T00:00:00Z"),
    )
    .len();
    println!("a year of minutes, {count} of them: {:?}", started.elapsed());
}
