//! Shared names: one allocation for each distinct text.
//!
//! A hundred thousand bindings name a few hundred roles, namespaces and creators, so sharing them saves most of the
//! memory of the directory.

use std::collections::BTreeSet;
use std::sync::Arc;

#[derive(Debug, Clone, Default)]
pub(crate) struct Names(BTreeSet<Arc<str>>);

impl Names {
    pub(crate) fn share(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.0.get(name) {
            return Arc::clone(known);
        }
        let name: Arc<str> = name.into();
        self.0.insert(Arc::clone(&name));
        name
    }

    /// Drops the names that are no longer in use.
    pub(crate) fn sweep(&mut self) {
        self.0.retain(|name| Arc::strong_count(name) > 1);
    }
}
