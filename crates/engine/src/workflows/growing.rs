//! List of a step that tasks add elements to; see [`added_elements`](super::added_elements).

use std::collections::BTreeMap;

use model::run::Adder;
use serde_json::Value;

/// Index of the first element and number of elements of each batch, by the adding step or element and the
/// batch name.
pub(super) type Batches = BTreeMap<(Adder, Box<str>), (u32, u32)>;

/// List of a step that tasks add elements to.
#[derive(Debug, Default)]
pub(super) struct Growing {
    pub(super) list: Vec<Value>,
    batches: Batches,
}

impl Growing {
    /// Adds a batch. Returns the index of its first element, and their number.
    pub(super) fn push(
        &mut self,
        by: Adder,
        name: &str,
        elements: impl IntoIterator<Item = Value>,
    ) -> (u32, u32) {
        let first = self.len();
        self.list.extend(elements);
        let place = (first, self.len() - first);
        self.batches.insert((by, name.into()), place);
        place
    }

    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.list.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn batches(&self) -> &Batches {
        &self.batches
    }
}
