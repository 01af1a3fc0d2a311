//! Reads that see everything that was acknowledged before.
//!
//! | node | a read waits for |
//! |---|---|
//! | leader with a lease | nothing: what it has acknowledged is applied here |
//! | leader without a lease | a round, then the application of the entry that the round names |
//! | other | the leader's position, asked once for all waiting reads, then the application of that entry |

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::Shared;
use crate::error::ReadError;
use crate::machine::Machine;
use crate::net::message::READ_INDEX;

/// Reads that wait for the leader's position before another one waits.
const WAITING_MAX: usize = 1024;

/// Asks the leader for its position.
#[derive(Debug)]
pub(crate) struct Readers(mpsc::Sender<oneshot::Sender<Option<u64>>>);

/// Reads that wait for the leader's position.
pub(crate) type Waiting = mpsc::Receiver<oneshot::Sender<Option<u64>>>;

impl Readers {
    pub(crate) fn new() -> (Self, Waiting) {
        let (sender, waiting) = mpsc::channel(WAITING_MAX);
        (Self(sender), waiting)
    }

    async fn index(&self) -> Option<u64> {
        let (reader, index) = oneshot::channel();
        self.0.send(reader).await.ok()?;
        index.await.ok()?
    }
}

/// Asks the leader, once for all reads that wait.
pub(crate) async fn run<M: Machine>(shared: Arc<Shared<M>>, mut readers: Waiting) {
    let mut waiting = Vec::new();
    loop {
        tokio::select! {
            () = shared.stop.cancelled() => return,
            count = readers.recv_many(&mut waiting, WAITING_MAX) => if count == 0 { return },
        }
        let index = shared.remote_index().await;
        for reader in waiting.drain(..) {
            let _ = reader.send(index);
        }
    }
}

impl<M: Machine> Shared<M> {
    /// Waits until this node has applied everything that was acknowledged before the call.
    pub(crate) async fn pass(&self) -> Result<(), ReadError> {
        if self.has_lease() && self.applied_in_own_term().is_some() {
            return Ok(());
        }
        let started = Instant::now();
        let patience = self.timing.read_patience;
        let waiting = async {
            loop {
                let index =
                    if self.is_leader() { self.leader_index().await } else { self.readers.index().await };
                if let Some(index) = index {
                    return self.progress.wait_until(index).await.map_err(|_| ReadError::Stopped);
                }
                if self.stop.is_cancelled() {
                    return Err(ReadError::Stopped);
                }
                self.leader_changed(self.timing.pulse / 2).await;
            }
        };
        let waited = tokio::time::timeout(patience, waiting).await;
        waited.unwrap_or_else(|_| Err(ReadError::NoLeader { waited: started.elapsed() }))
    }

    /// Returns the index of an entry with which everything is applied that was acknowledged before the call; `None` if this
    /// node does not lead.
    pub(crate) async fn leader_index(&self) -> Option<u64> {
        if self.has_lease()
            && let Some(index) = self.applied_in_own_term()
        {
            return Some(index);
        }
        Some(self.pulse.round().await?.index)
    }

    /// Returns the applied index if an entry of this node's own leadership is applied. Before that, entries of earlier
    /// leaders may be acknowledged that this node has not applied.
    pub(crate) fn applied_in_own_term(&self) -> Option<u64> {
        let own = self.servers.borrow().vote.leader_id;
        let applied = (*self.applied.borrow())?;
        let is_own = applied.leader_id.term == own.term && applied.leader_id.node_id == self.id;
        is_own.then_some(applied.index)
    }

    async fn remote_index(&self) -> Option<u64> {
        let links = self.leader_links()?;
        links.control.call(READ_INDEX, &(), self.timing.append_timeout).await.ok()
    }
}
