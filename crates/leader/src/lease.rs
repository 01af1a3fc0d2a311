//! The leader's own lease: until when no other server can lead.
//!
//! ```text
//!   request sent            store grants        answer arrives
//!  ──────┼──────────────────────┼───────────────────┼──────────────────>
//!        ├───────── length − margin ─────────┤ valid until here, as the leader counts
//!                               ├──────────── length ───────────┤ until here, as the store counts
//! ```
//!
//! The store counts from the moment at which it grants the lease; the leader does not know that moment, so it
//! counts from before the request was sent. However long the answer took, the leader stops first.
//!
//! # Invariants
//! - The end of the lease never moves back.
//! - An answer that took longer than the lease does not make it valid.

use model::{Duration, Timestamp};
use mutation::{Mutation, is_on};

/// How long before its end the leader stops to rely on a lease, as a divisor of its length: for clocks that
/// run at different rates, and for what was checked just before.
const MARGIN: u64 = 20;
/// How soon after the newest request a lease is renewed, as a divisor of its length; a renewal may take as long. So a
/// second one can follow a lost one before the lease ends.
const RENEWAL: u64 = 3;

/// The right to lead, as far as the leader can be certain of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeadershipLease {
    length: Duration,
    /// When the newest request was sent that was granted.
    granted_from: Timestamp,
    /// Whether no other server can lead while this process lives.
    exclusive: bool,
}

impl LeadershipLease {
    /// A lease of `length` that the store granted to a request sent at `sent_at`.
    pub fn new(sent_at: Timestamp, length: Duration) -> Self {
        Self { length, granted_from: sent_at, exclusive: false }
    }

    /// The same over a store that no other process can open while this one lives: its lease cannot run out.
    #[must_use]
    pub fn exclusive(self) -> Self {
        Self { exclusive: true, ..self }
    }

    /// Notes that the store prolonged the lease for a request sent at `sent_at`: an acquire, a renewal or a commit.
    pub fn prolong(&mut self, sent_at: Timestamp) {
        self.granted_from = self.granted_from.max(sent_at);
    }

    /// Returns whether the leader may still release what no commit carries.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        now < self.valid_until()
    }

    /// Returns whether no other server can lead while this process lives.
    pub fn is_exclusive(&self) -> bool {
        self.exclusive
    }

    /// Returns the end of the lease, margin deducted.
    pub fn valid_until(&self) -> Timestamp {
        if self.exclusive || is_on(Mutation::LeaderIgnoresItsOwnLease) {
            return Timestamp::MAX;
        }
        let length = self.length.as_millis();
        self.granted_from + Duration::from_millis(length - length / MARGIN)
    }

    /// Returns when the next renewal is to be sent. A commit that prolongs the lease puts it off.
    pub fn renew_at(&self) -> Timestamp {
        self.granted_from + Duration::from_millis(self.length.as_millis() / RENEWAL)
    }

    /// Returns how long a renewal may take before it is given up and sent again, over another connection.
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
        assert!(left >= Duration::from_millis(LENGTH.as_millis() / 5), "{left} are left for it");
    }

    #[test]
    fn the_only_process_of_a_store_leads_for_as_long_as_it_lives() {
        let lease = LeadershipLease::new(at(0), LENGTH).exclusive();
        assert!(lease.is_valid(at(1_000_000_000)));
    }

    proptest! {
        /// Safety: whenever the store may grant the lease to another server, the leader has stopped, on clocks whose
        /// rates differ by up to 2 %.
        #[test]
        fn the_leader_stops_before_the_store_gives_the_lease_to_another(
            requests in prop::collection::vec((0u64..3_000, 0u64..3_000), 1..20),
            slow in 980u64..=1_000,
        ) {
            let (mut now, mut granted_at) = (0, 0);
            let mut lease = LeadershipLease::new(at(0), LENGTH);
            for (pause, transit) in requests {
                let sent = now + pause;
                // The store grants at some moment between the sending and the answer, if the lease still holds.
                let granted = sent + transit / 2;
                if granted > granted_at + LENGTH.as_millis() {
                    break;
                }
                granted_at = granted;
                now = sent + transit;
                lease.prolong(at(sent));
            }
            let ends = granted_at + LENGTH.as_millis();
            // The leader's clock runs slower than the store's since the newest request.
            let sent = lease.granted_from.since(at(0)).as_millis();
            let on_its_clock = sent + (ends - sent) * slow / 1_000;
            prop_assert!(!lease.is_valid(at(on_its_clock)));
        }
    }
}
