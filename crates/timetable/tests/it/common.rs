//! Helpers that create, compile and preview timings.

use std::sync::LazyLock;

use model::Timestamp;
use model::timing::{Cron, Dialect, Rule, Timing};
use timetable::{BuiltinCalendars, Next, Timetable, Zones};

/// Bundled time zones, loaded once for all tests.
pub(crate) static ZONES: LazyLock<Zones> = LazyLock::new(Zones::bundled);

pub(crate) fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Returns a timing with one crontab rule.
pub(crate) fn cron(expression: &str, zone: &str) -> Timing {
    timing([Rule::Cron(Cron::new(expression))], zone)
}

/// Returns a timing with one Quartz rule, in UTC.
pub(crate) fn quartz(expression: &str) -> Timing {
    let cron = Cron { expression: expression.into(), dialect: Dialect::Quartz };
    timing([Rule::Cron(cron)], "UTC")
}

pub(crate) fn timing(rules: impl IntoIterator<Item = Rule>, zone: &str) -> Timing {
    Timing { rules: rules.into_iter().collect(), zone: zone.into(), ..Timing::default() }
}

pub(crate) fn compile(timing: &Timing) -> Timetable {
    Timetable::compile(timing, 7, &ZONES, &BuiltinCalendars)
        .unwrap_or_else(|problems| panic!("{timing:?}: {problems:?}"))
}

/// Returns the firings in `(after, until]`.
pub(crate) fn between(timetable: &Timetable, after: Timestamp, until: Timestamp) -> Vec<Timestamp> {
    let mut found = Vec::new();
    let mut last = after;
    while let Next::At(next) = timetable.next(last)
        && next <= until
    {
        assert!(next > last, "{next} is not after {last}");
        found.push(next);
        last = next;
    }
    found
}

/// Returns the next local times, one on each line. `*` marks days with a clock change.
pub(crate) fn preview(timing: &Timing, after: &str, count: usize) -> String {
    let firings = compile(timing).preview(at(after), count);
    let line = |firing: &timetable::Firing| {
        let marks: String = firing.marks.iter().map(|mark| format!(" {}", mark.as_str())).collect();
        format!("{}{}{marks}", firing.local, if firing.clock_change { " *" } else { "" })
    };
    firings.iter().map(line).collect::<Vec<_>>().join("\n")
}
