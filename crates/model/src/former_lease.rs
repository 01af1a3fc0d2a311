//! How long the former owner of a shard may still act, measured without the clock of the store.

use crate::{Duration, Timestamp};

/// Lease of another owner, as a server observes it at each of its attempts to acquire the shards.
///
/// The lease was granted before it was first observed. So on the clock of the observer it has expired at the latest
/// one lease duration later, whatever the clock of the store does: a store clock that is set forward ends the lease in
/// the store early, and its owner notices that only at its next renewal.
#[derive(Debug, Clone, Copy, Default)]
pub struct FormerLease {
    /// Latest end of a lease in the store, in microseconds of the store's clock; each renewal changes it.
    expires_at: Option<i64>,
    /// Time since which `expires_at` has had this value.
    since: Option<Timestamp>,
    /// Time until which the owner before the newest acquire may have acted.
    acts_until: Option<Timestamp>,
}

impl FormerLease {
    /// Records the latest end of a lease among the requested shards that have an owner, in microseconds of the store's
    /// clock; `now` is steady time of the observer.
    pub fn observe(&mut self, expires_at: Option<i64>, now: Timestamp) {
        if self.since.is_none() || self.expires_at != expires_at {
            (self.expires_at, self.since) = (expires_at, Some(now));
        }
    }

    /// Records that the shards were acquired that were just observed; `ttl` is the duration of a lease.
    pub fn end(&mut self, ttl: Duration) {
        let is_owned = self.expires_at.is_some();
        self.acts_until = self.since.filter(|_| is_owned).map(|since| since + ttl);
        (self.expires_at, self.since) = (None, None);
    }

    /// Returns for how long the owner before the newest acquire may still act.
    pub fn left(&self, now: Timestamp) -> Duration {
        self.acts_until.map_or(Duration::ZERO, |until| until.since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::default() + Duration::from_secs(seconds)
    }

    #[test]
    fn a_former_owner_may_act_for_one_lease_after_its_last_renewal_was_first_observed() {
        let mut former = FormerLease::default();
        former.observe(Some(1), at(0));
        former.observe(Some(2), at(4));
        former.observe(Some(2), at(6));
        former.end(TTL);
        assert_eq!(former.left(at(6)), Duration::from_secs(8));
        assert_eq!(former.left(at(20)), Duration::ZERO);
    }

    #[test]
    fn shards_without_an_owner_have_no_former_lease() {
        let mut former = FormerLease::default();
        former.observe(Some(1), at(0));
        former.observe(None, at(1));
        former.end(TTL);
        assert_eq!(former.left(at(1)), Duration::ZERO);
    }

    #[test]
    fn a_lease_that_is_observed_for_the_first_time_counts_in_full() {
        let mut former = FormerLease::default();
        former.observe(Some(1), at(3));
        former.end(TTL);
        assert_eq!(former.left(at(3)), TTL);
    }
}
