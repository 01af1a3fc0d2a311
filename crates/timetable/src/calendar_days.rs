//! Days of a calendar rule: days in every n-th day, week, month or year.
//!
//! [`CalendarDays::compile`] checks a rule; [`CalendarDays::next`] searches for its next day. `crate::rule` adds the
//! times of day.
//!
//! # Cost
//! Days and weeks: some nanoseconds. Months and years: see [`search_months`].

use model::timing::{CalendarRule, CalendarUnit, Weekday};
use model::validate::Problem;

use crate::civil::{Day, day_number, day_of, weekday, year_month_day};
use crate::days::{Month, search_months};

/// Compiled days of a calendar rule.
#[derive(Debug, Clone)]
pub(crate) struct CalendarDays {
    cycle: Interval,
    /// First day of the rule; earlier days do not match.
    first: Option<Day>,
}

/// Interval of a rule: every `every` units, counted from `anchor`.
#[derive(Debug, Clone)]
enum Interval {
    /// Days, if on one of the weekdays.
    Days { every: i32, anchor: Day, weekdays: u8 },
    /// Weekdays of weeks; `anchor` is a Monday.
    Weeks { every: i32, anchor: Day, weekdays: u8 },
    /// Days of months; `anchor` is the number of months since January of the year 0.
    Months { every: i32, anchor: i32, months: u16, choice: DaySelection },
    /// Days of months of years; `anchor` is a year.
    Years { every: i32, anchor: i32, months: u16, choice: DaySelection },
}

/// Days of a month that match all conditions.
#[derive(Debug, Clone, Copy)]
struct DaySelection {
    /// Bit `n` is the day `n`.
    days: u32,
    /// Bit `n` is the `n`-th day from the end; bit 1 is the last day.
    days_from_end: u32,
    weekdays: u8,
    /// Bit `n` is the `n`-th occurrence of a weekday. All occurrences if both this and `nth_from_end` are 0.
    nth: u8,
    nth_from_end: u8,
}

const ALL_MONTHS: u16 = 0b1_1111_1111_1110;
const ALL_WEEKDAYS: u8 = 0x7f;

/// Returns the bits of weekdays; Sunday is bit 0.
pub(crate) fn weekday_bits(weekdays: &[Weekday]) -> u8 {
    weekdays.iter().fold(0, |bits, day| {
        bits | 1
            << match day {
                Weekday::Sunday => 0,
                Weekday::Monday => 1,
                Weekday::Tuesday => 2,
                Weekday::Wednesday => 3,
                Weekday::Thursday => 4,
                Weekday::Friday => 5,
                Weekday::Saturday => 6,
            }
    })
}

impl CalendarDays {
    /// Compiles a rule. Adds to `problems` if the rule is invalid; the result is then not usable.
    pub(crate) fn compile(rule: &CalendarRule, path: &str, problems: &mut Vec<Problem>) -> Self {
        check(rule, path, problems);
        let first = rule.from.map(day_of);
        let every = i32::try_from(rule.every).unwrap_or(1).clamp(1, 36_525);
        let weekdays = if rule.weekdays.is_empty() { ALL_WEEKDAYS } else { weekday_bits(&rule.weekdays) };
        let anchor = first.unwrap_or_else(|| day_number(2000, 1, 1));
        let (year, month, day_of_month) = year_month_day(anchor);
        let cycle = match rule.unit {
            CalendarUnit::Days => Interval::Days { every, anchor, weekdays },
            CalendarUnit::Weeks => {
                let anchor = first.unwrap_or_else(|| day_number(2000, 1, 3));
                let monday = anchor - (weekday(anchor) as Day + 6) % 7;
                let weekdays = if rule.weekdays.is_empty() { 1 << weekday(anchor) } else { weekdays };
                Interval::Weeks { every, anchor: monday, weekdays }
            }
            CalendarUnit::Months => Interval::Months {
                every,
                anchor: year * 12 + month as i32 - 1,
                months: ALL_MONTHS,
                choice: DaySelection::new(rule, day_of_month),
            },
            CalendarUnit::Years => Interval::Years {
                every,
                anchor: year,
                months: match rule.months.as_slice() {
                    [] => 1 << month,
                    months => months.iter().fold(0, |bits, month| bits | 1 << (month & 15)),
                },
                choice: DaySelection::new(rule, day_of_month),
            },
        };
        Self { cycle, first }
    }

    /// Returns the first day at or after `from`.
    pub(crate) fn next(&self, from: Day) -> Option<Day> {
        let from = self.first.map_or(from, |first| first.max(from));
        match &self.cycle {
            Interval::Days { every, anchor, weekdays } => {
                let first = from + (anchor - from).rem_euclid(*every);
                // The weekdays of a cycle repeat after at most seven intervals.
                (0..7)
                    .map_while(|n| first.checked_add(n * every))
                    .find(|day| weekdays & 1 << weekday(*day) != 0)
            }
            Interval::Weeks { every, anchor, weekdays } => {
                let this_monday = from - (from - anchor).rem_euclid(7);
                let weeks_on = (-(this_monday - anchor) / 7).rem_euclid(*every);
                let monday = this_monday + 7 * weeks_on;
                let in_week = |monday: Day| {
                    (monday..monday + 7).find(|day| *day >= from && weekdays & 1 << weekday(*day) != 0)
                };
                in_week(monday).or_else(|| in_week(monday + 7 * every))
            }
            Interval::Months { every, anchor, months, choice } => {
                search_months(from, *months, Some, |month| {
                    let index = month.year * 12 + month.month as i32 - 1;
                    if (index - anchor).rem_euclid(*every) == 0 { choice.bits(month) } else { 0 }
                })
            }
            Interval::Years { every, anchor, months, choice } => {
                let next_year = |year: i32| Some(year + (anchor - year).rem_euclid(*every));
                search_months(from, *months, next_year, |month| choice.bits(month))
            }
        }
    }
}

impl DaySelection {
    fn new(rule: &CalendarRule, day_of_anchor: u32) -> Self {
        let bits = |from_end: bool| {
            let chosen = rule.days.iter().filter(|day| (**day < 0) == from_end);
            chosen.fold(0, |bits, day| bits | 1_u32 << (day.unsigned_abs() & 31))
        };
        let nths = |from_end: bool| {
            let chosen = rule.nth.iter().filter(|nth| (**nth < 0) == from_end);
            chosen.fold(0, |bits, nth| bits | 1_u8 << (nth.unsigned_abs() & 7))
        };
        let (mut days, days_from_end) = (bits(false), bits(true));
        if rule.days.is_empty() {
            days = if rule.weekdays.is_empty() { 1 << day_of_anchor } else { u32::MAX };
        }
        Self {
            days,
            days_from_end,
            weekdays: if rule.weekdays.is_empty() { ALL_WEEKDAYS } else { weekday_bits(&rule.weekdays) },
            nth: nths(false),
            nth_from_end: nths(true),
        }
    }

    fn bits(&self, month: &Month) -> u32 {
        let from_end = (1..=month.len)
            .filter(|nth| self.days_from_end & 1 << nth != 0)
            .fold(0, |bits, nth| bits | 1 << (month.len + 1 - nth));
        let mut weeks = if self.nth == 0 && self.nth_from_end == 0 { u32::MAX } else { 0 };
        for nth in 1..=5 {
            weeks |= if self.nth & 1 << nth != 0 { month.nth_week(nth) } else { 0 };
            weeks |= if self.nth_from_end & 1 << nth != 0 { month.nth_last_week(nth) } else { 0 };
        }
        (self.days | from_end) & month.on_weekdays(self.weekdays) & weeks
    }
}

fn check(rule: &CalendarRule, path: &str, problems: &mut Vec<Problem>) {
    let mut fail = |field: &str, message: String| {
        problems.push(Problem { path: format!("{path}.{field}"), message });
    };
    let by_month = matches!(rule.unit, CalendarUnit::Months | CalendarUnit::Years);
    let every_max = match rule.unit {
        CalendarUnit::Days => 36_525,
        CalendarUnit::Weeks => 5_218,
        CalendarUnit::Months => 1_200,
        CalendarUnit::Years => 100,
    };
    if !(1..=every_max).contains(&rule.every) {
        fail(
            "every",
            format!("`{}` is out of range: expected 1 to {every_max}, at most 100 years", rule.every),
        );
    }
    if !rule.months.is_empty() && rule.unit != CalendarUnit::Years {
        fail("months", "is allowed only with `unit: years`".into());
    }
    if !rule.days.is_empty() && !by_month {
        fail("days", "is allowed only with `unit: months` or `unit: years`".into());
    }
    if !rule.nth.is_empty() && !by_month {
        fail("nth", "is allowed only with `unit: months` or `unit: years`".into());
    } else if !rule.nth.is_empty() && rule.weekdays.is_empty() {
        fail("nth", "cannot be set without `weekdays`".into());
    }
    for (i, month) in rule.months.iter().enumerate().filter(|(_, month)| !(1..=12).contains(*month)) {
        fail(&format!("months[{i}]"), format!("`{month}` is not a month: expected 1 to 12"));
    }
    for (i, day) in rule.days.iter().enumerate().filter(|(_, day)| !in_either(**day, 31)) {
        fail(
            &format!("days[{i}]"),
            format!("`{day}` is not a day of a month: expected 1 to 31, or -1 (the last) to -31"),
        );
    }
    for (i, nth) in rule.nth.iter().enumerate().filter(|(_, nth)| !in_either(**nth, 5)) {
        fail(
            &format!("nth[{i}]"),
            format!("`{nth}` is out of range: expected 1 to 5, or -1 (the last) to -5"),
        );
    }
}

fn in_either(value: i8, max: u8) -> bool {
    (1..=max).contains(&value.unsigned_abs())
}
