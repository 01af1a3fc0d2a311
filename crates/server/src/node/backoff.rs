//! How long a node waits before it takes the shards again.

use std::time::Duration;

use store::StoreError;

const MIN: Duration = Duration::from_millis(50);
const MAX: Duration = Duration::from_secs(2);
/// The most while the store is away: asking costs little, and whoever waits for its fail-over waits for this as
/// well.
const AWAY_MAX: Duration = Duration::from_millis(250);
/// An ownership that held for this long ends the backoff.
const STABLE: Duration = Duration::from_secs(10);

/// Why the shards are to be taken again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// The store does not answer, or another server has the shards: that passes by itself.
    Away,
    /// What failed may fail again at once.
    Failed,
}

impl From<&StoreError> for Cause {
    fn from(error: &StoreError) -> Self {
        match error {
            StoreError::Unavailable { .. }
            | StoreError::OutcomeUnknown { .. }
            | StoreError::Fenced { .. } => Self::Away,
            _ => Self::Failed,
        }
    }
}

/// Pauses that grow, up to what their cause allows.
#[derive(Debug)]
pub(super) struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Self(MIN)
    }
}

impl Backoff {
    /// The next pause.
    pub(super) fn pause(&mut self, cause: Cause) -> Duration {
        let max = match cause {
            Cause::Away => AWAY_MAX,
            Cause::Failed => MAX,
        };
        let pause = self.0.min(max);
        self.0 = (pause * 2).min(max);
        pause
    }

    /// The shards were held for so long.
    pub(super) fn held(&mut self, time: Duration) {
        if time > STABLE {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use model::ShardId;

    use super::*;

    fn longest(cause: Cause) -> Duration {
        let mut backoff = Backoff::default();
        (0..20).map(|_| backoff.pause(cause)).max().unwrap()
    }

    /// D7. A database may fail over again before the last time is forgotten.
    #[test]
    fn a_store_that_goes_away_again_and_again_is_asked_soon_each_time() {
        let source = || "it is gone".into();
        let away = [
            StoreError::Unavailable { source: source() },
            StoreError::OutcomeUnknown { source: source() },
            StoreError::Fenced { shard: ShardId(0) },
        ];
        for error in &away {
            assert_eq!(longest(error.into()), AWAY_MAX, "{error}");
        }
        assert_eq!(longest((&StoreError::Full).into()), MAX);
    }

    #[test]
    fn an_ownership_that_held_ends_the_backoff() {
        let mut backoff = Backoff::default();
        let first = backoff.pause(Cause::Failed);
        backoff.held(STABLE);
        assert!(backoff.pause(Cause::Failed) > first);
        backoff.held(STABLE * 2);
        assert_eq!(backoff.pause(Cause::Failed), first);
    }
}
