//! A release build has no mutations.

use crate::Mutation;

/// Whether the code that asks is to do this wrong: not in a release build.
#[inline(always)]
pub const fn is_on(_mutation: Mutation) -> bool {
    false
}

/// Nobody has one in a release build.
#[derive(Debug)]
pub enum Here {}

/// Switches nothing on: a release build has no mutations.
pub fn here(_mutation: Mutation) -> Option<Here> {
    None
}

/// Switches nothing on: a release build has no mutations.
pub fn everywhere(_mutation: Mutation) -> bool {
    false
}
