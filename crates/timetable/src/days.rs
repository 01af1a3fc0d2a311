//! Sets of days of a rule.
//!
//! A cron expression or a calendar rule consists of a set of days and a set of times of day ([`crate::times`]). A month
//! is examined as bits: bit `n` is the `n`-th day.
//!
//! # Cost
//! A month costs some ten nanoseconds. A search through 400 years, after which the Gregorian calendar repeats, costs
//! tens of microseconds.

use model::timing::RollTo;

use crate::calendar_days::CalendarDays;
use crate::civil::{Day, YEAR_MAX, day_number, month_len, weekday, year_month_day};
use crate::cron::CronDays;
use crate::roll::Roll;

/// Set of days.
#[derive(Debug, Clone)]
pub(crate) enum Days {
    /// Empty set, for example 30 February.
    Never,
    /// A single day.
    One(Day),
    /// Days of a cron expression.
    Cron(CronDays),
    /// Days of a calendar rule.
    Calendar(Box<CalendarDays>),
    /// Days of another set, with non-working days moved to working days.
    Rolled(Box<(Days, Roll)>),
}

impl Days {
    /// Returns the set, or [`Days::Never`] if it has no day from 1970 on.
    pub(crate) fn or_never(self) -> Self {
        let first = day_number(1970, 1, 1);
        if self.next(first).is_none() { Self::Never } else { self }
    }

    /// Returns the first day of the set at or after `from`.
    pub(crate) fn next(&self, from: Day) -> Option<Day> {
        match self {
            Self::Never => None,
            Self::One(day) => (from <= *day).then_some(*day),
            Self::Cron(days) => days.next(from),
            Self::Calendar(days) => days.next(from),
            Self::Rolled(rolled) => rolled.1.next_day(&rolled.0, from),
        }
    }

    /// Returns whether the set contains a day.
    pub(crate) fn contains(&self, day: Day) -> bool {
        self.next(day) == Some(day)
    }

    /// Returns whether the set contains a day only because another day was moved there.
    pub(crate) fn is_moved(&self, day: Day) -> bool {
        matches!(self, Self::Rolled(rolled) if !rolled.0.contains(day))
    }

    /// Returns the set with non-working days moved to working days.
    pub(crate) fn rolled(self, roll: &Roll) -> Self {
        match self {
            Self::Never => self,
            days => Self::Rolled(Box::new((days, roll.clone()))),
        }
    }
}

/// A month, for the selection of its days.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Month {
    pub(crate) year: i32,
    /// 1 to 12.
    pub(crate) month: u32,
    /// Number of days, 28 to 31.
    pub(crate) len: u32,
    /// Weekday of the first day; Sunday is 0.
    pub(crate) first_weekday: u32,
    /// First day of the month.
    pub(crate) first: Day,
}

impl Month {
    pub(crate) fn new(year: i32, month: u32) -> Self {
        let first = day_number(year, month, 1);
        Self { year, month, len: month_len(year, month), first_weekday: weekday(first), first }
    }

    /// Returns the bits of all days.
    pub(crate) const fn all(&self) -> u32 {
        (((1_u64 << self.len) - 1) << 1) as u32
    }

    /// Returns the bits of the days on these weekdays; Sunday is bit 0.
    pub(crate) const fn on_weekdays(&self, weekdays: u8) -> u32 {
        let week = weekdays as u64 & 0x7f;
        let from_first = (week >> self.first_weekday | week << (7 - self.first_weekday)) & 0x7f;
        let weeks = from_first * (1 | 1 << 7 | 1 << 14 | 1 << 21 | 1 << 28);
        (weeks << 1) as u32 & self.all()
    }

    /// Returns the bits of the `nth` group of seven days, counted from the start of the month, from 1.
    pub(crate) const fn nth_week(&self, nth: u32) -> u32 {
        ((0x7f_u64 << (7 * (nth - 1) + 1)) as u32) & self.all()
    }

    /// Returns the bits of the `nth` group of seven days, counted from the end of the month, from 1.
    pub(crate) const fn nth_last_week(&self, nth: u32) -> u32 {
        let end = self.len + 1;
        let first = end.saturating_sub(7 * nth);
        let after = end.saturating_sub(7 * (nth - 1));
        (((1_u64 << after) - (1_u64 << first)) as u32) & self.all()
    }

    /// Returns the day from Monday to Friday of this month that is nearest to `day`.
    pub(crate) const fn nearest_workday(&self, day: u32) -> u32 {
        match (self.first_weekday + day - 1) % 7 {
            6 if day > 1 => day - 1,
            6 => day + 2,
            0 if day < self.len => day + 1,
            0 => day - 2,
            _ => day,
        }
    }
}

/// Maximum number of months that a search examines: weekdays and leap years repeat after 400 years.
const MONTHS_MAX: usize = 400 * 12;

/// Returns the first selected day at or after `from`.
///
/// `months` selects months; January is bit 1. `next_year` returns the first matching year at or after a year. `chosen`
/// returns the bits of the selected days of a month.
pub(crate) fn search_months(
    from: Day,
    months: u16,
    next_year: impl Fn(i32) -> Option<i32>,
    chosen: impl Fn(&Month) -> u32,
) -> Option<Day> {
    let (mut year, mut month, day) = year_month_day(from);
    let mut not_before = u32::MAX << day;
    for _ in 0..MONTHS_MAX {
        let counts = next_year(year).filter(|year| *year <= YEAR_MAX)?;
        if counts != year {
            (year, month, not_before) = (counts, 1, u32::MAX);
        }
        let rest = u32::from(months) >> month;
        if rest == 0 {
            (year, month, not_before) = (year + 1, 1, u32::MAX);
            continue;
        }
        if rest.trailing_zeros() > 0 {
            (month, not_before) = (month + rest.trailing_zeros(), u32::MAX);
        }
        let candidate = Month::new(year, month);
        let days = chosen(&candidate) & candidate.all() & not_before;
        if days != 0 {
            return Some(candidate.first + days.trailing_zeros() as Day - 1);
        }
        (month, not_before) = (month + 1, u32::MAX);
        if month > 12 {
            (year, month) = (year + 1, 1);
        }
    }
    None
}

/// Returns the direction in which non-working days are moved, as a step of one day.
pub(crate) const fn direction(to: RollTo) -> Day {
    match to {
        RollTo::Next => 1,
        RollTo::Previous => -1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn days(bits: u32) -> Vec<u32> {
        (1..32).filter(|day| bits & 1 << day != 0).collect()
    }

    #[test]
    fn weekdays_of_a_month_are_correct() {
        // 1 February 2026 was a Sunday, and the month has four weeks exactly.
        let february = Month::new(2026, 2);
        assert_eq!(days(february.on_weekdays(1)), [1, 8, 15, 22]);
        assert_eq!(days(february.on_weekdays(1 << 6)), [7, 14, 21, 28]);
        assert_eq!(february.nth_week(5), 0);
        assert_eq!(days(february.nth_last_week(1)), [22, 23, 24, 25, 26, 27, 28]);
        // 1 August 2026 was a Saturday.
        let august = Month::new(2026, 8);
        assert_eq!(days(august.on_weekdays(1 << 6)), [1, 8, 15, 22, 29]);
        assert_eq!(days(august.nth_week(5)), [29, 30, 31]);
        assert_eq!(days(august.nth_last_week(5)), [1, 2, 3]);
        assert_eq!(august.nearest_workday(1), 3);
        assert_eq!(august.nearest_workday(15), 14);
        assert_eq!(august.nearest_workday(16), 17);
        assert_eq!(Month::new(2026, 5).nearest_workday(31), 29);
    }
}
