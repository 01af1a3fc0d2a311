//! Import of iCalendar files (`.ics`, RFC 5545), for example the public holidays of a country.
//!
//! The result is the set of days that the events cover; it becomes a step of a calendar. Recurrences are expanded
//! within the years that the caller requests.
//!
//! - `lines`: content lines of the text.
//! - `value`: dates, local times and durations.
//! - `event`: one event and the days that it covers.
//! - `recur`: recurrence rules.
//!
//! # Invariants
//! - Nothing is guessed. An event that cannot be interpreted exactly is ignored as a whole, and reported with its line
//!   and the reason. This includes an event whose day depends on a time zone that it does not contain.
//! - Each text leads to a result or an error, in bounded time and memory.
//!
//! Existing crates were evaluated in November 2026. Those that expand recurrences depend on a second time library with
//! its own time zone database, and none reports the line of an ignored event.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use jiff::civil::{Date, date};
use model::calendar::{CalendarStep, Days};
use model::limits;
use model::timing::DateRange;

mod event;
mod lines;
mod recur;
mod value;

use event::Event;
use lines::{Property, properties};

/// Result of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// Covered days, sorted; ranges that overlap or touch are merged.
    pub days: Vec<DateRange>,
    /// Number of events with days in the requested years.
    pub events: usize,
    /// Entries without days, by line.
    pub ignored: Vec<Ignored>,
    /// Last requested day, if events recur after it. The result is then incomplete for later days.
    pub cut_after: Option<Date>,
}

impl Imported {
    /// Returns a step of a calendar that includes the days, or `None` if there are none.
    pub fn into_step(self) -> Option<CalendarStep> {
        (!self.days.is_empty()).then_some(CalendarStep::Include(Days::Dates(self.days)))
    }
}

/// Ignored entry of an iCalendar text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ignored {
    /// Line of its `BEGIN`, from 1.
    pub line: usize,
    /// Its SUMMARY, if any.
    pub summary: Option<String>,
    /// Reason why the entry was ignored.
    pub reason: String,
}

/// Error of an import as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages explain the variants")]
pub enum IcsError {
    #[error("the iCalendar text has {bytes} bytes: expected at most {}", limits::ICALENDAR_BYTES_MAX)]
    TooLarge { bytes: usize },
    #[error("line {line}: more than {} events", limits::ICALENDAR_EVENTS_MAX)]
    TooManyEvents { line: usize },
    #[error("not an iCalendar text: expected a line `BEGIN:VCALENDAR`")]
    NotICalendar,
    #[error("invalid years {first} to {last}: expected years from 1 to 9999, at most {YEARS_MAX} of them")]
    Years { first: i16, last: i16 },
    #[error("line {line}: the events recur too often: expected fewer recurrences, or fewer years")]
    TooMuch { line: usize },
}

/// Maximum number of years of an import.
pub const YEARS_MAX: usize = 200;

/// Maximum number of periods and occurrences that one import examines.
const WORK_MAX: usize = 1_000_000;

/// Imports the days that the events of an iCalendar text cover, within the requested years.
///
/// An event covers all its dates, independent of the time of day: an event from 22:00 to 02:00 covers two days.
/// Cancelled events and other entries have no days; [`Imported::ignored`] contains them.
///
/// # Errors
/// Returns an error if the text or the number of its events is too large, if it is not an iCalendar text, if the years
/// are invalid, or if its events recur too often.
pub fn import(text: &str, years: RangeInclusive<i16>) -> Result<Imported, IcsError> {
    let (first, last) = (*years.start(), *years.end());
    if first < 1 || last > 9999 || first > last || years.clone().count() > YEARS_MAX {
        return Err(IcsError::Years { first, last });
    }
    if text.len() > limits::ICALENDAR_BYTES_MAX {
        return Err(IcsError::TooLarge { bytes: text.len() });
    }
    let range = DateRange { first: date(first, 1, 1), last: date(last, 12, 31) };
    let Entries { events, mut ignored } = entries(text)?;
    let moved = moved_instances(&events);
    let mut work = WORK_MAX;
    let mut days = Vec::new();
    let mut taken = 0;
    let mut recurs_on = false;
    for event in &events {
        let moved = event.series().and_then(|uid| moved.get(uid)).map_or(&[][..], Vec::as_slice);
        match event.days(range, moved, &mut work) {
            Ok(found) if found.is_empty() => {
                ignored.push(event.ignored(format!("has no day from {first} to {last}")));
            }
            Ok(found) => {
                taken += 1;
                recurs_on |= event.recurs_after(range.last);
                days.extend(found);
            }
            Err(event::Refusal::TooMuch) => return Err(IcsError::TooMuch { line: event.line }),
            Err(event::Refusal::Reason(reason)) => ignored.push(event.ignored(reason)),
        }
    }
    ignored.sort_by_key(|entry| entry.line);
    let cut_after = recurs_on.then_some(range.last);
    Ok(Imported { days: joined(days), events: taken, ignored, cut_after })
}

struct Entries {
    events: Vec<Event>,
    ignored: Vec<Ignored>,
}

/// Returns the events of a text, and its other entries as ignored. Skips components within an entry, such as alarms.
fn entries(text: &str) -> Result<Entries, IcsError> {
    let mut open: Vec<String> = Vec::new();
    let mut current: Option<Event> = None;
    let mut entries = Entries { events: Vec::new(), ignored: Vec::new() };
    let mut seen_calendar = false;
    let mut count = 0;
    for property in properties(text) {
        let value = property.value.to_ascii_uppercase();
        match property.name.as_str() {
            "BEGIN" => {
                seen_calendar |= value == "VCALENDAR";
                if is_entry(&value) && current.is_none() {
                    count += 1;
                    if count > limits::ICALENDAR_EVENTS_MAX {
                        return Err(IcsError::TooManyEvents { line: property.line });
                    }
                    current = Some(Event::new(property.line, value.clone()));
                    open.clear();
                } else if current.is_some() {
                    open.push(value);
                }
            }
            "END" if open.last() == Some(&value) => {
                open.pop();
            }
            "END" => {
                if let Some(event) = current.take_if(|event| event.kind == value) {
                    match event.kind.as_str() {
                        "VEVENT" => entries.events.push(event),
                        kind => {
                            entries.ignored.push(event.ignored(format!("is a {kind}: expected a VEVENT")))
                        }
                    }
                }
            }
            _ => {
                if let Some(event) = current.as_mut().filter(|_| open.is_empty()) {
                    event.add(property);
                }
            }
        }
    }
    if let Some(event) = current {
        entries.ignored.push(event.ignored(format!("has no end: expected a line `END:{}`", event.kind)));
    }
    if seen_calendar { Ok(entries) } else { Err(IcsError::NotICalendar) }
}

fn is_entry(component: &str) -> bool {
    matches!(component, "VEVENT" | "VTODO" | "VJOURNAL" | "VFREEBUSY")
}

/// Returns the instances of series that other events replace, by the UID of the series.
fn moved_instances(events: &[Event]) -> BTreeMap<&str, Vec<&Property>> {
    let mut moved: BTreeMap<&str, Vec<&Property>> = BTreeMap::new();
    for event in events {
        if let Some((uid, instance)) = event.replaces() {
            moved.entry(uid).or_default().push(instance);
        }
    }
    moved
}

/// Returns the ranges sorted, with ranges that overlap or touch merged.
fn joined(mut days: Vec<DateRange>) -> Vec<DateRange> {
    days.sort_unstable();
    let mut joined: Vec<DateRange> = Vec::new();
    for range in days {
        match joined.last_mut() {
            Some(last) if range.first <= after(last.last) => last.last = last.last.max(range.last),
            _ => joined.push(range),
        }
    }
    joined
}

fn after(day: Date) -> Date {
    day.tomorrow().unwrap_or(day)
}

#[cfg(test)]
mod tests;
