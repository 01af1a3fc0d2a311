//! Moving instants from days that are no working days to days that are.
//!
//! Days are moved as days, before anything is known of clocks: a rule's times of day then happen on
//! the day to which it was moved, by the rules of that day. Working days stay, and moving keeps the
//! order of days, so that days that meet become one and a search stays a search.
//!
//! # Cost
//! A search asks the calendar about the days around it, some ten at a time. No day is moved further
//! than [`MOVE_MAX`] days; what would have to be falls away.

use std::sync::Arc;

use jiff::tz::TimeZone;
use model::timing::RollTo;

use crate::calendar::DaySet;
use crate::civil::{DAY_SECONDS, Day, date_of, join, split};
use crate::days::{Days, direction};
use crate::rule::Rate;
use crate::wall::{Changes, Hit, LAST_SECOND, Segment, next_instant, offset_at};

/// How far a day is moved at most, in days.
const MOVE_MAX: Day = 400;

/// How far ahead a working day is looked for, in days.
const WORKDAY_AHEAD_MAX: Day = 36_525;

/// How many runs of days off in which nothing happens are passed before a search gives up.
const EMPTY_RUNS_MAX: usize = 10_000;

/// Where to, and which days are working days.
#[derive(Debug, Clone)]
pub(crate) struct Roll {
    pub(crate) to: RollTo,
    pub(crate) workdays: Arc<DaySet>,
}

impl Roll {
    fn works(&self, day: Day) -> bool {
        self.workdays.contains(date_of(day))
    }

    /// Where a day is moved to; itself if it is a working day.
    pub(crate) fn target(&self, day: Day) -> Option<Day> {
        let step = direction(self.to);
        (0..=MOVE_MAX).map(|n| day + n * step).find(|day| self.works(*day))
    }

    /// The first working day at or after `from`, within 100 years.
    fn next_workday(&self, from: Day) -> Option<Day> {
        (from..from + WORKDAY_AHEAD_MAX).find(|day| self.works(*day))
    }

    /// The first day at or after `from` to which a day of `days` is moved, or that is one and stays.
    pub(crate) fn next_day(&self, days: &Days, from: Day) -> Option<Day> {
        let mut search = match self.to {
            // The days off just before `from` are moved to it or past it.
            RollTo::Next => from - (1..=MOVE_MAX).take_while(|n| !self.works(from - n)).count() as Day,
            RollTo::Previous => self.next_workday(from)?,
        };
        loop {
            let day = days.next(search)?;
            if let Some(target) = self.target(day) {
                return Some(target);
            }
            // Too far within a long run of days off.
            search = match self.to {
                RollTo::Next => (self.next_workday(day)? - MOVE_MAX).max(day + 1),
                RollTo::Previous => self.next_workday(day)?,
            };
        }
    }

    /// The days off that are moved to a working day, in order.
    fn sources(&self, target: Day) -> impl Iterator<Item = Day> {
        let step = direction(self.to);
        (1..=MOVE_MAX).map(move |n| target - n * step).take_while(|day| !self.works(*day))
    }

    /// The first instant of a rate at or after `from`, with those on days off moved.
    ///
    /// What is moved is resolved on its new day as a fixed time is.
    pub(crate) fn next_of_rate(&self, rate: &Rate, zone: &TimeZone, from: i64) -> Option<Hit> {
        let own = self.next_unmoved(rate, zone, from);
        let moved = self.next_moved(rate, zone, from, own.map_or(LAST_SECOND, |hit| hit.at));
        match (own, moved) {
            (Some(own), Some(moved)) if own.at <= moved.at => Some(own),
            (own, moved) => moved.or(own),
        }
    }

    /// Whether an instant of a rate is there because it was moved.
    pub(crate) fn is_moved(&self, rate: &Rate, zone: &TimeZone, at: i64) -> bool {
        let (day, _) = split(at + offset_at(zone, at));
        !(rate.next_second(at) == Some(at) && self.works(day))
    }

    fn next_unmoved(&self, rate: &Rate, zone: &TimeZone, mut from: i64) -> Option<Hit> {
        for _ in 0..EMPTY_RUNS_MAX {
            let at = rate.next_second(from)?;
            let segment = Segment::at(zone, at);
            let local = at + segment.offset;
            let (day, _) = split(local);
            if self.works(day) {
                return Some(Hit { at, local, shifted: false });
            }
            let workday = self.next_workday(day + 1)?;
            from = (join(workday, 0) - segment.offset).min(segment.end).max(at + 1);
        }
        None
    }

    /// As [`Roll::next_of_rate`], of moved instants only, none after `until`.
    fn next_moved(&self, rate: &Rate, zone: &TimeZone, from: i64, until: i64) -> Option<Hit> {
        let (first_day, _) = split(from + offset_at(zone, from));
        // A clock that goes back may show the day before again.
        let mut target = first_day - 1;
        for _ in 0..EMPTY_RUNS_MAX {
            target = self.next_workday(target)?;
            if join(target, 0) - 2 * DAY_SECONDS > until {
                return None;
            }
            let sources: Vec<Day> = self.sources(target).collect();
            let next_local = |local: i64| {
                let (day, time) = split(local);
                let time = if day < target { 0 } else { time };
                let times = sources.iter().filter_map(|source| first_on(rate, zone, *source, time));
                times.min().filter(|_| day <= target).map(|time| join(target, time))
            };
            if !sources.is_empty()
                && let Some(hit) = next_instant(zone, Changes::FIXED, from, next_local)
            {
                return Some(hit);
            }
            target += 1;
        }
        None
    }
}

/// The first time of day, not before `time`, that the wall shows at an instant of a rate on a day.
fn first_on(rate: &Rate, zone: &TimeZone, day: Day, time: u32) -> Option<u32> {
    let (from, until) = (join(day, time), join(day + 1, 0));
    let mut segment = Segment::at(zone, from - DAY_SECONDS - DAY_SECONDS / 6);
    let mut first: Option<i64> = None;
    while segment.start < until + DAY_SECONDS + DAY_SECONDS / 6 {
        let local = from.max(segment.start + segment.offset);
        if let Some(at) = rate.next_second(local - segment.offset)
            && at < segment.end
            && at + segment.offset < until
        {
            first = Some(first.map_or(at + segment.offset, |first| first.min(at + segment.offset)));
        }
        let Some(next) = segment.following(zone) else { break };
        segment = next;
    }
    first.map(|local| split(local).1)
}
