//! Free space of the volume, for the server to refuse work before the log meets a full volume.
//!
//! An append to the log must not fail: openraft and the process would end. So a segment is always allocated in advance,
//! and the server refuses new work while there is space for little more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Space for further entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// There is space for all entries.
    Enough,
    /// Entries that end work may be added, but no entries that add work.
    Low,
    /// No entry may be added.
    Exhausted,
}

impl Space {
    /// Judges the free space of a volume. `reserve` bytes are for others; `has_spare` tells whether the next segment is
    /// allocated already.
    pub(super) fn judge(available: u64, reserve: u64, segment_bytes: u64, has_spare: bool) -> Self {
        let free = available.saturating_sub(reserve);
        if !has_spare || free < segment_bytes {
            Self::Exhausted
        } else if free < segment_bytes.saturating_mul(4) {
            Self::Low
        } else {
            Self::Enough
        }
    }
}

/// The space as the log thread has last seen it, at most about a second ago.
#[derive(Debug, Clone)]
pub struct SpaceGauge(Arc<AtomicU8>);

impl SpaceGauge {
    pub(super) fn new() -> Self {
        Self(Arc::new(AtomicU8::new(0)))
    }

    pub(super) fn set(&self, space: Space) {
        self.0.store(space as u8, Ordering::Relaxed);
    }

    /// Returns the space.
    pub fn get(&self) -> Space {
        match self.0.load(Ordering::Relaxed) {
            0 => Space::Enough,
            1 => Space::Low,
            _ => Space::Exhausted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_space_is_low_and_less_is_exhausted() {
        let judge = |available, has_spare| Space::judge(available, 100, 10, has_spare);
        let gauge = SpaceGauge::new();
        for (space, expected) in [
            (judge(140, true), Space::Enough),
            (judge(139, true), Space::Low),
            (judge(110, true), Space::Low),
            (judge(109, true), Space::Exhausted),
            (judge(1000, false), Space::Exhausted),
            (judge(0, true), Space::Exhausted),
        ] {
            gauge.set(space);
            assert_eq!(gauge.get(), expected);
        }
    }
}
