//! A minimal state machine in memory, for tests of the log with openraft.

use openraft::storage::RaftStateMachine;
use openraft::{
    Entry, EntryPayload, OptionalSend, RaftSnapshotBuilder, RaftTypeConfig, Snapshot, SnapshotMeta,
    StorageError, StoredMembership,
};
use raft::types::{LogId, NodeId, Payload, Peer};

openraft::declare_raft_types!(
    pub(crate) Config: D = Payload, R = (), NodeId = NodeId, Node = Peer, Entry = Entry<Config>, SnapshotData = State
);

pub(crate) type Failure = StorageError<NodeId>;

/// What a state machine must remember.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    pub(crate) applied: Option<LogId>,
    pub(crate) membership: StoredMembership<NodeId, Peer>,
}

/// State machine that applies nothing but memberships. A snapshot of it is its state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Machine {
    pub(crate) state: State,
    snapshot: Option<State>,
}

fn snapshot(state: State) -> Snapshot<Config> {
    let meta = SnapshotMeta {
        last_log_id: state.applied,
        last_membership: state.membership.clone(),
        snapshot_id: state.applied.map_or_else(String::new, |id| id.to_string()),
    };
    Snapshot { meta, snapshot: Box::new(state) }
}

impl RaftSnapshotBuilder<Config> for Machine {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Config>, Failure> {
        Ok(snapshot(self.state.clone()))
    }
}

impl RaftStateMachine<Config> for Machine {
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership<NodeId, Peer>), Failure> {
        Ok((self.state.applied, self.state.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<()>, Failure>
    where
        I: IntoIterator<Item = Entry<Config>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut answers = Vec::new();
        for entry in entries {
            self.state.applied = Some(entry.log_id);
            if let EntryPayload::Membership(membership) = entry.payload {
                self.state.membership = StoredMembership::new(Some(entry.log_id), membership);
            }
            answers.push(());
        }
        Ok(answers)
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.snapshot = Some(self.state.clone());
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<State>, Failure> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        _: &SnapshotMeta<NodeId, Peer>,
        installed: Box<<Config as RaftTypeConfig>::SnapshotData>,
    ) -> Result<(), Failure> {
        self.state = *installed;
        self.snapshot = Some(self.state.clone());
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Config>>, Failure> {
        Ok(self.snapshot.clone().map(snapshot))
    }
}
