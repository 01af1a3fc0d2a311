//! The changelog of a replica, in memory.
//!
//! A standby is in the same process as its replica, so positions need not survive a restart. A replica adds an entry for
//! each commit that it applies.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::changelog::{ChangelogPage, ChangelogPosition, LiveChange};
use model::id::Epoch;
use model::{Duration, Timestamp};

/// Maximum age of an entry; a standby that has not read for longer starts again.
const AGE_MAX: Duration = Duration::from_secs(60);
/// Maximum number of effects that are kept, about 30 MiB.
const EFFECTS_MAX: usize = 400_000;
/// Maximum number of commits in a page.
const COMMITS: usize = 1_000;

/// The effects of the newest commits on the live rows.
#[derive(Debug)]
pub(crate) struct MemoryChangelog {
    entries: Mutex<Entries>,
}

#[derive(Debug)]
struct Entries {
    /// Position before the first entry; `None` once an entry was forgotten.
    base: Option<ChangelogPosition>,
    commits: VecDeque<CommitEffects>,
    /// Number of effects in all commits.
    effects: usize,
    /// Engine time of the newest commit.
    now: Timestamp,
}

#[derive(Debug)]
struct CommitEffects {
    place: ChangelogPosition,
    at: Timestamp,
    touched: Vec<LiveChange>,
}

impl Entries {
    fn end(&self) -> ChangelogPosition {
        // The newest entry is never forgotten.
        self.commits.back().map(|newest| newest.place).or(self.base).unwrap_or_default()
    }

    fn forget_first(&mut self) {
        if let Some(first) = self.commits.pop_front() {
            self.base = None;
            self.effects -= first.touched.len();
        }
    }
}

/// A commit that was applied.
#[derive(Debug)]
pub(crate) struct AppliedCommit {
    /// Highest epoch of its leases.
    pub(crate) epoch: Epoch,
    /// Each of its effects once.
    pub(crate) touched: Vec<LiveChange>,
}

impl MemoryChangelog {
    /// Creates a changelog without entries. `number` is the number of its first position, and `now` the engine time of
    /// the rows.
    pub(crate) fn new(number: u64, now: Timestamp) -> Self {
        let base = ChangelogPosition { commit: number, epoch: Epoch(0) };
        Self { entries: Mutex::new(Entries { base: Some(base), commits: VecDeque::new(), effects: 0, now }) }
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds commits that queries can see by now, and the engine time of the newest one; `at` is the time of the clock.
    pub(crate) fn add(&self, commits: Vec<AppliedCommit>, now: Timestamp, at: Timestamp) {
        let mut entries = self.lock();
        entries.now = now;
        for AppliedCommit { epoch, touched } in commits {
            let place = ChangelogPosition { commit: entries.end().commit + 1, epoch };
            entries.effects += touched.len();
            entries.commits.push_back(CommitEffects { place, at, touched });
        }
        while entries.effects > EFFECTS_MAX && entries.commits.len() > 1 {
            entries.forget_first();
        }
    }

    /// Forgets all entries, because all rows were replaced. Every earlier position becomes unknown.
    pub(crate) fn start_again(&self, now: Timestamp) {
        let mut entries = self.lock();
        let base = ChangelogPosition { commit: entries.end().commit + 2, epoch: Epoch(0) };
        *entries = Entries { base: Some(base), commits: VecDeque::new(), effects: 0, now };
    }

    pub(crate) fn end(&self) -> ChangelogPosition {
        self.lock().end()
    }

    pub(crate) fn since(&self, place: ChangelogPosition) -> Option<ChangelogPage> {
        let entries = self.lock();
        let behind = if Some(place) == entries.base {
            0
        } else {
            let found = entries.commits.binary_search_by_key(&place.commit, |commit| commit.place.commit);
            found.ok().filter(|index| entries.commits[*index].place == place)? + 1
        };
        let page = entries.commits.range(behind..).take(COMMITS);
        let touched = page.clone().flat_map(|commit| commit.touched.iter().copied()).collect();
        let end = page.into_iter().next_back().map_or(place, |commit| commit.place);
        Some(ChangelogPage { touched, end, whole: end == entries.end(), now: entries.now })
    }

    /// Forgets old entries, except the newest of them: a standby may have waited there for the next commit.
    pub(crate) fn trim(&self, now: Timestamp) {
        let mut entries = self.lock();
        while entries.commits.get(1).is_some_and(|second| now.since(second.at) > AGE_MAX) {
            entries.forget_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use model::JobId;

    use super::*;

    fn commit(job: u128) -> AppliedCommit {
        let touched = vec![LiveChange::Ended(JobId::from_bits(job))];
        AppliedCommit { epoch: Epoch(1), touched }
    }

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_millis(secs * 1_000)
    }

    #[test]
    fn a_position_stays_known_until_its_entry_is_forgotten() {
        let changelog = MemoryChangelog::new(7, at(0));
        let start = changelog.end();
        assert!(changelog.since(start).unwrap().whole);
        changelog.add(vec![commit(1), commit(2)], at(1), at(100));
        let page = changelog.since(start).unwrap();
        assert_eq!(page.touched.len(), 2);
        assert_eq!(page.end, changelog.end());
        changelog.add(vec![commit(3)], at(1), at(200));
        changelog.trim(at(201));
        assert_eq!(changelog.since(start), None);
        assert_eq!(changelog.since(page.end).unwrap().touched.len(), 1);
    }

    #[test]
    fn effects_beyond_the_limit_are_forgotten() {
        let changelog = MemoryChangelog::new(0, at(0));
        let start = changelog.end();
        let many =
            |job| AppliedCommit { touched: vec![commit(job).touched[0]; EFFECTS_MAX / 2 + 1], ..commit(job) };
        changelog.add(vec![many(1), many(2)], at(0), at(0));
        assert_eq!(changelog.since(start), None);
        assert_eq!(changelog.lock().commits.len(), 1);
    }

    #[test]
    fn positions_from_before_a_new_start_are_unknown() {
        let changelog = MemoryChangelog::new(0, at(0));
        changelog.add(vec![commit(1)], at(0), at(0));
        let before = changelog.end();
        changelog.start_again(at(5));
        assert_eq!(changelog.since(before), None);
        assert_eq!(changelog.since(changelog.end()).unwrap().now, at(5));
        changelog.add(vec![commit(2)], at(6), at(6));
        assert_eq!(changelog.since(before), None);
    }
}
