//! Rows that a query has moved to the quarantine, so that the query ends.
//!
//! A query that finds damaged rows has them moved, and is repeated. If the index and the table of a database contradict each
//! other, a row that was moved is found again, and the query would be repeated forever.

use std::collections::BTreeSet;

/// Rows that a query has moved to the quarantine.
#[derive(Debug, Default)]
pub(crate) struct Moved(BTreeSet<String>);

impl Moved {
    /// Adds rows that will be moved, each by its table and key.
    ///
    /// # Errors
    /// A reason if one of them was moved before and is still there: the file or database is damaged.
    pub(crate) fn add(&mut self, places: impl Iterator<Item = String>) -> Result<(), String> {
        for place in places {
            if self.0.contains(&place) {
                return Err(format!("the row {place} is still there after it was moved to the quarantine"));
            }
            self.0.insert(place);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_was_moved_must_not_come_back() {
        let mut moved = Moved::default();
        let places = |keys: &[&str]| keys.iter().map(|&key| key.to_owned()).collect::<Vec<_>>().into_iter();
        assert_eq!(moved.add(places(&["`1` of table `jobs`", "`2` of table `jobs`"])), Ok(()));
        assert_eq!(moved.add(places(&["`1` of table `runs`"])), Ok(()));
        let twice = moved.add(places(&["`2` of table `jobs`"]));
        assert_eq!(
            twice.unwrap_err(),
            "the row `2` of table `jobs` is still there after it was moved to the quarantine"
        );
    }
}
