//! Limit on the running time of a task, which excludes frozen time and suspended time of the machine.
//!
//! The deadline is a time of `CLOCK_BOOTTIME`, for which the poller waits. It is extended by the time that the task
//! was frozen. It is also extended by the time that the machine was suspended while the task was not frozen.

use mutation::{Mutation, is_on};

use crate::{BootMillis, Moment};

/// Maximum difference between two clock readings without a suspension, in milliseconds.
const NOISE: u64 = 5;

/// Remaining running time of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Countdown {
    /// Deadline, if the task is not frozen from now on.
    due: BootMillis,
    /// Suspended time that is already included in `due`.
    asleep: u64,
    /// Start of the current freeze; `None` while the task is not frozen.
    halted: Option<Moment>,
}

impl Countdown {
    pub(crate) fn new(start: Moment, limit: u64) -> Self {
        Self { due: start.boot.saturating_add(limit), asleep: start.asleep, halted: None }
    }

    /// Records that the task was frozen at `at`. The earliest time counts.
    pub(crate) fn halt(&mut self, at: Moment) {
        match self.halted {
            None => self.allow_for(at.asleep),
            Some(before) if before.boot <= at.boot => return,
            // The freeze began earlier than it was first reported: suspended time in between is frozen time.
            Some(before) => {
                self.due = self.due.saturating_sub(before.asleep.saturating_sub(at.asleep));
                self.asleep = at.asleep;
            }
        }
        self.halted = Some(at);
    }

    /// Records that the task was thawed at `now`.
    pub(crate) fn resume(&mut self, now: Moment) {
        if let Some(since) = self.halted.take()
            && !is_on(Mutation::SupervisorCountsFrozenTime)
        {
            self.due = self.due.saturating_add(now.boot.saturating_sub(since.boot));
            self.asleep = self.asleep.max(now.asleep);
        }
    }

    /// Returns the deadline; `None` while the task is frozen.
    pub(crate) fn due(&mut self, now: Moment) -> Option<BootMillis> {
        if self.halted.is_some() {
            return None;
        }
        self.allow_for(now.asleep);
        Some(self.due)
    }

    fn allow_for(&mut self, asleep: u64) {
        let more = asleep.saturating_sub(self.asleep);
        if more > NOISE {
            self.due = self.due.saturating_add(more);
            self.asleep = asleep;
        }
    }
}

/// Freezes of a task that is being launched and whose start time is not known yet.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    over: Vec<(Moment, Moment)>,
    since: Option<Moment>,
}

impl Pauses {
    /// Records that the task was frozen at `at`. The earliest time counts.
    pub(crate) fn halt(&mut self, at: Moment) {
        self.since = Some(self.since.filter(|since| since.boot <= at.boot).unwrap_or(at));
    }

    /// Records that the task was thawed at `now`.
    pub(crate) fn resume(&mut self, now: Moment) {
        self.over.extend(self.since.take().map(|since| (since, now)));
    }

    /// Returns whether the task is frozen.
    pub(crate) fn is_open(&self) -> bool {
        self.since.is_some()
    }

    /// Returns the countdown of `limit` for a task that was started at `start`.
    pub(crate) fn countdown(&self, start: Moment, limit: u64) -> Countdown {
        let mut countdown = Countdown::new(start, limit);
        let later = |at: Moment| if at.boot < start.boot { start } else { at };
        for (since, until) in self.over.iter().filter(|(_, until)| until.boot > start.boot) {
            countdown.halt(later(*since));
            countdown.resume(*until);
        }
        if let Some(since) = self.since {
            countdown.halt(later(since));
        }
        countdown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(boot: u64, asleep: u64) -> Moment {
        Moment { boot, asleep }
    }

    #[test]
    fn running_time_counts() {
        let mut countdown = Countdown::new(at(1_000, 70), 500);
        assert_eq!(countdown.due(at(1_100, 71)), Some(1_500));
    }

    #[test]
    fn frozen_time_does_not_count_from_the_earliest_instant_that_is_known() {
        let mut countdown = Countdown::new(at(1_000, 0), 500);
        countdown.halt(at(1_400, 0));
        countdown.halt(at(1_200, 0));
        countdown.halt(at(1_300, 0));
        assert_eq!(countdown.due(at(9_000, 0)), None);
        countdown.resume(at(9_200, 0));
        assert_eq!(countdown.due(at(9_200, 0)), Some(9_500), "300 ms are left");
    }

    #[test]
    fn time_that_a_task_was_frozen_before_its_start_was_known_does_not_count() {
        let mut pauses = Pauses::default();
        pauses.halt(at(100, 0));
        pauses.resume(at(200, 0));
        pauses.halt(at(900, 0));
        pauses.resume(at(1_100, 0));
        pauses.halt(at(1_300, 0));
        pauses.halt(at(1_200, 0));
        assert_eq!(pauses.countdown(at(1_000, 0), 500).due(at(1_400, 0)), None);
        pauses.resume(at(2_200, 0));
        assert_eq!(pauses.countdown(at(1_000, 0), 500).due(at(2_200, 0)), Some(2_600), "100 ms have passed");
        assert_eq!(pauses.countdown(at(3_000, 0), 500).due(at(3_000, 0)), Some(3_500));
    }

    #[test]
    fn suspended_time_does_not_count() {
        let mut countdown = Countdown::new(at(1_000, 0), 500);
        assert_eq!(countdown.due(at(31_100, 30_000)), Some(31_500));
        assert_eq!(countdown.due(at(31_200, 30_000)), Some(31_500));
    }

    #[test]
    fn time_that_is_both_frozen_and_suspended_is_allowed_for_once() {
        let mut countdown = Countdown::new(at(1_000, 0), 500);
        // Frozen first, then suspended for 30 s.
        countdown.halt(at(1_100, 0));
        countdown.resume(at(31_200, 30_000));
        assert_eq!(countdown.due(at(31_200, 30_000)), Some(31_600), "400 ms are left");
        // Suspended for 20 s first, and frozen by the fuse immediately after the resume.
        countdown.halt(at(51_300, 50_000));
        countdown.resume(at(51_400, 50_000));
        assert_eq!(countdown.due(at(51_400, 50_000)), Some(51_700), "300 ms are left");
    }

    #[test]
    fn a_freeze_that_is_noticed_only_after_a_suspension_counts_from_where_it_began() {
        let mut countdown = Countdown::new(at(1_000, 0), 500);
        countdown.halt(at(31_300, 30_000));
        countdown.halt(at(1_200, 0));
        countdown.resume(at(31_400, 30_000));
        assert_eq!(countdown.due(at(31_400, 30_000)), Some(31_700), "300 ms are left");
    }
}
