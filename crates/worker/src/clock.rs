//! The clocks of a worker, and random bits.
//!
//! Durations and leases are measured on `CLOCK_BOOTTIME`, which also advances while the machine is suspended: after a
//! resume, an expired lease must not look valid. The wall clock is only used for timestamps that people read.

use std::io::Read;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
pub(crate) use supervisor::{BootMillis, ClockReading};

/// Milliseconds since the machine booted, including suspended time.
pub(crate) fn boot_millis() -> BootMillis {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

/// Milliseconds since the machine booted, without suspended time.
fn awake_millis() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

/// Returns the current time, with the total time that the machine was suspended.
pub(crate) fn now() -> ClockReading {
    let mut awake = awake_millis();
    loop {
        let boot = boot_millis();
        let after = awake_millis();
        // If more time has passed, the thread was descheduled between the readings, which is not a suspension.
        if after <= awake + 1 {
            return ClockReading { boot, suspended: boot.saturating_sub(awake) };
        }
        awake = after;
    }
}

/// Microseconds since the Unix epoch, by the wall clock.
pub(crate) fn unix_micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX).saturating_add(moved_micros())
}

/// Offset of the wall clock in release builds: always zero.
#[cfg(not(debug_assertions))]
fn moved_micros() -> i64 {
    0
}

/// Offset of the wall clock in microseconds. The file named by `BELFRY_TEST_CLOCK` contains it in milliseconds. Tests
/// use it to move the clock of this process without changing the machine's.
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

/// Milliseconds since the Unix epoch, by the wall clock.
pub(crate) fn unix_millis() -> i64 {
    unix_micros() / 1_000
}

/// Returns the id of the current boot of the machine.
pub(crate) fn boot_id() -> std::io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Random bits from the operating system.
pub(crate) fn entropy() -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}
