//! A difference between two engines over the same rows, and the search for the first one.

use std::fmt::{Debug, Display};

/// A difference between two engines, as text; a side that lacks the object is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// ID or name of the object.
    pub subject: String,
    /// State in this engine.
    pub here: String,
    /// State in the other engine.
    pub there: String,
}

/// Returns the first object that differs.
pub(crate) fn first<K: Copy + Display, V: PartialEq + Debug>(
    here: impl IntoIterator<Item = (K, V)>,
    there: impl Fn(K) -> Option<V>,
) -> Option<Difference> {
    here.into_iter().find_map(|(key, here)| {
        let there = there(key);
        (there.as_ref() != Some(&here)).then(|| Difference {
            subject: key.to_string(),
            here: format!("{here:?}"),
            there: there.map_or_else(String::new, |there| format!("{there:?}")),
        })
    })
}

/// Compares numbers of objects. Everything here was found there; this finds objects that exist only there.
pub(crate) fn count_difference<const N: usize>(
    subject: &str,
    here: [usize; N],
    there: [usize; N],
) -> Option<Difference> {
    (here != there).then(|| Difference {
        subject: format!("numbers of {subject}"),
        here: format!("{here:?}"),
        there: format!("{there:?}"),
    })
}
