//! Three servers: what one acknowledges, the others read, and a leader that was replaced changes nothing.

use std::sync::Arc;

use model::record::{Batch, Change, Lease};
use model::{Duration, JobId, JobStatus, ShardId};
use store::query::Artifact;
use store::suite::dump::dump;
use store::suite::sample::Sampler;
use store::{Commits, Housekeeping, Leases, Members, Reads, StoreError};

use super::{RaftStore, Servers, Start, within};
use crate::node::Role;

const HOUR: Duration = Duration::from_hours(1);
const SHARD: ShardId = ShardId(0);

pub(super) fn new_job(sampler: &mut Sampler) -> (JobId, Arc<Batch>) {
    let id = sampler.job_id(SHARD);
    let (head, state) = (Some(sampler.head()), Box::new(sampler.state(JobStatus::Running)));
    let changes = vec![Change::Job { id, new: true, head, state }];
    let events = vec![sampler.event()];
    (id, Arc::new(Batch { now: sampler.now(), changes, events, statistics: Default::default() }))
}

/// Acquires the shard, as soon as the server leads.
pub(super) async fn acquire(store: &RaftStore) -> Vec<Lease> {
    let acquiring = async {
        loop {
            let leases = store.acquire(&[SHARD], "owner", HOUR).await.unwrap();
            if !leases.is_empty() {
                return leases;
            }
        }
    };
    within("the leader acquires the shard", acquiring).await
}

/// Acquires the shard on the server that leads. Returns its place.
async fn acquire_anywhere(servers: &Servers) -> (usize, Vec<Lease>) {
    let acquiring = async {
        loop {
            for at in servers.running() {
                // A leader that has just been replaced may not know it yet.
                if let Ok(leases) = servers.store(at).acquire(&[SHARD], "owner", HOUR).await
                    && !leases.is_empty()
                {
                    return (at, leases);
                }
            }
        }
    };
    within("a leader acquires the shard", acquiring).await
}

/// Loads the live rows of the shard, so that commits are accepted again after a failed one.
async fn load(store: &RaftStore, leases: &[Lease]) {
    let (sender, mut receiver) = tokio::sync::mpsc::channel(16);
    let (loaded, ()) =
        tokio::join!(store.load(leases, sender), async { while receiver.recv().await.is_some() {} });
    loaded.unwrap();
}

pub(super) async fn exists(store: &RaftStore, job: JobId) -> bool {
    within("a read is answered", store.job(job)).await.unwrap().is_some()
}

/// Stops all servers, and compares the rows of their replicas.
pub(super) async fn assert_equal_rows(mut servers: Servers) {
    let running: Vec<_> = servers.running().collect();
    for at in &running {
        // A read waits until the replica has applied all entries.
        within("a read is answered", servers.store(*at).counts(None)).await.unwrap();
    }
    for at in &running {
        servers.stop(*at).await;
    }
    let first = dump(&servers.replica_path(running[0]));
    assert!(!first.is_empty());
    for at in &running[1..] {
        assert_eq!(dump(&servers.replica_path(*at)), first, "the rows of server {at} differ");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_server_reads_at_once_what_the_leader_acknowledged() {
    let (servers, mut sampler) = (Servers::three().await, Sampler::new(1));
    let leases = acquire(servers.store(0)).await;
    for _ in 0..50 {
        let (job, batch) = new_job(&mut sampler);
        servers.store(0).commit(&leases, batch).await.unwrap();
        assert!(exists(servers.store(1), job).await && exists(servers.store(2), job).await);
    }
    assert_equal_rows(servers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_on_any_server_is_read_there_and_elsewhere() {
    let servers = Servers::three().await;
    for at in [0, 1, 2] {
        let name = format!("artifact-{at}");
        let artifact = Artifact {
            namespace: "default".into(),
            name: name.clone(),
            sha256: "0".repeat(64),
            size_bytes: 1,
            created_at: model::Timestamp::from_micros(1),
            created_by: "test".into(),
        };
        servers.store(at).put_artifact(&artifact).await.unwrap();
        for reader in [at, 0, 1, 2] {
            let found = servers.store(reader).artifacts(&Default::default(), 10).await.unwrap();
            assert!(found.iter().any(|artifact| artifact.name == name), "server {reader} after {at}");
        }
        let secret = servers.store(at).secret("common", &[at as u8; 32]).await.unwrap();
        assert_eq!(secret, [0; 32], "the first proposed secret is that of all servers");
    }
    assert_equal_rows(servers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_leader_of_the_log_acquires_and_commits() {
    let (servers, mut sampler) = (Servers::three().await, Sampler::new(1));
    let leases = acquire(servers.store(0)).await;
    let (job, batch) = new_job(&mut sampler);
    for at in [1, 2] {
        assert_eq!(servers.store(at).acquire(&[SHARD], "other", HOUR).await.unwrap(), []);
        let refused = servers.store(at).commit(&leases, Arc::clone(&batch)).await;
        assert!(matches!(refused, Err(StoreError::Fenced { shard: SHARD })), "{refused:?}");
        let refused = servers.store(at).renew(&leases, HOUR).await;
        assert!(matches!(refused, Err(StoreError::Fenced { .. })), "{refused:?}");
    }
    assert!(!exists(servers.store(0), job).await);
    servers.store(0).renew(&leases, HOUR).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_voids_the_leases_of_the_earlier_leader() {
    let (servers, mut sampler) = (Servers::three().await, Sampler::new(1));
    let leases = acquire(servers.store(0)).await;
    let to = servers.servers[1].id;
    within("the leadership is transferred", servers.store(0).transfer(Some(to))).await.unwrap();
    let (job, batch) = new_job(&mut sampler);
    let refused = servers.store(0).commit(&leases, batch).await;
    assert!(matches!(refused, Err(StoreError::Fenced { shard: SHARD })), "{refused:?}");
    let new = acquire(servers.store(1)).await;
    assert!(new[0].epoch > leases[0].epoch);
    assert!(servers.store(1).former_owner() > Duration::ZERO, "the earlier leader has not released it");
    assert!(!exists(servers.store(2), job).await);
    // Also after it leads again.
    let back = servers.servers[0].id;
    within("the leadership is transferred", servers.store(1).transfer(Some(back))).await.unwrap();
    let again = acquire(servers.store(0)).await;
    load(servers.store(0), &again).await;
    let (_, batch) = new_job(&mut sampler);
    let refused = servers.store(0).commit(&leases, batch).await;
    assert!(matches!(refused, Err(StoreError::Fenced { shard: SHARD })), "{refused:?}");
    let (job, batch) = new_job(&mut sampler);
    servers.store(0).commit(&again, batch).await.unwrap();
    assert!(exists(servers.store(2), job).await);
    assert_equal_rows(servers).await;
}

/// Each batch depends on the one before. The first one is refused before it reaches the log, while the second one waits
/// to be encoded into the same entry.
#[tokio::test]
async fn a_commit_behind_a_refused_one_is_refused() {
    let (servers, mut sampler) = (Servers::one().await, Sampler::new(1));
    let store = servers.store(0);
    let leases = acquire(store).await;
    let (_, refused) = new_job(&mut sampler);
    let mut refused = Arc::unwrap_or_clone(refused);
    if let Some(Change::Job { head, .. }) = refused.changes.first_mut() {
        *head = None;
    }
    let (behind, batch) = new_job(&mut sampler);
    let (first, second) =
        tokio::join!(store.commit(&leases, Arc::new(refused)), store.commit(&leases, batch));
    assert!(matches!(first, Err(StoreError::Fatal { .. })), "{first:?}");
    assert!(matches!(second, Err(StoreError::Unavailable { .. })), "{second:?}");
    assert!(!exists(store, behind).await);
}

/// The leader ends without a word, again and again, while commits are in flight.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_commit_is_lost_when_leaders_stop() {
    let (mut servers, mut sampler) = (Servers::three().await, Sampler::new(3));
    let mut acknowledged = Vec::new();
    for round in 0..4 {
        let (leader, leases) = acquire_anywhere(&servers).await;
        let store = Arc::clone(servers.store(leader));
        for _ in 0..10 {
            let (job, batch) = new_job(&mut sampler);
            store.commit(&leases, batch).await.unwrap();
            acknowledged.push(job);
        }
        let (_, last) = new_job(&mut sampler);
        let (commit, ()) = tokio::join!(store.commit(&leases, last), async {
            if round % 2 == 0 {
                tokio::task::yield_now().await;
            }
            servers.stop(leader).await;
        });
        drop(commit);
        drop(store);
        servers.open(leader, Start::Existing).await;
    }
    for at in servers.running() {
        for job in &acknowledged {
            assert!(exists(servers.store(at), *job).await, "server {at} lacks the job {job}");
        }
    }
    assert_equal_rows(servers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_without_a_majority_neither_renews_nor_reads() {
    let servers = Servers::three().await;
    let leases = acquire(servers.store(0)).await;
    let others: Vec<_> = servers.servers[1..].iter().map(|server| server.id).collect();
    servers.mesh.isolate(servers.servers[0].id, &others);
    let failing = async { while servers.store(0).renew(&leases, HOUR).await.is_ok() {} };
    within("the renewal fails", failing).await;
    let leader = within("the others elect a leader", async {
        loop {
            for at in [1, 2] {
                if servers.store(at).status().role == Role::Leader {
                    return at;
                }
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    let new = acquire(servers.store(leader)).await;
    assert!(new[0].epoch > leases[0].epoch);
    let refused = servers.store(0).job(JobId::from_bits(1)).await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    servers.mesh.rejoin(servers.servers[0].id, &others);
    let refused = within("the old lease is refused", servers.store(0).renew(&leases, HOUR)).await;
    assert!(refused.is_err());
    assert_equal_rows(servers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_server_lists_all_servers() {
    let servers = Servers::three().await;
    let record = |at: usize| store::cluster::ServerRecord {
        id: model::ServerId::from_bits(at as u128 + 1),
        name: format!("server-{at}"),
        url: None,
        version: "1".into(),
        started_at: model::Timestamp::from_micros(at as i64),
        fingerprint: None,
    };
    // The leader hears of a server with its announcement; the others with their next one. An announcement may be lost.
    let known = async |at: usize| {
        servers.store(at).announce(&record(at), None, HOUR).await.unwrap();
        servers.store(at).cluster().await.unwrap().members.len()
    };
    let announcing = async { while (known(0).await, known(1).await, known(2).await) != (3, 3, 3) {} };
    within("all servers know all", announcing).await;
    let drained = record(2).id;
    assert!(servers.store(1).set_draining(drained, true).await.unwrap());
    for at in 0..3 {
        let cluster = servers.store(at).cluster().await.unwrap();
        let names: Vec<_> = cluster.members.iter().map(|member| member.server.name.as_str()).collect();
        assert_eq!(names, ["server-0", "server-1", "server-2"]);
        servers.store(at).counts(None).await.unwrap();
        let cluster = servers.store(at).cluster().await.unwrap();
        assert!(cluster.member(drained).unwrap().draining, "server {at} does not know it");
    }
    assert!(!servers.store(0).set_draining(model::ServerId::from_bits(77), true).await.unwrap());
}

/// Otherwise the last server of a cluster could not be stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_without_a_majority_does_not_wait_for_one() {
    let mut servers = Servers::three().await;
    let leases = acquire(servers.store(0)).await;
    servers.stop(1).await;
    servers.stop(2).await;
    let written = within("a change is answered", servers.store(0).secret("late", &[1; 32])).await;
    assert!(matches!(written, Err(StoreError::OutcomeUnknown { .. })), "{written:?}");
    let _unknown = within("a release is answered", servers.store(0).release(&leases)).await;
    within("the leadership is left", servers.store(0).leave_leadership()).await;
    servers.stop(0).await;
}
