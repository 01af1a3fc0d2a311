//! The two clocks that an engine is given.

use model::Timestamp;

/// What time it is, on two clocks.
///
/// Calendars follow the wall clock: when a job is due, what stands in its history. Everything that
/// is a length of time follows the steady one: leases, reminders, rates. So setting the wall clock,
/// by a second or by a day, judges no worker early and keeps no lost one alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// The wall clock. The engine takes the greatest that it was ever given.
    pub wall: Timestamp,
    /// A clock that never jumps, counted from any origin.
    pub steady: Timestamp,
}

/// A world in which both clocks are one: that of tests and of the simulator.
impl From<Timestamp> for Now {
    fn from(now: Timestamp) -> Self {
        Self { wall: now, steady: now }
    }
}
