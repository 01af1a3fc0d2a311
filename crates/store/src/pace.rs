//! A limit on the bytes per second of work in the background.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

/// Longest time that a pause catches up: after a slow piece, the next ones are not faster than usual for longer.
const CREDIT: Duration = Duration::from_millis(100);

/// Spreads work over time, so that it does not take the disk or the network from other work.
#[derive(Debug, Clone)]
pub struct Pace {
    bytes_per_second: NonZeroU64,
    /// When the work so far should have ended.
    due: Option<Instant>,
}

impl Pace {
    /// Returns a pace that begins with the first piece.
    pub fn new(bytes_per_second: NonZeroU64) -> Self {
        Self { bytes_per_second, due: None }
    }

    /// Notes that `bytes` were handled until `now`. Returns how long to wait before the next piece.
    pub fn spend(&mut self, bytes: u64, now: Instant) -> Duration {
        let takes = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second.get() as f64);
        let earliest = now.checked_sub(CREDIT).unwrap_or(now);
        let due = self.due.map_or(now, |due| due.max(earliest)) + takes;
        self.due = Some(due);
        due.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace() -> Pace {
        Pace::new(NonZeroU64::new(1_000).unwrap())
    }

    #[test]
    fn pieces_take_their_share_of_a_second() {
        let (mut pace, start) = (pace(), Instant::now());
        assert_eq!(pace.spend(500, start), Duration::from_millis(500));
        // The piece itself took part of the time.
        assert_eq!(pace.spend(500, start + Duration::from_millis(550)), Duration::from_millis(450));
        assert_eq!(pace.spend(0, start + Duration::from_millis(1_000)), Duration::ZERO);
    }

    #[test]
    fn a_long_pause_allows_no_burst() {
        let (mut pace, start) = (pace(), Instant::now());
        pace.spend(100, start);
        let later = start + Duration::from_secs(60);
        assert_eq!(pace.spend(50, later), Duration::ZERO);
        assert_eq!(pace.spend(1_000, later), Duration::from_millis(950));
    }
}
