//! The pending client requests, and the batch that each one waits for.

use std::collections::BTreeMap;

use engine::Ticket;

use crate::event::Unanswered;

/// Requests that were passed to the engine and not answered yet.
#[derive(Debug)]
pub(crate) struct Requests<R> {
    waiting: BTreeMap<Ticket, Waiting<R>>,
}

#[derive(Debug)]
struct Waiting<R> {
    reply: R,
    /// Number of the batch that contains the changes of the request.
    batch: u64,
    /// Whether the request would make the store grow.
    new_work: bool,
}

impl<R> Default for Requests<R> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new() }
    }
}

impl<R> Requests<R> {
    pub(crate) fn wait(&mut self, ticket: Ticket, reply: R, batch: u64, new_work: bool) {
        self.waiting.insert(ticket, Waiting { reply, batch, new_work });
    }

    /// Removes a request and returns the destination of its reply; `None` if it was answered before.
    pub(crate) fn answered(&mut self, ticket: Ticket) -> Option<R> {
        self.waiting.remove(&ticket).map(|waiting| waiting.reply)
    }

    /// Removes all requests, with the answer to each. With [`Unanswered::OutcomeUnknown`], requests of batches up to
    /// `sent` get that answer, and later ones [`Unanswered::Loading`]: their batch was never sent. With
    /// [`Unanswered::Full`], only new work gets that answer.
    pub(crate) fn give_up(&mut self, sent: u64, lost: &Unanswered) -> Vec<(R, Unanswered)> {
        let told = |waiting: &Waiting<R>| match lost {
            Unanswered::Full if waiting.new_work => Unanswered::Full,
            Unanswered::OutcomeUnknown if waiting.batch <= sent => Unanswered::OutcomeUnknown,
            _ => Unanswered::Loading,
        };
        let waiting = std::mem::take(&mut self.waiting).into_values();
        waiting.map(|waiting| (told(&waiting), waiting.reply)).map(|(told, reply)| (reply, told)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given_up(lost: &Unanswered) -> Vec<Unanswered> {
        let mut requests = Requests::default();
        for (i, (batch, new_work)) in [(1, true), (1, false), (2, true)].into_iter().enumerate() {
            requests.wait(Ticket(i as u64), i, batch, new_work);
        }
        let answers = requests.give_up(1, lost);
        assert!(answers.iter().map(|(reply, _)| *reply).eq(0..3), "in order of their tickets");
        answers.into_iter().map(|(_, told)| told).collect()
    }

    #[test]
    fn only_requests_of_the_lost_batch_are_unknown() {
        use Unanswered::{Loading, OutcomeUnknown};
        assert_eq!(given_up(&OutcomeUnknown), [OutcomeUnknown, OutcomeUnknown, Loading]);
    }

    #[test]
    fn only_new_work_is_refused_because_of_a_full_store() {
        use Unanswered::{Full, Loading};
        assert_eq!(given_up(&Full), [Full, Loading, Full]);
    }
}
