//! Acknowledged executions, which are refused when they are assigned again.
//!
//! A store that lost its last commits may assign executions again whose end it has lost. The extent of the loss
//! depends on time. So each id is kept for at least [`AGE_MIN`], up to a total of [`ACKNOWLEDGED_MAX`] ids. The newest
//! [`IDS_MIN`] ids are kept regardless of their age.

use std::collections::{BTreeSet, VecDeque};

use model::ExecutionId;

use crate::BootMillis;

/// Maximum number of ids: two minutes at 2 000 ends per second. Each takes about 60 bytes.
pub const ACKNOWLEDGED_MAX: usize = 1 << 18;
/// Number of newest ids that are kept regardless of their age.
const IDS_MIN: usize = 10_000;
/// Minimum time that an id is kept, in milliseconds; longer than the period for which a surviving store loses
/// commits.
const AGE_MIN: BootMillis = 120_000;

/// Ids of acknowledged executions, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Acknowledged {
    ids: VecDeque<(BootMillis, ExecutionId)>,
    set: BTreeSet<ExecutionId>,
}

impl Acknowledged {
    /// Creates the set from the ids in the journal. Their age is unknown, so it counts from `now`.
    pub(crate) fn from_journal(ids: impl IntoIterator<Item = ExecutionId>, now: BootMillis) -> Self {
        let ids: VecDeque<_> = ids.into_iter().map(|id| (now, id)).collect();
        let set = ids.iter().map(|(_, id)| *id).collect();
        Self { ids, set }
    }

    pub(crate) fn contains(&self, id: ExecutionId) -> bool {
        self.set.contains(&id)
    }

    pub(crate) fn insert_acknowledged(&mut self, id: ExecutionId, now: BootMillis) {
        if !self.set.insert(id) {
            return;
        }
        self.ids.push_back((now, id));
        while let Some((at, oldest)) = self.ids.front().copied()
            && (self.ids.len() > ACKNOWLEDGED_MAX || self.ids.len() > IDS_MIN && at + AGE_MIN < now)
        {
            self.ids.pop_front();
            self.set.remove(&oldest);
        }
    }

    pub(crate) fn ids(&self) -> VecDeque<ExecutionId> {
        self.ids.iter().map(|(_, id)| *id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: usize) -> ExecutionId {
        ExecutionId::from_bits(n as u128)
    }

    #[test]
    fn an_id_is_kept_for_two_minutes_regardless_of_later_ids() {
        let mut forgotten = Acknowledged::default();
        // 2 000 ends per second.
        for n in 0..200_000 {
            forgotten.insert_acknowledged(id(n), n as u64 / 2);
        }
        assert!(forgotten.contains(id(0)));
        forgotten.insert_acknowledged(id(200_000), 120_001);
        assert!(!forgotten.contains(id(0)) && forgotten.contains(id(2)));
        assert_eq!(forgotten.ids.len(), forgotten.set.len());
    }

    #[test]
    fn the_newest_ids_are_kept_up_to_the_limit() {
        let mut forgotten = Acknowledged::from_journal((0..IDS_MIN).map(id), 0);
        forgotten.insert_acknowledged(id(IDS_MIN), 1 << 40);
        assert!(!forgotten.contains(id(0)) && forgotten.contains(id(1)));
        for n in 0..ACKNOWLEDGED_MAX + 1_000 {
            forgotten.insert_acknowledged(id(n), 1 << 40);
        }
        assert_eq!(forgotten.ids().len(), ACKNOWLEDGED_MAX);
    }
}
