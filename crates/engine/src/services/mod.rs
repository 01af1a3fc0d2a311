//! Services: keep long-running jobs at a number of replicas, and roll out new revisions.
//!
//! ```text
//! request, end of a job, health, drain ──> pending ──> reconcile: rollout ─> plan ─> create | stop replicas
//! ```
//!
//! A replica is an ordinary job with a reference to its service; [`crate::jobs`] places it, restarts it, and moves it
//! after the loss of its worker. This layer decides only how many replicas of which revision there are.
//!
//! - [`apply`]: requests of users: create, change, delete, scale, restart.
//! - [`rollout`]: progress of the rollout of the current revision: canaries, completion, deadline, rollback.
//! - [`reconcile`]: brings a service closer to its spec. [`plan`]: which replicas to create and to stop, as a pure
//!   function.
//! - [`per_worker`]: services with one replica on each matching worker.
//! - [`scaling`]: the desired number follows schedules and metrics.
//! - [`template`]: the specs of the jobs of a revision. [`restore`]: rebuilds services from rows. [`check`]: invariants.
//!
//! # Invariants
//! - After a flush, the plan of every service is empty, unless new work is held.
//! - The replicas of a service are exactly the live jobs that refer to it. No two of them have the same number.
//! - The decisions follow from the row of the service and from its jobs. A rebuilt engine decides the same.
//!
//! # Cost
//! O(n log n) in the replicas of a service, for each flush in which one of them changed.

mod apply;
mod check;
mod per_worker;
mod plan;
mod reconcile;
mod restore;
mod rollout;
mod scaling;
mod template;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use foldhash::fast::FixedState;
use indexmap::IndexMap;
use model::record::{Change, EventKind, ServiceEvent};
use model::service::{Revision, RolloutStatus, ServiceHead, ServiceState};
use model::{JobId, Refusal, ServiceId, ServiceSpec, Timestamp, WorkerId};
use mutation::{Mutation, is_on};

use crate::context::Context;
use crate::input::ServiceRequest;
use crate::jobs::Jobs;
use crate::names::name_hash;
use crate::output::{Reply, ServiceCounts};
use crate::timer::Timer;
use scaling::Scaler;
use template::Template;

/// All services.
#[derive(Debug, Default)]
pub(crate) struct Services {
    all: IndexMap<ServiceId, Service, FixedState>,
    /// Services by the hash of namespace and name.
    names: IndexMap<u128, ServiceId, FixedState>,
    /// Services with rows to write.
    changed: Vec<ServiceId>,
    /// Services to reconcile.
    pending: BTreeSet<ServiceId>,
    /// When the engine started, or when new work was held last. Progress deadlines count from there at the earliest: before
    /// it, no replica could become available.
    resumed_at: Timestamp,
}

/// A service and its replicas.
#[derive(Debug)]
struct Service {
    namespace: Arc<str>,
    name: Arc<str>,
    head: Arc<ServiceHead>,
    state: ServiceState,
    /// Live jobs of the service.
    replicas: BTreeMap<JobId, Replica>,
    /// Templates of the revisions from which replicas were created last.
    templates: Vec<Arc<Template>>,
    /// Decides the desired number, if the service is scaled automatically.
    scaler: Option<Box<Scaler>>,
    /// When its timer is armed.
    armed: Option<Timestamp>,
    /// Whether the spec or the revisions are not yet written to the store.
    head_changed: bool,
    new: bool,
    dirty: bool,
}

/// A live job of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Replica {
    /// Number of the replica, from 0.
    number: u32,
    revision: u64,
    /// Worker that it is bound to, if the service has one replica on each worker.
    worker: Option<WorkerId>,
}

impl Service {
    fn new(head: Arc<ServiceHead>, state: ServiceState) -> Self {
        Self {
            namespace: head.spec.namespace.as_str().into(),
            name: head.spec.name.as_str().into(),
            head,
            state,
            replicas: BTreeMap::new(),
            templates: Vec::new(),
            scaler: None,
            armed: None,
            head_changed: false,
            new: false,
            dirty: false,
        }
    }

    /// Returns the hash of its namespace and name.
    fn key(&self) -> u128 {
        name_hash(&self.namespace, &self.name)
    }

    /// Returns the number of available replicas that other jobs may rely on.
    fn available(&self) -> u32 {
        if self.state.deleting { 0 } else { self.state.counts.available }
    }

    fn spec(&self) -> &ServiceSpec {
        &self.head.spec
    }

    fn revision(&self, number: u64) -> Option<&Arc<Revision>> {
        self.head.revisions.iter().find(|revision| revision.number == number)
    }

    /// Returns the revision whose template a revision repeats; the revision itself if it repeats none.
    fn template_of(&self, number: u64) -> u64 {
        self.revision(number).and_then(|revision| revision.rollback_to).unwrap_or(number)
    }

    /// Marks a revision as rolled out completely.
    fn mark_completed(&mut self, number: u64) {
        let mut head = (*self.head).clone();
        let revision = head.revisions.iter_mut().find(|revision| revision.number == number);
        let Some(revision) = revision.filter(|revision| !revision.completed) else { return };
        *revision = Arc::new(Revision { completed: true, ..(**revision).clone() });
        self.head = Arc::new(head);
        self.head_changed = true;
    }

    fn reply(&self) -> Reply {
        Reply::Service {
            version: self.state.version,
            revision: self.state.rollout.revision,
            replicas: self.state.replicas,
        }
    }
}

impl Services {
    /// Processes a request of a user.
    pub(crate) fn handle(
        &mut self,
        cx: &mut Context,
        jobs: &Jobs,
        request: ServiceRequest,
        actor: &Arc<str>,
    ) -> Result<Reply, Refusal> {
        match request {
            ServiceRequest::Apply { services } => self.apply(cx, jobs, &services, actor),
            ServiceRequest::Delete { service, expected_version } => {
                self.delete(cx, service, expected_version)
            }
            ServiceRequest::Scale { service, replicas, expected_version } => {
                self.scale(cx, service, replicas, expected_version)
            }
            ServiceRequest::Restart { service } => self.restart(cx, service, actor),
            ServiceRequest::Rollback { service, revision } => {
                self.rollback(cx, jobs, service, revision, actor)
            }
            ServiceRequest::PauseRollout { service } => self.pause(cx, service, true),
            ServiceRequest::ResumeRollout { service } => self.pause(cx, service, false),
            ServiceRequest::PromoteRollout { service } => self.promote(cx, service),
        }
    }

    /// Returns a service that is not being deleted, to change it.
    fn live_mut(&mut self, id: ServiceId) -> Result<&mut Service, Refusal> {
        let service = self.all.get_mut(&id).ok_or(Refusal::ServiceNotFound { service: id })?;
        if service.state.deleting {
            let (name, replicas) = (Arc::clone(&service.name), service.replicas.len());
            return Err(Refusal::ServiceDeleting { name, replicas });
        }
        Ok(service)
    }

    /// Marks a service to be reconciled in the next flush.
    pub(crate) fn want_reconcile(&mut self, id: ServiceId) {
        if self.all.contains_key(&id) {
            self.pending.insert(id);
        }
    }

    /// Handles a worker that joined, was lost, or changed its admission or labels.
    pub(crate) fn on_workers_changed(&mut self) {
        if is_on(Mutation::EngineIgnoresNewWorkers) {
            return;
        }
        let per_worker = self.all.iter().filter(|(_, service)| service.spec().per_worker);
        self.pending.extend(per_worker.map(|(id, _)| *id));
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Handles the end of the job of a replica.
    pub(crate) fn on_replica_ended(&mut self, job: JobId, id: ServiceId) {
        let Some(service) = self.all.get_mut(&id) else { return };
        if service.replicas.remove(&job).is_some() && !is_on(Mutation::EngineForgetsEndedReplicas) {
            self.pending.insert(id);
        }
    }

    /// Restarts all progress deadlines, because no replica could become available until now.
    pub(crate) fn resume(&mut self, now: Timestamp) {
        self.resumed_at = now;
        self.pending.extend(self.all.keys());
    }

    pub(crate) fn on_timer(&mut self, id: ServiceId) {
        if let Some(service) = self.all.get_mut(&id) {
            service.armed = None;
            self.pending.insert(id);
        }
    }

    /// Whether nothing changed since the last flush, and no service is to be reconciled.
    pub(crate) fn is_idle(&self, holds_new_work: bool) -> bool {
        self.changed.is_empty() && (holds_new_work || self.pending.is_empty())
    }

    /// Returns numbers for metrics. Costs O(services).
    pub(crate) fn counts(&self) -> ServiceCounts {
        let mut counts = ServiceCounts::default();
        for service in self.all.values().filter(|service| !service.state.deleting) {
            let (desired, available) = (service.state.replicas, service.state.counts.available);
            counts.services += 1;
            counts.degraded += u64::from(available < desired);
            counts.desired += u64::from(desired);
            counts.available += u64::from(available);
            counts.failed_rollouts += u64::from(service.state.rollout.status == RolloutStatus::Failed);
        }
        counts
    }

    fn touch(&mut self, id: ServiceId) {
        if let Some(service) = self.all.get_mut(&id).filter(|service| !service.dirty) {
            service.dirty = true;
            self.changed.push(id);
        }
    }

    /// Marks a service as changed by a user or by a rollback, and wants it reconciled.
    fn touch_by_user(&mut self, cx: &mut Context, id: ServiceId, what: ServiceEvent) {
        if let Some(service) = self.all.get_mut(&id) {
            service.state.version += 1;
            service.state.updated_at = cx.now;
        }
        self.touch(id);
        self.pending.insert(id);
        self.emit(cx, id, what);
    }

    fn emit(&self, cx: &mut Context, id: ServiceId, what: ServiceEvent) {
        let Some(service) = self.all.get(&id) else { return };
        let kind = EventKind::Service { service: id, name: Arc::clone(&service.name), what };
        cx.emit(Some(Arc::clone(&service.namespace)), kind);
    }

    /// Writes changed services as rows.
    pub(crate) fn drain(&mut self, changes: &mut Vec<Change>) {
        for id in std::mem::take(&mut self.changed) {
            let Some(service) = self.all.get_mut(&id) else { continue };
            service.dirty = false;
            let head = std::mem::take(&mut service.head_changed).then(|| Arc::clone(&service.head));
            let new = std::mem::take(&mut service.new);
            changes.push(Change::Service { id, new, head, state: Box::new(service.state.clone()) });
        }
    }

    /// Arms the timer of a service for `at`, or disarms it.
    fn arm(&mut self, cx: &mut Context, id: ServiceId, at: Option<Timestamp>) {
        let Some(service) = self.all.get_mut(&id).filter(|service| service.armed != at) else { return };
        if let Some(before) = std::mem::replace(&mut service.armed, at) {
            cx.wall_timers.disarm(before, Timer::Service(id));
        }
        if let Some(at) = at {
            cx.wall_timers.arm(at, Timer::Service(id));
        }
    }

    /// Removes a service whose replicas have all ended.
    fn remove(&mut self, cx: &mut Context, jobs: &mut Jobs, id: ServiceId) {
        self.emit(cx, id, ServiceEvent::Deleted);
        self.arm(cx, id, None);
        let Some(service) = self.all.swap_remove(&id) else { return };
        self.names.swap_remove(&service.key());
        jobs.set_available_replicas(service.key(), None);
        if !service.new {
            cx.write(Change::RemoveService(id));
        }
    }

    fn find(&self, namespace: &str, name: &str) -> Option<ServiceId> {
        let id = self.names.get(&name_hash(namespace, name)).copied()?;
        let found = self.all.get(&id)?;
        (*found.namespace == *namespace && *found.name == *name).then_some(id)
    }
}
