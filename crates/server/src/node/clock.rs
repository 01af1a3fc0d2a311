//! The clocks, as a value that tests can replace.

use std::sync::LazyLock;
use std::time::Instant;

use engine::Now;
use model::Timestamp;

/// Where the steady clock counts from.
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Says what time it is.
pub trait Clock: Send + Sync + 'static {
    /// The wall clock; may jump.
    fn now(&self) -> Timestamp;

    /// A clock that never jumps, counted from any origin.
    fn steady(&self) -> Timestamp {
        Timestamp::from_micros(i64::try_from(ORIGIN.elapsed().as_micros()).unwrap_or(i64::MAX))
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
