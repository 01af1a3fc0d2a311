//! Decisions since the last flush, which are not yet returned to the driver.

use std::collections::VecDeque;
use std::sync::Arc;

use model::Timestamp;
use model::record::{Change, Event, EventKind, WorkerRecord};

use crate::output::Effect;
use crate::signal::Signal;

#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Rows of other kinds, in order; a later row with the same key replaces an earlier one when it is
    /// written.
    pub(crate) others: Vec<Change>,
    /// Events for subscribers.
    pub(crate) events: Vec<Event>,
    /// Answers to heartbeats, released before the commit.
    pub(crate) grants: Vec<Effect>,
    /// Effects, released after the commit.
    pub(crate) effects: Vec<Effect>,
    /// Signals that are not yet delivered, in order.
    pub(crate) signals: VecDeque<Signal>,
}

impl Pending {
    pub(crate) fn is_empty(&self) -> bool {
        self.others.is_empty()
            && self.events.is_empty()
            && self.grants.is_empty()
            && self.effects.is_empty()
            && self.signals.is_empty()
    }

    /// Adds a worker's row and emits an event.
    pub(crate) fn worker(&mut self, now: Timestamp, record: &Arc<WorkerRecord>) {
        self.others.retain(|change| !matches!(change, Change::Worker(known) if known.id == record.id));
        self.others.push(Change::Worker(Arc::clone(record)));
        let kind =
            EventKind::Worker { worker: record.id, status: record.status, admission: record.admission };
        self.events.push(Event { at: now, namespace: None, kind });
    }
}
