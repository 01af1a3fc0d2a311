//! A node of openraft on our log, over several processes.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use openraft::error::{Fatal, RPCError, RaftError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{Raft, ServerState, Snapshot};
use raft::log::{Log, OnFailure, Options, Start};
use raft::types::{NodeId, Payload, Peer, Vote};

use crate::machine::{Config, Machine};

const ME: NodeId = NodeId(1);
/// How long a test waits for a state of the node.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(30));

/// No other node is reachable.
struct Nowhere;

fn unreachable() -> Unreachable {
    Unreachable::new(&io::Error::other("there is no other node"))
}

impl RaftNetworkFactory<Config> for Nowhere {
    type Network = Self;

    async fn new_client(&mut self, _: NodeId, _: &Peer) -> Self {
        Self
    }
}

impl RaftNetwork<Config> for Nowhere {
    async fn append_entries(
        &mut self,
        _: AppendEntriesRequest<Config>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<NodeId>, RPCError<NodeId, Peer, RaftError<NodeId>>> {
        Err(unreachable().into())
    }

    async fn vote(
        &mut self,
        _: VoteRequest<NodeId>,
        _: RPCOption,
    ) -> Result<VoteResponse<NodeId>, RPCError<NodeId, Peer, RaftError<NodeId>>> {
        Err(unreachable().into())
    }

    async fn full_snapshot(
        &mut self,
        _: Vote,
        _: Snapshot<Config>,
        _: impl Future<Output = ReplicationClosed> + Send + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<NodeId>, StreamingError<Config, Fatal<NodeId>>> {
        Err(unreachable().into())
    }
}

/// Starts a node that begins no election on its own.
async fn start(folder: &Path, start: Start) -> Raft<Config> {
    let options = Options {
        segment_bytes: 1024,
        on_failure: OnFailure::call(|failure| panic!("{failure}")),
        ..Options::new(1, ME, start)
    };
    let log = Log::open(folder, options).expect("no other node has the log open");
    let config = Arc::new(openraft::Config { enable_elect: false, ..openraft::Config::default() });
    Raft::new(ME, config, Nowhere, log, Machine::default()).await.expect("the log is in order")
}

/// Waits until the node leads; returns its term.
async fn leadership(node: &Raft<Config>) -> u64 {
    let metrics = node
        .wait(PATIENCE)
        .state(ServerState::Leader, "the node leads")
        .await
        .expect("one node elects itself");
    metrics.current_term
}

async fn write(node: &Raft<Config>, entries: u8) -> u64 {
    let mut last = 0;
    for number in 0..entries {
        let payload = Payload::from(Arc::<[u8]>::from([number; 100]));
        last = node.client_write(payload).await.expect("the node leads").log_id.index;
    }
    last
}

/// openraft alone would continue the leadership of the process that has ended.
#[tokio::test]
async fn a_restarted_node_leads_in_a_term_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let node = start(&path, Start::New).await;
    node.initialize(BTreeMap::from([(ME, Peer::default())])).await.unwrap();
    let (mut term, mut last) = (leadership(&node).await, write(&node, 20).await);
    node.shutdown().await.unwrap();
    drop(node);
    for _ in 0..3 {
        let node = start(&path, Start::Existing).await;
        // The state machine was empty: the committed entries were applied again, without a leader.
        let metrics =
            node.wait(PATIENCE).applied_index(Some(last), "entries are applied again").await.unwrap();
        assert_ne!(metrics.state, ServerState::Leader);
        node.trigger().elect().await.unwrap();
        let next = leadership(&node).await;
        assert!(next > term, "term {next} after term {term}");
        (term, last) = (next, write(&node, 5).await);
        node.shutdown().await.unwrap();
    }
}
