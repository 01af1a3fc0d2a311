//! When: rules of time, calendars and time zones, as instants.
//!
//! ```text
//! Timing + Zones + Calendars ──> Timetable::compile ──> step / next / last ──> instants
//! ```
//!
//! A [`Timetable`] is a pure function from an instant to the next: it keeps no state, reads no clock
//! and no file, and two servers compute the same. The engine walks it with [`Timetable::step`],
//! which also tells of the instants that a filter holds, so that each gets its line in the ledger.
//!
//! Every search is bounded: "never" is an answer, given at once.

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
    CalendarMap, Calendars, DaySet, NoCalendars, builtin, builtin_names, calendar_references,
};
pub use describe::{Language, ParseLanguageError, describe};
pub use preview::{Firing, Mark};
pub use walk::Timetable;
pub use zone::Zones;

/// The next nominal instant, let through or held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// When.
    pub at: Timestamp,
    /// What holds it, if anything does.
    pub held: Option<Held>,
}

/// What holds an instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Which kind of filter.
    pub by: HeldBy,
    /// Which one, for people: `exclude[0]: calendar belfry.cn-holidays`.
    pub filter: Arc<str>,
}

/// Which kind of filter holds an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldBy {
    /// A calendar, dates, or weekdays.
    Calendar,
    /// A part of the day, or a cron expression.
    Window,
}

/// The first instant that no filter holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Then.
    At(Timestamp),
    /// There is none, ever.
    Never,
    /// There is none up to this instant; further was not searched.
    NotUntil(Timestamp),
}
