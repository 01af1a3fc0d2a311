//! One compiled calendar.
//!
//! Steps become layers, the last one on top; the topmost layer that speaks of a day decides. What lies
//! under a step that speaks of every day is dropped, and so is what an upper layer has already said
//! about a weekday or a day of the year. Neighbouring steps of dates are painted into one sorted list.
//!
//! # Cost
//! `contains` is O(layers · log dates): two or three layers for what people write, and tens of
//! nanoseconds. A span of dates takes 10 bytes.

use std::sync::Arc;

use jiff::civil::{Date, date};

/// A set of days.
#[derive(Debug)]
pub struct DaySet {
    pub(super) name: Arc<str>,
    /// The topmost first.
    pub(super) layers: Box<[Layer]>,
    /// All days that belong lie between these, both included; `None` if none does.
    pub(super) hull: Option<(Date, Date)>,
    pub(super) known_until: Option<Date>,
    /// The most layers that one question can pass, those of other calendars included.
    pub(super) cost: usize,
    /// How many calendars stand under each other, this one included.
    pub(super) depth: usize,
}

/// What one or several neighbouring steps say.
#[derive(Debug)]
pub(super) enum Layer {
    /// The same of every day; nothing lies below.
    All(bool),
    /// Bits of weekdays, Monday first.
    Weekdays {
        spoken: u8,
        included: u8,
    },
    Yearly(Box<Yearly>),
    /// Sorted, and no two overlap.
    Dates(Box<[Span]>),
    /// The days of another calendar.
    Calendar {
        days: Arc<DaySet>,
        included: bool,
    },
}

/// Days of the year as bits, 31 for each month.
#[derive(Debug, Default)]
pub(super) struct Yearly {
    pub(super) spoken: [u64; 6],
    pub(super) included: [u64; 6],
}

/// Consecutive dates of which the same is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) first: Date,
    pub(super) last: Date,
    pub(super) included: bool,
}

/// The days in which a calendar must have one that belongs, or count as empty.
const USEFUL: (Date, Date) = (date(1970, 1, 1), date(2399, 12, 31));

impl DaySet {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a day belongs to it.
    pub fn contains(&self, day: Date) -> bool {
        self.layers.iter().find_map(|layer| layer.verdict(day)).unwrap_or(false)
    }

    /// The first day that belongs, from `from` on and at most `within_days` after it.
    ///
    /// O(days searched), but days before the first and after the last that can belong are not.
    pub fn next_day_in(&self, from: Date, within_days: u32) -> Option<Date> {
        let (first, last) = self.hull?;
        let end = later(from, within_days).min(last);
        forward(from.max(first), end).find(|day| self.contains(*day))
    }

    /// The last day that belongs, from `from` back and at most `within_days` before it.
    pub fn previous_day_in(&self, from: Date, within_days: u32) -> Option<Date> {
        let (first, last) = self.hull?;
        let end = earlier(from, within_days).max(first);
        backward(from.min(last), end).find(|day| self.contains(*day))
    }

    /// The first day that does not belong, from `from` on and at most `within_days` after it.
    pub fn next_day_outside(&self, from: Date, within_days: u32) -> Option<Date> {
        forward(from, later(from, within_days)).find(|day| !self.contains(*day))
    }

    /// The last day that does not belong, from `from` back and at most `within_days` before it.
    pub fn previous_day_outside(&self, from: Date, within_days: u32) -> Option<Date> {
        backward(from, earlier(from, within_days)).find(|day| !self.contains(*day))
    }

    /// Whether no day from 1970 to 2399 belongs to it: a schedule that is held to it never fires.
    ///
    /// Costs milliseconds for a set that is empty by the interplay of its steps; call it on changes.
    pub fn is_empty(&self) -> bool {
        let (first, last) = USEFUL;
        let days = last.duration_since(first).as_hours() / 24;
        self.next_day_in(first, u32::try_from(days).unwrap_or(u32::MAX)).is_none()
    }

    /// The last day of which it is known whether it belongs; `None` if all are.
    ///
    /// China's holidays are published year by year; of later days nothing but weekends is known.
    pub fn known_until(&self) -> Option<Date> {
        self.known_until
    }

    /// The names on the way from this calendar to the one of that name, both included.
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
    /// Whether the day belongs, if the layer speaks of it.
    fn verdict(&self, day: Date) -> Option<bool> {
        match self {
            Self::All(included) => Some(*included),
            Self::Weekdays { spoken, included } => {
                let bit = weekday_bit(day);
                (spoken & bit != 0).then_some(included & bit != 0)
            }
            Self::Yearly(yearly) => {
                let (word, bit) = yearly_bit(day.month(), day.day());
                (yearly.spoken[word] & bit != 0).then_some(yearly.included[word] & bit != 0)
            }
            Self::Dates(spans) => {
                let after = spans.partition_point(|span| span.first <= day);
                let span = spans[..after].last()?;
                (day <= span.last).then_some(span.included)
            }
            Self::Calendar { days, included } => days.contains(day).then_some(*included),
        }
    }

    /// The first and last day that the layer can make belong.
    pub(super) fn hull(&self) -> Option<(Date, Date)> {
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

/// Where a day of the year stands in [`Yearly`].
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

/// More days than there are count as all of them.
fn span(days: u32) -> jiff::Span {
    jiff::Span::new().days(days.min(7_000_000))
}

fn forward(from: Date, end: Date) -> impl Iterator<Item = Date> {
    std::iter::successors(Some(from), |day| day.tomorrow().ok()).take_while(move |day| *day <= end)
}

fn backward(from: Date, end: Date) -> impl Iterator<Item = Date> {
    std::iter::successors(Some(from), |day| day.yesterday().ok()).take_while(move |day| *day >= end)
}
