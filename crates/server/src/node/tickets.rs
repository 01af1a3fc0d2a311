//! Who waits for a reply, and since which batch.

use std::collections::HashMap;

use engine::{Reply, Ticket};
use tokio::sync::oneshot;

use super::RequestError;

type Sender = oneshot::Sender<Result<Reply, RequestError>>;

/// The requests that the engine was given and has not answered.
#[derive(Default)]
pub(super) struct Tickets {
    waiting: HashMap<Ticket, Waiting>,
}

struct Waiting {
    reply: Sender,
    /// The number of the batch that the request's changes are in.
    batch: u64,
    /// Whether it would make the store grow.
    new_work: bool,
}

impl Tickets {
    pub(super) fn wait(&mut self, ticket: Ticket, reply: Sender, batch: u64, new_work: bool) {
        self.waiting.insert(ticket, Waiting { reply, batch, new_work });
    }

    pub(super) fn answer(&mut self, ticket: Ticket, reply: Result<Reply, RequestError>) {
        if let Some(waiting) = self.waiting.remove(&ticket) {
            // Whoever gave up waiting need not hear it.
            let _gone = waiting.reply.send(reply);
        }
    }

    /// Answers everyone: those of batches up to `flown` as `lost` says, the others that nothing
    /// happened, for their batch never left.
    pub(super) fn give_up(&mut self, flown: u64, lost: &RequestError) {
        // In their order, so that the same story is told in the same way each time.
        let mut waiting: Vec<_> = self.waiting.drain().collect();
        waiting.sort_unstable_by_key(|(ticket, _)| ticket.0);
        for (_, waiting) in waiting {
            let error = match lost {
                RequestError::Full if waiting.new_work => RequestError::Full,
                RequestError::OutcomeUnknown if waiting.batch <= flown => RequestError::OutcomeUnknown,
                _ => RequestError::Loading,
            };
            let _gone = waiting.reply.send(Err(error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given_up(lost: &RequestError) -> Vec<RequestError> {
        let mut tickets = Tickets::default();
        let mut answers = Vec::new();
        for (i, (batch, new_work)) in [(1, true), (1, false), (2, true)].into_iter().enumerate() {
            let (tx, rx) = oneshot::channel();
            tickets.wait(Ticket(i as u64), tx, batch, new_work);
            answers.push(rx);
        }
        tickets.give_up(1, lost);
        answers.into_iter().map(|mut rx| rx.try_recv().unwrap().unwrap_err()).collect()
    }

    #[test]
    fn only_what_was_in_the_lost_batch_is_unknown() {
        use RequestError::{Loading, OutcomeUnknown};
        assert_eq!(given_up(&OutcomeUnknown), [OutcomeUnknown, OutcomeUnknown, Loading]);
    }

    #[test]
    fn a_full_store_is_named_to_new_work_alone() {
        use RequestError::{Full, Loading};
        assert_eq!(given_up(&Full), [Full, Loading, Full]);
    }
}
