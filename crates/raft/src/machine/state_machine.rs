//! The traits of openraft for a state machine, over a [`Machine`].

#![expect(clippy::result_large_err, reason = "openraft's traits demand its large error")]

use std::path::PathBuf;
use std::sync::Arc;

use openraft::storage::RaftStateMachine;
use openraft::{
    AnyError, EntryPayload, OptionalSend, RaftSnapshotBuilder, Snapshot, SnapshotMeta, StorageError,
    StorageIOError, StoredMembership,
};
use tokio::sync::oneshot;

use super::copies::Copies;
use super::parts::Queued;
use super::{Applied, AppliedState, Applier, Content, Entry, Machine, MachineError, SnapshotData};
use crate::codec::{decode_membership, encode_membership};
use crate::machine::Belfry;
use crate::types::{LogId, NodeId, Payload, Peer};

type Failure = StorageError<NodeId>;
type Meta = SnapshotMeta<NodeId, Peer>;

/// The state machine of openraft. It queues entries, and returns one [`Applied`] for each.
pub struct StateMachine<M: Machine> {
    applier: Applier<M>,
    copies: Arc<Copies>,
}

impl<M: Machine> StateMachine<M> {
    pub(crate) fn new(applier: Applier<M>, copies: Arc<Copies>) -> Self {
        Self { applier, copies }
    }

    /// Returns a snapshot at a position. It is the machine itself: a file is written only when it is sent.
    fn snapshot(&self, state: &AppliedState) -> Result<Snapshot<Belfry<M>>, Failure> {
        let machine = Arc::clone(self.applier.machine());
        Ok(Snapshot { meta: meta(state)?, snapshot: Box::new(SnapshotData::Live(machine)) })
    }
}

impl<M: Machine> Clone for StateMachine<M> {
    fn clone(&self) -> Self {
        Self { applier: self.applier.clone(), copies: Arc::clone(&self.copies) }
    }
}

/// Converts the membership of a machine.
pub(crate) fn membership(state: &AppliedState) -> Result<StoredMembership<NodeId, Peer>, MachineError> {
    if state.membership.is_empty() {
        return Ok(StoredMembership::default());
    }
    let decoded = decode_membership(&state.membership)
        .map_err(|error| MachineError::caused("the stored membership is damaged", error))?;
    Ok(StoredMembership::new(state.membership_at, decoded))
}

/// Returns the description of a snapshot. It depends on the position alone.
pub(crate) fn meta(state: &AppliedState) -> Result<Meta, Failure> {
    let last_membership = membership(state).map_err(read_error)?;
    let id = |id: LogId| format!("{}-{}-{}", id.leader_id.term, id.leader_id.node_id, id.index);
    let snapshot_id = state.applied.map_or_else(String::new, id);
    Ok(SnapshotMeta { last_log_id: state.applied, last_membership, snapshot_id })
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn write_error(error: MachineError) -> Failure {
    StorageIOError::write_state_machine(AnyError::new(&error)).into()
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn read_error(error: MachineError) -> Failure {
    StorageIOError::read_state_machine(AnyError::new(&error)).into()
}

impl<M: Machine> RaftSnapshotBuilder<Belfry<M>> for StateMachine<M> {
    /// Makes the machine durable. Then the log up to this position is no longer needed by this node.
    async fn build_snapshot(&mut self) -> Result<Snapshot<Belfry<M>>, Failure> {
        self.applier.flush().await.map_err(write_error)?;
        let state = self.applier.machine().sync().await.map_err(write_error)?;
        self.snapshot(&state)
    }
}

impl<M: Machine> RaftStateMachine<Belfry<M>> for StateMachine<M> {
    type SnapshotBuilder = Self;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<LogId>, StoredMembership<NodeId, Peer>), StorageError<NodeId>> {
        self.applier.flush().await.map_err(read_error)?;
        let state = self.applier.progress().state();
        Ok((state.applied, membership(&state).map_err(read_error)?))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Applied<M::Answer>>, Failure>
    where
        I: IntoIterator<Item = openraft::Entry<Belfry<M>>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut handles = Vec::new();
        for openraft::Entry { log_id, payload } in entries {
            let (content, bytes) = match payload {
                EntryPayload::Blank => (Content::Blank, 0),
                EntryPayload::Normal(Payload { bytes, .. }) => {
                    let length = bytes.len();
                    (Content::Group(bytes), length)
                }
                EntryPayload::Membership(membership) => {
                    (Content::Membership(encode_membership(&membership).into()), 0)
                }
            };
            let (answers, receiver) = oneshot::channel();
            let queued = Queued { entry: Entry { position: log_id, content }, answers };
            self.applier.queue(queued, bytes).await.map_err(write_error)?;
            handles.push(Applied(receiver));
        }
        Ok(handles)
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<SnapshotData<M>>, Failure> {
        Ok(Box::new(SnapshotData::File(PathBuf::new())))
    }

    async fn install_snapshot(&mut self, meta: &Meta, snapshot: Box<SnapshotData<M>>) -> Result<(), Failure> {
        let path = match *snapshot {
            SnapshotData::File(path) => path,
            // Of a machine in the same process, in tests.
            SnapshotData::Live(machine) => {
                let path = self.copies.folder().complete(meta.last_log_id.map_or(0, |id| id.index));
                machine.copy_to(&path, self.copies.pace()).await.map_err(read_error)?;
                path
            }
            SnapshotData::Copied(_) => {
                return Err(read_error(MachineError::new("a copy for another server is not installed")));
            }
        };
        self.applier.install(path).await.map_err(write_error)?;
        self.copies.folder().installed().map_err(|error| {
            let problem = "cannot remove the marker of an installed snapshot";
            write_error(MachineError::caused(problem, error))
        })
    }

    /// Returns the copy that exists, so that an interrupted transfer continues with it.
    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Belfry<M>>>, Failure> {
        if let Some(copy) = self.copies.kept() {
            return Ok(Some(Snapshot {
                meta: meta(&copy.state)?,
                snapshot: Box::new(SnapshotData::Copied(copy)),
            }));
        }
        let state = self.applier.progress().state();
        state.applied.map(|_| self.snapshot(&state)).transpose()
    }
}
