//! Classifies sets of values: one value, a list, a range, steps.
//!
//! Texts are made from the values of a field, not from its syntax. So `*/15` and `0,15,30,45` have the same text, and a
//! step that does not divide its cycle is not described as a regular interval.

use crate::cron::{Field, FieldText, Hashed};

/// Shape of a set of values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shape {
    All,
    One(u16),
    /// At least two.
    List(Vec<u16>),
    /// At least three consecutive values.
    Range(u16, u16),
    /// At least two values at a fixed distance; `even` if the distance from the last value to the first value of the
    /// next cycle is the same.
    Steps {
        first: u16,
        last: u16,
        step: u16,
        even: bool,
    },
}

/// Returns the shape of sorted values between `lowest` and `highest`; `None` if there are no values.
pub(super) fn shape(values: &[u16], lowest: u16, highest: u16) -> Option<Shape> {
    let (first, last) = (*values.first()?, *values.last()?);
    let cycle = highest - lowest + 1;
    let count = u16::try_from(values.len()).unwrap_or(u16::MAX);
    let step = values.get(1).map_or(0, |second| second - first);
    let is_regular = values.windows(2).all(|pair| pair[1] - pair[0] == step);
    let even = is_regular && u32::from(step) * u32::from(count) == u32::from(cycle);
    Some(match count {
        1 => Shape::One(first),
        _ if count == cycle => Shape::All,
        3.. if is_regular && step == 1 => Shape::Range(first, last),
        _ if even || is_regular && count >= 4 => Shape::Steps { first, last, step, even },
        _ => Shape::List(values.to_vec()),
    })
}

/// Returns the sorted values of a field; for weekdays, Monday is 1 and Sunday is 7.
pub(super) fn values(text: &FieldText, field: Field) -> Vec<u16> {
    match field {
        Field::DayOfWeek => (1..=7).filter(|day| text.values & 1 << (day % 7) != 0).collect(),
        _ => (0..64).filter(|value| text.values & 1 << value != 0).collect(),
    }
}

/// Returns the shape of the plain values of a field.
pub(super) fn field_shape(text: &FieldText, field: Field) -> Option<Shape> {
    let (lowest, highest) = match field {
        Field::DayOfWeek => (1, 7),
        _ => field.values(),
    };
    shape(&values(text, field), lowest, highest)
}

/// Seconds, minutes and hours.
#[derive(Debug)]
pub(super) enum TimeOfDay {
    /// A few times: hour, minute and second.
    Times(Vec<[u16; 3]>),
    /// Fields that are described one by one.
    Fields { seconds: Part, minutes: Part, hours: Part },
}

/// One of the fields of the time of day.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) shape: Option<Shape>,
    pub(super) hashed: Vec<Hashed>,
}

impl Part {
    fn new(text: &FieldText, field: Field) -> Self {
        Self { shape: field_shape(text, field), hashed: text.hashed.clone() }
    }

    pub(super) fn is_all(&self) -> bool {
        self.shape == Some(Shape::All)
    }

    /// Whether the field has only this value.
    pub(super) fn is_one(&self, value: u16) -> bool {
        self.one() == Some(value)
    }

    /// Returns the only value, if there is exactly one.
    pub(super) fn one(&self) -> Option<u16> {
        match self.shape {
            Some(Shape::One(value)) if self.hashed.is_empty() => Some(value),
            _ => None,
        }
    }
}

/// Maximum number of times of day that are listed; more are described field by field.
const TIMES_MAX: usize = 6;

pub(super) fn time_of_day(fields: &[FieldText; 7]) -> TimeOfDay {
    let [second, minute, hour, ..] = fields;
    let plain = [second, minute, hour].iter().all(|text| text.hashed.is_empty());
    let [seconds, minutes, hours] =
        [(second, Field::Second), (minute, Field::Minute), (hour, Field::Hour)].map(|(t, f)| values(t, f));
    if plain && seconds.len() * minutes.len() * hours.len() <= TIMES_MAX {
        let mut times = Vec::new();
        for h in &hours {
            for m in &minutes {
                times.extend(seconds.iter().map(|s| [*h, *m, *s]));
            }
        }
        return TimeOfDay::Times(times);
    }
    TimeOfDay::Fields {
        seconds: Part::new(second, Field::Second),
        minutes: Part::new(minute, Field::Minute),
        hours: Part::new(hour, Field::Hour),
    }
}

/// Formats a time as `HH:MM`, or as `HH:MM:SS` if the seconds are not 0.
pub(super) fn clock([hour, minute, second]: [u16; 3]) -> String {
    match second {
        0 => format!("{hour:02}:{minute:02}"),
        _ => format!("{hour:02}:{minute:02}:{second:02}"),
    }
}

/// Combined meaning of the two day fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DayFields {
    Every,
    OfMonth,
    OfWeek,
    Both,
    Either,
}

pub(super) fn day_fields(fields: &[FieldText; 7]) -> DayFields {
    let [_, _, _, of_month, _, of_week, _] = fields;
    let is_all = |text, field| field_shape(text, field) == Some(Shape::All);
    let (all_of_month, all_of_week) =
        (is_all(of_month, Field::DayOfMonth), is_all(of_week, Field::DayOfWeek));
    let both = of_month.open || of_week.open;
    match (all_of_month, all_of_week) {
        (true, true) => DayFields::Every,
        (true, false) if both => DayFields::OfWeek,
        (false, true) if both => DayFields::OfMonth,
        (false, false) if both => DayFields::Both,
        (false, false) => DayFields::Either,
        _ => DayFields::Every,
    }
}

/// Returns ranges of years with their step (first, last, step); empty if all years match.
pub(super) fn years(fields: &[FieldText; 7]) -> Vec<(u16, u16, u16)> {
    let years = &fields[Field::Year as usize].years;
    let (lowest, highest) = Field::Year.values();
    if years.iter().any(|y| y.first <= lowest && y.last >= highest && y.step == 1) {
        return Vec::new();
    }
    years.iter().map(|y| (y.first, y.first + (y.last - y.first) / y.step * y.step, y.step)).collect()
}
