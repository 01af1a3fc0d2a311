//! Roll: moves scheduled times from non-working days to working days.
//!
//! The roll moves days, before local times are converted to UTC. The times of day of a rule then apply to the new day,
//! with its clock changes.
//!
//! # Invariants
//! - Working days are not moved.
//! - The order of days stays the same, so a search stays a forward search. Days that are moved to the same day become
//!   one.
//! - No day is moved by more than [`MOVE_MAX`] days. A day without a working day within that distance is dropped.
//!
//! # Cost
//! A search looks up some ten days around each candidate in the calendar.

use std::sync::Arc;

use jiff::tz::TimeZone;
use model::timing::RollTo;

use crate::calendar::DaySet;
use crate::civil::{DAY_SECONDS, Day, date_of, join, split};
use crate::days::{Days, direction};
use crate::rule::Rate;
use crate::wall::{ClockChangePolicy, LAST_SECOND, LocalMatch, Segment, next_utc_second, offset_at};

/// Maximum distance by which a day is moved, in days.
const MOVE_MAX: Day = 400;

/// Maximum distance of a search for a working day, in days: 100 years.
const WORKDAY_AHEAD_MAX: Day = 36_525;

/// Maximum number of candidates of a search in a rate that lead to no time.
const CANDIDATES_MAX: usize = 10_000;

/// Direction of the move, and calendar of the working days.
#[derive(Debug, Clone)]
pub(crate) struct Roll {
    pub(crate) to: RollTo,
    pub(crate) workdays: Arc<DaySet>,
}

impl Roll {
    fn is_workday(&self, day: Day) -> bool {
        self.workdays.contains(date_of(day))
    }

    /// Returns the day to which a day is moved: the day itself if it is a working day. `None` if the distance exceeds
    /// [`MOVE_MAX`].
    pub(crate) fn target(&self, day: Day) -> Option<Day> {
        let step = direction(self.to);
        (0..=MOVE_MAX).map(|n| day + n * step).find(|day| self.is_workday(*day))
    }

    /// Returns the first working day at or after `from`, within 100 years.
    fn next_workday(&self, from: Day) -> Option<Day> {
        (from..from + WORKDAY_AHEAD_MAX).find(|day| self.is_workday(*day))
    }

    /// Returns the first day at or after `from` of the moved set `days`.
    pub(crate) fn next_day(&self, days: &Days, from: Day) -> Option<Day> {
        let mut search = match self.to {
            // The days off directly before `from` are moved to `from` or later.
            RollTo::Next => from - (1..=MOVE_MAX).take_while(|n| !self.is_workday(from - n)).count() as Day,
            RollTo::Previous => self.next_workday(from)?,
        };
        loop {
            let day = days.next(search)?;
            if let Some(target) = self.target(day) {
                return Some(target);
            }
            // The distance to the next working day exceeds `MOVE_MAX`.
            search = match self.to {
                RollTo::Next => (self.next_workday(day)? - MOVE_MAX).max(day + 1),
                RollTo::Previous => self.next_workday(day)?,
            };
        }
    }

    /// Returns the days off that are moved to a working day, nearest first.
    fn sources(&self, target: Day) -> impl Iterator<Item = Day> {
        let step = direction(self.to);
        (1..=MOVE_MAX).map(move |n| target - n * step).take_while(|day| !self.is_workday(*day))
    }

    /// Returns the first time of a rate at or after `from`, with the times on days off moved.
    ///
    /// A moved time keeps its local time of day. Clock changes of its new day apply as for a fixed time.
    pub(crate) fn next_of_rate(&self, rate: &Rate, zone: &TimeZone, from: i64) -> Option<LocalMatch> {
        let own = self.next_unmoved(rate, zone, from);
        let moved = self.next_moved(rate, zone, from, own.map_or(LAST_SECOND, |hit| hit.at));
        match (own, moved) {
            (Some(own), Some(moved)) if own.at <= moved.at => Some(own),
            (own, moved) => moved.or(own),
        }
    }

    /// Returns whether a time of a rate is a moved one.
    pub(crate) fn is_moved(&self, rate: &Rate, zone: &TimeZone, at: i64) -> bool {
        let (day, _) = split(at + offset_at(zone, at));
        !(rate.next_second(at) == Some(at) && self.is_workday(day))
    }

    fn next_unmoved(&self, rate: &Rate, zone: &TimeZone, mut from: i64) -> Option<LocalMatch> {
        for _ in 0..CANDIDATES_MAX {
            let at = rate.next_second(from)?;
            let segment = Segment::at(zone, at);
            let local = at + segment.offset;
            let (day, _) = split(local);
            if self.is_workday(day) {
                return Some(LocalMatch { at, local, shifted: false });
            }
            let workday = self.next_workday(day + 1)?;
            from = (join(workday, 0) - segment.offset).min(segment.end).max(at + 1);
        }
        None
    }

    /// Returns the first moved time at or after `from`. Searches until some days after `until`. See
    /// [`Roll::next_of_rate`].
    fn next_moved(&self, rate: &Rate, zone: &TimeZone, from: i64, until: i64) -> Option<LocalMatch> {
        let (first_day, _) = split(from + offset_at(zone, from));
        // A clock that is set back may repeat the previous day.
        let mut target = first_day - 1;
        for _ in 0..CANDIDATES_MAX {
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
                && let Some(hit) = next_utc_second(zone, ClockChangePolicy::FIXED, from, next_local)
            {
                return Some(hit);
            }
            target += 1;
        }
        None
    }
}

/// Returns the first local time of day at or after `time` of a rate on a day.
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
