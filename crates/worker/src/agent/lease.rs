//! The lease of the worker, as the agent knows it.
//!
//! The supervisor freezes tasks when the lease expires, so a health check that overlaps such a time proves nothing.
//! The agent only knows the leases that it has sent to the supervisor itself: an agent has none until the first answer
//! to a heartbeat.

use tokio::sync::watch;

use crate::clock::BootMillis;

/// Lease of the worker.
#[derive(Debug)]
pub(super) struct Lease {
    current: watch::Sender<Period>,
}

/// Time without a gap between leases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Period {
    /// Number of the period; grows when a lease begins after the previous one has expired.
    number: u64,
    until: BootMillis,
}

impl Default for Lease {
    fn default() -> Self {
        Self { current: watch::Sender::new(Period::default()) }
    }
}

impl Lease {
    /// Extends the lease at `now`, or begins a new period if the lease has expired.
    pub(super) fn renew(&self, now: BootMillis, until: BootMillis) {
        self.current.send_if_modified(|period| {
            let has_expired = period.until <= now;
            let is_later = until > period.until.max(now);
            if is_later {
                period.number += u64::from(has_expired);
                period.until = until;
            }
            is_later
        });
    }

    /// Returns the number of the current period; `None` without a valid lease.
    ///
    /// The lease was valid between two calls that return the same number.
    pub(super) fn period(&self, now: BootMillis) -> Option<u64> {
        let period = *self.current.borrow();
        (now < period.until).then_some(period.number)
    }

    /// Waits for a valid lease.
    pub(super) async fn wait(&self, now: impl Fn() -> BootMillis) {
        let mut changes = self.current.subscribe();
        // The sender is not dropped before this future, so the wait cannot fail.
        changes.wait_for(|period| now() < period.until).await.ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_is_renewed_in_time_stays_in_one_period() {
        let lease = Lease::default();
        assert_eq!(lease.period(0), None);
        lease.renew(10, 20);
        lease.renew(15, 30);
        lease.renew(16, 25);
        assert_eq!((lease.period(16), lease.period(29), lease.period(30)), (Some(1), Some(1), None));
        lease.renew(30, 40);
        assert_eq!(lease.period(31), Some(2), "the tasks were frozen in between");
    }

    #[tokio::test]
    async fn a_new_lease_ends_the_wait() {
        let lease = Lease::default();
        tokio::join!(lease.wait(|| 5), async { lease.renew(5, 10) });
        assert_eq!(lease.period(5), Some(1));
    }
}
