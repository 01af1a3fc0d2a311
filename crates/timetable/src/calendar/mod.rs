//! Calendars, ready to be asked which days belong to them.
//!
//! - `days`: one compiled calendar, a [`DaySet`].
//! - `compile`: from the words of a spec to a [`DaySet`], and everything that is wrong with them.
//! - `map`: the calendars of one namespace together, compiled in the order of their references.
//! - `china`: the built-in calendars, `belfry.cn-holidays` and its kin.
//!
//! # Always true
//! - A [`DaySet`] holds all it needs: calendars that it refers to are shared, never looked up again.
//! - No calendar leads back to itself, and the work of one question is bounded by
//!   [`model::limits::CALENDAR_COST_MAX`], however calendars refer to each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::calendar::CalendarSpec;

mod china;
mod compile;
mod days;
mod map;
mod nearest;

pub use china::{builtin, builtin_names};
pub use days::DaySet;
pub use map::CalendarMap;
pub(crate) use nearest::nearest;

/// Where the calendars that a timing names are looked up: those of one namespace, and built-in ones.
pub trait Calendars {
    /// The days of a calendar, or `None` if there is none of this name.
    fn days(&self, name: &str) -> Option<Arc<DaySet>>;

    /// Every name that [`Calendars::days`] knows, for suggestions; the built-in ones unless more are told.
    fn names(&self) -> Vec<String> {
        builtin_names().map(str::to_owned).collect()
    }
}

/// The calendars that a spec names, in order, each as often as it is named.
///
/// Whoever changes or removes a calendar compiles those anew that name it, or refuses.
pub fn calendar_references(spec: &CalendarSpec) -> impl Iterator<Item = &str> {
    compile::references(spec).map(|(_, _, name)| name)
}

/// What to say to somebody who names a calendar that does not exist.
pub(crate) fn unknown_calendar(name: &str, calendars: &dyn Calendars) -> String {
    let shown: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
    let names = calendars.names();
    match nearest(name, names.iter().map(String::as_str)) {
        Some(near) => format!("unknown calendar `{shown}`: did you mean `{near}`?"),
        None => format!(
            "unknown calendar `{shown}`: expected one of the namespace or a built-in one, such as `belfry.cn-workdays`"
        ),
    }
}

/// Only the built-in ones.
#[derive(Debug, Clone, Copy)]
pub struct NoCalendars;

impl Calendars for NoCalendars {
    fn days(&self, name: &str) -> Option<Arc<DaySet>> {
        builtin(name)
    }
}

/// Compiled calendars by name; a name that is not among them may still be a built-in one.
impl Calendars for BTreeMap<String, Arc<DaySet>> {
    fn days(&self, name: &str) -> Option<Arc<DaySet>> {
        self.get(name).cloned().or_else(|| builtin(name))
    }

    fn names(&self) -> Vec<String> {
        self.keys().cloned().chain(builtin_names().map(str::to_owned)).collect()
    }
}

#[cfg(test)]
mod tests;
