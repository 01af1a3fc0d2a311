//! Compiled calendars.
//!
//! - `days`: one compiled calendar, a [`DaySet`].
//! - `compile`: compilation and validation of a spec.
//! - `map`: the calendars of one namespace, compiled in the order of their references.
//! - `china`: the built-in calendars, for example `belfry.cn-holidays`.
//! - `nearest`: suggestions for mistyped names.
//!
//! # Invariants
//! - A [`DaySet`] is complete: it shares the calendars that it refers to, and never looks them up again.
//! - References between calendars have no cycles. One lookup examines at most [`model::limits::CALENDAR_COST_MAX`]
//!   layers.

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

/// Source of the calendars that a timing refers to: those of one namespace, and the built-in ones.
pub trait Calendars {
    /// Returns a calendar, or `None` if the name is unknown.
    fn days(&self, name: &str) -> Option<Arc<DaySet>>;

    /// Returns all names for which [`Calendars::days`] returns a calendar, for suggestions [default: the built-in
    /// names].
    fn names(&self) -> Vec<String> {
        builtin_names().map(str::to_owned).collect()
    }
}

/// Returns the names of the calendars that a spec refers to, in order; a name may occur twice.
///
/// A caller that changes or deletes a calendar must compile the calendars that refer to it again, or reject the change.
pub fn calendar_references(spec: &CalendarSpec) -> impl Iterator<Item = &str> {
    compile::references(spec).map(|(_, _, name)| name)
}

/// Returns the error message for an unknown calendar, with the most similar name as a suggestion.
pub(crate) fn unknown_calendar(name: &str, calendars: &dyn Calendars) -> String {
    let shown: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
    let names = calendars.names();
    match nearest(name, names.iter().map(String::as_str)) {
        Some(near) => format!("unknown calendar `{shown}`: did you mean `{near}`?"),
        None => format!(
            "unknown calendar `{shown}`: expected a calendar of the namespace, or a built-in one such as `belfry.cn-workdays`"
        ),
    }
}

/// Source that has only the built-in calendars.
#[derive(Debug, Clone, Copy)]
pub struct BuiltinCalendars;

impl Calendars for BuiltinCalendars {
    fn days(&self, name: &str) -> Option<Arc<DaySet>> {
        builtin(name)
    }
}

/// Compiled calendars by name, and the built-in calendars.
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
