//! A node without a listener: its thread and its clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use model::{Duration, JobStatus, Timestamp};
use server::ServerConfig;
use server::members::Members;
use server::metrics::Metrics;
use server::node::{Clock, DriverHandle, Node, NodeConfig, Readiness, RequestError, SystemClock};
use store::Store;
use store::sqlite::{Options, SqliteStore};
use tempfile::TempDir;

use crate::harness::{job, soon, submit};

/// A clock that a test sets.
struct Dial(AtomicI64);

impl Clock for Dial {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}

impl Dial {
    fn set(&self, now: Timestamp) {
        self.0.store(now.as_micros(), Ordering::SeqCst);
    }
}

async fn node(dir: &TempDir) -> (Node, DriverHandle, Arc<Dial>) {
    let dial = Arc::new(Dial(AtomicI64::new(SystemClock.now().as_micros())));
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

/// Nobody is left to stop it, so it stops by itself.
#[tokio::test]
async fn a_node_without_handles_ends() {
    let dir = tempfile::tempdir().unwrap();
    let (node, handle, _dial) = node(&dir).await;
    drop(node);
    soon("the thread to end", handle.join()).await.unwrap();
}

/// A9: rule 8 of the design. The wall clock may leap, and may be set back.
#[tokio::test]
async fn a_delayed_job_is_due_when_the_clock_says_so_and_time_never_runs_back() {
    let dir = tempfile::tempdir().unwrap();
    let (node, _handle, dial) = node(&dir).await;
    let start = dial.now();
    let mut delayed = job();
    delayed.run_at = Some(start + Duration::from_hours(1));
    let delayed = submit(&node, delayed, None).await.unwrap().job;
    let status = async || node.store().job(delayed).await.unwrap().unwrap().state.status;
    assert_eq!(status().await, JobStatus::Ready);
    let mut events = node.events();
    dial.set(start + Duration::from_hours(2));
    soon("the job to be due", events.recv()).await.unwrap();
    assert_eq!(status().await, JobStatus::Waiting);

    dial.set(start);
    let later = submit(&node, job(), None).await.unwrap().job;
    let row = node.store().job(later).await.unwrap().unwrap();
    assert!(row.state.updated_at >= start + Duration::from_hours(2), "{}", row.state.updated_at);
}
