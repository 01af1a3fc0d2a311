//! Days of a cron expression.

use crate::civil::Day;
use crate::days::{Month, search_months};

/// Compiled day, month and year fields.
#[derive(Debug, Clone, Default)]
pub(crate) struct CronDays {
    /// Bits of months; January is bit 1.
    pub(super) months: u16,
    /// Bits of days of the month.
    pub(super) days: u32,
    /// Bit `n` is the day `n` days before the last day: `L`, `L-3`.
    pub(super) days_from_end: u32,
    /// Bit `n` is the workday nearest to day `n`: `15W`. Workdays are Monday to Friday.
    pub(super) workdays_near: u32,
    /// Bit `n` is the workday nearest to the day `n` days before the last day: `LW`.
    pub(super) workdays_near_end: u32,
    /// Bits of weekdays; Sunday is bit 0.
    pub(super) weekdays: u8,
    /// Bits of weekdays for the first to the fifth occurrence in the month: `5#3`.
    pub(super) nth_weekdays: [u8; 5],
    /// Bits of weekdays for the last occurrence in the month: `5L`.
    pub(super) last_weekdays: u8,
    /// Whether a day must match both day fields; otherwise one is enough.
    pub(super) both: bool,
    /// Matching years. `None` for all years.
    pub(super) years: Option<Vec<Years>>,
}

/// Years from `first` to `last`, in steps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Years {
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) step: u16,
}

impl Years {
    fn next(&self, from: i32) -> Option<i32> {
        let (first, step) = (i32::from(self.first), i32::from(self.step));
        let steps = ((from - first).max(0) + step - 1) / step;
        Some(first + steps * step).filter(|year| *year <= i32::from(self.last))
    }
}

impl CronDays {
    /// Returns the first day at or after `from`.
    pub(crate) fn next(&self, from: Day) -> Option<Day> {
        let next_year = |year: i32| match &self.years {
            None => Some(year),
            Some(years) => years.iter().filter_map(|years| years.next(year)).min(),
        };
        search_months(from, self.months, next_year, |month| self.matching_days(month))
    }

    fn matching_days(&self, month: &Month) -> u32 {
        let mut days = self.days & month.all();
        for before_last in set_bits(self.days_from_end).filter(|n| *n < month.len) {
            days |= 1 << (month.len - before_last);
        }
        for day in set_bits(self.workdays_near).filter(|day| *day <= month.len) {
            days |= 1 << month.nearest_workday(day);
        }
        for before_last in set_bits(self.workdays_near_end).filter(|n| *n < month.len) {
            days |= 1 << month.nearest_workday(month.len - before_last);
        }
        let mut by_weekday = month.on_weekdays(self.weekdays);
        for (nth, weekdays) in (1..).zip(self.nth_weekdays) {
            by_weekday |= month.on_weekdays(weekdays) & month.nth_week(nth);
        }
        by_weekday |= month.on_weekdays(self.last_weekdays) & month.nth_last_week(1);
        if self.both { days & by_weekday } else { days | by_weekday }
    }
}

/// Returns the positions of the set bits, lowest first.
fn set_bits(mut bits: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let place = (bits != 0).then(|| bits.trailing_zeros());
        bits &= bits.wrapping_sub(1);
        place
    })
}
