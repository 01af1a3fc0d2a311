//! Release builds: no mutation can be switched on.

use crate::Mutation;

/// Returns whether a mutation is on: always `false` in a release build.
#[inline(always)]
pub const fn is_on(_mutation: Mutation) -> bool {
    false
}

/// Guard of [`here`]; has no values in a release build.
#[derive(Debug)]
pub enum Here {}

/// Returns `None`: a release build has no mutations.
pub fn here(_mutation: Mutation) -> Option<Here> {
    None
}

/// Returns `false`: a release build has no mutations.
pub fn everywhere(_mutation: Mutation) -> bool {
    false
}
