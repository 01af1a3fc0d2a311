//! The servers of a cluster that has ended, opened again in one process, for tests that judge what they stored.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use store::suite::dump::dump;

use super::{Options, RaftStore};
use crate::identity::Identity;
use crate::net::Mesh;
use crate::node::{self, Start};
use crate::types::Peer;

/// Maximum wait for a leader.
const PATIENCE: Duration = Duration::from_secs(60);

/// Servers of a cluster in this process.
#[derive(Debug)]
pub struct Reopened {
    stores: Vec<Arc<RaftStore>>,
    replicas: Vec<PathBuf>,
}

impl Reopened {
    /// Opens all servers of a cluster from their folders, as their own processes would, and waits for a leader.
    ///
    /// # Panics
    /// If a folder cannot be opened, or no leader is elected.
    pub async fn open(folders: &[PathBuf]) -> Self {
        let mesh = Mesh::new();
        let (mut stores, mut replicas) = (Vec::new(), Vec::new());
        for folder in folders {
            let Identity { node, cluster, shards, .. } =
                Identity::read(folder).expect("the identity is readable").expect("the server was a member");
            let options = node::Options::new(folder.clone(), cluster, node, Peer::default(), Start::Existing);
            let options = Options { shards, ballast_bytes: 0, ..Options::new(options) };
            replicas.push(options.replica_path());
            let opened = RaftStore::open(options, mesh.transport(node)).await;
            let store = Arc::new(opened.unwrap_or_else(|error| panic!("{}: {error:?}", folder.display())));
            let serving = Arc::downgrade(&store);
            mesh.listen(node, move |stream, from| {
                if let Some(store) = serving.upgrade() {
                    tokio::spawn(async move { store.serve_peer(stream, from).await });
                }
            });
            stores.push(store);
        }
        let reopened = Self { stores, replicas };
        for store in &reopened.stores {
            let waiting = tokio::time::timeout(PATIENCE, store.wait_for_leader());
            waiting.await.expect("a majority of the servers elects a leader");
        }
        reopened
    }

    /// Returns the store of one of the servers. Its reads see everything that was ever acknowledged.
    pub fn store(&self) -> Arc<RaftStore> {
        Arc::clone(&self.stores[0])
    }

    /// Closes all servers, and returns which of them has other rows than the first one.
    pub async fn close(self) -> Vec<PathBuf> {
        for store in &self.stores {
            // A read waits until the replica has applied all entries.
            store.wait_for_leader().await;
        }
        for store in self.stores {
            store.shutdown().await;
        }
        let first = dump(&self.replicas[0]);
        self.replicas.into_iter().filter(|replica| dump(replica) != first).collect()
    }
}
