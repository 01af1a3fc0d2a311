//! The clocks, as a value that tests can replace.

use std::sync::Arc;

use engine::Now;
use model::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// Says what time it is.
pub trait Clock: Send + Sync + 'static {
    /// The wall clock; may jump.
    fn now(&self) -> Timestamp;

    /// The machine's boot-time clock (`CLOCK_BOOTTIME`): never set, and counts while the machine sleeps. Leases are
    /// counted on it, here as on workers.
    fn steady(&self) -> Timestamp {
        let now = clock_gettime(ClockId::Boottime);
        Timestamp::from_micros(now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1_000))
    }

    /// Both, for the engine.
    fn both(&self) -> Now {
        Now { wall: self.now(), steady: self.steady() }
    }
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
            Ok(since) => Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX)),
            // Before 1970: engine time is the greatest that it was ever told, so this harms nothing.
            Err(_) => Timestamp::from_micros(0),
        }
    }
}

/// The clocks of this process: the machine's. In debug builds the file that `BELFRY_TEST_CLOCK` names,
/// if it does, moves the wall clock, so that tests can set it without touching the machine's.
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

    /// The wall clock, moved by as many milliseconds as a file says.
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
