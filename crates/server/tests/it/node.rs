//! A node without a listener: its thread and its clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use model::record::{Event, EventKind};
use model::{Duration, JobStatus, Timestamp};
use server::ServerConfig;
use server::clock::{Clock, SystemClock};
use server::members::Members;
use server::metrics::Metrics;
use server::node::{DriverHandle, Node, NodeConfig, Readiness, RequestError};
use server::repair::{ResetError, reset_clock};
use store::sqlite::{Options, SqliteStore};
use store::{Leases as _, Store};
use tempfile::TempDir;

use crate::harness::{job, soon, submit};

/// Manual clocks: the wall clock, and the duration of suspends.
#[derive(Default)]
struct ManualClock {
    wall: AtomicI64,
    slept: AtomicI64,
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.wall.load(Ordering::SeqCst))
    }

    fn steady(&self) -> Timestamp {
        Timestamp::from_micros(SystemClock.steady().as_micros() + self.slept.load(Ordering::SeqCst))
    }
}

impl ManualClock {
    fn set(&self, now: Timestamp) {
        self.wall.store(now.as_micros(), Ordering::SeqCst);
    }

    /// Suspends the machine until `now`.
    fn sleep_until(&self, now: Timestamp) {
        let slept = now.as_micros() - self.now().as_micros();
        self.slept.fetch_add(slept, Ordering::SeqCst);
        self.set(now);
    }
}

async fn node(dir: &TempDir) -> (Node, DriverHandle, Arc<ManualClock>) {
    node_at(dir, SystemClock.now()).await
}

/// Starts a node whose wall clock shows `now`.
async fn node_at(dir: &TempDir, now: Timestamp) -> (Node, DriverHandle, Arc<ManualClock>) {
    let dial = Arc::new(ManualClock::default());
    dial.set(now);
    let store = SqliteStore::open(dir.path().join("belfry.db"), Options::default()).unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    let settings = ServerConfig::new(dir.path());
    let members = Members::new(Arc::clone(&store), &settings, None);
    let mut config = NodeConfig::new(&settings, members, Metrics::new());
    config.clock = Arc::clone(&dial) as Arc<dyn Clock>;
    let (node, driver) = Node::new(store, config);
    assert_eq!(submit(&node, job(), None).await, Err(RequestError::Loading));
    let handle = driver.spawn().unwrap();
    soon("the node to be ready", node.wait_ready(|now| *now == Readiness::Ready)).await;
    (node, handle, dial)
}

/// No handle can stop it, so it stops by itself.
#[tokio::test]
async fn a_node_without_handles_ends() {
    let dir = tempfile::tempdir().unwrap();
    let (node, handle, _dial) = node(&dir).await;
    drop(node);
    soon("the thread to end", handle.join()).await.unwrap();
}

/// Rule 8 of the design. A server started with a clock ten days ahead, and its store is repaired.
#[tokio::test]
async fn engine_time_that_is_ahead_is_reported_and_reset() {
    let dir = tempfile::tempdir().unwrap();
    let now = SystemClock.now();
    let (ahead, handle, _) = node_at(&dir, now + Duration::from_hours(240)).await;
    submit(&ahead, job(), None).await.unwrap();
    ahead.stop();
    soon("the node to end", handle.join()).await.unwrap();
    drop(ahead);

    let (behind, handle, _) = node_at(&dir, now).await;
    let trouble = behind.view().clock.trouble().unwrap();
    assert!(trouble.contains("ahead of the wall clock") && trouble.contains("reset-clock"), "{trouble}");
    behind.stop();
    soon("the node to end", handle.join()).await.unwrap();
    drop(behind);

    let store = SqliteStore::open(dir.path().join("belfry.db"), Options::default()).unwrap();
    let reset = reset_clock(&store, now).await.unwrap();
    assert_eq!((reset.from, reset.to, reset.rows), (now + Duration::from_hours(240), now, 1));
    let position = || std::fs::read_to_string(dir.path().join("belfry.db.position")).unwrap();
    let before = position();
    let again = reset_clock(&store, now).await.unwrap();
    assert_eq!((again.from, again.to, again.rows), (now, now, 0));
    assert_eq!(position(), before, "nothing was changed");
    let leases = store.acquire(&[model::ShardId(0)], "a server", Duration::from_secs(60)).await.unwrap();
    assert!(matches!(reset_clock(&store, now).await, Err(ResetError::Running { held: 1 })));
    store.release(&leases).await.unwrap();
    drop(store);

    let (right, _handle, _) = node_at(&dir, now).await;
    assert_eq!(right.view().clock.trouble(), None);
}

/// D9, rule 8 of the design. The clock jumps ten days ahead, and is corrected.
#[tokio::test]
async fn an_unconfirmed_clock_jump_is_reported_and_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let (node, _handle, dial) = node(&dir).await;
    let start = dial.now();
    let soon_after = start + Duration::from_hours(1);
    dial.set(start + Duration::from_hours(240));
    let told = async |wanted: bool| loop {
        let view = node.view();
        if view.clock.trouble().is_some() == wanted {
            return view;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    let view = soon("the jump to be reported", told(true)).await;
    assert!(view.purge_before < soon_after, "nothing is deleted by it: {}", view.purge_before);
    let job = submit(&node, job(), None).await.unwrap().job;
    let row = node.store().job(job).await.unwrap().unwrap();
    assert!(row.state.updated_at < soon_after, "{}", row.state.updated_at);
    dial.set(start);
    soon("the clock to be right", told(false)).await;
}

/// A9: rule 8 of the design. The machine may be suspended, and the wall clock may be set back.
#[tokio::test]
async fn a_delayed_job_starts_at_its_time_and_time_never_runs_back() {
    let dir = tempfile::tempdir().unwrap();
    let (node, _handle, dial) = node(&dir).await;
    let start = dial.now();
    let mut delayed = job();
    delayed.run_at = Some(start + Duration::from_hours(1));
    let delayed = submit(&node, delayed, None).await.unwrap().job;
    let status = async || node.store().job(delayed).await.unwrap().unwrap().state.status;
    assert_eq!(status().await, JobStatus::Ready);
    let mut events = node.events();
    dial.sleep_until(start + Duration::from_hours(2));
    // The events of the submission may still be under way when it is answered.
    let due = async {
        let is_due = |event: &Event| matches!(event.kind, EventKind::Job { job, to: JobStatus::Waiting, .. } if job == delayed);
        while !events.recv().await.unwrap().events.iter().any(is_due) {}
    };
    soon("the job to be due", due).await;
    assert_eq!(status().await, JobStatus::Waiting);

    dial.set(start);
    let later = submit(&node, job(), None).await.unwrap().job;
    let row = node.store().job(later).await.unwrap().unwrap();
    assert!(row.state.updated_at >= start + Duration::from_hours(2), "{}", row.state.updated_at);
}
