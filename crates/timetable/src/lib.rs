//! Scheduled times: computed from rules, calendars and time zones.
//!
//! ```text
//! Timing + Zones + Calendars ──> Timetable::compile ──> step / next / last ──> scheduled times
//! ```
//!
//! A [`Timetable`] is a pure function from a time to the next scheduled time. It has no state and reads no clock and no
//! file, so all servers compute the same times. The engine calls [`Timetable::step`], which also returns the times that
//! a filter excludes: each of them gets an entry in the ledger.
//!
//! Every search is bounded, including the search in a timing that never fires.

use std::sync::Arc;

use model::Timestamp;

mod calendar;
mod calendar_days;
mod civil;
mod cron;
mod days;
mod describe;
mod filter;
pub mod ics;
mod preview;
mod roll;
mod rule;
mod times;
mod walk;
mod wall;
mod zone;

pub use calendar::{
    BuiltinCalendars, CalendarMap, Calendars, DaySet, builtin, builtin_names, calendar_references,
};
pub use describe::{Language, ParseLanguageError, describe};
pub use preview::{Firing, Mark};
pub use walk::Timetable;
pub use zone::Zones;

/// A scheduled time, which a filter may exclude.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledTime {
    /// Scheduled time, without jitter and delays.
    pub at: Timestamp,
    /// Filter that excludes the time. `None` if the schedule fires.
    pub held: Option<Exclusion>,
}

/// Filter that excludes a scheduled time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exclusion {
    /// Kind of the filter.
    pub by: FilterKind,
    /// Path and description of the filter, for users: `exclude[0]: calendar belfry.cn-holidays`.
    pub filter: Arc<str>,
}

/// Kind of a filter that excludes a scheduled time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterKind {
    /// Calendar, dates or weekdays.
    Calendar,
    /// Time window of the day, or cron expression.
    Window,
}

/// Result of a search for the next scheduled time that no filter excludes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The next scheduled time.
    At(Timestamp),
    /// No further scheduled time exists.
    Never,
    /// No scheduled time exists up to this time; the search stopped there.
    NotUntil(Timestamp),
}
