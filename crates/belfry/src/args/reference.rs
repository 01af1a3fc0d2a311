//! References to objects by their ID, or as `@last`.
//!
//! A parser does not know the selected server, so it keeps `@last`. `commands::last` replaces it by the ID.

use std::str::FromStr;

/// Text that refers to the object that the user created last.
pub(crate) const LAST: &str = "@last";

/// An ID, or the object of this type that the user created last on the selected server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reference<T> {
    Id(T),
    Last,
}

impl<T: FromStr> FromStr for Reference<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        match text {
            LAST => Ok(Self::Last),
            id => id.parse().map(Self::Id),
        }
    }
}
