//! A token bucket on steady time: at most `burst + rate × t` starts in any `t` seconds (I21).

use model::queue::QueueSettings;
use model::{Duration, Timestamp};

/// The dispatch rate of one queue.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    filled_at: Timestamp,
}

impl Bucket {
    /// Creates the bucket of a queue with a rate limit; `empty` after a change of owner.
    pub(crate) fn new(settings: &QueueSettings, now: Timestamp, empty: bool) -> Option<Self> {
        let per_second = settings.rate_per_second?;
        let burst = settings.burst.map_or(per_second.max(1.0), f64::from);
        Some(Self { per_second, burst, tokens: if empty { 0.0 } else { burst }, filled_at: now })
    }

    /// Returns the bucket after a change of settings; it keeps its tokens.
    pub(crate) fn renewed(old: Option<Self>, settings: &QueueSettings, now: Timestamp) -> Option<Self> {
        let mut new = Self::new(settings, now, false)?;
        if let Some(old) = old {
            new.tokens = old.tokens_at(now).min(new.burst);
        }
        Some(new)
    }

    /// Returns the time of the next allowed start, or `None` if a start is allowed now.
    pub(crate) fn wait(&self, now: Timestamp) -> Option<Timestamp> {
        let tokens = self.tokens_at(now);
        if tokens >= 1.0 {
            return None;
        }
        let millis = ((1.0 - tokens) / self.per_second * 1_000.0).ceil();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive, and saturates"
        )]
        let wait = Duration::from_millis((millis as u64).max(1));
        Some(now + wait)
    }

    /// Consumes one token.
    pub(crate) fn take(&mut self, now: Timestamp) {
        self.tokens = self.tokens_at(now) - 1.0;
        self.filled_at = now.max(self.filled_at);
    }

    fn tokens_at(&self, now: Timestamp) -> f64 {
        let micros = now.as_micros().saturating_sub(self.filled_at.as_micros()).max(0);
        #[expect(clippy::cast_precision_loss, reason = "exact up to 285 years")]
        let seconds = micros as f64 / 1e6;
        (self.tokens + seconds * self.per_second).min(self.burst)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// I21. In every time window the number of starts stays within burst and rate.
        #[test]
        fn starts_never_exceed_burst_and_rate(
            rate in 0.1f64..500.0, burst in 1u32..50, gaps in prop::collection::vec(0u64..400, 1..200),
        ) {
            let settings =
                QueueSettings { rate_per_second: Some(rate), burst: Some(burst), ..QueueSettings::default() };
            let mut now = Timestamp::from_millis(0);
            let mut bucket = Bucket::new(&settings, now, false).unwrap();
            let mut starts: Vec<i64> = Vec::new();
            for gap in gaps {
                now = now + Duration::from_millis(gap);
                while bucket.wait(now).is_none() {
                    bucket.take(now);
                    starts.push(now.as_millis());
                }
            }
            for (i, &from) in starts.iter().enumerate() {
                for (j, &to) in starts.iter().enumerate().skip(i) {
                    let allowed = f64::from(burst) + rate * (to - from) as f64 / 1_000.0;
                    prop_assert!((j - i + 1) as f64 <= allowed + 1e-6);
                }
            }
        }

        #[test]
        fn after_the_wait_a_start_is_allowed(rate in 0.001f64..1_000.0) {
            let settings = QueueSettings { rate_per_second: Some(rate), burst: Some(1), ..QueueSettings::default() };
            let now = Timestamp::from_millis(0);
            let bucket = Bucket::new(&settings, now, true).unwrap();
            let until = bucket.wait(now).unwrap();
            prop_assert!(bucket.wait(until + Duration::from_millis(1)).is_none());
        }
    }
}
