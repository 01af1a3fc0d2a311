//! Compiled filters of a timing.
//!
//! A filter in `only` excludes the local times that it does not match; a filter in `exclude` excludes those that it
//! matches. A filter also returns the local time up to which its result stays the same. So a search skips an excluded
//! weekend at once, instead of second by second.
//!
//! [`FilterContext::compile`] checks and compiles a filter; [`crate::Timetable`] applies it to scheduled times.
//!
//! # Cost
//! A match costs nanoseconds. The search for the next different day of a calendar examines at most
//! [`DAYS_AHEAD_MAX`] days.

use std::fmt::Write as _;
use std::sync::Arc;

use model::timing;
use model::validate::Problem;

use crate::calendar::{Calendars, DaySet, unknown_calendar};
use crate::calendar_days::weekday_bits;
use crate::civil::{DAY_SECONDS, Day, date_of, day_of, join, show_time, split, time_of_day, weekday};
use crate::cron::{self, Expression};
use crate::rule::{LocalTimeRule, not_a_time_of_day};
use crate::wall::ClockChangePolicy;
use crate::{Exclusion, FilterKind};

/// Maximum number of ranges of days in a filter.
const DATES_MAX: usize = 10_000;

/// Maximum number of days that one search for a day with another result examines.
const DAYS_AHEAD_MAX: Day = 1_000;

/// Compiled filter.
#[derive(Debug, Clone)]
pub(crate) struct Filter {
    kind: Kind,
    /// `true` for a filter in `only`, which excludes times that do not match; `false` for a filter in `exclude`.
    passes: bool,
    label: Arc<str>,
}

#[derive(Debug, Clone)]
enum Kind {
    /// Bits of weekdays; Sunday is bit 0.
    Weekdays(u8),
    /// First and last days of ranges, sorted; ranges neither overlap nor touch.
    Dates(Box<[(Day, Day)]>),
    Calendar(Arc<DaySet>),
    Window {
        from: u32,
        length: i64,
        weekdays: u8,
    },
    Cron(Box<LocalTimeRule>),
}

impl Filter {
    /// Returns the first local second after `local` that the filter may not exclude; `None` if the filter does not
    /// exclude `local`.
    pub(crate) fn excluded_until(&self, local: i64) -> Option<i64> {
        let matches = self.matches(local);
        (matches != self.passes).then(|| self.same_until(local, matches))
    }

    /// Returns whether the filter excludes a local second.
    pub(crate) fn excludes(&self, local: i64) -> bool {
        self.matches(local) != self.passes
    }

    /// Returns the kind and the label of the filter, for a time that it excludes.
    pub(crate) fn held(&self) -> Exclusion {
        let by = match self.kind {
            Kind::Weekdays(_) | Kind::Dates(_) | Kind::Calendar(_) => FilterKind::Calendar,
            Kind::Window { .. } | Kind::Cron(_) => FilterKind::Window,
        };
        Exclusion { by, filter: Arc::clone(&self.label) }
    }

    fn matches(&self, local: i64) -> bool {
        let (day, _) = split(local);
        match &self.kind {
            Kind::Weekdays(_) | Kind::Dates(_) | Kind::Calendar(_) => self.matches_day(day),
            Kind::Window { .. } => self.window_end(local).is_some(),
            Kind::Cron(rule) => rule.next_local(local) == Some(local),
        }
    }

    fn matches_day(&self, day: Day) -> bool {
        match &self.kind {
            Kind::Weekdays(weekdays) => weekdays & 1 << weekday(day) != 0,
            Kind::Dates(ranges) => {
                let index = ranges.partition_point(|(_, last)| *last < day);
                ranges.get(index).is_some_and(|(first, _)| *first <= day)
            }
            Kind::Calendar(days) => days.contains(date_of(day)),
            Kind::Window { .. } | Kind::Cron(_) => false,
        }
    }

    /// Returns the end of the window that contains a local second, if any.
    fn window_end(&self, local: i64) -> Option<i64> {
        let Kind::Window { from, length, weekdays } = self.kind else { return None };
        let (day, _) = split(local);
        [day, day - 1]
            .into_iter()
            .filter(|day| weekdays & 1 << weekday(*day) != 0)
            .map(|day| (join(day, from), join(day, from) + length))
            .find(|(begin, end)| (*begin..*end).contains(&local))
            .map(|(_, end)| end)
    }

    /// Returns the first local second after `local` for which the match may differ. `matches` is the match of `local`.
    fn same_until(&self, local: i64, matches: bool) -> i64 {
        let (day, time) = split(local);
        match &self.kind {
            Kind::Dates(ranges) => {
                let index = ranges.partition_point(|(_, last)| *last < day);
                ranges
                    .get(index)
                    .map_or(i64::MAX, |(first, last)| join(if matches { last + 1 } else { *first }, 0))
            }
            Kind::Weekdays(_) | Kind::Calendar(_) => {
                let other = (1..DAYS_AHEAD_MAX).find(|n| self.matches_day(day + n) != matches);
                join(day + other.unwrap_or(DAYS_AHEAD_MAX), 0)
            }
            Kind::Window { from, weekdays, .. } => self.window_end(local).unwrap_or_else(|| {
                let begins =
                    (0..8).filter(|n| weekdays & 1 << weekday(day + n) != 0).map(|n| join(day + n, *from));
                begins.into_iter().find(|begin| *begin > local).unwrap_or(local + DAY_SECONDS)
            }),
            Kind::Cron(rule) if matches => match rule.times.next_outside(time) {
                Some(time) => join(day, time),
                None => join(day + 1, 0),
            },
            Kind::Cron(rule) => rule.next_local(local).unwrap_or(i64::MAX),
        }
    }
}

/// Values that the compilation of filters depends on.
pub(crate) struct FilterContext<'a> {
    pub(crate) calendars: &'a dyn Calendars,
    pub(crate) seed: u64,
}

impl FilterContext<'_> {
    /// Compiles a filter. Returns `None` and adds to `problems` if the filter is invalid.
    pub(crate) fn compile(
        &self,
        filter: &timing::Filter,
        passes: bool,
        path: &str,
        problems: &mut Vec<Problem>,
    ) -> Option<Filter> {
        let mut fail = |field: &str, message: String| {
            problems.push(Problem { path: format!("{path}.{field}"), message });
            None
        };
        let (kind, name) = match filter {
            timing::Filter::Calendar(name) => match self.calendars.days(name) {
                Some(days) => (Kind::Calendar(days), format!("calendar {name}")),
                None => return fail("calendar", unknown_calendar(name, self.calendars)),
            },
            timing::Filter::Weekdays(weekdays) if weekdays.is_empty() => {
                return fail("weekdays", "must contain at least one day of the week".into());
            }
            timing::Filter::Weekdays(weekdays) => {
                (Kind::Weekdays(weekday_bits(weekdays)), format!("weekdays{}", weekday_names(weekdays)))
            }
            timing::Filter::Window(window) => return self.window(window, passes, path, problems),
            timing::Filter::Dates(ranges) if ranges.is_empty() || ranges.len() > DATES_MAX => {
                return fail("dates", format!("has {} entries: expected 1 to {DATES_MAX}", ranges.len()));
            }
            timing::Filter::Dates(ranges) => {
                let more =
                    if ranges.len() > 1 { format!(" and {} more", ranges.len() - 1) } else { String::new() };
                (Kind::Dates(merged(ranges)), format!("dates {}{more}", ranges[0]))
            }
            timing::Filter::Cron(cron) => match cron::parse(cron, self.seed) {
                Ok(Expression::Fields(parsed)) => {
                    // An expression without a field for seconds matches whole minutes.
                    let has_seconds = cron.expression.split_whitespace().count() > 5;
                    let times = if has_seconds { parsed.times } else { parsed.times.whole_minutes() };
                    let rule =
                        LocalTimeRule { days: parsed.days, times, changes: ClockChangePolicy::REPEATING };
                    (Kind::Cron(Box::new(rule)), format!("cron {}", cron.expression))
                }
                Ok(Expression::Every(_)) => {
                    return fail(
                        "cron",
                        "`@every` cannot be a filter: expected cron fields, such as `* 9-17 * * *`".into(),
                    );
                }
                Err(error) => return fail("cron", error.to_string()),
            },
            _ => return fail("filter", "is not supported by this version".into()),
        };
        Some(Filter { kind, passes, label: format!("{path}: {name}").into() })
    }

    fn window(
        &self,
        window: &timing::Window,
        passes: bool,
        path: &str,
        problems: &mut Vec<Problem>,
    ) -> Option<Filter> {
        let mut read = |field: &str, text: &str| {
            let time = time_of_day(text);
            if time.is_none() {
                let path = format!("{path}.window.{field}");
                problems.push(Problem { path, message: not_a_time_of_day(text) });
            }
            time
        };
        let (from, until) = (read("from", &window.from), read("until", &window.until));
        let (from, until) = (from?, until?);
        let same_day = i64::from(until) - i64::from(from);
        let length = if same_day > 0 { same_day } else { same_day + DAY_SECONDS };
        let weekdays = if window.weekdays.is_empty() { 0x7f } else { weekday_bits(&window.weekdays) };
        let days = if window.weekdays.is_empty() {
            String::new()
        } else {
            format!(" on{}", weekday_names(&window.weekdays))
        };
        let label = format!("{path}: window {}..{}{days}", show_time(from), show_time(until));
        Some(Filter { kind: Kind::Window { from, length, weekdays }, passes, label: label.into() })
    }
}

fn weekday_names(weekdays: &[timing::Weekday]) -> String {
    let mut names = String::new();
    for weekday in weekdays.iter().take(7) {
        let name = format!("{weekday:?}");
        let _ = write!(names, "{}{}", if names.is_empty() { " " } else { "," }, name[..3].to_lowercase());
    }
    names
}

fn merged(ranges: &[timing::DateRange]) -> Box<[(Day, Day)]> {
    let mut days: Vec<(Day, Day)> =
        ranges.iter().map(|range| (day_of(range.first), day_of(range.last))).collect();
    days.sort_unstable();
    let mut apart: Vec<(Day, Day)> = Vec::with_capacity(days.len());
    for (first, last) in days {
        match apart.last_mut() {
            Some(before) if first <= before.1 + 1 => before.1 = before.1.max(last),
            _ => apart.push((first, last)),
        }
    }
    apart.into()
}
