//! One compiled rule of a timing.
//!
//! [`RuleContext::compile`] checks a rule and converts it to one of four kinds: times of day on days (cron expressions,
//! calendar rules, local times), a fixed rate, a single time in UTC, and a fixed delay. [`Rule::next`] returns the next
//! time of a rule; [`crate::Timetable`] combines the rules of a timing and applies the filters.
//!
//! # Cost
//! `next` costs tens to hundreds of nanoseconds, more if working days of a roll are far apart.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use model::timing::{self, Every};
use model::validate::Problem;
use model::{Duration, Timestamp};

use crate::calendar_days::CalendarDays;
use crate::civil::{Day, day_of, join, split, time_of_day};
use crate::cron::{self, Expression};
use crate::days::Days;
use crate::roll::Roll;
use crate::times::Times;
use crate::wall::{ClockChangePolicy, FIRST_SECOND, LAST_SECOND, LocalMatch, next_utc_second, offset_at};

/// Minimum period of a rate, and minimum fixed delay.
pub(crate) const PERIOD_MIN: Duration = Duration::from_secs(1);

/// Maximum number of times of day of a calendar rule.
const TIMES_MAX: usize = 1_440;

/// Microseconds of a second.
pub(crate) const MICROS: i64 = 1_000_000;

/// Compiled rule.
#[derive(Debug, Clone)]
pub(crate) enum Rule {
    /// Local times of day on a set of days.
    LocalTime(Box<LocalTimeRule>),
    /// Fixed rate.
    Rate(Rate),
    /// Single time, in Unix microseconds.
    SingleTime(i64),
    /// Fixed delay after the end of the last run; has no scheduled times by itself.
    After(Duration),
}

/// Local times of day on a set of days.
#[derive(Debug, Clone)]
pub(crate) struct LocalTimeRule {
    pub(crate) days: Days,
    pub(crate) times: Times,
    pub(crate) changes: ClockChangePolicy,
}

/// Fixed rate: times at `n * period + phase`, in microseconds since the Unix epoch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    period: i64,
    phase: i64,
}

/// Scheduled time of a rule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RuleTime {
    /// Unix microseconds.
    pub(crate) at: i64,
    /// Whether the time was moved to the end of the gap that skips its local time.
    pub(crate) shifted: bool,
    /// Whether the roll moved the time to another day.
    pub(crate) rolled: bool,
}

impl LocalTimeRule {
    /// Returns the first local second of the rule at or after `from`.
    pub(crate) fn next_local(&self, from: i64) -> Option<i64> {
        let (today, time) = split(from);
        let mut day = self.days.next(today)?;
        if day == today {
            if let Some(time) = self.times.next(time) {
                return Some(join(today, time));
            }
            day = self.days.next(today + 1)?;
        }
        self.times.next(0).map(|time| join(day, time))
    }

    fn next(&self, zone: &TimeZone, from: i64) -> Option<LocalMatch> {
        next_utc_second(zone, self.changes, from, |local| self.next_local(local))
    }
}

impl Rate {
    fn new(every: &Every) -> Self {
        let micros = |duration: Duration| {
            i64::try_from(duration.as_millis()).unwrap_or(i64::MAX).saturating_mul(1_000)
        };
        let period = micros(every.period).max(1);
        Self { period, phase: micros(every.phase).rem_euclid(period) }
    }

    /// Returns the first time at or after `from`, in microseconds.
    fn next(&self, from: i64) -> Option<i64> {
        from.checked_add(self.phase.checked_sub(from).map(|d| d.rem_euclid(self.period))?)
    }

    /// Returns the first time at or after `from`, in whole seconds, rounded down.
    pub(crate) fn next_second(&self, from: i64) -> Option<i64> {
        self.next(from * MICROS).map(|at| at / MICROS).filter(|at| *at <= LAST_SECOND)
    }
}

impl Rule {
    /// Returns the first time strictly after `after`, in microseconds.
    pub(crate) fn next(&self, zone: &TimeZone, roll: Option<&Roll>, after: i64) -> Option<RuleTime> {
        let next_second = after.div_euclid(MICROS) + 1;
        let hit = match (self, roll) {
            (Self::LocalTime(rule), _) => rule.next(zone, next_second)?,
            (Self::Rate(rate), Some(roll)) => roll.next_of_rate(rate, zone, next_second)?,
            (Self::Rate(rate), None) => {
                let at = rate.next(after + 1)?;
                return Some(RuleTime { at, shifted: false, rolled: false });
            }
            (Self::SingleTime(at), _) => {
                return (after < *at).then_some(RuleTime { at: *at, shifted: false, rolled: false });
            }
            (Self::After(_), _) => return None,
        };
        let rolled = match (self, roll) {
            (Self::LocalTime(rule), _) => rule.days.is_moved(split(hit.local).0),
            (Self::Rate(rate), Some(roll)) => roll.is_moved(rate, zone, hit.at),
            _ => false,
        };
        Some(RuleTime { at: hit.at * MICROS, shifted: hit.shifted, rolled })
    }
}

/// Fields of a timing that the compilation of its rules depends on.
pub(crate) struct RuleContext<'a> {
    pub(crate) zone: &'a TimeZone,
    pub(crate) dst: timing::Dst,
    pub(crate) roll: Option<&'a Roll>,
    pub(crate) seed: u64,
}

impl RuleContext<'_> {
    /// Compiles a rule. Returns `None` and adds to `problems` if the rule is invalid.
    pub(crate) fn compile(
        &self,
        rule: &timing::Rule,
        path: &str,
        problems: &mut Vec<Problem>,
    ) -> Option<Rule> {
        let before = problems.len();
        let mut fail = |field: &str, message: String| {
            problems.push(Problem { path: format!("{path}.{field}"), message });
        };
        let compiled = match rule {
            timing::Rule::Cron(cron) => match cron::parse(cron, self.seed) {
                Ok(Expression::Every(period)) => {
                    Rule::Rate(Rate::new(&Every { period, phase: Duration::ZERO }))
                }
                Ok(Expression::Fields(parsed)) => {
                    let usual =
                        if parsed.repeats { ClockChangePolicy::REPEATING } else { ClockChangePolicy::FIXED };
                    self.wall(parsed.days, parsed.times, usual)
                }
                Err(error) => {
                    fail("cron", error.to_string());
                    return None;
                }
            },
            timing::Rule::Every(every) => {
                if every.period < PERIOD_MIN {
                    fail(
                        "every",
                        format!("a period of {} is too short: expected at least {PERIOD_MIN}", every.period),
                    );
                }
                Rule::Rate(Rate::new(every))
            }
            timing::Rule::After(delay) => {
                if *delay < PERIOD_MIN {
                    fail("after", format!("a delay of {delay} is too short: expected at least {PERIOD_MIN}"));
                }
                Rule::After(*delay)
            }
            timing::Rule::At(text) => match self.one_time(text) {
                Some(rule) => rule,
                None => {
                    fail("at", not_a_time(text));
                    return None;
                }
            },
            timing::Rule::Calendar(rule) => {
                let path = format!("{path}.calendar");
                let days = CalendarDays::compile(rule, &path, problems);
                let times = times(&rule.times, &path, problems);
                self.wall(Days::Calendar(Box::new(days)).or_never(), times, ClockChangePolicy::FIXED)
            }
            _ => {
                fail("rule", "is not supported by this version".into());
                return None;
            }
        };
        (problems.len() == before).then_some(compiled)
    }

    fn wall(&self, days: Days, times: Times, usual: ClockChangePolicy) -> Rule {
        let days = match self.roll {
            Some(roll) => days.rolled(roll),
            None => days,
        };
        let changes = ClockChangePolicy {
            gap: self.dst.gap.unwrap_or(usual.gap),
            overlap: self.dst.overlap.unwrap_or(usual.overlap),
        };
        Rule::LocalTime(Box::new(LocalTimeRule { days, times, changes }))
    }

    fn one_time(&self, text: &str) -> Option<Rule> {
        let text = text.trim();
        if text.contains('[') {
            return None;
        }
        if let Ok(instant) = text.parse::<Timestamp>() {
            let second = instant.as_micros().div_euclid(MICROS);
            if !(FIRST_SECOND..=LAST_SECOND).contains(&second) {
                return None;
            }
            let (day, time) = split(second + offset_at(self.zone, second));
            let moves = self.roll.is_some_and(|roll| roll.target(day) != Some(day));
            return Some(if moves { self.once(day, time) } else { Rule::SingleTime(instant.as_micros()) });
        }
        let local: DateTime = text.parse().ok()?;
        let whole = local.subsec_nanosecond() == 0 && local.year() >= 1;
        let time = u32::try_from(local.hour()).ok()? * 3_600
            + u32::try_from(local.minute()).ok()? * 60
            + u32::try_from(local.second()).ok()?;
        whole.then(|| self.once(day_of(local.date()), time))
    }

    fn once(&self, day: Day, time: u32) -> Rule {
        self.wall(Days::One(day), Times::List(Box::new([time])), ClockChangePolicy::FIXED)
    }
}

fn not_a_time(text: &str) -> String {
    let shown: String = text.chars().take(64).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    format!(
        "`{shown}` is not a time: expected a time with an offset, such as `2026-12-01T09:00:00Z`, \
         or a local time in whole seconds, such as `2026-12-01T09:00`"
    )
}

fn times(texts: &[String], path: &str, problems: &mut Vec<Problem>) -> Times {
    if texts.len() > TIMES_MAX {
        let message = format!("has {} entries: expected at most {TIMES_MAX}", texts.len());
        problems.push(Problem { path: format!("{path}.times"), message });
    }
    let mut times: Vec<u32> = Vec::new();
    for (i, text) in texts.iter().take(TIMES_MAX).enumerate() {
        match time_of_day(text) {
            Some(time) => times.push(time),
            None => problems
                .push(Problem { path: format!("{path}.times[{i}]"), message: not_a_time_of_day(text) }),
        }
    }
    if times.is_empty() {
        times.push(0);
    }
    times.sort_unstable();
    times.dedup();
    Times::List(times.into())
}

/// Returns the error message for a text that is not a time of day.
pub(crate) fn not_a_time_of_day(text: &str) -> String {
    let shown: String = text.chars().take(64).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    format!("`{shown}` is not a time of day: expected `HH:MM` or `HH:MM:SS` from 00:00 to 23:59:59")
}
