//! Timers of the state.

use model::JobId;

use crate::rows::Name;

/// Timer of the state; it is checked again when it fires, so a timer that is no longer needed does nothing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A job may be late, or an execution slow.
    Watch(JobId),
    /// Alerts of a rule may be notified again.
    Group(Name),
    /// A notification about a lasting state may be repeated.
    Repeat(u64),
    /// An alert may be escalated.
    Escalate(u64),
    /// An alert about failures may be stale.
    Stale(u64),
    /// A job may not have succeeded for too long.
    NoSuccess(Name),
    /// A failure leaves the period of a rate.
    Rate(Name, String),
    /// A silence, or a period of it, begins or ends.
    Silence(u64),
    /// A delivery may be possible.
    Delivery(Name),
    /// A monitor may be down.
    Monitor(Name),
    /// Alerts that no late or slow job holds open are over.
    Unheld,
    /// Old rows can be deleted.
    Purge,
}
