//! Children of the supervisor that are not, or not yet, known as tasks.
//!
//! - A child that ends while tasks are being started may be one of these: its end is kept until that is known.
//! - A child whose parent has ended is an orphan that some task left. Its marks say of which task; where it has
//!   none (it left its session, cleaned its environment, and no control group holds it), the time of its start leaves
//!   those tasks that ran then.

use std::collections::HashMap;

use model::ExecutionId;

use crate::clock::BootMillis;
use crate::process::spawn::Exit;

/// An early end that nobody asked for within this time is not a task's.
const EARLY_MAX: BootMillis = 60_000;
/// With more early ends than this, old ones are looked for.
const EARLY_MANY: usize = 256;
/// How exactly the system tells when a process was started.
const TICK: BootMillis = 10;

/// Ends of children that may be tasks of which the loop has not heard yet.
#[derive(Debug, Default)]
pub(super) struct EarlyExits {
    exits: HashMap<i32, (BootMillis, Exit)>,
    /// With how many it is worth looking for old ones.
    many: usize,
}

impl EarlyExits {
    /// A child that nobody knows was reaped at `now`.
    pub(super) fn note(&mut self, exit: Exit, now: BootMillis) {
        if self.exits.len() >= self.many.max(EARLY_MANY) {
            self.exits.retain(|_, (at, _)| *at + EARLY_MAX > now);
            self.many = self.exits.len() * 2;
        }
        self.exits.insert(exit.pid, (now, exit));
    }

    /// How the child with this number ended that was started at `started`. What ended before had the number earlier.
    pub(super) fn take(&mut self, pid: i32, started: BootMillis) -> Option<Exit> {
        let (at, exit) = self.exits.remove(&pid)?;
        (at >= started).then_some(exit)
    }

    /// Whether the child with this number has ended, and was reaped.
    pub(super) fn contains(&self, pid: i32) -> bool {
        self.exits.contains_key(&pid)
    }

    /// No task is being started.
    pub(super) fn clear(&mut self) {
        self.exits.clear();
    }
}

/// A child that a task orphaned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stray {
    pub(super) started: BootMillis,
    /// Whose it is, once that is known.
    pub(super) owner: Option<ExecutionId>,
}

/// Whose an orphan without any mark is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// Of this task, which has ended.
    Of(ExecutionId),
    /// Of one that still runs, perhaps.
    Undecided,
    /// No task was there when it was started.
    Nobodys,
}

/// Whose an orphan is that was started at `started`, among `tasks` with the starts of these.
///
/// Where several ran it may be of any that was there when it was started. It is of the last of them to end, so it
/// outlives its own by no more than these.
pub(super) fn claim(
    started: BootMillis,
    tasks: impl Iterator<Item = (ExecutionId, BootMillis)>,
    has_ended: impl Fn(ExecutionId) -> bool,
) -> Claim {
    let mut last = None;
    for (id, since) in tasks.filter(|(_, since)| *since <= started + TICK) {
        if !has_ended(id) {
            return Claim::Undecided;
        }
        last = last.max(Some((since, id)));
    }
    last.map_or(Claim::Nobodys, |(_, id)| Claim::Of(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(pid: i32) -> Exit {
        Exit { pid, code: Some(3), signal: None, cpu_millis: 0, peak_memory_bytes: 0 }
    }

    fn id(bits: u128) -> ExecutionId {
        ExecutionId::from_bits(bits)
    }

    #[test]
    fn an_end_from_before_the_start_is_of_an_earlier_process_with_that_number() {
        let mut exits = EarlyExits::default();
        exits.note(exit(7), 1_000);
        assert_eq!(exits.take(7, 1_001), None);
        exits.note(exit(7), 1_000);
        assert_eq!(exits.take(7, 1_000), Some(exit(7)));
        assert_eq!(exits.take(7, 1_000), None);
    }

    #[test]
    fn ends_that_nobody_asks_for_are_not_kept_for_ever() {
        let mut exits = EarlyExits::default();
        for pid in 1..100_000 {
            exits.note(exit(pid), u64::from(pid.cast_unsigned()) * 10);
        }
        assert!(exits.exits.len() < 20_000, "{}", exits.exits.len());
    }

    #[test]
    fn an_orphan_is_of_the_only_task_that_ran_at_its_start() {
        let tasks = [(id(1), 100), (id(2), 500)];
        let claim = |started, ended: &[u128]| {
            claim(started, tasks.into_iter(), |task| ended.iter().any(|bits| id(*bits) == task))
        };
        assert_eq!(claim(300, &[1]), Claim::Of(id(1)), "the other one started later");
        assert_eq!(claim(300, &[2]), Claim::Undecided, "its own still runs");
        assert_eq!(claim(495, &[1]), Claim::Undecided, "it cannot be told to the hundredth of a second");
        assert_eq!(claim(600, &[1]), Claim::Undecided, "it may be of the other one");
        assert_eq!(claim(600, &[1, 2]), Claim::Of(id(2)), "both have ended");
        assert_eq!(claim(50, &[1, 2]), Claim::Nobodys, "it was there before them");
    }
}
