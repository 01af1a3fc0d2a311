//! Notifications that wait for a channel.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use model::Timestamp;

use crate::rows::NotificationRecord;

/// Notifications of a channel that wait for delivery.
#[derive(Debug, Default)]
pub(crate) struct Line {
    pub(crate) waiting: BTreeSet<u64>,
    /// Notification whose delivery has begun and not ended.
    pub(crate) in_flight: Option<InFlight>,
    /// Times of the attempts of the last minute, oldest first.
    pub(crate) attempts: VecDeque<Timestamp>,
}

/// Notification whose delivery has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InFlight {
    pub(crate) notification: u64,
    /// Version of the channel that it is delivered to.
    pub(crate) channel: u64,
}

impl Line {
    /// Returns the notification to attempt now. A failed one waits for its next attempt, and lets those of other rules pass;
    /// those of its own rule wait, so that the service hears of a problem before its end.
    ///
    /// # Errors
    /// The time of the next attempt, if there is none now.
    pub(crate) fn next(
        &self,
        notifications: &BTreeMap<u64, NotificationRecord>,
        now: Timestamp,
    ) -> Result<u64, Option<Timestamp>> {
        let (mut rules, mut next) = (BTreeSet::new(), None::<Timestamp>);
        for number in &self.waiting {
            let Some(record) = notifications.get(number) else { continue };
            if !rules.insert(&record.rule) {
                continue;
            }
            match record.next_attempt_at.filter(|at| *at > now) {
                None => return Ok(*number),
                Some(at) => next = Some(next.map_or(at, |next| next.min(at))),
            }
        }
        Err(next)
    }
}
