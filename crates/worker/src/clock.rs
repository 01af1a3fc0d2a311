//! The clocks of a worker, and a little randomness.
//!
//! Durations and leases are counted on `CLOCK_BOOTTIME`, which goes on while a machine sleeps: a
//! laptop that wakes must not think its lease fresh. The wall clock only dates what people read.

use std::io::Read;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
pub(crate) use supervisor::{BootMillis, Moment};

/// Milliseconds since the machine started, sleep included.
pub(crate) fn boot_millis() -> BootMillis {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

/// Milliseconds since the machine started, without the time that it was suspended.
fn awake_millis() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

/// This instant, with the time that the machine was suspended before it.
pub(crate) fn now() -> Moment {
    let mut awake = awake_millis();
    loop {
        let boot = boot_millis();
        let after = awake_millis();
        // Otherwise this thread lost the processor between the readings, which is no suspension.
        if after <= awake + 1 {
            return Moment { boot, asleep: boot.saturating_sub(awake) };
        }
        awake = after;
    }
}

/// The wall clock in Unix microseconds.
pub(crate) fn unix_micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX).saturating_add(moved_micros())
}

/// How far the wall clock of this process is ahead of the machine's: not at all.
#[cfg(not(debug_assertions))]
fn moved_micros() -> i64 {
    0
}

/// How far the wall clock of this process is ahead of the machine's: as many milliseconds as the file says
/// that `BELFRY_TEST_CLOCK` names, if it does. Tests move it so without touching the machine's.
#[cfg(debug_assertions)]
fn moved_micros() -> i64 {
    use std::path::PathBuf;
    use std::sync::LazyLock;

    static FILE: LazyLock<Option<PathBuf>> =
        LazyLock::new(|| std::env::var_os("BELFRY_TEST_CLOCK").map(PathBuf::from));
    let text = FILE.as_deref().and_then(|file| std::fs::read_to_string(file).ok());
    let millis: i64 = text.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    millis.saturating_mul(1_000)
}

/// The wall clock in Unix milliseconds.
pub(crate) fn unix_millis() -> i64 {
    unix_micros() / 1_000
}

/// Which start of the machine this is.
pub(crate) fn boot_id() -> std::io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Random bits from the operating system.
pub(crate) fn entropy() -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}
