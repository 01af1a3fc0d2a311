//! Sets of permissions, as bits.
//!
//! A permission is a pair of a [`Verb`] and a [`Resource`]. A role is a set of them, and a decision is one `and`.

use std::fmt;

use crate::action::{Resource, Verb};

/// Set of permissions: pairs of a verb and a resource.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Permissions(u128);

const _: () = assert!(Verb::ALL.len() * Resource::ALL.len() <= 128, "each permission has one bit");

const fn bit(verb: Verb, resource: Resource) -> u128 {
    1 << (resource as usize * Verb::ALL.len() + verb as usize)
}

impl Permissions {
    /// No permission.
    pub const NONE: Self = Self(0);

    /// Returns the permissions for each pair of the given verbs and resources.
    pub const fn of(verbs: &[Verb], resources: &[Resource]) -> Self {
        let mut bits = 0;
        let mut v = 0;
        while v < verbs.len() {
            let mut r = 0;
            while r < resources.len() {
                bits |= bit(verbs[v], resources[r]);
                r += 1;
            }
            v += 1;
        }
        Self(bits)
    }

    /// Returns whether the set contains the permission.
    pub const fn contains(self, verb: Verb, resource: Resource) -> bool {
        self.0 & bit(verb, resource) != 0
    }

    /// Returns whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the permissions of either set.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the permissions of both sets.
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the permissions that `other` does not have.
    pub const fn difference(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the permissions, resource by resource.
    pub fn iter(self) -> impl Iterator<Item = (Verb, Resource)> {
        Resource::ALL
            .iter()
            .flat_map(|&resource| Verb::ALL.iter().map(move |&verb| (verb, resource)))
            .filter(move |&(verb, resource)| self.contains(verb, resource))
    }
}

impl fmt::Debug for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|(verb, resource)| (verb.as_str(), resource.as_str()))).finish()
    }
}
