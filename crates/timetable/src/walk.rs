//! Walking a timing: the instants of all its rules, and what its filters say of them.
//!
//! ```text
//! rules ──first of all──> roll ──> start..end ──> filters ──> instant, let through or held
//! ```
//!
//! # Always true
//! - [`Timetable::next`] and [`Timetable::step`] are strictly after their argument.
//! - Every instant that `next` gives, `step` gives too, as one that nothing holds.
//! - [`Timetable::last`] is the greatest that `next` gives up to then.
//!
//! # Cost
//! Tens to hundreds of nanoseconds for a plain rule. A search that filters disappoint jumps over what
//! they hold, and stops after [`STEPS_MAX`] instants that were held all the same: some milliseconds.

use jiff::tz::TimeZone;
use model::timing::Timing;
use model::validate::Problem;
use model::{Duration, Timestamp};

use crate::calendar::{Calendars, unknown_calendar};
use crate::civil::DAY_SECONDS;
use crate::cron::{self, Expression};
use crate::filter::{Filter, FilterContext};
use crate::roll::Roll;
use crate::rule::{MICROS, Rule, RuleContext, RuleHit};
use crate::wall::{FIRST_SECOND, LAST_SECOND, Segment, offset_at};
use crate::{Held, Next, Step, Zones};

/// How many held instants a search looks at before it says how far it came.
const STEPS_MAX: usize = 10_000;

/// How many rules a timing may have, and how many filters of each kind.
const PARTS_MAX: usize = 64;

/// A timing, ready to be walked.
///
/// Cheap to share and small: a million schedules may each have their own.
#[derive(Debug, Clone)]
pub struct Timetable {
    pub(crate) rules: Box<[Rule]>,
    pub(crate) zone: TimeZone,
    /// What few timings have.
    pub(crate) limits: Option<Box<Limits>>,
}

/// What takes instants away, or moves them.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) filters: Box<[Filter]>,
    pub(crate) roll: Option<Roll>,
    start: Option<Timestamp>,
    end: Option<Timestamp>,
}

impl Timetable {
    /// Makes a timing ready.
    ///
    /// `seed` stands for the schedule's name and decides what `H` and `~` mean.
    ///
    /// # Errors
    /// Everything that is wrong with it, with paths relative to the timing (`rules[0].cron`).
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

    /// A timetable without rules.
    pub fn on_demand() -> Self {
        Self { rules: Box::default(), zone: TimeZone::UTC, limits: None }
    }

    /// Whether [`Timetable::compile`] of this timing depends on the seed.
    pub fn is_seeded(timing: &Timing) -> bool {
        let seeded = |cron: &model::timing::Cron| match cron::parse(cron, 0) {
            Ok(Expression::Fields(parsed)) => parsed.seeded,
            _ => false,
        };
        let rule = |rule: &_| matches!(rule, model::timing::Rule::Cron(cron) if seeded(cron));
        let filter = |filter: &_| matches!(filter, model::timing::Filter::Cron(cron) if seeded(cron));
        timing.rules.iter().any(rule) || timing.only.iter().chain(&timing.exclude).any(filter)
    }

    /// The first nominal instant strictly after `after`, or `None` if there is none (within the bound).
    pub fn step(&self, after: Timestamp) -> Option<Step> {
        let at = Timestamp::from_micros(self.nominal(after.as_micros())?);
        Some(Step { at, held: self.held(at) })
    }

    /// What holds an instant, also one that no rule names, such as the end of a fixed delay.
    pub fn held(&self, at: Timestamp) -> Option<Held> {
        let limits = self.limits.as_ref()?;
        let local = self.local(at.as_micros());
        limits.filters.iter().find(|filter| filter.is_holding(local)).map(Filter::held)
    }

    /// The first instant strictly after `after` that no filter holds.
    pub fn next(&self, after: Timestamp) -> Next {
        self.next_until(after.as_micros(), i64::MAX)
    }

    /// The last instant in `(after, until]` that no filter holds, as far as one is found within the
    /// bound.
    pub fn last(&self, after: Timestamp, until: Timestamp) -> Option<Timestamp> {
        let latest = LAST_SECOND * MICROS;
        let (after, until) = (after.as_micros(), until.as_micros().min(latest));
        // Looks at the last second, then at four times as much, and so on, until there is something.
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
        // Halves what is left after it. Nothing lies in `(nothing_after, window_end]`.
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

    /// The fixed delay from the end of a run to the next, if the timing has one.
    pub fn delay(&self) -> Option<Duration> {
        self.rules.iter().find_map(|rule| match rule {
            Rule::After(delay) => Some(*delay),
            _ => None,
        })
    }

    /// When a fixed delay that counts from `from` is over: the first instant after `after` that lies
    /// between start and end and that no filter holds, as far as one is found within the bound.
    pub fn after_delay(&self, from: Timestamp, after: Timestamp) -> Option<Step> {
        let (start, end) = self.limits.as_ref().map_or((None, None), |limits| (limits.start, limits.end));
        let mut at = (from + self.delay()?).max(after + Duration::from_millis(1)).as_micros();
        at = start.map_or(at, |start| at.max(start.as_micros()));
        let latest = end.map_or(i64::MAX, Timestamp::as_micros).min(LAST_SECOND * MICROS);
        for _ in 0..STEPS_MAX {
            match self.released(at).filter(|_| at <= latest) {
                Some(released) => at = released.max(at + 1),
                None => break,
            }
        }
        let at = Timestamp::from_micros(at);
        (at.as_micros() <= latest).then(|| Step { at, held: self.held(at) })
    }

    /// The first instant strictly after `after` of every rule, with the place of the rule.
    pub(crate) fn hits(&self, after: i64) -> impl Iterator<Item = (usize, RuleHit)> {
        let roll = self.limits.as_ref().and_then(|limits| limits.roll.as_ref());
        let rules = self.rules.iter().enumerate();
        rules.filter_map(move |(i, rule)| Some((i, rule.next(&self.zone, roll, after)?)))
    }

    /// The first nominal instant strictly after `after`, in microseconds.
    fn nominal(&self, after: i64) -> Option<i64> {
        let (start, end) = self.limits.as_ref().map_or((None, None), |limits| (limits.start, limits.end));
        let earliest = start.map_or(i64::MIN, |start| start.as_micros().saturating_sub(1));
        let after = after.max(earliest).max(FIRST_SECOND * MICROS);
        let latest = end.map_or(i64::MAX, Timestamp::as_micros).min(LAST_SECOND * MICROS);
        if after >= latest {
            return None;
        }
        self.hits(after).map(|(_, hit)| hit.at).min().filter(|at| *at <= latest)
    }

    /// What the wall shows at an instant.
    fn local(&self, at: i64) -> i64 {
        let second = at.div_euclid(MICROS);
        second + offset_at(&self.zone, second)
    }

    /// As far as one is found within the bound.
    fn first_between(&self, after: i64, until: i64) -> Option<i64> {
        match self.next_until(after, until) {
            Next::At(at) => Some(at.as_micros()).filter(|at| *at <= until),
            Next::Never | Next::NotUntil(_) => None,
        }
    }

    /// As [`Timetable::next`], with nothing looked at after `until`.
    fn next_until(&self, after: i64, until: i64) -> Next {
        let mut after = after;
        for _ in 0..STEPS_MAX {
            let Some(at) = self.nominal(after) else { return Next::Never };
            if at > until {
                return Next::NotUntil(Timestamp::from_micros(until));
            }
            let Some(released) = self.released(at) else { return Next::At(Timestamp::from_micros(at)) };
            after = at.max(released - 1);
        }
        Next::NotUntil(Timestamp::from_micros(after))
    }

    /// The first instant after a held one that may be let through; `None` if this one is.
    fn released(&self, at: i64) -> Option<i64> {
        let filters = &self.limits.as_ref()?.filters;
        let local = self.local(at);
        let held_for = filters.iter().filter_map(|filter| filter.holds(local)).max()?.saturating_sub(local);
        let second = at.div_euclid(MICROS);
        // Local times run evenly up to the next change of the clocks only, which may show what was
        // before `at` again if it is near.
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
        let message = "is a second fixed delay: expected one at most, since both would wait for the same run";
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
    use crate::NoCalendars;
    use crate::rule::WallRule;

    /// G4. A million schedules have one each.
    #[test]
    fn a_timetable_is_small() {
        let every = Every { period: Duration::from_secs(90), phase: Duration::ZERO };
        let one = |rule| Timing { rules: vec![rule], ..Timing::default() };
        let compile = |timing| Timetable::compile(&timing, 0, &Zones::bundled(), &NoCalendars).unwrap();
        let bytes = |timetable: &Timetable| {
            let heap = |rule: &Rule| if matches!(rule, Rule::Wall(_)) { size_of::<WallRule>() } else { 0 };
            let rules = timetable.rules.iter().map(|rule| size_of::<Rule>() + heap(rule)).sum::<usize>();
            size_of::<Timetable>() + rules + timetable.limits.as_ref().map_or(0, |_| size_of::<Limits>())
        };
        assert!(bytes(&compile(one(model::timing::Rule::Every(every)))) <= 100);
        assert!(bytes(&compile(one(model::timing::Rule::Cron(Cron::new("0 2 * * *"))))) <= 256);
    }
}
