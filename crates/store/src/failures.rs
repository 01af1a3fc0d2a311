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
//! - A namespace has at most [`GROUPS_MAX`] groups with a message. Further signatures count in a group for each error and
//!   exit code, of which there are at most [`OTHER_MAX`], and then in one more. So tasks that print a new message with
//!   each failure cannot fill the store.
//! - A query and a fold of the same pending rows put a failure into the same group: both add failures in the order of
//!   [`GroupFold::sort`]. A fold that takes only a part of the rows may give the last free groups of a namespace to
//!   other failures than a query did before.
//!
//! Retention makes room in a full namespace: it deletes groups beyond [`GROUPS_KEPT`] that have no mark, those with the
//! oldest failures first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::failures::{FailureCount, FailureGroup, FailureGroupId, Signature};
use model::{Duration, Timestamp};

use crate::codec::seal_group;

/// Groups of a namespace, apart from those for further signatures.
pub(crate) const GROUPS_MAX: u64 = 1_000;
/// Groups for further signatures, one for each error and exit code.
pub(crate) const OTHER_MAX: u64 = 100;
/// Groups of a namespace that retention keeps: all with a mark, then those with the newest failures.
pub(crate) const GROUPS_KEPT: i64 = 900;
/// Groups of all namespaces that retention keeps, in the same order.
pub(crate) const GROUPS_KEPT_IN_TOTAL: i64 = 50_000;
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

    /// Returns the keys of the groups that may count the failures.
    fn candidates(failures: &FailureCount) -> [Self; 3] {
        let signature = &failures.signature;
        [signature.group(), signature.other().group(), Signature::rest().group()]
            .map(|id| Self { namespace: Arc::clone(&failures.namespace), id })
    }

    /// Returns the ID as it is stored.
    pub(crate) fn stored_id(&self) -> i64 {
        self.id.0.cast_signed()
    }
}

type Groups = BTreeMap<GroupKey, FailureGroup>;

/// Failures that are added to groups.
#[derive(Debug, Default)]
pub(crate) struct GroupFold {
    counted: Vec<(Timestamp, FailureCount)>,
    stored: Groups,
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
        counted.flat_map(|(_, failures)| GroupKey::candidates(failures)).collect()
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

    /// Orders the failures, so that the limits of groups and names leave out the same ones whatever order the rows have.
    fn sort(counted: &mut [(Timestamp, FailureCount)]) {
        counted.sort_by(|(a_at, a), (b_at, b)| {
            let order = |of: &FailureCount| (of.signature.group(), Arc::clone(&of.name));
            a_at.cmp(b_at).then_with(|| order(a).cmp(&order(b))).then_with(|| a.jobs.cmp(&b.jobs))
        });
    }

    /// Returns the groups that change, and the stored ones that do not.
    fn add_up(self) -> (Groups, Groups) {
        let Self { mut counted, mut stored, mut sizes } = self;
        Self::sort(&mut counted);
        let mut changed = Groups::new();
        for (at, mut failures) in counted {
            let size = sizes.entry(Arc::clone(&failures.namespace)).or_default();
            let [own, other, rest] = GroupKey::candidates(&failures);
            let is_known = |key: &GroupKey| changed.contains_key(key) || stored.contains_key(key);
            let key = if is_known(&own) || *size < GROUPS_MAX {
                own
            } else if is_known(&other) || *size < GROUPS_MAX + OTHER_MAX {
                failures.signature = failures.signature.other();
                other
            } else {
                failures.signature = Signature::rest();
                rest
            };
            if let Some(group) = changed.get_mut(&key) {
                group.add(at, &failures);
            } else if let Some(mut group) = stored.remove(&key) {
                group.add(at, &failures);
                changed.insert(key, group);
            } else {
                *size += 1;
                changed.insert(key, FailureGroup::new(at, &failures));
            }
        }
        (changed, stored)
    }

    /// Returns the new record of each group, with its key and the time of its newest failure.
    pub(crate) fn into_rows(self) -> impl Iterator<Item = (GroupKey, Timestamp, Vec<u8>)> {
        let (changed, _) = self.add_up();
        changed.into_iter().map(|(key, group)| (key, group.last_seen, seal_group(&group)))
    }

    /// Returns all stored groups with what was added, the newest failure first.
    ///
    /// If not all stored groups were read, a failure may belong to a group that was not read. Then the failure is left
    /// out until a fold has added it: a group with its counts only would be wrong.
    pub(crate) fn into_groups(mut self) -> Vec<FailureGroup> {
        for group in self.stored.values() {
            *self.sizes.entry(Arc::clone(&group.namespace)).or_default() += 1;
        }
        if self.stored.len() >= LISTED_MAX {
            let stored = &self.stored;
            self.counted.retain(|(_, failures)| stored.contains_key(&GroupKey::of(failures)));
        }
        let (changed, stored) = self.add_up();
        let mut groups: Vec<_> = changed.into_values().chain(stored.into_values()).collect();
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

    /// Returns a word for each number; no digits, which a signature does not have.
    fn word(mut number: u64) -> String {
        let mut word = String::new();
        while number > 0 || word.is_empty() {
            word.push(char::from(b'a' + u8::try_from(number % 26).unwrap()));
            number /= 26;
        }
        word
    }

    #[test]
    fn further_signatures_of_a_full_namespace_share_groups() {
        let at = Timestamp::from_millis(1_800_000_000_000);
        let mut fold = GroupFold::default();
        fold.add_stored(FailureGroup::new(at, &failure("known", 1)));
        fold.set_size("default".into(), GROUPS_MAX - 10);
        fold.add(at, (0..100).map(|i| failure(&format!("new {}", word(i)), i)).collect());
        fold.add(at, vec![failure("known", 1_000)]);
        let (changed, _) = fold.add_up();
        assert_eq!(changed.len(), 12, "ten new groups, the known one, and the one for the rest");
        let other = changed.values().find(|group| group.signature.message.is_empty()).unwrap();
        assert_eq!(other.count, 90);
        assert_eq!(changed.values().map(|group| group.count).sum::<u64>(), 102);
    }

    /// E7. A worker may send any error code and any exit code.
    #[test]
    fn further_errors_of_a_full_namespace_share_one_group() {
        let at = Timestamp::from_millis(1_800_000_000_000);
        let mut fold = GroupFold::default();
        fold.set_size("default".into(), GROUPS_MAX);
        let failures = (0..1_000_u32).map(|i| FailureCount {
            signature: Signature::new("exit_code", i32::try_from(i).ok(), "new"),
            ..failure("new", i.into())
        });
        fold.add(at, failures.collect());
        let (changed, _) = fold.add_up();
        assert_eq!(changed.len() as u64, OTHER_MAX + 1);
        assert_eq!(changed.values().map(|group| group.count).sum::<u64>(), 1_000);
        let rest = changed.values().find(|group| group.signature == Signature::rest()).unwrap();
        assert_eq!(rest.count, 1_000 - OTHER_MAX);
    }

    /// H6. Rows have no order, and the limits of groups and of names must not depend on it.
    #[test]
    fn the_order_of_rows_does_not_matter() {
        let start = Timestamp::from_millis(1_800_000_000_000);
        let rows: Vec<_> = (0..300_u64)
            .map(|i| {
                let of =
                    FailureCount { name: word(i % 90).into(), ..failure(&format!("m {}", word(i % 7)), i) };
                (start + Duration::from_secs(i / 3), of)
            })
            .collect();
        let groups = |rows: &mut dyn Iterator<Item = &(Timestamp, FailureCount)>| {
            let mut fold = GroupFold::default();
            fold.set_size("default".into(), GROUPS_MAX - 3);
            rows.for_each(|(at, of)| fold.add(*at, vec![of.clone()]));
            fold.add_up().0
        };
        assert_eq!(groups(&mut rows.iter()), groups(&mut rows.iter().rev()));
    }

    #[test]
    fn a_query_that_has_not_read_all_groups_shows_no_part_of_one() {
        let at = Timestamp::from_millis(1_800_000_000_000);
        let mut fold = GroupFold::default();
        for i in 0..LISTED_MAX as u64 {
            let of = FailureCount { namespace: word(i / 500).into(), ..failure(&word(i), i) };
            fold.add_stored(FailureGroup::new(at, &of));
        }
        fold.add(at + Duration::from_secs(1), vec![failure("of a group that was not read", 1)]);
        let groups = fold.into_groups();
        assert_eq!(groups.len(), LISTED_MAX);
        assert!(groups.iter().all(|group| group.last_seen == at));
    }
}
