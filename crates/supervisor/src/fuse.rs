//! The core of the fuse: when it freezes the tasks of a worker whose supervisor does not renew the lease.
//!
//! The fuse is a process of its own, because it must act while the supervisor is stopped or hangs. Its shell receives
//! the lease, waits for the alarm, and stops processes; this core decides. In production the shell is `belfry fuse`.
//!
//! # Invariants
//! - No task is frozen before the lease has expired.
//! - From then on, the tasks are checked until the lease is renewed: a program may still have been loading at the
//!   first check, and another process may have continued a frozen one.
//! - The supervisor gets a report of each freeze. Otherwise it would not thaw tasks that it did not freeze itself.

use mutation::{Mutation, is_on};

use crate::BootMillis;

/// Interval between checks of frozen tasks while a task is being launched, in milliseconds.
const LAUNCH_CHECK_INTERVAL: BootMillis = 100;
/// Interval between checks of frozen tasks otherwise, in milliseconds.
const CHECK_INTERVAL: BootMillis = 1_000;

/// The core of a fuse process.
#[derive(Debug, Default)]
pub struct Fuse {
    /// End of the lease; `None` before the first one.
    lease_until: Option<BootMillis>,
    /// Whether the tasks were frozen since the last renewal.
    has_fired: bool,
}

/// One check of a fuse after the lease has expired: all tasks that may be retried elsewhere must be frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FuseCheck {
    /// Whether it is the first check since the lease expired, so that the tasks are probably running.
    pub is_first: bool,
}

impl Fuse {
    /// Processes the end of a new lease. Returns when the alarm must fire.
    pub fn lease_renewed(&mut self, until: BootMillis) -> BootMillis {
        self.lease_until = Some(until);
        self.has_fired = false;
        until
    }

    /// Returns the end of the newest lease; `None` before the first one.
    pub fn lease_until(&self) -> Option<BootMillis> {
        self.lease_until
    }

    /// Processes the alarm. Returns the check to carry out; `None` if the lease is valid, or was never granted.
    pub fn alarm_fired(&mut self, now: BootMillis) -> Option<FuseCheck> {
        if self.lease_until.is_none_or(|until| now < until) || is_on(Mutation::FuseDoesNotFire) {
            return None;
        }
        Some(FuseCheck { is_first: !std::mem::replace(&mut self.has_fired, true) })
    }
}

impl FuseCheck {
    /// Returns whether the supervisor must be told of the check, which froze this number of processes.
    pub fn must_report(self, frozen: usize) -> bool {
        (self.is_first || frozen > 0) && !is_on(Mutation::FuseDoesNotReport)
    }

    /// Returns when the alarm must fire again. `is_launching`: whether the process of a guarded task is not known yet.
    pub fn next_alarm(self, now: BootMillis, is_launching: bool) -> BootMillis {
        now + if is_launching { LAUNCH_CHECK_INTERVAL } else { CHECK_INTERVAL }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fuse_fires_at_the_end_of_the_lease_and_not_before() {
        let mut fuse = Fuse::default();
        assert_eq!(fuse.alarm_fired(5_000), None, "no lease yet");
        assert_eq!(fuse.lease_renewed(6_000), 6_000);
        assert_eq!(fuse.alarm_fired(5_999), None);
        assert_eq!(fuse.alarm_fired(6_000), Some(FuseCheck { is_first: true }));
    }

    #[test]
    fn a_fuse_checks_again_until_the_lease_is_renewed() {
        let mut fuse = Fuse::default();
        fuse.lease_renewed(6_000);
        let first = fuse.alarm_fired(6_000).unwrap();
        assert_eq!(first.next_alarm(6_000, true), 6_100);
        let second = fuse.alarm_fired(6_100).unwrap();
        assert_eq!((second.is_first, second.next_alarm(6_100, false)), (false, 7_100));
        fuse.lease_renewed(9_000);
        assert_eq!(fuse.alarm_fired(7_100), None);
        assert!(fuse.alarm_fired(9_000).unwrap().is_first);
    }

    #[test]
    fn the_first_check_and_every_freeze_is_reported() {
        assert!(FuseCheck { is_first: true }.must_report(0));
        assert!(FuseCheck { is_first: false }.must_report(1));
        assert!(!FuseCheck { is_first: false }.must_report(0));
    }
}
