//! Concurrency keys: the number of running jobs of each key, and the jobs that are parked until one ends.
//!
//! [`Queues`](super::Queues) calls this module for each job with a key. A job is either a *candidate* (in a
//! lane) or *parked* here. Jobs of one key with the same priority, queue, shape and limit form a [`Group`].
//!
//! # Invariants
//! - A group has at most `limit - running` candidates when a job enters; all others are parked.
//! - A blocked group blocks no other group of its key.
//!
//! # Cost
//! O(log n) for each operation, plus a search over the groups of a key when a job ends.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::fast::FixedState;
use indexmap::{Equivalent, IndexMap};
use model::{JobId, Timestamp};
use mutation::{Mutation, is_on};

use super::lane::Flow;
use crate::profile::Profile;

/// A parked job, or a job that may be parked.
#[derive(Debug)]
pub(crate) struct Parked {
    profile: Arc<Profile>,
    flow: Flow,
    limit: u32,
}

impl Parked {
    /// Describes a job with the limit of its key.
    pub(crate) fn of(job: super::QueuedJob<'_>, limit: u32) -> Self {
        Self { profile: Arc::clone(job.profile), flow: job.flow, limit }
    }
}

/// A job that was parked, or is now a candidate again.
#[derive(Debug)]
pub(crate) struct Unparked {
    pub(crate) profile: Arc<Profile>,
    pub(crate) flow: Flow,
}

type QueuePosition = (Timestamp, JobId);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Name {
    namespace: Arc<str>,
    key: Box<str>,
}

#[derive(Hash)]
struct NameRef<'a> {
    namespace: &'a str,
    key: &'a str,
}

impl Equivalent<Name> for NameRef<'_> {
    fn equivalent(&self, name: &Name) -> bool {
        *self.namespace == *name.namespace && *self.key == *name.key
    }
}

/// Jobs of a key that wait under the same conditions; a blocked group blocks no other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    priority: Reverse<u8>,
    queue: Arc<str>,
    shape: u64,
    limit: u32,
}

impl Group {
    fn of(profile: &Profile, limit: u32) -> Self {
        Self {
            priority: Reverse(profile.priority),
            queue: Arc::clone(&profile.queue),
            shape: profile.shape_id,
            limit,
        }
    }
}

#[derive(Debug, Default)]
struct GroupJobs {
    /// Number of its jobs in lanes.
    candidates: u32,
    parked: BTreeMap<QueuePosition, Unparked>,
}

#[derive(Debug, Default)]
struct KeyState {
    running: u32,
    groups: BTreeMap<Group, GroupJobs>,
}

impl KeyState {
    fn shrink(&mut self, group: &Group) {
        if self.groups.get(group).is_some_and(|m| m.candidates == 0 && m.parked.is_empty()) {
            self.groups.remove(group);
        }
    }
}

/// All keys that have jobs.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    keys: IndexMap<Name, KeyState, FixedState>,
}

impl Keys {
    fn state(&mut self, namespace: &Arc<str>, key: &str) -> &mut KeyState {
        let index = match self.keys.get_index_of(&NameRef { namespace, key }) {
            Some(index) => index,
            None => {
                let name = Name { namespace: Arc::clone(namespace), key: key.into() };
                self.keys.insert_full(name, KeyState::default()).0
            }
        };
        &mut self.keys[index]
    }

    fn drop_if_unused(&mut self, namespace: &str, key: &str) {
        let name = NameRef { namespace, key };
        if self.keys.get(&name).is_some_and(|s| s.running == 0 && s.groups.is_empty()) {
            self.keys.swap_remove(&name);
        }
    }

    pub(crate) fn running(&self, namespace: &str, key: &str) -> u32 {
        self.keys.get(&NameRef { namespace, key }).map_or(0, |state| state.running)
    }

    /// Adds a job: as a candidate (true) or parked (false).
    pub(crate) fn admit(
        &mut self,
        namespace: &Arc<str>,
        key: &str,
        place: QueuePosition,
        entry: Parked,
    ) -> bool {
        let state = self.state(namespace, key);
        let members = state.groups.entry(Group::of(&entry.profile, entry.limit)).or_default();
        let over = u32::from(is_on(Mutation::EngineOverfillsKeys));
        if state.running + members.candidates < entry.limit + over {
            members.candidates += 1;
            return true;
        }
        members.parked.insert(place, Unparked { profile: entry.profile, flow: entry.flow });
        false
    }

    /// Parks a candidate.
    pub(crate) fn park(&mut self, namespace: &Arc<str>, key: &str, place: QueuePosition, entry: Parked) {
        let state = self.state(namespace, key);
        let members = state.groups.entry(Group::of(&entry.profile, entry.limit)).or_default();
        members.candidates = members.candidates.saturating_sub(1);
        members.parked.insert(place, Unparked { profile: entry.profile, flow: entry.flow });
    }

    /// Removes a waiting job that was not placed.
    pub(crate) fn leave(
        &mut self,
        namespace: &Arc<str>,
        key: &str,
        place: QueuePosition,
        entry: &Parked,
        candidate: bool,
    ) {
        let state = self.state(namespace, key);
        let group = Group::of(&entry.profile, entry.limit);
        if let Some(members) = state.groups.get_mut(&group) {
            if candidate {
                members.candidates = members.candidates.saturating_sub(1);
            } else {
                members.parked.remove(&place);
            }
        }
        state.shrink(&group);
        self.drop_if_unused(namespace, key);
    }

    /// Counts a candidate that was placed.
    pub(crate) fn count_placed(&mut self, namespace: &Arc<str>, key: &str, entry: &Parked) {
        let state = self.state(namespace, key);
        let group = Group::of(&entry.profile, entry.limit);
        if let Some(members) = state.groups.get_mut(&group) {
            members.candidates = members.candidates.saturating_sub(1);
        }
        state.shrink(&group);
        state.running += 1;
    }

    /// Counts a restored job that is still running.
    pub(crate) fn restore_running(&mut self, namespace: &Arc<str>, key: &str) {
        self.state(namespace, key).running += 1;
    }

    /// Counts the end of a running job.
    pub(crate) fn end(&mut self, namespace: &Arc<str>, key: &str) {
        let state = self.state(namespace, key);
        state.running = state.running.saturating_sub(1);
        self.drop_if_unused(namespace, key);
    }

    /// Makes the first parked job that the limit allows a candidate, and returns it.
    pub(crate) fn unpark(&mut self, namespace: &Arc<str>, key: &str) -> Option<(QueuePosition, Unparked)> {
        let state = self.keys.get_mut(&NameRef { namespace, key })?;
        let running = state.running;
        let open =
            state.groups.iter_mut().find(|(g, m)| !m.parked.is_empty() && running + m.candidates < g.limit);
        let (_, members) = open?;
        members.candidates += 1;
        members.parked.pop_first()
    }

    pub(crate) fn is_parked(&self, namespace: &str, key: &str, place: QueuePosition, entry: &Parked) -> bool {
        let state = self.keys.get(&NameRef { namespace, key });
        let members = state.and_then(|state| state.groups.get(&Group::of(&entry.profile, entry.limit)));
        members.is_some_and(|members| members.parked.contains_key(&place))
    }
}
