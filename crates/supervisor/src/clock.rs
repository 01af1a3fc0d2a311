//! Times of the machine's boot-time clock.

/// An instant of `CLOCK_BOOTTIME` in milliseconds; the same for all processes of the machine.
pub type BootMillis = u64;

/// An instant, with the time that the machine was suspended before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The instant.
    pub boot: BootMillis,
    /// How long the machine was suspended since its start, in milliseconds.
    pub asleep: u64,
}
