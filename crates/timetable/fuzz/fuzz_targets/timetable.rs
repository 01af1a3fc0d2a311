//! Fuzzes the parser and the search with arbitrary cron expressions: no panic, and bounded time.
//!
//! The first byte selects the dialect and the time zone, the next eight bytes are a time; the rest is the expression.

#![no_main]

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use model::Timestamp;
use model::timing::{Cron, Dialect, Filter, Rule, Timing};
use timetable::{Next, BuiltinCalendars, Timetable, Zones};

static ZONES: LazyLock<Zones> = LazyLock::new(Zones::bundled);

const NAMES: [&str; 4] = ["UTC", "Europe/Berlin", "Pacific/Apia", "Australia/Lord_Howe"];

/// Time limit for one text in an instrumented build; usual times are microseconds.
const TIME_LIMIT: Duration = Duration::from_secs(2);

fuzz_target!(|data: &[u8]| {
    let Some(([choice, instant @ ..], text)) = data.split_first_chunk::<9>() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let dialect = if choice & 1 == 0 { Dialect::Vixie } else { Dialect::Quartz };
    let cron = Cron { expression: text.to_owned(), dialect };
    let mut timing = Timing {
        rules: vec![Rule::Cron(cron.clone())],
        zone: NAMES[usize::from(choice >> 1 & 3)].to_owned(),
        ..Timing::default()
    };
    if choice & 8 != 0 {
        timing.rules.push(Rule::Cron(Cron::new("*/7 * * * *")));
        timing.exclude.push(Filter::Cron(cron));
    }
    let started = Instant::now();
    let Ok(timetable) = Timetable::compile(&timing, 1, &ZONES, &BuiltinCalendars) else { return };
    let after = Timestamp::from_micros(i64::from_le_bytes(*instant));
    let mut last = after;
    for _ in 0..4 {
        let Next::At(next) = timetable.next(last) else { break };
        assert!(next > last);
        last = next;
    }
    if last > after {
        assert_eq!(timetable.last(after, last), Some(last));
    }
    assert!(started.elapsed() < TIME_LIMIT);
});
