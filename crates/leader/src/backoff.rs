//! Delays before a server acquires or loads the shards again after a failure.
//!
//! Called by `acquire` and `lead`. Each cause has its own exponential delay from [`MIN`] to its maximum. Leadership
//! that lasted longer than [`STABLE`] resets both.

use model::Duration;

const MIN: Duration = Duration::from_millis(50);
const MAX: Duration = Duration::from_secs(2);
/// Maximum delay while the store is unavailable. A request costs little, and the delay adds to the time of a database
/// failover.
const AWAY_MAX: Duration = Duration::from_millis(250);
/// Leadership that lasted longer than this resets the backoff.
const STABLE: Duration = Duration::from_secs(10);

/// Why the shards must be acquired or loaded again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The store is unavailable, its answer is unknown, or another server owns the shards.
    Away,
    /// Another failure, which may recur immediately; each attempt loads all rows.
    Failed,
}

/// Exponential delays, one for each cause.
#[derive(Debug)]
pub(crate) struct Backoff {
    away: Duration,
    failed: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { away: MIN, failed: MIN }
    }
}

impl Backoff {
    /// Returns the next delay.
    pub(crate) fn pause(&mut self, cause: Cause) -> Duration {
        let (next, max) = match cause {
            Cause::Away => (&mut self.away, AWAY_MAX),
            Cause::Failed => (&mut self.failed, MAX),
        };
        let pause = *next;
        *next = (pause + pause).min(max);
        pause
    }

    /// Records that leadership lasted this long.
    pub(crate) fn leadership_lasted(&mut self, time: Duration) {
        if time > STABLE {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The longest of many pauses.
    fn longest(backoff: &mut Backoff, cause: Cause) -> Duration {
        (0..20).map(|_| backoff.pause(cause)).max().unwrap()
    }

    /// D7. A database may fail over again within a short time.
    #[test]
    fn an_unavailable_store_has_a_short_backoff_after_any_failure() {
        let mut backoff = Backoff::default();
        assert_eq!(longest(&mut backoff, Cause::Failed), MAX);
        assert_eq!(longest(&mut backoff, Cause::Away), AWAY_MAX);
        assert_eq!(backoff.pause(Cause::Failed), MAX, "an unavailable store does not reset the other delay");
    }

    #[test]
    fn leadership_that_lasted_resets_the_backoff() {
        let mut backoff = Backoff::default();
        let first = backoff.pause(Cause::Failed);
        backoff.leadership_lasted(STABLE);
        assert!(backoff.pause(Cause::Failed) > first);
        backoff.leadership_lasted(STABLE + STABLE);
        assert_eq!(backoff.pause(Cause::Failed), first);
    }
}
