//! Folding of failures: what commits counted becomes groups; see [`model::failures`].
//!
//! ```text
//! commit ─> statistics_pending ── fold ─> failure_groups (a row for each group)
//! ```
//!
//! The failures of a commit are in the row of its statistics, and the same fold adds both, in one transaction. Queries
//! add what is still pending.
//!
//! # Invariants
//! - A namespace has at most about [`GROUPS_MAX`] groups: further signatures count in one group for each error and exit
//!   code. So tasks that print a new message with each failure cannot fill the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::failures::{FailureCount, FailureGroup, FailureGroupId};
use model::{Duration, Timestamp};

use crate::codec::seal_group;

/// Groups of a namespace, apart from those for further signatures.
pub(crate) const GROUPS_MAX: u64 = 1_000;
/// Most groups that a query returns, those with the newest failures.
pub(crate) const LISTED_MAX: usize = 5_000;
/// Time after its last failure at which a group is deleted.
pub(crate) const KEPT: Duration = Duration::from_hours(90 * 24);

/// Query for failure groups.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FailureQuery {
    /// Only groups of this namespace.
    pub namespace: Option<Arc<str>>,
}

impl FailureQuery {
    /// Returns the failures of the requested namespace.
    pub(crate) fn of_namespace(&self, mut failures: Vec<FailureCount>) -> Vec<FailureCount> {
        if let Some(namespace) = &self.namespace {
            failures.retain(|failures| failures.namespace == *namespace);
        }
        failures
    }
}

/// Key of a group's row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupKey {
    pub(crate) namespace: Arc<str>,
    pub(crate) id: FailureGroupId,
}

impl GroupKey {
    fn of(failures: &FailureCount) -> Self {
        Self { namespace: Arc::clone(&failures.namespace), id: failures.signature.group() }
    }

    /// Returns the key of the group that counts the failures if they get no group of their own.
    fn of_other(failures: &FailureCount) -> Self {
        Self { id: failures.signature.other().group(), ..Self::of(failures) }
    }

    /// Returns the ID as it is stored.
    pub(crate) fn stored_id(&self) -> i64 {
        self.id.0.cast_signed()
    }
}

/// Failures that are added to groups.
#[derive(Debug, Default)]
pub(crate) struct GroupFold {
    counted: Vec<(Timestamp, FailureCount)>,
    stored: BTreeMap<GroupKey, FailureGroup>,
    /// Stored groups of each namespace.
    sizes: BTreeMap<Arc<str>, u64>,
}

impl GroupFold {
    /// Adds what a commit counted.
    pub(crate) fn add(&mut self, at: Timestamp, failures: Vec<FailureCount>) {
        self.counted.extend(failures.into_iter().map(|failures| (at, failures)));
    }

    /// Returns the keys of all groups that may change.
    pub(crate) fn keys(&self) -> BTreeSet<GroupKey> {
        let counted = self.counted.iter();
        counted.flat_map(|(_, failures)| [GroupKey::of(failures), GroupKey::of_other(failures)]).collect()
    }

    /// Returns the namespaces of all groups that may change.
    pub(crate) fn namespaces(&self) -> BTreeSet<Arc<str>> {
        self.counted.iter().map(|(_, failures)| Arc::clone(&failures.namespace)).collect()
    }

    /// Adds a stored group.
    pub(crate) fn add_stored(&mut self, group: FailureGroup) {
        let key = GroupKey { namespace: Arc::clone(&group.namespace), id: group.id() };
        self.stored.insert(key, group);
    }

    /// Sets the number of stored groups of a namespace.
    pub(crate) fn set_size(&mut self, namespace: Arc<str>, groups: u64) {
        self.sizes.insert(namespace, groups);
    }

    /// Returns the groups that change.
    fn changed(mut self) -> BTreeMap<GroupKey, FailureGroup> {
        let mut changed = BTreeMap::<GroupKey, FailureGroup>::new();
        for (at, mut failures) in self.counted {
            let mut key = GroupKey::of(&failures);
            let is_known = changed.contains_key(&key) || self.stored.contains_key(&key);
            let size = self.sizes.entry(Arc::clone(&key.namespace)).or_default();
            if !is_known && *size >= GROUPS_MAX {
                key = GroupKey::of_other(&failures);
                failures.signature = failures.signature.other();
            }
            if let Some(group) = changed.get_mut(&key) {
                group.add(at, &failures);
            } else if let Some(mut group) = self.stored.remove(&key) {
                group.add(at, &failures);
                changed.insert(key, group);
            } else {
                *size += 1;
                changed.insert(key, FailureGroup::new(at, &failures));
            }
        }
        changed
    }

    /// Returns the new record of each group, with its key and the time of its newest failure.
    pub(crate) fn into_rows(self) -> impl Iterator<Item = (GroupKey, Timestamp, Vec<u8>)> {
        self.changed().into_iter().map(|(key, group)| (key, group.last_seen, seal_group(&group)))
    }

    /// Returns all stored groups with what was added, the newest failure first.
    pub(crate) fn into_groups(mut self) -> Vec<FailureGroup> {
        for group in self.stored.values() {
            *self.sizes.entry(Arc::clone(&group.namespace)).or_default() += 1;
        }
        let mut groups = self.stored.clone();
        groups.extend(self.changed());
        let mut groups: Vec<_> = groups.into_values().collect();
        groups.sort_by(|a, b| b.last_seen.cmp(&a.last_seen).then_with(|| a.id().cmp(&b.id())));
        groups.truncate(LISTED_MAX);
        groups
    }
}

#[cfg(test)]
mod tests {
    use model::JobId;
    use model::failures::Signature;

    use super::*;

    fn failure(message: &str, job: u64) -> FailureCount {
        FailureCount {
            namespace: "default".into(),
            name: "noisy".into(),
            signature: Signature::new("exit_code", Some(1), message),
            count: 1,
            jobs: vec![JobId::from_bits(job.into())],
            message: message.into(),
        }
    }

    #[test]
    fn further_signatures_of_a_full_namespace_share_a_group() {
        let at = Timestamp::from_millis(1_800_000_000_000);
        let letters = |mut n: u64| {
            let mut word = String::new();
            while n > 0 || word.is_empty() {
                word.push(char::from(b'a' + u8::try_from(n % 26).unwrap()));
                n /= 26;
            }
            word
        };
        let mut fold = GroupFold::default();
        let known = FailureGroup::new(at, &failure("known", 1));
        fold.add_stored(known);
        fold.set_size("default".into(), GROUPS_MAX - 10);
        fold.add(at, (0..100).map(|i| failure(&format!("new {}", letters(i)), i)).collect());
        fold.add(at, vec![failure("known", 1_000)]);
        assert_eq!(fold.keys().len(), 102);
        let changed = fold.changed();
        assert_eq!(changed.len(), 12, "ten new groups, the known one, and the one for the rest");
        let other = changed.values().find(|group| group.signature.message.is_empty()).unwrap();
        assert_eq!(other.count, 90);
        assert_eq!(changed.values().map(|group| group.count).sum::<u64>(), 102);
    }
}
