//! Compiled calendar: a set of days.
//!
//! A calendar consists of layers; the layer of the last step is on top. For each day, the topmost layer that contains a
//! decision for the day decides. See `compile` for the conversion of steps to layers.
//!
//! # Cost
//! `contains` is O(layers · log dates). A usual calendar has two or three layers, which takes tens of nanoseconds. A
//! range of dates takes 10 bytes.

use std::sync::Arc;

use jiff::civil::{Date, date};

/// Set of days: a compiled calendar.
#[derive(Debug)]
pub struct DaySet {
    pub(super) name: Arc<str>,
    /// Layers, topmost first.
    pub(super) layers: Box<[Layer]>,
    /// First and last day that the set can contain; `None` if the set is empty.
    pub(super) hull: Option<(Date, Date)>,
    pub(super) known_until: Option<Date>,
    /// Maximum number of layers that one lookup examines, including those of other calendars.
    pub(super) cost: usize,
    /// Depth of references between calendars; 1 for a calendar without references.
    pub(super) depth: usize,
}

/// Decisions of one step, or of consecutive steps of dates.
#[derive(Debug)]
pub(super) enum Layer {
    /// Decision for all days; the lowest layer.
    All(bool),
    /// Bits of weekdays; Monday is bit 0. `spoken` has the decided days, `included` those that are in the set.
    Weekdays {
        decided: u8,
        included: u8,
    },
    Yearly(Box<Yearly>),
    /// Sorted ranges that do not overlap.
    Dates(Box<[Span]>),
    /// Decision for all days of another calendar.
    Calendar {
        days: Arc<DaySet>,
        included: bool,
    },
}

/// Days of the year as bits, 31 for each month. `spoken` has the decided days, `included` those that are in the set.
#[derive(Debug, Default)]
pub(super) struct Yearly {
    pub(super) decided: [u64; 6],
    pub(super) included: [u64; 6],
}

/// Range of consecutive days with the same decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) first: Date,
    pub(super) last: Date,
    pub(super) included: bool,
}

/// First and last day of the check for an empty calendar.
const EMPTY_CHECK_RANGE: (Date, Date) = (date(1970, 1, 1), date(2399, 12, 31));

impl DaySet {
    /// Returns the name of the calendar.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the set contains a day.
    pub fn contains(&self, day: Date) -> bool {
        self.layers.iter().find_map(|layer| layer.verdict(day)).unwrap_or(false)
    }

    /// Returns the first day of the set from `from` to `within_days` days later.
    ///
    /// O(searched days). Skips days before the first and after the last day that the set can contain.
    pub fn next_day_in(&self, from: Date, within_days: u32) -> Option<Date> {
        let (first, last) = self.hull?;
        let end = later(from, within_days).min(last);
        forward(from.max(first), end).find(|day| self.contains(*day))
    }

    /// Returns the last day of the set from `within_days` days before `from` to `from`.
    pub fn previous_day_in(&self, from: Date, within_days: u32) -> Option<Date> {
        let (first, last) = self.hull?;
        let end = earlier(from, within_days).max(first);
        backward(from.min(last), end).find(|day| self.contains(*day))
    }

    /// Returns the first day that is not in the set, from `from` to `within_days` days later.
    pub fn next_day_outside(&self, from: Date, within_days: u32) -> Option<Date> {
        forward(from, later(from, within_days)).find(|day| !self.contains(*day))
    }

    /// Returns the last day that is not in the set, from `within_days` days before `from` to `from`.
    pub fn previous_day_outside(&self, from: Date, within_days: u32) -> Option<Date> {
        backward(from, earlier(from, within_days)).find(|day| !self.contains(*day))
    }

    /// Returns whether the set has no day from 1970 to 2399. A schedule with the calendar in `only` then never fires.
    ///
    /// Costs milliseconds if only the combination of the steps makes the set empty. Call it only when a calendar
    /// changes.
    pub fn is_empty(&self) -> bool {
        let (first, last) = EMPTY_CHECK_RANGE;
        let days = last.duration_since(first).as_hours() / 24;
        self.next_day_in(first, u32::try_from(days).unwrap_or(u32::MAX)).is_none()
    }

    /// Returns the last day for which the calendar is complete; `None` if it is complete for all days.
    ///
    /// The holidays of China are published for one year at a time; later years have weekends only.
    pub fn known_until(&self) -> Option<Date> {
        self.known_until
    }

    /// Returns the names of the calendars on a path of references from this calendar to `name`, both included.
    pub(super) fn path_to(&self, name: &str) -> Option<Vec<Arc<str>>> {
        if &*self.name == name {
            return Some(vec![self.name.clone()]);
        }
        self.layers.iter().find_map(|layer| {
            let Layer::Calendar { days, .. } = layer else { return None };
            let mut path = days.path_to(name)?;
            path.insert(0, self.name.clone());
            Some(path)
        })
    }
}

impl Layer {
    /// Returns whether the set contains the day; `None` if the layer does not decide the day.
    fn verdict(&self, day: Date) -> Option<bool> {
        match self {
            Self::All(included) => Some(*included),
            Self::Weekdays { decided: spoken, included } => {
                let bit = weekday_bit(day);
                (spoken & bit != 0).then_some(included & bit != 0)
            }
            Self::Yearly(yearly) => {
                let (word, bit) = yearly_bit(day.month(), day.day());
                (yearly.decided[word] & bit != 0).then_some(yearly.included[word] & bit != 0)
            }
            Self::Dates(spans) => {
                let after = spans.partition_point(|span| span.first <= day);
                let span = spans[..after].last()?;
                (day <= span.last).then_some(span.included)
            }
            Self::Calendar { days, included } => days.contains(day).then_some(*included),
        }
    }

    /// Returns the first and last day that the layer can include.
    pub(super) fn bounds(&self) -> Option<(Date, Date)> {
        match self {
            Self::All(included) => included.then_some((Date::MIN, Date::MAX)),
            Self::Weekdays { included, .. } => (*included != 0).then_some((Date::MIN, Date::MAX)),
            Self::Yearly(yearly) => {
                yearly.included.iter().any(|word| *word != 0).then_some((Date::MIN, Date::MAX))
            }
            Self::Dates(spans) => {
                let first = spans.iter().find(|span| span.included)?;
                let last = spans.iter().rfind(|span| span.included)?;
                Some((first.first, last.last))
            }
            Self::Calendar { days, included } => days.hull.filter(|_| *included),
        }
    }

    pub(super) fn cost(&self) -> usize {
        match self {
            Self::Calendar { days, .. } => 1 + days.cost,
            _ => 1,
        }
    }
}

fn weekday_bit(day: Date) -> u8 {
    1 << day.weekday().to_monday_zero_offset()
}

/// Returns the word and the bit of a day of the year in [`Yearly`].
pub(super) fn yearly_bit(month: i8, day: i8) -> (usize, u64) {
    let index = usize::try_from(i32::from(month - 1) * 31 + i32::from(day - 1)).unwrap_or(0);
    (index / 64, 1 << (index % 64))
}

fn later(day: Date, days: u32) -> Date {
    day.saturating_add(span(days))
}

fn earlier(day: Date, days: u32) -> Date {
    day.saturating_sub(span(days))
}

/// Converts to a span; a larger number than the range of dates becomes that range.
fn span(days: u32) -> jiff::Span {
    jiff::Span::new().days(days.min(7_000_000))
}

fn forward(from: Date, end: Date) -> impl Iterator<Item = Date> {
    std::iter::successors(Some(from), |day| day.tomorrow().ok()).take_while(move |day| *day <= end)
}

fn backward(from: Date, end: Date) -> impl Iterator<Item = Date> {
    std::iter::successors(Some(from), |day| day.yesterday().ok()).take_while(move |day| *day >= end)
}
