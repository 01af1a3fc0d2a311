//! [`Commits`]: batches of the engine of this server, while it leads.

use std::sync::Arc;

use async_trait::async_trait;
use model::record::{Batch, Lease, LiveRow};
use store::changelog::{Changelog, Loaded};
use store::command::{Command, Refused, Reply};
use store::{Commits, Committed, StoreError};
use tokio::sync::mpsc::Sender;

use super::machine::{Proposal, Rejection};
use super::{RaftStore, reply, unexpected};
use crate::error::ProposeError;
use crate::log::Space;

#[async_trait]
impl Commits for RaftStore {
    async fn load(&self, leases: &[Lease], rows: Sender<Vec<LiveRow>>) -> Result<Loaded, StoreError> {
        self.halt.clear();
        // Not after a read round: the owner of the shards has just applied its acquisition.
        self.replica.load(leases, rows).await
    }

    async fn commit(&self, leases: &[Lease], batch: Arc<Batch>) -> Result<Committed, StoreError> {
        if let Some(reason) = self.broken.get() {
            return Err(StoreError::Fatal { reason: reason.clone() });
        }
        let command = Command::commit(leases, batch);
        let space = self.node.space().get();
        if space == Space::Exhausted || (space == Space::Low && command.adds_work()) {
            self.halt.set();
            return Err(StoreError::Full);
        }
        let halt = self.halt.clone();
        let see = move |answer: &Result<Result<Reply, Rejection>, ProposeError>| {
            // A commit without its leases is refused like all later ones, also without this.
            if !matches!(answer, Ok(Ok(_) | Err(Rejection::Refused(Refused::Fenced(_))))) {
                halt.set();
            }
        };
        let proposal = Proposal { command, halt: Some(self.halt.clone()) };
        match self.node.propose_then(proposal, see).await {
            // Another server leads, so all leases of this one are void.
            Err(ProposeError::NotLeader { .. }) => Err(match leases.first() {
                Some(lease) => StoreError::Fenced { shard: lease.shard },
                None => StoreError::Unavailable { source: "this server does not lead the cluster".into() },
            }),
            Err(error @ ProposeError::Stopped) => Err(StoreError::Fatal { reason: error.to_string() }),
            Ok(Err(Rejection::Refused(Refused::Broken(reason)))) => {
                let reason = self.broken.get_or_init(|| reason).clone();
                Err(StoreError::Fatal { reason })
            }
            answered => match reply(answered)? {
                Reply::Committed(committed) => Ok(Committed { space_low: space == Space::Low, ..committed }),
                other => Err(unexpected(&other)),
            },
        }
    }

    /// As many as there are entries without an answer.
    fn commits_ahead(&self) -> usize {
        4
    }

    fn has_reserve(&self) -> bool {
        true
    }

    fn changelog(&self) -> Option<&dyn Changelog> {
        Some(&*self.replica)
    }
}
