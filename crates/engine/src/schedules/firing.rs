//! A firing on its way through [`decide`](super::decide), [`overlap`](super::overlap), [`fire`](super::fire)
//! and [`ledger`](super::ledger).

use model::Timestamp;
use model::firing::{FiringCause, FiringOutcome, Work};
use timetable::Exclusion;

/// A scheduled time that is not decided yet.
#[derive(Debug, Clone)]
pub(super) struct ScheduledTime {
    pub(super) at: Timestamp,
    /// When its firing is due: the scheduled time plus the jitter.
    pub(super) due: Timestamp,
    pub(super) held: Option<Exclusion>,
    /// Whether it is the end of a fixed delay, not a time of a cron or rate rule.
    pub(super) delayed: bool,
}

/// A scheduled time whose job or run is to be created.
#[derive(Debug, Clone)]
pub(super) struct Firing {
    /// Scheduled time.
    pub(super) at: Timestamp,
    /// When it was due: the scheduled time plus the jitter.
    pub(super) due: Timestamp,
    pub(super) cause: FiringCause,
    /// Generation that decided it.
    pub(super) generation: u64,
    /// User who triggered it, and the reason.
    pub(super) detail: Option<Box<str>>,
    /// Idempotency key of the trigger request, and the hash of the request.
    pub(super) key: Option<(u128, u128)>,
    /// Whether it was buffered, so that it already has a ledger record.
    pub(super) waited: bool,
}

impl Firing {
    pub(super) fn is_automatic(&self) -> bool {
        matches!(self.cause, FiringCause::Timer | FiringCause::CatchUp)
    }
}

/// Result of a firing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FiringResult {
    pub(super) outcome: FiringOutcome,
    pub(super) work: Option<Work>,
}
