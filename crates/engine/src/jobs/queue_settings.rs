//! Requests of operators about a queue: set or remove its settings.

use std::sync::Arc;

use model::Refusal;
use model::queue::QueueSettings;
use model::record::{Change, EventKind, QueueRecord};

use crate::context::Context;
use crate::input::Ticket;
use crate::jobs::Jobs;
use crate::output::Reply;

impl Jobs {
    pub(crate) fn set_queue(
        &mut self,
        cx: &mut Context,
        ticket: Ticket,
        name: String,
        settings: QueueSettings,
        expected_version: Option<u64>,
    ) {
        let found = self.queues.version(&name);
        if let Some(expected) = expected_version.filter(|&expected| expected != found) {
            return cx.reply(ticket, Err(Refusal::VersionMismatch { expected, found }));
        }
        let record = QueueRecord { name, settings, version: found + 1, updated_at: cx.now };
        self.queues.set(cx.steady, &record);
        self.capacity_changed();
        let record = Arc::new(record);
        cx.emit(None, EventKind::Queue { queue: record.name.as_str().into() });
        cx.rewrite(Change::Queue(Arc::clone(&record)), |change| match change {
            Change::Queue(known) => known.name == record.name,
            Change::RemoveQueue(name) => **name == *record.name,
            _ => false,
        });
        cx.reply(ticket, Ok(Reply::Queue(record)));
    }

    pub(crate) fn remove_queue(&mut self, cx: &mut Context, ticket: Ticket, name: &str) {
        let reply = match self.queues.jobs_in(name) {
            _ if self.queues.version(name) == 0 => Err(Refusal::QueueNotFound { queue: name.into() }),
            (0, 0) => {
                self.queues.remove_settings(name);
                cx.emit(None, EventKind::Queue { queue: name.into() });
                let is_same = |change: &Change| matches!(change, Change::Queue(known) if known.name == name);
                cx.rewrite(Change::RemoveQueue(name.into()), is_same);
                Ok(Reply::QueueRemoved)
            }
            (waiting, running) => Err(Refusal::QueueInUse { queue: name.into(), waiting, running }),
        };
        cx.reply(ticket, reply);
    }
}
