//! Computes the scheduled times of a schedule in the simplest way: arithmetic for fixed rates, and a test of every
//! minute for cron. It shares no code with the timetable that it judges.
//!
//! It supports what simulated histories contain: rates, and five-field cron in UTC, with whole minutes excluded. For
//! any other rule it returns `None`.

use std::collections::BTreeSet;

use jiff::tz::TimeZone;
use model::Timestamp;
use model::timing::{Dialect, Filter, Rule, Timing};

const MINUTE: i64 = 60_000_000;

/// Returns the fields of each filter that excludes minutes; `None` if another kind of filter is used.
fn excluded(timing: &Timing) -> Option<Vec<Fields>> {
    let plain = timing.only.is_empty() && timing.roll.is_none() && timing.zone == "UTC";
    let fields = timing.exclude.iter().map(|filter| match filter {
        Filter::Cron(cron) if cron.dialect == Dialect::Vixie => Fields::parse(&cron.expression),
        _ => None,
    });
    fields.collect::<Option<Vec<_>>>().filter(|_| plain)
}

/// Returns the times that a filter excludes; `None` if the oracle does not support the timing.
pub(super) fn held(timing: &Timing, instants: &BTreeSet<Timestamp>) -> Option<BTreeSet<Timestamp>> {
    let excluded = excluded(timing)?;
    let is_held = |at: &&Timestamp| excluded.iter().any(|fields| fields.match_utc(**at));
    Some(instants.iter().filter(is_held).copied().collect())
}

/// Returns every scheduled time after `after` up to `until`, including excluded ones; `None` if the oracle does not
/// support the timing.
pub(super) fn instants(timing: &Timing, after: Timestamp, until: Timestamp) -> Option<BTreeSet<Timestamp>> {
    excluded(timing)?;
    let after = timing.start.map_or(after, |start| after.max(Timestamp::from_micros(start.as_micros() - 1)));
    let until = timing.end.map_or(until, |end| until.min(end));
    let mut found = BTreeSet::new();
    for rule in &timing.rules {
        match rule {
            Rule::Every(every) => {
                let micros = |d: model::Duration| i64::try_from(d.as_millis()).ok()?.checked_mul(1_000);
                let (period, phase) = (micros(every.period)?, micros(every.phase)?);
                let first = (after.as_micros() - phase).div_euclid(period) + 1;
                let last = (until.as_micros() - phase).div_euclid(period);
                found.extend((first..=last).map(|n| Timestamp::from_micros(n * period + phase)));
            }
            Rule::Cron(cron) if cron.dialect == Dialect::Vixie => {
                let fields = Fields::parse(&cron.expression)?;
                let first = after.as_micros().div_euclid(MINUTE) + 1;
                let last = until.as_micros().div_euclid(MINUTE);
                let minutes = (first..=last).map(|n| Timestamp::from_micros(n * MINUTE));
                found.extend(minutes.filter(|at| fields.match_utc(*at)));
            }
            _ => return None,
        }
    }
    Some(found)
}

/// Values that each field of a cron expression matches.
#[derive(Debug)]
struct Fields {
    minutes: BTreeSet<u32>,
    hours: BTreeSet<u32>,
    days: BTreeSet<u32>,
    months: BTreeSet<u32>,
    weekdays: BTreeSet<u32>,
    /// Whether a day matches by either day field: neither of them begins with a star.
    either_day: bool,
}

impl Fields {
    fn parse(expression: &str) -> Option<Self> {
        let fields: Vec<&str> = expression.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else { return None };
        Some(Self {
            minutes: values(minutes, 0, 59)?,
            hours: values(hours, 0, 23)?,
            days: values(days, 1, 31)?,
            months: values(months, 1, 12)?,
            weekdays: values(weekdays, 0, 7)?.into_iter().map(|day| day % 7).collect(),
            either_day: !days.starts_with('*') && !weekdays.starts_with('*'),
        })
    }

    fn match_utc(&self, at: Timestamp) -> bool {
        let civil = jiff::Timestamp::from(at).to_zoned(TimeZone::UTC);
        let number = |n: i8| u32::try_from(n).unwrap_or(0);
        let day = self.days.contains(&number(civil.day()));
        let weekday = self.weekdays.contains(&number(civil.weekday().to_sunday_zero_offset()));
        self.minutes.contains(&number(civil.minute()))
            && self.hours.contains(&number(civil.hour()))
            && self.months.contains(&number(civil.month()))
            && if self.either_day { day || weekday } else { day && weekday }
    }
}

/// Parses `*`, `5`, `1-9`, each optionally with `/n`, and lists of them.
fn values(field: &str, low: u32, high: u32) -> Option<BTreeSet<u32>> {
    let mut found = BTreeSet::new();
    for item in field.split(',') {
        let (range, step) = item.split_once('/').unwrap_or((item, "1"));
        let step: usize = step.parse().ok().filter(|step| *step > 0)?;
        let (from, to) = match (range, range.split_once('-')) {
            ("*", _) => (low, high),
            (_, Some((from, to))) => (from.parse().ok()?, to.parse().ok()?),
            (one, None) if item.contains('/') => (one.parse().ok()?, high),
            (one, None) => (one.parse().ok()?, one.parse().ok()?),
        };
        if from < low || to > high {
            return None;
        }
        found.extend((from..=to).step_by(step));
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use model::Duration;
    use model::timing::{Cron, Every};

    use super::*;

    fn shown(rule: Rule, after: &str, until: &str) -> Vec<String> {
        let timing = Timing { rules: vec![rule], ..Timing::default() };
        let found = instants(&timing, after.parse().unwrap(), until.parse().unwrap());
        found.unwrap().iter().map(ToString::to_string).collect()
    }

    /// I15.
    #[test]
    fn rates_are_aligned_to_their_grid_within_the_range() {
        let period = Duration::from_secs(20);
        let rule = || Rule::Every(Every { period, phase: Duration::from_secs(5) });
        let found = shown(rule(), "2026-03-02T08:00:05Z", "2026-03-02T08:00:45Z");
        assert_eq!(found, ["2026-03-02T08:00:25Z", "2026-03-02T08:00:45Z"]);
    }

    /// I15. 2026-03-01 is a Sunday.
    #[test]
    fn cron_matches_either_day_field_if_both_are_set() {
        let rule = Rule::Cron(Cron::new("30 1-2 1,3 * 1"));
        let found = shown(rule, "2026-03-01T00:00:00Z", "2026-03-04T00:00:00Z");
        let days = ["01", "02", "03"].iter();
        let expected: Vec<_> =
            days.flat_map(|d| ["01", "02"].map(|h| format!("2026-03-{d}T{h}:30:00Z"))).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn the_oracle_returns_none_for_unsupported_rules() {
        let zoned = Timing { zone: "Europe/Berlin".into(), ..Timing::default() };
        assert_eq!(instants(&zoned, Timestamp::default(), Timestamp::default()), None);
        assert!(Fields::parse("0 0 L * *").is_none() && Fields::parse("* * *").is_none());
    }
}
