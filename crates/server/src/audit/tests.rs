//! Tests of the log of a server, over an embedded store that fails.

use std::sync::Arc;
use std::time::Duration;

use audit::{Entry, Hash, Link, Outcome, Sealed, Verifier};
use store::audit::AuditLink;
use store::faulty::{Fault, FaultyStore, Operation};
use store::sqlite::{Options, SqliteStore};
use store::{Audit as _, Store};
use tokio::time::Instant;

use super::repeats::{KINDS_MAX, Repeats, WINDOW};
use super::{AuditLog, WAIT_MAX};

/// A store, and two servers that share it.
struct Scene {
    store: Arc<FaultyStore<SqliteStore>>,
    one: Arc<AuditLog>,
    other: Arc<AuditLog>,
    _folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { shards: 1, ballast_bytes: 0, ..Options::default() };
        let store = SqliteStore::open(folder.path().join("x.db"), options).unwrap();
        let store = Arc::new(FaultyStore::new(store));
        let log = |name: &str| AuditLog::new(Arc::clone(&store) as Arc<dyn Store>, name);
        Self { one: log("one"), other: log("other"), store, _folder: folder }
    }

    /// Returns the actions of all entries, after a verification of the chain.
    async fn actions(&self) -> Vec<String> {
        let rows = self.store.audit_after(0, 100_000).await.unwrap();
        let link = |AuditLink { sequence, hash }| Link { sequence, hash: Hash(hash) };
        let mut verifier = Verifier::after(Link::default());
        for row in &rows {
            verifier.check(&Sealed { link: link(row.link), body: row.body.clone() }).unwrap();
        }
        verifier.finish(link(self.store.audit_chain().await.unwrap().last)).unwrap();
        rows.into_iter().map(|row| row.action).collect()
    }
}

fn entry(log: &AuditLog, action: &str) -> Entry {
    log.system_entry(action)
}

fn denied(log: &AuditLog, actor: &str, action: &str) -> Entry {
    let (outcome, code) = (Outcome::Denied, Some("forbidden".to_owned()));
    Entry { actor: actor.to_owned(), outcome, code, ..entry(log, action) }
}

/// H3. A client that got a response finds the entry.
#[tokio::test]
async fn the_entry_of_a_change_is_written_when_the_response_is_sent() {
    let scene = Scene::new();
    scene.one.changed(entry(&scene.one, "a")).await;
    assert_eq!(scene.actions().await, ["a"]);
    scene.other.changed(entry(&scene.other, "b")).await;
    scene.one.changed(entry(&scene.one, "c")).await;
    assert_eq!(scene.actions().await, ["a", "b", "c"]);
}

/// H3. The chain is linear.
#[tokio::test]
async fn two_servers_append_to_one_chain_at_the_same_time() {
    let scene = Scene::new();
    let many = |log: &Arc<AuditLog>| {
        let log = Arc::clone(log);
        futures::future::join_all((0..50).map(move |n| {
            let log = Arc::clone(&log);
            async move { log.changed(entry(&log, &format!("{} {n}", log.server()))).await }
        }))
    };
    tokio::join!(many(&scene.one), many(&scene.other));
    scene.one.close().await;
    scene.other.close().await;
    let mut actions = scene.actions().await;
    actions.sort_unstable();
    actions.dedup();
    assert_eq!(actions.len(), 100);
}

/// H3. Entries wait while the store fails, and the client of a committed change gets its response.
#[tokio::test]
async fn entries_are_written_in_order_when_the_store_recovers() {
    let scene = Scene::new();
    scene.store.fail_all(Operation::AppendAudit);
    let started = Instant::now();
    scene.one.changed(entry(&scene.one, "a")).await;
    assert!(started.elapsed() >= WAIT_MAX);
    scene.one.add(entry(&scene.one, "b"));
    assert_eq!(scene.actions().await, Vec::<String>::new());
    scene.store.heal(Operation::AppendAudit);
    scene.one.close().await;
    assert_eq!(scene.actions().await, ["a", "b"]);
}

/// H3. The store committed, but its answer was lost.
#[tokio::test]
async fn an_entry_is_written_once_if_the_outcome_of_a_write_is_unknown() {
    let scene = Scene::new();
    scene.one.changed(entry(&scene.one, "a")).await;
    scene.store.inject_next(Operation::AppendAudit, Fault::After);
    scene.one.add(entry(&scene.one, "b"));
    scene.one.add(entry(&scene.one, "c"));
    while scene.one.waiting() > 0 {
        scene.one.close().await;
    }
    assert_eq!(scene.actions().await, ["a", "b", "c"]);
}

/// H3. A gap is never silent.
#[tokio::test]
async fn the_number_of_entries_that_did_not_fit_is_an_entry() {
    let scene = Scene::new();
    scene.store.fail_all(Operation::AppendAudit);
    for n in 0..10_007 {
        scene.one.add(entry(&scene.one, &format!("e{n}")));
    }
    scene.store.heal(Operation::AppendAudit);
    scene.one.close().await;
    scene.one.changed(entry(&scene.one, "after")).await;
    let actions = scene.actions().await;
    assert_eq!(actions.len(), 10_002);
    assert_eq!(actions[10_000..], ["lose_audit_entries", "after"]);
    let rows = scene.store.audit_after(10_000, 1).await.unwrap();
    assert!(rows[0].body.contains("\"affected\":7"), "{}", rows[0].body);
}

/// E7. A flood of denied requests makes two entries for each caller and action.
#[tokio::test]
async fn repeated_denials_are_counted() {
    let scene = Scene::new();
    for _ in 0..5_000 {
        scene.one.not_succeeded(denied(&scene.one, "mallory", "submit_jobs"));
        scene.one.not_succeeded(denied(&scene.one, "mallory", "delete_job"));
    }
    scene.one.not_succeeded(denied(&scene.one, "noah", "delete_job"));
    scene.one.close().await;
    let rows = scene.store.audit_after(0, 100).await.unwrap();
    let told = rows.iter().map(|row| {
        let entry: Entry = serde_json::from_str(&row.body).unwrap();
        format!("{} {} {:?}", entry.actor, entry.action, entry.repeats)
    });
    let mut told: Vec<_> = told.collect();
    told.sort_unstable();
    assert_eq!(
        told,
        [
            "mallory delete_job None",
            "mallory delete_job Some(4999)",
            "mallory submit_jobs None",
            "mallory submit_jobs Some(4999)",
            "noah delete_job None",
        ]
    );
}

#[test]
fn the_count_of_repeats_becomes_an_entry_after_a_minute() {
    let log = AuditLog::new(Arc::clone(&Scene::new().store) as _, "one");
    let (mut repeats, start) = (Repeats::default(), Instant::now());
    let at = |seconds| start + Duration::from_secs(seconds);
    assert!(repeats.count(denied(&log, "ann", "a"), at(0)).is_some());
    assert!(repeats.count(denied(&log, "ann", "a"), at(1)).is_none());
    assert!(repeats.count(denied(&log, "ann", "a"), at(59)).is_none());
    assert_eq!(repeats.over(at(59), false), []);
    let over = repeats.over(start + WINDOW, false);
    assert_eq!(over.iter().map(|entry| entry.repeats).collect::<Vec<_>>(), [Some(2)]);
    assert!(
        repeats.count(denied(&log, "ann", "a"), at(61)).is_some(),
        "the next minute begins with an entry"
    );
    assert_eq!(repeats.over(at(200), false), [], "without repeats there is no second entry");
}

/// E7. An attacker cannot fill the memory, nor the store, with kinds of requests.
#[test]
fn the_number_of_counted_kinds_is_limited() {
    let log = AuditLog::new(Arc::clone(&Scene::new().store) as _, "one");
    let (mut repeats, now) = (Repeats::default(), Instant::now());
    let firsts = (0..10_000).filter_map(|n| repeats.count(denied(&log, &format!("user{n}"), "a"), now));
    assert_eq!(firsts.count(), KINDS_MAX + 1);
    let over = repeats.over(now, true);
    assert_eq!(over.len(), 1);
    assert_eq!((over[0].actor.as_str(), over[0].repeats), ("(various)", Some(10_000 - KINDS_MAX as u64 - 1)));
}
