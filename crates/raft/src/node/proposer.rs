//! Groups the operations of callers into entries, proposes them, and distributes the answers.
//!
//! openraft syncs each entry of a leader alone, so the operations that wait share one. While [`IN_FLIGHT_MAX`] entries have no
//! answer, further operations wait and form the next group. With fewer in flight, an operation is proposed at once.
//!
//! # Invariants
//! - Operations are proposed in the order in which the futures of [`Proposals::propose`] are polled first.
//! - The parts of a group are proposed without another group between them.
//! - `NotLeader` and `Unavailable` mean that nothing was changed.
//!
//! # Cost
//! One channel and one oneshot for each operation, and one task for all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::FuturesUnordered;
use openraft::error::ClientWriteError;
use openraft::raft::ClientWriteResult;
use tokio::sync::{mpsc, oneshot};

use super::Shared;
use crate::error::ProposeError;
use crate::log::Space;
use crate::machine::Belfry;
use crate::machine::parts::{GROUP_BYTES_MAX, split};
use crate::machine::{Answers, Discarded, Group, Machine};
use crate::types::{NodeId, Payload};

/// Maximum entries (or groups in parts) without an answer.
pub(crate) const IN_FLIGHT_MAX: usize = 4;
/// Operations that wait before a caller waits.
const WAITING_MAX: usize = 1024;

/// Takes the answer, on the task of the proposer if the operation is refused before it reaches the log. So it runs before
/// the proposer looks at a later operation.
pub(crate) type Reply<T> = Box<dyn FnOnce(Result<T, ProposeError>) + Send>;

/// Answers of a group, and the index of its last entry.
type GroupReply<M> = (Vec<<M as Machine>::Answer>, u64);

/// An operation that waits.
pub(crate) enum Proposal<M: Machine> {
    Command(M::Command, Reply<M::Answer>),
    /// A group that another node has encoded.
    Encoded(Vec<u8>, Reply<GroupReply<M>>),
}

/// Sends operations to the proposer.
pub(crate) struct Proposals<M: Machine>(mpsc::Sender<Proposal<M>>);

/// Receives the operations.
pub(crate) type Waiting<M> = mpsc::Receiver<Proposal<M>>;

impl<M: Machine> Proposals<M> {
    pub(crate) fn new() -> (Self, Waiting<M>) {
        let (sender, waiting) = mpsc::channel(WAITING_MAX);
        (Self(sender), waiting)
    }

    /// Proposes a command; returns its answer after the application.
    pub(crate) async fn propose(&self, command: M::Command) -> Result<M::Answer, ProposeError> {
        self.propose_then(command, |_| {}).await
    }

    /// As [`propose`](Self::propose). `see` sees the answer before a later command is encoded, if this one was refused
    /// before it reached the log.
    pub(crate) async fn propose_then(
        &self,
        command: M::Command,
        see: impl FnOnce(&Result<M::Answer, ProposeError>) + Send + 'static,
    ) -> Result<M::Answer, ProposeError> {
        let (sender, answer) = oneshot::channel();
        let reply: Reply<M::Answer> = Box::new(move |answer| {
            see(&answer);
            // The caller may no longer wait.
            let _ = sender.send(answer);
        });
        self.0.send(Proposal::Command(command, reply)).await.map_err(|_| ProposeError::Stopped)?;
        answer.await.unwrap_or(Err(ProposeError::Stopped))
    }

    /// Proposes a group that another node has encoded.
    pub(crate) async fn propose_encoded(&self, group: Vec<u8>) -> Result<GroupReply<M>, ProposeError> {
        let (sender, answer) = oneshot::channel();
        let reply: Reply<GroupReply<M>> = Box::new(move |answer| drop(sender.send(answer)));
        self.0.send(Proposal::Encoded(group, reply)).await.map_err(|_| ProposeError::Stopped)?;
        answer.await.unwrap_or(Err(ProposeError::Stopped))
    }
}

/// Who waits for the answers of an entry.
enum Callers<M: Machine> {
    Commands(Vec<Reply<M::Answer>>),
    Node(Reply<GroupReply<M>>),
}

impl<M: Machine> Callers<M> {
    fn fail(self, error: &ProposeError) {
        match self {
            Self::Commands(replies) => {
                for reply in replies {
                    reply(Err(error.clone()));
                }
            }
            Self::Node(reply) => reply(Err(error.clone())),
        }
    }

    fn answer(self, answers: Vec<M::Answer>, index: u64) {
        match self {
            Self::Commands(replies) if replies.len() == answers.len() => {
                for (reply, answer) in replies.into_iter().zip(answers) {
                    reply(Ok(answer));
                }
            }
            Self::Commands(_) => {
                let reason = "the machine answered another number of commands than were proposed";
                self.fail(&ProposeError::Unknown { reason });
            }
            Self::Node(reply) => reply(Ok((answers, index))),
        }
    }
}

/// Runs the proposer until the node stops.
pub(crate) async fn run<M: Machine>(shared: Arc<Shared<M>>, waiting: Waiting<M>) {
    let mut proposer =
        Proposer { shared, waiting, next: None, in_flight: FuturesUnordered::new(), group_ids: 0 };
    let stop = proposer.shared.stop.clone();
    stop.run_until_cancelled(proposer.run()).await;
    proposer.waiting.close();
}

struct Proposer<M: Machine> {
    shared: Arc<Shared<M>>,
    waiting: Waiting<M>,
    /// An operation that was received, but needs a group of its own.
    next: Option<Proposal<M>>,
    in_flight: FuturesUnordered<BoxFuture<'static, ()>>,
    group_ids: u64,
}

impl<M: Machine> Proposer<M> {
    async fn run(&mut self) {
        loop {
            let may_propose = self.in_flight.len() < IN_FLIGHT_MAX;
            let first = match self.next.take_if(|_| may_propose) {
                Some(next) => next,
                None => tokio::select! {
                    Some(()) = self.in_flight.next() => continue,
                    proposal = self.waiting.recv(), if may_propose => match proposal {
                        Some(proposal) => proposal,
                        None => return,
                    },
                },
            };
            self.serve(first).await;
        }
    }

    /// Proposes an operation, together with those that wait.
    async fn serve(&mut self, first: Proposal<M>) {
        let (group, callers) = match first {
            Proposal::Encoded(group, reply) => (group, Callers::Node(reply)),
            Proposal::Command(command, reply) => {
                let Some(collected) = self.collect(command, reply) else { return };
                collected
            }
        };
        if let Err(error) = self.check(&group) {
            callers.fail(&error);
            return;
        }
        self.propose(group, callers).await;
    }

    /// Encodes the commands that wait; `None` if all of them are refused.
    fn collect(&mut self, command: M::Command, reply: Reply<M::Answer>) -> Option<(Vec<u8>, Callers<M>)> {
        let (mut group, mut replies) = (M::Group::default(), Vec::new());
        let mut next = Some((command, reply));
        while let Some((command, reply)) = next {
            match group.push(command) {
                Ok(()) => replies.push(reply),
                Err(refusal) => reply(Ok(refusal)),
            }
            if group.is_full() {
                break;
            }
            next = match self.waiting.try_recv() {
                Ok(Proposal::Command(command, reply)) => Some((command, reply)),
                Ok(encoded) => {
                    self.next = Some(encoded);
                    None
                }
                Err(_) => None,
            };
        }
        (!replies.is_empty()).then(|| (group.finish(), Callers::Commands(replies)))
    }

    /// Returns why a group cannot be proposed now.
    fn check(&self, group: &[u8]) -> Result<(), ProposeError> {
        let shared = &self.shared;
        if !shared.is_leader() {
            return Err(ProposeError::NotLeader { leader: shared.leader() });
        }
        if shared.transferring.load(Ordering::SeqCst) {
            return Err(ProposeError::Unavailable { reason: "the leadership is being transferred" });
        }
        if shared.space.get() == Space::Exhausted {
            return Err(ProposeError::Unavailable { reason: "the volume of the log is full" });
        }
        if group.len() > GROUP_BYTES_MAX {
            return Err(ProposeError::TooLarge { bytes: group.len() });
        }
        Ok(())
    }

    async fn propose(&mut self, group: Vec<u8>, callers: Callers<M>) {
        self.group_ids += 1;
        // Random enough: it only tells groups of the same leadership apart.
        let parts = split(group, self.shared.random() ^ self.group_ids, self.shared.part_bytes);
        let mut last = None;
        for part in parts {
            let (payload, written) = Payload::observed(part);
            match self.shared.raft.client_write_ff(payload).await {
                // The parts before the last one answer nothing, and change nothing without it.
                Ok(receiver) => last = Some((receiver, written)),
                Err(_) => {
                    // The core has stopped. Earlier parts cannot be committed without the last one.
                    callers.fail(&ProposeError::Stopped);
                    return;
                }
            }
        }
        if let Some((receiver, written)) = last {
            self.in_flight.push(finish(receiver, written, callers).boxed());
        }
    }
}

/// Waits for the answers of an entry, and distributes them.
async fn finish<M: Machine>(
    receiver: oneshot::Receiver<ClientWriteResult<Belfry<M>>>,
    written: Arc<AtomicBool>,
    callers: Callers<M>,
) {
    let response = match receiver.await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => return callers.fail(&refusal(&error, written.load(Ordering::SeqCst))),
        Err(_) => return callers.fail(&ProposeError::Stopped),
    };
    let answers: Result<Answers<M::Answer>, _> = response.data.0.await;
    match answers {
        Ok(Ok(answers)) => callers.answer(answers, response.log_id.index),
        Ok(Err(Discarded)) => callers.fail(&ProposeError::NotLeader { leader: None }),
        // The machine has stopped, or a snapshot replaced what it had to apply.
        Err(_) => callers.fail(&ProposeError::Unknown { reason: "this node did not apply the entry" }),
    }
}

/// Returns the answer for an entry that openraft has refused, or removed because another leader has an entry in its place.
///
/// A removed entry may be on other nodes. With five voters, one of them may be elected later, and commit it.
fn refusal<N: openraft::Node>(error: &ClientWriteError<NodeId, N>, is_written: bool) -> ProposeError {
    match error {
        ClientWriteError::ForwardToLeader(_) if is_written => {
            ProposeError::Unknown { reason: "another server leads, and may have the entry" }
        }
        ClientWriteError::ForwardToLeader(forward) => ProposeError::NotLeader { leader: forward.leader_id },
        ClientWriteError::ChangeMembershipError(_) => {
            ProposeError::Unknown { reason: "openraft took a group for a membership" }
        }
    }
}
