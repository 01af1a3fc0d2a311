//! One rule, ready to be walked.

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
use crate::wall::{Changes, FIRST_SECOND, Hit, LAST_SECOND, next_instant, offset_at};

/// The shortest period of a rate, and the shortest delay.
pub(crate) const PERIOD_MIN: Duration = Duration::from_secs(1);

/// How many times of day a calendar rule may have.
const TIMES_MAX: usize = 1_440;

pub(crate) const MICROS: i64 = 1_000_000;

/// A rule.
#[derive(Debug, Clone)]
pub(crate) enum Rule {
    /// Times of day on days, as the wall shows them.
    Wall(Box<WallRule>),
    /// A grid of instants.
    Rate(Rate),
    /// One instant, in microseconds.
    Instant(i64),
    /// Not a matter of the clock: so long after the last run.
    After(Duration),
}

/// Times of day on days.
#[derive(Debug, Clone)]
pub(crate) struct WallRule {
    pub(crate) days: Days,
    pub(crate) times: Times,
    pub(crate) changes: Changes,
}

/// Instants at `n * period + phase`, in microseconds from the Unix epoch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    period: i64,
    phase: i64,
}

/// An instant of a rule, in microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RuleHit {
    pub(crate) at: i64,
    /// Whether it stands at the end of the gap in which its local time lies.
    pub(crate) shifted: bool,
    /// Whether its day is another than the rule says.
    pub(crate) rolled: bool,
}

impl WallRule {
    /// The first local second at or after `from`.
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

    fn next(&self, zone: &TimeZone, from: i64) -> Option<Hit> {
        next_instant(zone, self.changes, from, |local| self.next_local(local))
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

    /// The first microsecond at or after `from`.
    fn next(&self, from: i64) -> Option<i64> {
        from.checked_add(self.phase.checked_sub(from).map(|d| d.rem_euclid(self.period))?)
    }

    /// The first second at or after `from`, with what is less than a second cut off.
    pub(crate) fn next_second(&self, from: i64) -> Option<i64> {
        self.next(from * MICROS).map(|at| at / MICROS).filter(|at| *at <= LAST_SECOND)
    }
}

impl Rule {
    /// The first instant strictly after `after`, in microseconds.
    pub(crate) fn next(&self, zone: &TimeZone, roll: Option<&Roll>, after: i64) -> Option<RuleHit> {
        let next_second = after.div_euclid(MICROS) + 1;
        let hit = match (self, roll) {
            (Self::Wall(rule), _) => rule.next(zone, next_second)?,
            (Self::Rate(rate), Some(roll)) => roll.next_of_rate(rate, zone, next_second)?,
            (Self::Rate(rate), None) => {
                let at = rate.next(after + 1)?;
                return Some(RuleHit { at, shifted: false, rolled: false });
            }
            (Self::Instant(at), _) => {
                return (after < *at).then_some(RuleHit { at: *at, shifted: false, rolled: false });
            }
            (Self::After(_), _) => return None,
        };
        let rolled = match (self, roll) {
            (Self::Wall(rule), _) => rule.days.is_moved(split(hit.local).0),
            (Self::Rate(rate), Some(roll)) => roll.is_moved(rate, zone, hit.at),
            _ => false,
        };
        Some(RuleHit { at: hit.at * MICROS, shifted: hit.shifted, rolled })
    }
}

/// What rules are compiled with.
pub(crate) struct RuleContext<'a> {
    pub(crate) zone: &'a TimeZone,
    pub(crate) dst: timing::Dst,
    pub(crate) roll: Option<&'a Roll>,
    pub(crate) seed: u64,
}

impl RuleContext<'_> {
    /// Makes a rule ready; what is wrong with it is added to `problems`.
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
                    let usual = if parsed.repeats { Changes::REPEATING } else { Changes::FIXED };
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
                self.wall(Days::Calendar(Box::new(days)).settled(), times, Changes::FIXED)
            }
            _ => {
                fail("rule", "is of a kind that this version does not know".into());
                return None;
            }
        };
        (problems.len() == before).then_some(compiled)
    }

    fn wall(&self, days: Days, times: Times, usual: Changes) -> Rule {
        let days = match self.roll {
            Some(roll) => days.rolled(roll),
            None => days,
        };
        let changes = Changes {
            gap: self.dst.gap.unwrap_or(usual.gap),
            overlap: self.dst.overlap.unwrap_or(usual.overlap),
        };
        Rule::Wall(Box::new(WallRule { days, times, changes }))
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
            return Some(if moves { self.once(day, time) } else { Rule::Instant(instant.as_micros()) });
        }
        let local: DateTime = text.parse().ok()?;
        let whole = local.subsec_nanosecond() == 0 && local.year() >= 1;
        let time = u32::try_from(local.hour()).ok()? * 3_600
            + u32::try_from(local.minute()).ok()? * 60
            + u32::try_from(local.second()).ok()?;
        whole.then(|| self.once(day_of(local.date()), time))
    }

    fn once(&self, day: Day, time: u32) -> Rule {
        self.wall(Days::One(day), Times::List(Box::new([time])), Changes::FIXED)
    }
}

fn not_a_time(text: &str) -> String {
    let shown: String = text.chars().take(64).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    format!(
        "`{shown}` is not a time: expected an instant, such as `2026-12-01T09:00:00Z`, \
         or a local time in the zone to the second, such as `2026-12-01T09:00`"
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

/// What is said of a text that should be a time of day.
pub(crate) fn not_a_time_of_day(text: &str) -> String {
    let shown: String = text.chars().take(64).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    format!("`{shown}` is not a time of day: expected `HH:MM` or `HH:MM:SS` from 00:00 to 23:59:59")
}
