//! Limit on the running time of a task, which excludes frozen time and suspended time of the machine.
//!
//! The deadline is a time of `CLOCK_BOOTTIME`, for which the poller waits. It is extended by the time that the task
//! was frozen. It is also extended by the time that the machine was suspended while the task was not frozen.

use mutation::{Mutation, is_on};

use crate::{BootMillis, ClockReading};

/// Maximum difference between two clock readings without a suspension, in milliseconds.
const NOISE: u64 = 5;

/// Remaining running time of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Countdown {
    /// Deadline, if the task is not frozen from now on.
    deadline: BootMillis,
    /// Suspended time that is already included in `due`.
    suspended: u64,
    /// Start of the current freeze; `None` while the task is not frozen.
    frozen_since: Option<ClockReading>,
}

impl Countdown {
    pub(crate) fn new(start: ClockReading, limit: u64) -> Self {
        Self { deadline: start.boot.saturating_add(limit), suspended: start.suspended, frozen_since: None }
    }

    /// Records that the task was frozen at `at`. The earliest time counts.
    pub(crate) fn mark_frozen(&mut self, at: ClockReading) {
        match self.frozen_since {
            None => self.add_suspended(at.suspended),
            Some(before) if before.boot <= at.boot => return,
            // The freeze began earlier than it was first reported: suspended time in between is frozen time.
            Some(before) => {
                self.deadline = self.deadline.saturating_sub(before.suspended.saturating_sub(at.suspended));
                self.suspended = at.suspended;
            }
        }
        self.frozen_since = Some(at);
    }

    /// Records that the task was thawed at `now`.
    pub(crate) fn mark_thawed(&mut self, now: ClockReading) {
        if let Some(since) = self.frozen_since.take()
            && !is_on(Mutation::SupervisorCountsFrozenTime)
        {
            self.deadline = self.deadline.saturating_add(now.boot.saturating_sub(since.boot));
            self.suspended = self.suspended.max(now.suspended);
        }
    }

    /// Returns the deadline; `None` while the task is frozen.
    pub(crate) fn due(&mut self, now: ClockReading) -> Option<BootMillis> {
        if self.frozen_since.is_some() {
            return None;
        }
        self.add_suspended(now.suspended);
        Some(self.deadline)
    }

    fn add_suspended(&mut self, asleep: u64) {
        let more = asleep.saturating_sub(self.suspended);
        if more > NOISE {
            self.deadline = self.deadline.saturating_add(more);
            self.suspended = asleep;
        }
    }
}

/// Freezes of a task that is being launched and whose start time is not known yet.
#[derive(Debug, Default)]
pub(crate) struct LaunchFreezes {
    over: Vec<(ClockReading, ClockReading)>,
    since: Option<ClockReading>,
}

impl LaunchFreezes {
    /// Records that the task was frozen at `at`. The earliest time counts.
    pub(crate) fn mark_frozen(&mut self, at: ClockReading) {
        self.since = Some(self.since.filter(|since| since.boot <= at.boot).unwrap_or(at));
    }

    /// Records that the task was thawed at `now`.
    pub(crate) fn mark_thawed(&mut self, now: ClockReading) {
        self.over.extend(self.since.take().map(|since| (since, now)));
    }

    /// Returns whether the task is frozen.
    pub(crate) fn is_open(&self) -> bool {
        self.since.is_some()
    }

    /// Returns the countdown of `limit` for a task that was started at `start`.
    pub(crate) fn countdown(&self, start: ClockReading, limit: u64) -> Countdown {
        let mut countdown = Countdown::new(start, limit);
        let later = |at: ClockReading| if at.boot < start.boot { start } else { at };
        for (since, until) in self.over.iter().filter(|(_, until)| until.boot > start.boot) {
            countdown.mark_frozen(later(*since));
            countdown.mark_thawed(*until);
        }
        if let Some(since) = self.since {
            countdown.mark_frozen(later(since));
        }
        countdown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(boot: u64, asleep: u64) -> ClockReading {
        ClockReading { boot, suspended: asleep }
    }

    #[test]
    fn running_time_counts() {
        let mut countdown = Countdown::new(at(1_000, 70), 500);
        assert_eq!(countdown.due(at(1_100, 71)), Some(1_500));
    }

    #[test]
    fn frozen_time_counts_from_the_earliest_reported_freeze() {
        let mut countdown = Countdown::new(at(1_000, 0), 500);
        countdown.mark_frozen(at(1_400, 0));
        countdown.mark_frozen(at(1_200, 0));
        countdown.mark_frozen(at(1_300, 0));
        assert_eq!(countdown.due(at(9_000, 0)), None);
        countdown.mark_thawed(at(9_200, 0));
        assert_eq!(countdown.due(at(9_200, 0)), Some(9_500), "300 ms are left");
    }

    #[test]
    fn frozen_time_before_the_launch_report_does_not_count() {
        let mut pauses = LaunchFreezes::default();
        pauses.mark_frozen(at(100, 0));
        pauses.mark_thawed(at(200, 0));
        pauses.mark_frozen(at(900, 0));
        pauses.mark_thawed(at(1_100, 0));
        pauses.mark_frozen(at(1_300, 0));
        pauses.mark_frozen(at(1_200, 0));
        assert_eq!(pauses.countdown(at(1_000, 0), 500).due(at(1_400, 0)), None);
        pauses.mark_thawed(at(2_200, 0));
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
    fn frozen_and_suspended_time_is_excluded_only_once() {
        let mut countdown = Countdown::new(at(1_000, 0), 500);
        // Frozen first, then suspended for 30 s.
        countdown.mark_frozen(at(1_100, 0));
        countdown.mark_thawed(at(31_200, 30_000));
        assert_eq!(countdown.due(at(31_200, 30_000)), Some(31_600), "400 ms are left");
        // Suspended for 20 s first, and frozen by the fuse immediately after the resume.
        countdown.mark_frozen(at(51_300, 50_000));
        countdown.mark_thawed(at(51_400, 50_000));
        assert_eq!(countdown.due(at(51_400, 50_000)), Some(51_700), "300 ms are left");
    }

    #[test]
    fn a_freeze_reported_after_a_suspension_counts_from_its_start() {
        let mut countdown = Countdown::new(at(1_000, 0), 500);
        countdown.mark_frozen(at(31_300, 30_000));
        countdown.mark_frozen(at(1_200, 0));
        countdown.mark_thawed(at(31_400, 30_000));
        assert_eq!(countdown.due(at(31_400, 30_000)), Some(31_700), "300 ms are left");
    }
}
