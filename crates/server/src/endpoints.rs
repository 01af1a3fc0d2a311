//! Endpoints of services: the ports of healthy replicas, for programs that call a service.
//!
//! An endpoint appears when its replica is healthy. It disappears when the replica is unhealthy or is being stopped, or when
//! its worker is lost. The API lists endpoints. A task follows those of a service that its job requires ([`after_change`]).
//!
//! Nothing is kept in memory: each list is read from the store. A task that waits for a change is woken by the events of
//! the commits that can change the endpoints of its service, and reads them at least every [`REREAD_INTERVAL`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::api::Endpoint;
use model::record::{Event, EventKind, ExecutionRecord};
use model::spec::HealthStatus;
use model::{ExecutionStatus, JobId, JobStatus, WorkerId};
use store::query::ReplicaRow;
use store::{Store, StoreError};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use crate::hash::short_hash;
use crate::node::{EventBatch, Node};

/// Maximum time between two reads of endpoints while a task waits for a change.
const REREAD_INTERVAL: Duration = Duration::from_secs(10);
/// Minimum time between two reads, which limits the reads during a rollout.
const READ_PAUSE: Duration = Duration::from_millis(500);

/// Endpoints of a service at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// Changes with each change of the endpoints.
    pub(crate) version: String,
    /// JSON list of the endpoints.
    pub(crate) body: Vec<u8>,
    /// Jobs of the replicas.
    jobs: BTreeSet<JobId>,
}

/// Returns the execution of a replica, unless its worker is lost.
pub(crate) fn running(row: &ReplicaRow) -> Option<&ExecutionRecord> {
    let is_running = row.state.status == JobStatus::Running;
    row.execution.as_ref().filter(|record| is_running && record.status != ExecutionStatus::Unknown)
}

/// Returns the ports of a replica, if it is healthy and not being stopped. `addresses` are those of the workers.
pub(crate) fn of_replica(row: &ReplicaRow, addresses: &BTreeMap<WorkerId, String>) -> Vec<Endpoint> {
    let Some(record) = running(row).filter(|_| row.state.cancel_requested_at.is_none()) else {
        return Vec::new();
    };
    let Some(health) = record.health.as_deref().filter(|health| health.status == HealthStatus::Healthy)
    else {
        return Vec::new();
    };
    let one = |(name, port): (&String, &u16)| Endpoint {
        port_name: name.clone(),
        address: addresses.get(&record.worker).cloned(),
        port: *port,
        replica: row.replica.replica,
        revision: row.replica.revision,
        job: row.job,
        worker: record.worker,
    };
    health.ports.iter().map(one).collect()
}

/// Returns the addresses of the workers that run the replicas.
///
/// # Errors
/// If the store cannot be read.
pub(crate) async fn addresses(
    store: &Arc<dyn Store>,
    replicas: &[ReplicaRow],
) -> Result<BTreeMap<WorkerId, String>, StoreError> {
    let wanted: BTreeSet<WorkerId> =
        replicas.iter().filter_map(|row| Some(row.execution.as_ref()?.worker)).collect();
    if wanted.is_empty() {
        return Ok(BTreeMap::new());
    }
    let workers = store.workers().await?;
    let wanted = workers.into_iter().filter(|worker| wanted.contains(&worker.id));
    Ok(wanted.filter_map(|worker| Some((worker.id, worker.address?))).collect())
}

/// Returns the endpoints of a service as soon as they differ from the version `known`, after `wait`, or when this server
/// stops leading. A service that does not exist has no endpoints.
///
/// # Errors
/// If the store cannot be read.
pub(crate) async fn after_change(
    node: &Node,
    namespace: &str,
    service: &str,
    known: &str,
    wait: Duration,
) -> Result<Snapshot, StoreError> {
    // Subscribed before the first read, so that no change is missed.
    let mut events = node.events();
    let end = Instant::now() + wait;
    loop {
        let snapshot = read(node.store(), namespace, service).await?;
        if snapshot.version != known || Instant::now() >= end {
            return Ok(snapshot);
        }
        let again = (Instant::now() + REREAD_INTERVAL).min(end);
        let changed = wait_for_event(&mut events, |event| snapshot.may_change(event, namespace, service));
        tokio::select! {
            () = changed => tokio::time::sleep_until(end.min(Instant::now() + READ_PAUSE)).await,
            () = tokio::time::sleep_until(again) => {}
            () = node.leadership_ended() => return Ok(snapshot),
        }
    }
}

async fn read(store: &Arc<dyn Store>, namespace: &str, service: &str) -> Result<Snapshot, StoreError> {
    let replicas = match store.service_named(namespace, service).await? {
        Some(row) => store.replicas(row.id).await?,
        None => Vec::new(),
    };
    let addresses = addresses(store, &replicas).await?;
    let endpoints: Vec<_> = replicas.iter().flat_map(|row| of_replica(row, &addresses)).collect();
    // Endpoints have no maps with keys other than text, so they can be serialized.
    let body = serde_json::to_vec(&endpoints).unwrap_or_default();
    let jobs = replicas.iter().map(|row| row.job).collect();
    Ok(Snapshot { version: format!("{:032x}", short_hash(&[&body])), body, jobs })
}

impl Snapshot {
    /// Whether an event may be about a change of the endpoints of a service.
    fn may_change(&self, event: &Event, namespace: &str, service: &str) -> bool {
        event.namespace.as_deref() == Some(namespace)
            && match &event.kind {
                EventKind::Availability { name, .. } | EventKind::Service { name, .. } => **name == *service,
                EventKind::Job { job, .. } => self.jobs.contains(job),
                // Its job may be a replica that is newer than the snapshot.
                EventKind::Health { .. } => true,
                _ => false,
            }
    }
}

async fn wait_for_event(
    events: &mut broadcast::Receiver<Arc<EventBatch>>,
    is_wanted: impl Fn(&Event) -> bool,
) {
    loop {
        match events.recv().await {
            Ok(batch) if batch.events.iter().any(&is_wanted) => return,
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => return,
            // The node has stopped, and its leadership with it.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}
