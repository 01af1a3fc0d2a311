//! Debug builds: the mutation that is on in a thread, and the one that is on in the process.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::OnceLock;

use crate::Mutation;

thread_local! {
    static HERE: Cell<Option<Mutation>> = const { Cell::new(None) };
}

static EVERYWHERE: OnceLock<Mutation> = OnceLock::new();

/// Returns whether a mutation is on, in this thread or in the process.
#[inline]
pub fn is_on(mutation: Mutation) -> bool {
    HERE.get() == Some(mutation) || EVERYWHERE.get() == Some(&mutation)
}

/// Guard of [`enable_in_thread`]: while it exists, a mutation is on in the thread that created it.
#[derive(Debug)]
#[must_use = "the mutation is switched off when the guard is dropped"]
pub struct ThreadGuard {
    before: Option<Mutation>,
    _of_its_thread: PhantomData<*const ()>,
}

impl Drop for ThreadGuard {
    fn drop(&mut self) {
        HERE.set(self.before);
    }
}

/// Switches a mutation on in this thread until the guard is dropped. Replaces the mutation that is on in the thread, if
/// any; dropping the guard restores it. Returns `None` in a release build.
pub fn enable_in_thread(mutation: Mutation) -> Option<ThreadGuard> {
    Some(ThreadGuard { before: HERE.replace(Some(mutation)), _of_its_thread: PhantomData })
}

/// Switches a mutation on in all threads of the process; it stays on. Returns whether the mutation is on: `false` in a
/// release build, and if another mutation was switched on before.
pub fn enable_in_process(mutation: Mutation) -> bool {
    *EVERYWHERE.get_or_init(|| mutation) == mutation
}
