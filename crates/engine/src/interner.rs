//! Reference-counted values that are shared while they are in use.

use std::sync::Arc;

use foldhash::fast::FixedState;
use indexmap::IndexMap;

/// Shared values by a text that identifies their content.
#[derive(Debug)]
pub(crate) struct Interner<T> {
    known: IndexMap<Arc<str>, Arc<T>, FixedState>,
    /// Number of values at which unused ones are dropped.
    sweep_at: usize,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { known: IndexMap::default(), sweep_at: 1_000 }
    }
}

impl<T> Interner<T> {
    pub(crate) fn get(&self, key: &str) -> Option<Arc<T>> {
        self.known.get(key).map(Arc::clone)
    }

    pub(crate) fn insert(&mut self, key: Arc<str>, value: T) -> Arc<T> {
        if self.known.len() >= self.sweep_at {
            self.known.retain(|_, value| Arc::strong_count(value) > 1);
            self.sweep_at = self.known.len().max(500) * 2;
        }
        let value = Arc::new(value);
        self.known.insert(key, Arc::clone(&value));
        value
    }

    pub(crate) fn forget(&mut self, is_stale: impl Fn(&T) -> bool) {
        self.known.retain(|_, value| !is_stale(value));
    }
}
