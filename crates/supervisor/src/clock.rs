//! Times of the machine's boot-time clock.

/// A time of `CLOCK_BOOTTIME` in milliseconds; the same for all processes of the machine.
pub type BootMillis = u64;

/// A time, with the total suspended time of the machine until then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    /// Time of `CLOCK_BOOTTIME`.
    pub boot: BootMillis,
    /// Suspended time since the machine was booted, in milliseconds.
    pub suspended: u64,
}
