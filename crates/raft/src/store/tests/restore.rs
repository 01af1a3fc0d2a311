//! New clusters with the rows of other stores, and snapshots whose installation was interrupted.

use std::fs;
use std::path::Path;

use model::{Duration, JobId};
use store::pace::Pace;
use store::sqlite::{self, SqliteStore, backup};
use store::suite::dump::dump;
use store::suite::sample::Sampler;
use store::{Commits, Leases};

use super::super::restore::{Restored, WORK};
use super::super::{RaftStore, RestoreError, restore};
use super::cluster::{acquire, assert_equal_rows, exists, new_job};
use super::{Server, Servers, Start};
use crate::machine::snapshot_files::Folder;
use crate::machine::{COPY_RATE, Machine as _};
use crate::types::{NodeId, Peer};

const HOUR: Duration = Duration::from_hours(1);

impl Servers {
    /// Starts the first server of a cluster with the rows of another store.
    async fn restored(source: &Path) -> (Self, Restored) {
        let (mut servers, id) = (Self::none(|_| Peer::default()), NodeId(1));
        servers.servers.push(Server { id, store: None });
        let restored = restore(source, &servers.path(0), id, Peer::default()).await.unwrap();
        assert!(!servers.path(0).join(WORK).exists());
        servers.open(0, Start::Bootstrap).await;
        servers.wait_for_leader(0).await;
        (servers, restored)
    }
}

async fn add_jobs(store: &RaftStore, sampler: &mut Sampler, count: usize) -> Vec<JobId> {
    let (leases, mut jobs) = (acquire(store).await, Vec::new());
    for _ in 0..count {
        let (job, batch) = new_job(sampler);
        store.commit(&leases, batch).await.unwrap();
        jobs.push(job);
    }
    store.release(&leases).await.unwrap();
    jobs
}

async fn has_all(store: &RaftStore, jobs: &[JobId]) -> bool {
    for job in jobs {
        if !exists(store, *job).await {
            return false;
        }
    }
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_begins_with_the_rows_of_an_embedded_store() {
    let folder = tempfile::tempdir().unwrap();
    let (path, mut sampler) = (folder.path().join("belfry.db"), Sampler::new(5));
    let options = || sqlite::Options { ballast_bytes: 0, ..sqlite::Options::default() };
    let embedded = SqliteStore::open(&path, options()).unwrap();
    let leases = embedded.acquire(&[model::ShardId(0)], "embedded", HOUR).await.unwrap();
    let (job, batch) = new_job(&mut sampler);
    embedded.commit(&leases, batch).await.unwrap();

    let target = tempfile::tempdir().unwrap();
    let refused = restore(folder.path(), target.path(), NodeId(1), Peer::default()).await.unwrap_err();
    assert!(refused.help().contains("stop the server"), "{refused:?}");
    assert_eq!(fs::read_dir(target.path()).unwrap().count(), 0, "nothing is left");
    drop(embedded);

    let before = dump(&path);
    let (mut servers, restored) = Servers::restored(folder.path()).await;
    assert_eq!((restored.shards, restored.entries), (servers.store(0).shards(), 0));
    assert!(restored.rows > 0);
    assert_eq!(dump(&path), before, "the source is unchanged");
    assert!(exists(servers.store(0), job).await);

    // The owner of the shard did not release it, so its workers may still hold leases.
    servers.store(0).mark_restored().await.unwrap();
    let leases = acquire(servers.store(0)).await;
    assert_eq!(servers.store(0).shards_with_lost_commits(&leases).await.unwrap(), [model::ShardId(0)]);
    servers.store(0).release(&leases).await.unwrap();
    let added = add_jobs(servers.store(0), &mut sampler, 3).await;
    // The log does not contain the rows, so other servers get a copy.
    servers.add_voters(2).await;
    for at in [1, 2] {
        assert!(exists(servers.store(at), job).await && has_all(servers.store(at), &added).await);
    }
    assert_equal_rows(servers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_a_cluster_begins_another_one() {
    let (servers, mut sampler) = (Servers::one().await, Sampler::new(6));
    let secret = servers.store(0).join_token(&[7; 32]).await.unwrap();
    let jobs = add_jobs(servers.store(0), &mut sampler, 5).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("backup");
    backup(&servers.replica_path(0), &file).unwrap();
    add_jobs(servers.store(0), &mut sampler, 1).await;
    drop(servers);

    let (mut servers, _) = Servers::restored(&file).await;
    assert!(has_all(servers.store(0), &jobs).await);
    let token = servers.store(0).join_token(&[8; 32]).await.unwrap();
    assert_ne!(token.secret, secret.secret, "servers of the old cluster cannot join");
    servers.stop(0).await;
    servers.open(0, Start::Existing).await;
    servers.wait_for_leader(0).await;
    assert!(has_all(servers.store(0), &jobs).await);
}

/// A member acknowledges what is in its log, and its rows may be older after a power cut.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_of_a_member_is_restored_with_its_rows() {
    let (mut servers, mut sampler) = (Servers::three().await, Sampler::new(7));
    let mut jobs = add_jobs(servers.store(0), &mut sampler, 5).await;
    let old = servers.folder.path().join("old");
    backup(&servers.replica_path(2), &old).unwrap();
    jobs.extend(add_jobs(servers.store(0), &mut sampler, 5).await);
    assert!(has_all(servers.store(2), &jobs).await);
    for at in 0..3 {
        servers.stop(at).await;
    }
    for suffix in ["-wal", "-shm"] {
        let _ = fs::remove_file(servers.path(2).join(format!("state.db{suffix}")));
    }
    fs::rename(&old, servers.replica_path(2)).unwrap();
    let identity = crate::identity::Identity {
        node: servers.servers[2].id,
        cluster: super::CLUSTER,
        shards: sqlite::Options::default().shards,
        created_at: model::Timestamp::from_micros(0),
    };
    identity.create(&servers.path(2)).unwrap();

    let (restored_servers, restored) = Servers::restored(&servers.replica_path(2)).await;
    assert!(restored.entries >= 5, "{restored:?}");
    assert!(has_all(restored_servers.store(0), &jobs).await);
    let members = restored_servers.store(0).status().members;
    assert_eq!(members.len(), 1, "the members of the lost cluster are gone");
    // It can be restored again, and the member itself was not changed.
    let (again, same) = Servers::restored(&servers.path(2)).await;
    assert_eq!((same.entries, same.rows, same.last), (restored.entries, restored.rows, restored.last));
    assert!(restored.last.is_some());
    drop((again, restored_servers));
    servers.open(2, Start::Existing).await;
}

#[tokio::test]
async fn a_path_without_a_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().join("nothing"), folder.path().to_owned()] {
        let refused = restore(&path, folder.path(), NodeId(1), Peer::default()).await.unwrap_err();
        assert!(matches!(refused, RestoreError::NoSource { .. }), "{refused}");
    }
    let other = folder.path().join("other");
    fs::write(&other, "no database, but long enough to look like the header of a file").unwrap();
    let refused = restore(&other, folder.path(), NodeId(1), Peer::default()).await.unwrap_err();
    assert!(matches!(refused, RestoreError::Copy { .. }), "{refused}");
    assert!(!folder.path().join("state.db").exists());
}

/// A crash during an installation may leave the old rows, with a log that no longer has the entries between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_whose_installation_was_interrupted_is_installed_once() {
    let (mut servers, mut sampler) = (Servers::three().await, Sampler::new(8));
    servers.stop(2).await;
    let jobs = add_jobs(servers.store(0), &mut sampler, 10).await;
    let folder = Folder::open(servers.path(2).join("snapshots")).unwrap();
    let file = folder.complete(1);
    servers.store(0).node.machine().copy_to(&file, Pace::new(COPY_RATE)).await.unwrap();
    folder.mark(&file).unwrap();
    drop(folder);
    servers.open(2, Start::Existing).await;
    assert!(has_all(servers.store(2), &jobs).await);
    let added = add_jobs(servers.store(0), &mut sampler, 1).await;
    assert!(has_all(servers.store(2), &added).await);
    assert_equal_rows(servers).await;
}
