//! Values of properties: dates, times and durations.

use jiff::civil::{Date, DateTime};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, ToSpan};

/// Value of DTSTART, DTEND and similar properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DateOrTime {
    /// Date.
    Day(Date),
    /// Local time.
    Local(DateTime),
    /// Time in UTC.
    Utc(DateTime),
}

impl DateOrTime {
    /// Parses `20261001`, `20261001T090000` or `20261001T090000Z`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            let shown: String = text.chars().filter(|c| !c.is_control()).take(40).collect();
            format!("`{shown}` is not a date or time: expected `20261001` or `20261001T090000`")
        };
        let (day, time) = match text.split_once(['T', 't']) {
            Some((day, time)) => (day, Some(time)),
            None => (text, None),
        };
        let [year, month, day] = digits(day, [4, 2, 2]).ok_or_else(wrong)?;
        let day = Date::new(year, small(month), small(day)).map_err(|_| wrong())?;
        let Some(time) = time else { return Ok(Self::Day(day)) };
        let (time, utc) = match time.strip_suffix(['Z', 'z']) {
            Some(time) => (time, true),
            None => (time, false),
        };
        let [hour, minute, second] = digits(time, [2, 2, 2]).ok_or_else(wrong)?;
        // A leap second counts as second 59.
        let second = small(second).min(59);
        let time = jiff::civil::Time::new(small(hour), small(minute), second, 0).map_err(|_| wrong())?;
        let time = day.to_datetime(time);
        Ok(if utc { Self::Utc(time) } else { Self::Local(time) })
    }

    /// Returns the local day. A time in UTC is converted to the time zone `zone`, and is an error without one.
    pub(super) fn day(self, zone: Option<&str>) -> Result<Date, String> {
        match self {
            Self::Day(day) => Ok(day),
            Self::Local(time) => Ok(time.date()),
            Self::Utc(time) => {
                let zone = zone.ok_or(
                    "is in UTC, so its day depends on the time zone: expected a date, or a time with TZID",
                )?;
                Ok(local(time, &known_zone(zone)?).date())
            }
        }
    }
}

fn known_zone(name: &str) -> Result<TimeZone, String> {
    TimeZoneDatabase::bundled().get(name).map_err(|_| {
        let shown: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
        format!("is in UTC, and the time zone `{shown}` is unknown: expected an IANA name")
    })
}

fn local(utc: DateTime, zone: &TimeZone) -> DateTime {
    utc.to_zoned(TimeZone::UTC).map_or(utc, |zoned| zoned.with_time_zone(zone.clone()).datetime())
}

/// Parses consecutive numbers with these numbers of digits.
fn digits(text: &str, widths: [usize; 3]) -> Option<[i16; 3]> {
    if !text.bytes().all(|b| b.is_ascii_digit()) || text.len() != widths.iter().sum::<usize>() {
        return None;
    }
    let mut rest = text;
    let mut numbers = [0; 3];
    for (number, width) in numbers.iter_mut().zip(widths) {
        let (digits, more) = rest.split_at(width);
        *number = digits.parse().ok()?;
        rest = more;
    }
    Some(numbers)
}

/// Converts a number of two digits; a larger number becomes -1, which is invalid in a date.
fn small(number: i16) -> i8 {
    i8::try_from(number).unwrap_or(-1)
}

/// Value of DURATION.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DurationValue {
    pub(super) days: i64,
    pub(super) time: SignedDuration,
}

impl DurationValue {
    /// Parses durations such as `P1W`, `P3D`, `P1DT12H` and `PT90M`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let upper = text.to_ascii_uppercase();
        let rest = upper.strip_prefix('+').unwrap_or(&upper).strip_prefix('P')?;
        let (days, time) = rest.split_once('T').unwrap_or((rest, ""));
        let mut length = Self { days: 0, time: SignedDuration::ZERO };
        for (number, unit) in parts(days)? {
            length.days += match unit {
                'W' => number * 7,
                'D' => number,
                _ => return None,
            };
        }
        for (number, unit) in parts(time)? {
            length.time += SignedDuration::from_secs(match unit {
                'H' => number * 3_600,
                'M' => number * 60,
                'S' => number,
                _ => return None,
            });
        }
        (rest.len() > 1).then_some(length)
    }

    /// Returns the last day of an event that starts at `first`; `None` if a date has a duration other than whole days.
    pub(super) fn last_day(self, first: DateOrTime) -> Option<Date> {
        match first {
            DateOrTime::Day(day) if self.time.is_zero() && self.days > 0 => {
                day.checked_add((self.days - 1).days()).ok()
            }
            DateOrTime::Day(_) => None,
            DateOrTime::Local(time) | DateOrTime::Utc(time) => {
                let end = time.checked_add(self.days.days()).ok()?.checked_add(self.time).ok()?;
                Some(last_day_before(time, end))
            }
        }
    }
}

/// Returns the last day of a period from `begin` to `end` (exclusive, unless both are equal).
pub(super) fn last_day_before(begin: DateTime, end: DateTime) -> Date {
    if end > begin && end.time() == jiff::civil::Time::midnight() {
        return end.date().yesterday().unwrap_or(end.date());
    }
    end.date()
}

/// Parses numbers of at most six digits, each followed by a letter.
fn parts(text: &str) -> Option<Vec<(i64, char)>> {
    let mut parts = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        if end == 0 || end > 6 {
            return None;
        }
        let unit = rest[end..].chars().next()?;
        parts.push((rest[..end].parse().ok()?, unit));
        rest = &rest[end + unit.len_utf8()..];
    }
    Some(parts)
}
