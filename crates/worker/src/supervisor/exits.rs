//! Children of the supervisor that are not, or not yet, known as tasks.
//!
//! - A child that ends while tasks are being launched may be one of them: its exit is kept until that is known.
//! - A child whose parent has exited is an orphan of a task. Its marks identify the task. It may have no mark: if it
//!   left its session, cleared its environment, and is in no control group. Then its start time limits the tasks to
//!   those that ran at that time.

use std::collections::HashMap;

use model::ExecutionId;

use crate::clock::BootMillis;
use crate::process::spawn::Exit;

/// Time after which an unclaimed early exit does not belong to a task, in milliseconds.
const EARLY_MAX: BootMillis = 60_000;
/// Number of early exits from which old ones are removed.
const EARLY_MANY: usize = 256;
/// Resolution of the start time of a process, in milliseconds.
const TICK: BootMillis = 10;

/// Exits of children that may be tasks whose launch the loop has not processed yet.
#[derive(Debug, Default)]
pub(super) struct EarlyExits {
    exits: HashMap<i32, (BootMillis, Exit)>,
    /// Number of exits at which the next search for old ones is worth its cost.
    many: usize,
}

impl EarlyExits {
    /// Records that an unknown child was reaped at `now`.
    pub(super) fn note(&mut self, exit: Exit, now: BootMillis) {
        if self.exits.len() >= self.many.max(EARLY_MANY) {
            self.exits.retain(|_, (at, _)| *at + EARLY_MAX > now);
            self.many = self.exits.len() * 2;
        }
        self.exits.insert(exit.pid, (now, exit));
    }

    /// Returns the exit of the child with this id and start time. An exit before the start belongs to an earlier
    /// process with the same id.
    pub(super) fn take(&mut self, pid: i32, started: BootMillis) -> Option<Exit> {
        let (at, exit) = self.exits.remove(&pid)?;
        (at >= started).then_some(exit)
    }

    /// Returns whether the child with this id has ended and was reaped.
    pub(super) fn contains(&self, pid: i32) -> bool {
        self.exits.contains_key(&pid)
    }

    /// Forgets all exits; called when no task is being launched.
    pub(super) fn clear(&mut self) {
        self.exits.clear();
    }
}

/// An orphaned process of a task, now a child of the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Orphan {
    pub(super) started: BootMillis,
    /// Execution that the process belongs to, once it is known.
    pub(super) owner: Option<ExecutionId>,
}

/// The task that an orphan without marks belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// It belongs to this task, which has ended.
    OwnedBy(ExecutionId),
    /// It may belong to a task that is still running.
    Undecided,
    /// No task was running when it was started.
    Unowned,
}

/// Finds the task of an orphan that was started at `started`, among `tasks` with their start times.
///
/// If several tasks were running at its start, the orphan may belong to any of them. It is assigned to the last of
/// them to end, so it outlives its own task at most until then.
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
    last.map_or(Claim::Unowned, |(_, id)| Claim::OwnedBy(id))
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
    fn an_exit_before_the_start_belongs_to_an_earlier_process_with_that_id() {
        let mut exits = EarlyExits::default();
        exits.note(exit(7), 1_000);
        assert_eq!(exits.take(7, 1_001), None);
        exits.note(exit(7), 1_000);
        assert_eq!(exits.take(7, 1_000), Some(exit(7)));
        assert_eq!(exits.take(7, 1_000), None);
    }

    #[test]
    fn unclaimed_exits_are_removed() {
        let mut exits = EarlyExits::default();
        for pid in 1..100_000 {
            exits.note(exit(pid), u64::from(pid.cast_unsigned()) * 10);
        }
        assert!(exits.exits.len() < 20_000, "{}", exits.exits.len());
    }

    #[test]
    fn an_orphan_belongs_to_the_only_task_that_ran_at_its_start() {
        let tasks = [(id(1), 100), (id(2), 500)];
        let claim = |started, ended: &[u128]| {
            claim(started, tasks.into_iter(), |task| ended.iter().any(|bits| id(*bits) == task))
        };
        assert_eq!(claim(300, &[1]), Claim::OwnedBy(id(1)), "the other task started later");
        assert_eq!(claim(300, &[2]), Claim::Undecided, "its task is still running");
        assert_eq!(claim(495, &[1]), Claim::Undecided, "start times have a resolution of 10 ms");
        assert_eq!(claim(600, &[1]), Claim::Undecided, "it may belong to the other task");
        assert_eq!(claim(600, &[1, 2]), Claim::OwnedBy(id(2)), "both have ended");
        assert_eq!(claim(50, &[1, 2]), Claim::Unowned, "it was started before both");
    }
}
