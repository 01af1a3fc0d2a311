//! How soon one commit follows another.
//!
//! What a commit costs the processor hardly depends on how much is in it: a sync, a page for each table, a
//! wake-up of everybody on the way. While the store has something to do nearly all the time, the next batch
//! therefore waits as long as the last commit took, at most [`PAUSE_MAX`], and takes along what comes
//! meanwhile. While it mostly rests, nothing waits.

use std::time::{Duration, Instant};

/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(2);
/// From this part of the time on that the store is busy, batches wait.
const BUSY: f64 = 0.75;
/// The time over which that part is taken.
const WINDOW: Duration = Duration::from_millis(50);

/// Says when the next batch may be sent off.
#[derive(Debug)]
pub(super) struct Pace {
    /// The part of the last [`WINDOW`] in which the store was busy, or would have been but for a pause.
    busy: f64,
    landed: Instant,
    next: Instant,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self { busy: 0.0, landed: now, next: now }
    }

    /// When the next batch may be sent off.
    pub(super) const fn next(&self) -> Instant {
        self.next
    }

    /// A commit that was sent off at `since` is done.
    pub(super) fn landed(&mut self, since: Instant, now: Instant) {
        let cycle = now.saturating_duration_since(self.landed);
        let took = now.saturating_duration_since(since);
        let paused = self.next.min(since).saturating_duration_since(self.landed);
        let part = (took + paused).as_secs_f64() / cycle.as_secs_f64().max(f64::MIN_POSITIVE);
        let weight = (cycle.as_secs_f64() / WINDOW.as_secs_f64()).min(1.0);
        self.busy += (part.min(1.0) - self.busy) * weight;
        self.landed = now;
        self.next = if self.busy > BUSY { now + took.min(PAUSE_MAX) } else { now };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOK: Duration = Duration::from_millis(1);

    /// Commits, each this long after the one before may be followed; the pause after the last one.
    fn pause_after(commits: usize, rest: Duration) -> Duration {
        let mut now = Instant::now();
        let mut pace = Pace::new(now);
        for _ in 0..commits {
            let since = pace.next().max(now) + rest;
            now = since + TOOK;
            pace.landed(since, now);
        }
        pace.next() - now
    }

    #[test]
    fn a_store_that_never_rests_is_given_as_long_as_a_commit_takes() {
        assert_eq!(pause_after(200, Duration::ZERO), TOOK);
    }

    #[test]
    fn a_store_that_mostly_rests_makes_nobody_wait() {
        assert_eq!(pause_after(200, 2 * TOOK), Duration::ZERO);
    }

    /// A job alone needs some commits one after the other.
    #[test]
    fn a_few_commits_in_a_row_are_no_load() {
        assert_eq!(pause_after(5, Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn a_slow_commit_is_not_waited_for_twice() {
        let (begun, slow) = (Instant::now(), Duration::from_secs(1));
        let mut pace = Pace::new(begun);
        pace.landed(begun, begun + slow);
        assert_eq!(pace.next(), begun + slow + PAUSE_MAX);
    }
}
