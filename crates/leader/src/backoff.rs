//! How long a server waits before it asks for the shards again after a failure.

use model::Duration;

const MIN: Duration = Duration::from_millis(50);
const MAX: Duration = Duration::from_secs(2);
/// The longest pause while the store is away: asking costs little, and a failover of the database takes longer by this
/// pause.
const AWAY_MAX: Duration = Duration::from_millis(250);
/// Leadership that lasted this long resets the backoff.
const STABLE: Duration = Duration::from_secs(10);

/// Why the shards are to be taken again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The store does not answer, or another server owns the shards; before that all went well.
    Away,
    /// What failed may fail again at once, and each try loads all rows.
    Failed,
}

/// Pauses that grow, for each cause up to its maximum.
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
    /// The next pause.
    pub(crate) fn pause(&mut self, cause: Cause) -> Duration {
        let (next, max) = match cause {
            Cause::Away => (&mut self.away, AWAY_MAX),
            Cause::Failed => (&mut self.failed, MAX),
        };
        let pause = *next;
        *next = (pause + pause).min(max);
        pause
    }

    /// Leadership lasted this long.
    pub(crate) fn held(&mut self, time: Duration) {
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

    /// D7. A database may fail over again before the last time is forgotten.
    #[test]
    fn a_store_that_goes_away_is_asked_soon_whatever_failed_before() {
        let mut backoff = Backoff::default();
        assert_eq!(longest(&mut backoff, Cause::Failed), MAX);
        assert_eq!(longest(&mut backoff, Cause::Away), AWAY_MAX);
        assert_eq!(backoff.pause(Cause::Failed), MAX, "a store that was away makes no failure good");
    }

    #[test]
    fn leadership_that_lasted_resets_the_backoff() {
        let mut backoff = Backoff::default();
        let first = backoff.pause(Cause::Failed);
        backoff.held(STABLE);
        assert!(backoff.pause(Cause::Failed) > first);
        backoff.held(STABLE + STABLE);
        assert_eq!(backoff.pause(Cause::Failed), first);
    }
}
