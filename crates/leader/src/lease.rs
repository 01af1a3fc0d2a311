//! The leadership lease: until when no other server can lead.
//!
//! ```text
//!   request sent            store grants        answer arrives
//!  ──────┼──────────────────────┼───────────────────┼──────────────────>
//!        ├───────── length − margin ─────────┤ end of validity for the leader
//!                               ├──────────── length ───────────┤ end of the lease for the store
//! ```
//!
//! The store counts from the time at which it grants the lease. The leader does not know that time, so it counts from
//! the sending of the request. However long the answer took, the leader stops first.
//!
//! Used by `leader`, which renews the lease, and by `lead`, which suspends leadership when the lease ends. Only
//! while it is valid, `lead` renews the leases of workers (`renew_worker_leases`).
//!
//! # Invariants
//! - The end of the lease never moves back.
//! - An answer that took longer than the lease does not make it valid.

use model::{Duration, Timestamp};
use mutation::{Mutation, is_on};

/// Safety margin before the end of the lease, as a divisor of its length. It covers clocks that run at different
/// rates, and effects that were checked just before the end.
const MARGIN: u64 = 20;
/// Delay between the last granted request and the next renewal, as a divisor of the length; also the timeout of a
/// renewal. So a second renewal can follow a lost one before the lease ends.
const RENEWAL: u64 = 3;

/// The right to lead, as far as the leader can be certain of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeadershipLease {
    length: Duration,
    /// Steady time at which the newest granted request was sent.
    granted_from: Timestamp,
    /// Whether no other server can lead while this process lives.
    exclusive: bool,
}

impl LeadershipLease {
    /// Creates a lease of `length` that the store granted to a request sent at `sent_at`.
    pub fn new(sent_at: Timestamp, length: Duration) -> Self {
        Self { length, granted_from: sent_at, exclusive: false }
    }

    /// Makes the lease permanent: no other process can open the store while this one is alive.
    #[must_use]
    pub fn exclusive(self) -> Self {
        Self { exclusive: true, ..self }
    }

    /// Extends the lease after the store granted a request sent at `sent_at`: an acquire, a renewal or a commit.
    pub fn prolong(&mut self, sent_at: Timestamp) {
        self.granted_from = self.granted_from.max(sent_at);
    }

    /// Returns whether the leader may still release effects that need no commit.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        now < self.valid_until()
    }

    /// Returns whether no other server can lead while this process is alive.
    pub fn is_exclusive(&self) -> bool {
        self.exclusive
    }

    /// Returns the end of the lease, minus the margin.
    pub fn valid_until(&self) -> Timestamp {
        if self.exclusive || is_on(Mutation::LeaderIgnoresItsOwnLease) {
            return Timestamp::MAX;
        }
        let length = self.length.as_millis();
        self.granted_from + Duration::from_millis(length - length / MARGIN)
    }

    /// Returns when the next renewal is due. A commit that extends the lease postpones it.
    pub fn renew_at(&self) -> Timestamp {
        self.granted_from + Duration::from_millis(self.length.as_millis() / RENEWAL)
    }

    /// Returns the timeout of a renewal, after which it is sent again over another connection.
    pub fn renewal_timeout(&self) -> Duration {
        Duration::from_millis(self.length.as_millis() / RENEWAL)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LENGTH: Duration = Duration::from_millis(2_000);

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_micros(0) + Duration::from_millis(millis)
    }

    #[test]
    fn a_lease_counts_from_the_sending_of_the_request_and_ends_early() {
        let lease = LeadershipLease::new(at(1_000), LENGTH);
        assert!(lease.is_valid(at(2_899)));
        assert!(!lease.is_valid(at(2_900)));
    }

    #[test]
    fn an_answer_that_took_longer_than_the_lease_does_not_make_it_valid() {
        let mut lease = LeadershipLease::new(at(0), LENGTH);
        lease.prolong(at(500));
        assert!(!lease.is_valid(at(3_000)));
    }

    #[test]
    fn an_older_answer_does_not_shorten_the_lease() {
        let mut lease = LeadershipLease::new(at(1_000), LENGTH);
        lease.prolong(at(0));
        assert_eq!(lease, LeadershipLease::new(at(1_000), LENGTH));
    }

    /// One lost renewal must not suspend the leader.
    #[test]
    fn a_second_renewal_can_be_answered_before_the_lease_ends() {
        let lease = LeadershipLease::new(at(0), LENGTH);
        let second = lease.renew_at() + lease.renewal_timeout();
        let left = lease.valid_until().since(second);
        assert!(left >= Duration::from_millis(LENGTH.as_millis() / 5), "only {left} left for a renewal");
    }

    #[test]
    fn an_exclusive_lease_never_expires() {
        let lease = LeadershipLease::new(at(0), LENGTH).exclusive();
        assert!(lease.is_valid(at(1_000_000_000)));
    }

    proptest! {
        /// Safety: whenever the store may grant the lease to another server, the leader has stopped, on clocks whose
        /// rates differ by up to 2 %.
        #[test]
        fn the_leader_stops_before_the_store_grants_the_lease_to_another(
            requests in prop::collection::vec((0u64..3_000, 0u64..3_000), 1..20),
            slow in 980u64..=1_000,
        ) {
            let (mut now, mut granted_at) = (0, 0);
            let mut lease = LeadershipLease::new(at(0), LENGTH);
            for (pause, transit) in requests {
                let sent = now + pause;
                // The store grants the request at some time between sending and answer, if the lease has not ended.
                let granted = sent + transit / 2;
                if granted > granted_at + LENGTH.as_millis() {
                    break;
                }
                granted_at = granted;
                now = sent + transit;
                lease.prolong(at(sent));
            }
            let ends = granted_at + LENGTH.as_millis();
            // The leader's clock has run slower than the store's since the newest request.
            let sent = lease.granted_from.since(at(0)).as_millis();
            let on_its_clock = sent + (ends - sent) * slow / 1_000;
            prop_assert!(!lease.is_valid(at(on_its_clock)));
        }
    }
}
