//! Release builds: no mutation can be switched on.

use crate::Mutation;

/// Returns whether a mutation is on: always `false` in a release build.
#[inline(always)]
pub const fn is_on(_mutation: Mutation) -> bool {
    false
}

/// Guard of [`enable_in_thread`]; has no values in a release build.
#[derive(Debug)]
pub enum ThreadGuard {}

/// Returns `None`: a release build has no mutations.
pub fn enable_in_thread(_mutation: Mutation) -> Option<ThreadGuard> {
    None
}

/// Returns `false`: a release build has no mutations.
pub fn enable_in_process(_mutation: Mutation) -> bool {
    false
}
