//! Compiled timings, and searches for their scheduled times.
//!
//! ```text
//! rules ──earliest time──> roll ──> start..end ──> filters ──> scheduled time, excluded or not
//! ```
//!
//! The engine, previews and forecasts call the search methods of [`Timetable`].
//!
//! # Invariants
//! - The results of [`Timetable::next`] and [`Timetable::step`] are strictly after their argument.
//! - `step` returns every time that `next` returns, without an excluding filter.
//! - [`Timetable::last`] returns the latest time that repeated calls of `next` would return.
//!
//! # Cost
//! A search in one rule without filters costs tens to hundreds of nanoseconds. A search with filters skips the periods
//! that they exclude. It stops after [`STEPS_MAX`] excluded times, which takes some milliseconds.

use jiff::tz::TimeZone;
use model::timing::Timing;
use model::validate::Problem;
use model::{Duration, Timestamp};

use crate::calendar::{BuiltinCalendars, Calendars, unknown_calendar};
use crate::civil::DAY_SECONDS;
use crate::cron::{self, Expression};
use crate::filter::{Filter, FilterContext};
use crate::roll::Roll;
use crate::rule::{MICROS, Rule, RuleContext, RuleTime};
use crate::wall::{FIRST_SECOND, LAST_SECOND, Segment, offset_at};
use crate::{Exclusion, Next, ScheduledTime, Zones};

/// Maximum number of excluded times that a search examines; then it returns [`Next::NotUntil`].
const STEPS_MAX: usize = 10_000;

/// Maximum number of rules of a timing, and of filters in each list.
const PARTS_MAX: usize = 64;

/// Compiled timing, for searches.
///
/// At most 256 bytes for one cron rule: a million schedules have one each.
#[derive(Debug, Clone)]
pub struct Timetable {
    pub(crate) rules: Box<[Rule]>,
    pub(crate) zone: TimeZone,
    /// Boxed, because few timings have filters, a roll, a start or an end.
    pub(crate) limits: Option<Box<Limits>>,
}

/// Parts of a timing that exclude or move scheduled times.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) filters: Box<[Filter]>,
    pub(crate) roll: Option<Roll>,
    start: Option<Timestamp>,
    end: Option<Timestamp>,
}

impl Timetable {
    /// Compiles a timing.
    ///
    /// `seed` is derived from the name of the schedule; it determines the values of `H` and `~` in cron expressions.
    ///
    /// # Errors
    /// Returns all problems of the timing, with paths relative to the timing (`rules[0].cron`).
    pub fn compile(
        timing: &Timing,
        seed: u64,
        zones: &Zones,
        calendars: &dyn Calendars,
    ) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let zone = zones.get(&timing.zone).unwrap_or_else(|message| {
            problems.push(Problem { path: "zone".into(), message });
            TimeZone::UTC
        });
        check_shape(timing, &mut problems);
        let roll = timing.roll.as_ref().and_then(|roll| {
            let workdays = calendars.days(&roll.calendar);
            if workdays.is_none() {
                let message = unknown_calendar(&roll.calendar, calendars);
                problems.push(Problem { path: "roll.calendar".into(), message });
            }
            Some(Roll { to: roll.to, workdays: workdays? })
        });
        let context = RuleContext { zone: &zone, dst: timing.dst, roll: roll.as_ref(), seed };
        let mut rules = Vec::with_capacity(timing.rules.len());
        for (i, rule) in timing.rules.iter().take(PARTS_MAX).enumerate() {
            rules.extend(context.compile(rule, &format!("rules[{i}]"), &mut problems));
        }
        let context = FilterContext { calendars, seed };
        let mut filters = Vec::new();
        for (name, list, passes) in [("only", &timing.only, true), ("exclude", &timing.exclude, false)] {
            for (i, filter) in list.iter().take(PARTS_MAX).enumerate() {
                filters.extend(context.compile(filter, passes, &format!("{name}[{i}]"), &mut problems));
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let plain = filters.is_empty() && roll.is_none() && timing.start.is_none() && timing.end.is_none();
        let limits = (!plain).then(|| {
            Box::new(Limits { filters: filters.into(), roll, start: timing.start, end: timing.end })
        });
        Ok(Self { rules: rules.into(), zone, limits })
    }

    /// Compiles a single cron expression, in the time zone `zone`.
    ///
    /// # Errors
    /// Returns all problems; their paths are `cron` and `zone`.
    pub fn of_cron(expression: &str, zone: &str, zones: &Zones) -> Result<Self, Vec<Problem>> {
        let rules = vec![model::timing::Rule::Cron(model::timing::Cron::new(expression))];
        let timing = Timing { rules, zone: zone.to_owned(), ..Timing::default() };
        Self::compile(&timing, 0, zones, &BuiltinCalendars).map_err(|mut problems| {
            for problem in &mut problems {
                problem.path = problem.path.strip_prefix("rules[0].").unwrap_or(&problem.path).to_owned();
            }
            problems
        })
    }

    /// Returns a timetable without rules: it has no scheduled times.
    pub fn on_demand() -> Self {
        Self { rules: Box::default(), zone: TimeZone::UTC, limits: None }
    }

    /// Returns whether the scheduled times depend on the seed: an expression has an `H` or a `~`.
    pub fn is_seeded(timing: &Timing) -> bool {
        let seeded = |cron: &model::timing::Cron| match cron::parse(cron, 0) {
            Ok(Expression::Fields(parsed)) => parsed.seeded,
            _ => false,
        };
        let rule = |rule: &_| matches!(rule, model::timing::Rule::Cron(cron) if seeded(cron));
        let filter = |filter: &_| matches!(filter, model::timing::Filter::Cron(cron) if seeded(cron));
        timing.rules.iter().any(rule) || timing.only.iter().chain(&timing.exclude).any(filter)
    }

    /// Returns the first scheduled time strictly after `after`, excluded or not. `None` if there is none within the
    /// bounds of the search.
    pub fn step(&self, after: Timestamp) -> Option<ScheduledTime> {
        let at = Timestamp::from_micros(self.next_scheduled(after.as_micros())?);
        Some(ScheduledTime { at, held: self.held(at) })
    }

    /// Returns the filter that excludes a time, if any. The time need not be a scheduled time of a rule; it can be the
    /// end of a fixed delay.
    pub fn held(&self, at: Timestamp) -> Option<Exclusion> {
        let limits = self.limits.as_ref()?;
        let local = self.local(at.as_micros());
        limits.filters.iter().find(|filter| filter.excludes(local)).map(Filter::held)
    }

    /// Returns the first scheduled time strictly after `after` that no filter excludes.
    pub fn next(&self, after: Timestamp) -> Next {
        self.next_until(after.as_micros(), i64::MAX)
    }

    /// Returns the last scheduled time in `(after, until]` that no filter excludes. `None` if there is none within the
    /// bounds of the search.
    pub fn last(&self, after: Timestamp, until: Timestamp) -> Option<Timestamp> {
        let latest = LAST_SECOND * MICROS;
        let (after, until) = (after.as_micros(), until.as_micros().min(latest));
        // Searches backwards in windows that grow by a factor of 4, from the last second, until one has a time.
        let mut reach = MICROS;
        let mut window_end = until;
        let mut found = loop {
            if window_end <= after {
                return None;
            }
            let begin = until.saturating_sub(reach).max(after);
            if let Some(found) = self.first_between(begin, window_end) {
                break found;
            }
            window_end = begin;
            reach = reach.saturating_mul(4);
        };
        // Bisects the window after `found`. There is no time in `(nothing_after, window_end]`.
        let mut nothing_after = window_end;
        while found < nothing_after {
            let middle = found + (nothing_after - found) / 2;
            match self.first_between(middle, nothing_after) {
                Some(later) => found = later,
                None => nothing_after = middle,
            }
        }
        Some(Timestamp::from_micros(found))
    }

    /// Returns the fixed delay from the end of a run to the next firing, if the timing has one.
    pub fn delay(&self) -> Option<Duration> {
        self.rules.iter().find_map(|rule| match rule {
            Rule::After(delay) => Some(*delay),
            _ => None,
        })
    }

    /// Returns the end of a fixed delay that starts at `from`.
    ///
    /// This is the first time after `after` that lies between start and end of the timing and that no filter excludes.
    /// If the search stops at its bound, the step is an excluded time. `None` if the timing has no fixed delay, or ends
    /// before that time.
    pub fn after_delay(&self, from: Timestamp, after: Timestamp) -> Option<ScheduledTime> {
        let (start, end) = self.limits.as_ref().map_or((None, None), |limits| (limits.start, limits.end));
        let mut at = (from + self.delay()?).max(after + Duration::from_millis(1)).as_micros();
        at = start.map_or(at, |start| at.max(start.as_micros()));
        let latest = end.map_or(i64::MAX, Timestamp::as_micros).min(LAST_SECOND * MICROS);
        for _ in 0..STEPS_MAX {
            match self.next_candidate(at).filter(|_| at <= latest) {
                Some(released) => at = released.max(at + 1),
                None => break,
            }
        }
        let at = Timestamp::from_micros(at);
        (at.as_micros() <= latest).then(|| ScheduledTime { at, held: self.held(at) })
    }

    /// Returns the first time strictly after `after` of each rule, with the index of the rule.
    pub(crate) fn next_of_each_rule(&self, after: i64) -> impl Iterator<Item = (usize, RuleTime)> {
        let roll = self.limits.as_ref().and_then(|limits| limits.roll.as_ref());
        let rules = self.rules.iter().enumerate();
        rules.filter_map(move |(i, rule)| Some((i, rule.next(&self.zone, roll, after)?)))
    }

    /// Returns the first scheduled time strictly after `after`, excluded or not, in microseconds.
    fn next_scheduled(&self, after: i64) -> Option<i64> {
        let (start, end) = self.limits.as_ref().map_or((None, None), |limits| (limits.start, limits.end));
        let earliest = start.map_or(i64::MIN, |start| start.as_micros().saturating_sub(1));
        let after = after.max(earliest).max(FIRST_SECOND * MICROS);
        let latest = end.map_or(i64::MAX, Timestamp::as_micros).min(LAST_SECOND * MICROS);
        if after >= latest {
            return None;
        }
        self.next_of_each_rule(after).map(|(_, hit)| hit.at).min().filter(|at| *at <= latest)
    }

    /// Returns the local second of a time in microseconds.
    fn local(&self, at: i64) -> i64 {
        let second = at.div_euclid(MICROS);
        second + offset_at(&self.zone, second)
    }

    /// Returns the first time in `(after, until]` that no filter excludes, within the bounds of the search.
    fn first_between(&self, after: i64, until: i64) -> Option<i64> {
        match self.next_until(after, until) {
            Next::At(at) => Some(at.as_micros()).filter(|at| *at <= until),
            Next::Never | Next::NotUntil(_) => None,
        }
    }

    /// Searches as [`Timetable::next`] does, but not after `until`.
    fn next_until(&self, after: i64, until: i64) -> Next {
        let mut after = after;
        for _ in 0..STEPS_MAX {
            let Some(at) = self.next_scheduled(after) else { return Next::Never };
            if at > until {
                return Next::NotUntil(Timestamp::from_micros(until));
            }
            let Some(released) = self.next_candidate(at) else { return Next::At(Timestamp::from_micros(at)) };
            after = at.max(released - 1);
        }
        Next::NotUntil(Timestamp::from_micros(after))
    }

    /// Returns the first time after an excluded time that may not be excluded; `None` if no filter excludes `at`.
    fn next_candidate(&self, at: i64) -> Option<i64> {
        let filters = &self.limits.as_ref()?.filters;
        let local = self.local(at);
        let held_for =
            filters.iter().filter_map(|filter| filter.excluded_until(local)).max()?.saturating_sub(local);
        let second = at.div_euclid(MICROS);
        // Local times increase steadily only up to the next clock change. A near clock change may repeat local times
        // from before `at`.
        let change = Segment::at(&self.zone, second).end;
        let far = held_for > 3 * DAY_SECONDS && change.saturating_sub(second) > DAY_SECONDS;
        let released = if far {
            second.saturating_add(held_for - 2 * DAY_SECONDS)
        } else {
            second.saturating_add(held_for).min(change)
        };
        Some(released.saturating_mul(MICROS))
    }
}

fn check_shape(timing: &Timing, problems: &mut Vec<Problem>) {
    let counts =
        [("rules", timing.rules.len()), ("only", timing.only.len()), ("exclude", timing.exclude.len())];
    for (path, count) in counts.into_iter().filter(|(_, count)| *count > PARTS_MAX) {
        let message = format!("has {count} entries: expected at most {PARTS_MAX}");
        problems.push(Problem { path: path.into(), message });
    }
    let delays =
        timing.rules.iter().enumerate().filter(|(_, rule)| matches!(rule, model::timing::Rule::After(_)));
    for (i, _) in delays.skip(1) {
        let message = "is a second fixed delay: expected at most one, since both would wait for the same run";
        problems.push(Problem { path: format!("rules[{i}].after"), message: message.into() });
    }
    if let (Some(start), Some(end)) = (timing.start, timing.end)
        && end < start
    {
        let message = format!("`{end}` is before `start` (`{start}`)");
        problems.push(Problem { path: "end".into(), message });
    }
}

#[cfg(test)]
mod tests {
    use model::timing::{Cron, Every};

    use super::*;
    use crate::BuiltinCalendars;
    use crate::rule::LocalTimeRule;

    /// G4. A million schedules have one timetable each.
    #[test]
    fn a_timetable_is_small() {
        let every = Every { period: Duration::from_secs(90), phase: Duration::ZERO };
        let one = |rule| Timing { rules: vec![rule], ..Timing::default() };
        let compile = |timing| Timetable::compile(&timing, 0, &Zones::bundled(), &BuiltinCalendars).unwrap();
        let bytes = |timetable: &Timetable| {
            let heap =
                |rule: &Rule| if matches!(rule, Rule::LocalTime(_)) { size_of::<LocalTimeRule>() } else { 0 };
            let rules = timetable.rules.iter().map(|rule| size_of::<Rule>() + heap(rule)).sum::<usize>();
            size_of::<Timetable>() + rules + timetable.limits.as_ref().map_or(0, |_| size_of::<Limits>())
        };
        assert!(bytes(&compile(one(model::timing::Rule::Every(every)))) <= 100);
        assert!(bytes(&compile(one(model::timing::Rule::Cron(Cron::new("0 2 * * *"))))) <= 256);
    }
}
