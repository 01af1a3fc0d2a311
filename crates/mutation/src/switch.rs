//! Which mutation is on, in a debug build.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::OnceLock;

use crate::Mutation;

thread_local! {
    static HERE: Cell<Option<Mutation>> = const { Cell::new(None) };
}

static EVERYWHERE: OnceLock<Mutation> = OnceLock::new();

/// Whether the code that asks is to do this wrong.
#[inline]
pub fn is_on(mutation: Mutation) -> bool {
    HERE.get() == Some(mutation) || EVERYWHERE.get() == Some(&mutation)
}

/// While it lives, its thread has a mutation.
#[derive(Debug)]
#[must_use = "the mutation is off again once this is dropped"]
pub struct Here {
    before: Option<Mutation>,
    _of_its_thread: PhantomData<*const ()>,
}

impl Drop for Here {
    fn drop(&mut self) {
        HERE.set(self.before);
    }
}

/// Switches a mutation on in this thread, in place of one that may be on there. In a release build there is
/// none to be switched on.
pub fn here(mutation: Mutation) -> Option<Here> {
    Some(Here { before: HERE.replace(Some(mutation)), _of_its_thread: PhantomData })
}

/// Switches a mutation on in every thread of this process, for good. Says whether it is on: not in a release
/// build, and not if another one was before.
pub fn everywhere(mutation: Mutation) -> bool {
    *EVERYWHERE.get_or_init(|| mutation) == mutation
}
