//! Recurrence rules (RFC 5545, 3.3.10): yearly, monthly, weekly and daily.
//!
//! [`Recurrence::parse`] accepts only rules that [`Recurrence::days`] can expand exactly. Times of day do not matter:
//! the result is a list of days.
//!
//! # Cost
//! O(periods and occurrences in the window). A rule with COUNT is expanded from its first day; other rules start near
//! the window. Each import has a limit of work.

use std::collections::BTreeSet;

use jiff::ToSpan;
use jiff::civil::{Date, Weekday};
use model::timing::DateRange;

use super::value::DateOrTime;

/// Error: the import has reached its limit of work.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WorkLimitReached;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Frequency {
    Yearly,
    Monthly,
    Weekly,
    Daily,
}

/// Weekday of BYDAY. With `nth`, only one occurrence in the month or year: from its start (1), or from its end (-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ByDay {
    nth: Option<i16>,
    weekday: Weekday,
}

/// Parsed rule.
#[derive(Debug, Clone)]
pub(super) struct Recurrence {
    frequency: Frequency,
    interval: i64,
    count: Option<u64>,
    until: Option<Date>,
    months: Vec<i8>,
    month_days: Vec<i8>,
    weekdays: Vec<ByDay>,
    positions: Vec<i16>,
    week_start: Weekday,
}

impl Recurrence {
    /// Parses a rule. `day_of` converts the value of UNTIL to a day. Returns a reason if the rule is not supported.
    pub(super) fn parse(
        text: &str,
        day_of: impl Fn(DateOrTime) -> Result<Date, String>,
    ) -> Result<Self, String> {
        let mut rule = Self {
            frequency: Frequency::Daily,
            interval: 1,
            count: None,
            until: None,
            months: Vec::new(),
            month_days: Vec::new(),
            weekdays: Vec::new(),
            positions: Vec::new(),
            week_start: Weekday::Monday,
        };
        let mut seen: BTreeSet<String> = BTreeSet::new();
        for part in text.split(';').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let (name, value) = (name.trim().to_ascii_uppercase(), value.trim().to_ascii_uppercase());
            let shown = || part.chars().filter(|c| !c.is_control()).take(40).collect::<String>();
            let wrong = || format!("has `{}`, which is invalid or not supported", shown());
            match name.as_str() {
                "FREQ" => rule.frequency = frequency(&value).ok_or_else(wrong)?,
                "INTERVAL" => rule.interval = number(&value, 1..=100_000).ok_or_else(wrong)?,
                "COUNT" => rule.count = Some(number(&value, 1..=1_000_000).ok_or_else(wrong)?),
                "UNTIL" => rule.until = Some(DateOrTime::parse(&value).and_then(&day_of)?),
                "BYMONTH" => rule.months = list(&value, |v| number(v, 1..=12)).ok_or_else(wrong)?,
                "BYMONTHDAY" => rule.month_days = list(&value, |v| signed(v, 31)).ok_or_else(wrong)?,
                "BYDAY" => rule.weekdays = list(&value, by_day).ok_or_else(wrong)?,
                "BYSETPOS" => rule.positions = list(&value, |v| signed(v, 366)).ok_or_else(wrong)?,
                "WKST" => rule.week_start = weekday(&value).ok_or_else(wrong)?,
                _ => return Err(format!("has `{}`, which is not supported", shown())),
            }
            if !seen.insert(name) {
                return Err(format!("has the repeated part `{}`", shown()));
            }
        }
        rule.checked(&seen)
    }

    fn checked(self, seen: &BTreeSet<String>) -> Result<Self, String> {
        let nth = self.weekdays.iter().any(|day| day.nth.is_some());
        let by_month_or_year = matches!(self.frequency, Frequency::Yearly | Frequency::Monthly);
        if !seen.contains("FREQ") {
            Err("has no FREQ".into())
        } else if self.count.is_some() && self.until.is_some() {
            Err("has both COUNT and UNTIL".into())
        } else if nth && !by_month_or_year {
            Err("has numbered weekdays, which require FREQ=MONTHLY or FREQ=YEARLY".into())
        } else if self.frequency == Frequency::Weekly && !self.month_days.is_empty() {
            Err("has BYMONTHDAY, which is not allowed with FREQ=WEEKLY".into())
        } else if !self.positions.is_empty()
            && self.weekdays.is_empty()
            && self.month_days.is_empty()
            && self.months.is_empty()
        {
            Err("has BYSETPOS without another BY part".into())
        } else {
            Ok(self)
        }
    }

    /// Returns whether the first day of the event is an occurrence of the rule.
    pub(super) fn includes(&self, first: Date) -> bool {
        self.period(first, 0).contains(&first)
    }

    /// Returns whether the rule has no COUNT, and no UNTIL up to `day`: it can recur after `day`.
    pub(super) fn can_recur_after(&self, day: Date) -> bool {
        self.count.is_none() && self.until.is_none_or(|until| until > day)
    }

    /// Returns the occurrences in `window`, from `first` on. Subtracts the number of examined periods and occurrences
    /// from `work`.
    pub(super) fn days(
        &self,
        first: Date,
        window: DateRange,
        work: &mut usize,
    ) -> Result<Vec<Date>, WorkLimitReached> {
        let mut days = Vec::new();
        let mut counted = 0;
        // A rule with COUNT must be expanded from its first day; other rules start near the window.
        let begin = if self.count.is_some() { 0 } else { self.periods_before(first, window.first) };
        let end = self.until.map_or(window.last, |until| until.min(window.last));
        for index in begin.. {
            let Some(start) = self.period_start(first, index).filter(|start| *start <= end) else { break };
            let found = self.period_from(start, first);
            *work = work.checked_sub(1 + found.len()).ok_or(WorkLimitReached)?;
            for day in found.into_iter().filter(|day| *day >= first) {
                counted += 1;
                if day > end || self.count.is_some_and(|count| counted > count) {
                    return Ok(days);
                }
                if day >= window.first {
                    days.push(day);
                }
            }
        }
        Ok(days)
    }

    /// Returns a number of periods that are certainly before `day`.
    fn periods_before(&self, first: Date, day: Date) -> i64 {
        let days = day.duration_since(first).as_hours() / 24;
        let longest = match self.frequency {
            Frequency::Yearly => 366,
            Frequency::Monthly => 31,
            Frequency::Weekly => 7,
            Frequency::Daily => 1,
        };
        (days / (longest * self.interval) - 1).max(0)
    }

    /// Returns the first day of a period. The period of `first` has the index 0.
    fn period_start(&self, first: Date, index: i64) -> Option<Date> {
        let n = index.checked_mul(self.interval)?;
        match self.frequency {
            Frequency::Yearly => {
                Date::new(i16::try_from(i64::from(first.year()).checked_add(n)?).ok()?, 1, 1).ok()
            }
            Frequency::Monthly => {
                let months = i64::from(first.year()) * 12 + i64::from(first.month() - 1) + n;
                let (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
                Date::new(i16::try_from(year).ok()?, i8::try_from(month).ok()?, 1).ok()
            }
            Frequency::Weekly => {
                let back = i64::from(first.weekday().since(self.week_start));
                let days = n.checked_mul(7)? - back;
                first.checked_add(jiff::Span::new().try_days(days).ok()?).ok()
            }
            Frequency::Daily => first.checked_add(jiff::Span::new().try_days(n).ok()?).ok(),
        }
    }

    fn period(&self, first: Date, index: i64) -> BTreeSet<Date> {
        self.period_start(first, index).map(|start| self.period_from(start, first)).unwrap_or_default()
    }

    /// Returns the occurrences in one period, including those before `first`.
    fn period_from(&self, start: Date, first: Date) -> BTreeSet<Date> {
        let days: BTreeSet<Date> = match self.frequency {
            Frequency::Yearly => self.year(start.year(), first),
            Frequency::Monthly if self.month_allowed(start) => self.month(start, first).collect(),
            Frequency::Monthly => BTreeSet::new(),
            Frequency::Weekly => self.week(start, first),
            Frequency::Daily => Some(start)
                .filter(|day| self.month_allowed(*day) && self.day_allowed(*day))
                .into_iter()
                .collect(),
        };
        if self.positions.is_empty() { days } else { self.at_positions(&days) }
    }

    fn year(&self, year: i16, first: Date) -> BTreeSet<Date> {
        let of_month = |month: i8| Date::new(year, month, 1).ok();
        if !self.months.is_empty() {
            let months = self.months.iter().filter_map(|month| of_month(*month));
            return months.flat_map(|month| self.month(month, first)).collect();
        }
        if !self.month_days.is_empty() {
            return (1..=12).filter_map(of_month).flat_map(|month| self.month(month, first)).collect();
        }
        if self.weekdays.is_empty() {
            return Date::new(year, first.month(), first.day()).into_iter().collect();
        }
        let begin = Date::new(year, 1, 1);
        let days = begin
            .into_iter()
            .flat_map(|day| day.series(1.day()).take(usize::from(day.days_in_year().unsigned_abs())));
        days.filter(|day| self.weekday_allowed(*day, day.day_of_year(), day.days_in_year())).collect()
    }

    /// Returns the occurrences in one month, without a check of BYMONTH.
    fn month(&self, start: Date, first: Date) -> impl Iterator<Item = Date> {
        let plain = self.month_days.is_empty() && self.weekdays.is_empty();
        start
            .series(1.day())
            .take(usize::from(start.days_in_month().unsigned_abs()))
            .filter(move |day| if plain { day.day() == first.day() } else { self.day_allowed(*day) })
    }

    fn week(&self, start: Date, first: Date) -> BTreeSet<Date> {
        start
            .series(1.day())
            .take(7)
            .filter(|day| self.month_allowed(*day))
            .filter(|day| match self.weekdays.as_slice() {
                [] => day.weekday() == first.weekday(),
                named => named.iter().any(|named| named.weekday == day.weekday()),
            })
            .collect()
    }

    fn month_allowed(&self, day: Date) -> bool {
        self.months.is_empty() || self.months.contains(&day.month())
    }

    fn day_allowed(&self, day: Date) -> bool {
        let from_end = day.day() - day.days_in_month() - 1;
        let by_number = self.month_days.is_empty()
            || self.month_days.iter().any(|named| *named == day.day() || *named == from_end);
        by_number && self.weekday_allowed(day, i16::from(day.day()), i16::from(day.days_in_month()))
    }

    /// Checks BYDAY. `number` is the number of the day in its month or year, from 1; `length` is the number of days.
    fn weekday_allowed(&self, day: Date, number: i16, length: i16) -> bool {
        let nth = (number - 1) / 7 + 1;
        let nth_from_end = -((length - number) / 7 + 1);
        self.weekdays.is_empty()
            || self.weekdays.iter().any(|named| {
                named.weekday == day.weekday() && named.nth.is_none_or(|n| n == nth || n == nth_from_end)
            })
    }

    fn at_positions(&self, days: &BTreeSet<Date>) -> BTreeSet<Date> {
        let at = |position: i16| match usize::from(position.unsigned_abs()) {
            n if position > 0 => days.iter().nth(n - 1),
            n => days.iter().nth_back(n.saturating_sub(1)),
        };
        self.positions.iter().filter_map(|position| at(*position)).copied().collect()
    }
}

fn frequency(text: &str) -> Option<Frequency> {
    match text {
        "YEARLY" => Some(Frequency::Yearly),
        "MONTHLY" => Some(Frequency::Monthly),
        "WEEKLY" => Some(Frequency::Weekly),
        "DAILY" => Some(Frequency::Daily),
        _ => None,
    }
}

fn number<T>(text: &str, allowed: std::ops::RangeInclusive<u32>) -> Option<T>
where
    T: TryFrom<u32>,
{
    let number = text.parse().ok().filter(|number| allowed.contains(number))?;
    T::try_from(number).ok()
}

/// Parses a number from 1 to `max`, or from -1 to -`max`.
fn signed<T: TryFrom<i32>>(text: &str, max: u32) -> Option<T> {
    let number: i32 = text.parse().ok()?;
    ((1..=max).contains(&number.unsigned_abs())).then(|| T::try_from(number).ok()).flatten()
}

fn list<T>(text: &str, one: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    text.split(',').map(|item| one(item.trim())).collect()
}

fn by_day(text: &str) -> Option<ByDay> {
    let at = text.len().checked_sub(2).filter(|at| text.is_char_boundary(*at))?;
    let (nth, name) = text.split_at(at);
    let weekday = weekday(name)?;
    let nth = if nth.is_empty() { None } else { Some(signed(nth, 53)?) };
    Some(ByDay { nth, weekday })
}

fn weekday(text: &str) -> Option<Weekday> {
    Some(match text {
        "MO" => Weekday::Monday,
        "TU" => Weekday::Tuesday,
        "WE" => Weekday::Wednesday,
        "TH" => Weekday::Thursday,
        "FR" => Weekday::Friday,
        "SA" => Weekday::Saturday,
        "SU" => Weekday::Sunday,
        _ => return None,
    })
}
