//! Clocks of the process, which tests can replace.

use std::sync::Arc;

use engine::Now;
use model::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// A wall clock and a steady clock.
pub trait Clock: Send + Sync + 'static {
    /// Returns the time of the wall clock, which may jump.
    fn now(&self) -> Timestamp;

    /// Returns the time of the boot clock (`CLOCK_BOOTTIME`), which cannot be set and advances during suspend. Servers
    /// and workers measure leases on it.
    fn steady(&self) -> Timestamp {
        let now = clock_gettime(ClockId::Boottime);
        Timestamp::from_micros(now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1_000))
    }

    /// Reads both clocks, for the engine.
    fn both(&self) -> Now {
        Now { wall: self.now(), steady: self.steady() }
    }
}

/// Clocks of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
            Ok(since) => Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX)),
            // Before 1970. Harmless: engine time is the greatest wall time so far.
            Err(_) => Timestamp::from_micros(0),
        }
    }
}

/// Returns the clocks of this process: those of the operating system. In debug builds, the file named by
/// `BELFRY_TEST_CLOCK` moves the wall clock, so that tests need not set the system's clock.
pub(crate) fn of_process() -> Arc<dyn Clock> {
    #[cfg(debug_assertions)]
    if let Some(file) = std::env::var_os("BELFRY_TEST_CLOCK") {
        return Arc::new(moved::MovedClock { file: file.into() });
    }
    Arc::new(SystemClock)
}

#[cfg(debug_assertions)]
mod moved {
    use std::path::PathBuf;

    use model::{Duration, Timestamp};

    use super::{Clock, SystemClock};

    /// Wall clock with an offset, in milliseconds, that is read from a file.
    pub(super) struct MovedClock {
        pub(super) file: PathBuf,
    }

    impl Clock for MovedClock {
        fn now(&self) -> Timestamp {
            let text = std::fs::read_to_string(&self.file).unwrap_or_default();
            let offset: i64 = text.trim().parse().unwrap_or(0);
            let by = Duration::from_millis(offset.unsigned_abs());
            let now = SystemClock.now();
            if offset < 0 { now - by } else { now + by }
        }
    }
}
