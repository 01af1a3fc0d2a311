//! Checks of services (I24): each reaches its desired replicas, and keeps enough of them available.
//!
//! [`Services`] follows the commits in order. It knows the replicas of each service with their executions, and computes
//! itself which of them are available; it shares no code with the engine.
//!
//! - An available replica is stopped only if enough others stay available. What a user cancels, and a service that is
//!   deleted, are exempt.
//! - A new replica exceeds neither the desired number and the surge, nor does it take the number of a live one.
//! - A service with one replica on each worker has no two on one worker, and in the end one on each matching worker. A
//!   replica whose worker no longer matches may be stopped.
//! - A service that is scaled automatically has a desired number between its minimum and its maximum in the end.
//! - A replica ends only if it was told to stop, or after very many executions, and it is never preempted.
//! - A rollout changes its status only by legal steps. While it is paused, missing replicas get the stable revision.
//! - A job starts only while the services that it requires have enough available replicas.
//! - The health of an execution follows the newest report: it never becomes `starting` again (I10).
//! - Once the faults have ended, each service is as desired, or its rollout says why it is not ([`judge_desired`]).
//!
//! [`judge_desired`]: Services::judge_desired

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::service::{Rollout, RolloutStatus, ServiceSpec};
use model::spec::HealthStatus;
use model::worker::{Admission, WorkerStatus};
use model::{ExecutionId, ExecutionStatus, JobId, JobSpec, JobStatus, ServiceId, Timestamp, WorkerId};

use super::facts::Facts;
use super::{Findings, Invariant};
use crate::history::{Commit, ExecutionRow, JobRow, Row, ServiceRow};

/// Number of executions or losses after which a replica may end by itself.
const EXECUTIONS_MIN: u32 = 100;

/// A service as of the newest commit.
#[derive(Debug)]
struct Service {
    spec: Arc<ServiceSpec>,
    /// The revision whose template each kept revision has.
    templates: BTreeMap<u64, u64>,
    row: ServiceRow,
    /// Index of the newest event that changed it.
    at: usize,
    /// Index of the event since which its rollout is paused and no user has changed it.
    paused_at: Option<usize>,
}

impl Service {
    /// Returns the smallest number of available replicas after a stop.
    fn min_available(&self) -> u32 {
        self.row.replicas.saturating_sub(self.spec.max_unavailable())
    }

    /// Returns the largest number of replicas that are not being stopped after the start of a replica.
    fn live_max(&self) -> u32 {
        let update = &self.spec.update;
        let surge = if self.spec.per_worker { 0 } else { update.max_surge.max(update.canaries) };
        self.row.replicas + surge
    }

    fn is_updated(&self, replica: &Replica) -> bool {
        self.template_of(replica.revision) == self.template_of(self.row.rollout.revision)
    }

    fn template_of(&self, revision: u64) -> u64 {
        self.templates.get(&revision).copied().unwrap_or(revision)
    }

    /// Whether the replicas that a commit creates must have the stable revision: the rollout was paused before it.
    fn is_held(&self, index: usize) -> bool {
        let current = self.template_of(self.row.rollout.revision);
        self.paused_at.is_some_and(|paused| paused < index)
            && self.row.stable_revision.is_some_and(|stable| self.template_of(stable) != current)
    }
}

/// A live replica as of the newest commit.
#[derive(Debug)]
struct Replica {
    service: ServiceId,
    number: u32,
    revision: u64,
    /// Worker that its job is bound to.
    worker: Option<WorkerId>,
    has_checks: bool,
    is_stopping: bool,
    is_running: bool,
    execution: Option<Execution>,
}

/// The newest execution of a replica.
#[derive(Debug)]
struct Execution {
    id: ExecutionId,
    status: ExecutionStatus,
    started_at: Option<Timestamp>,
    health: Option<(HealthStatus, Timestamp)>,
}

impl Execution {
    /// Whether a health check has succeeded or failed.
    fn is_checked(&self) -> bool {
        self.health.is_some_and(|(status, _)| status != HealthStatus::Starting)
    }
}

impl Replica {
    /// Returns since when it can do its work; `None` if it cannot.
    fn ready_since(&self) -> Option<Timestamp> {
        let execution = self
            .execution
            .as_ref()
            .filter(|execution| self.is_running && execution.status == ExecutionStatus::Running)?;
        match execution.health {
            Some((HealthStatus::Healthy, since)) => Some(since),
            Some(_) => None,
            None if self.has_checks => None,
            None => execution.started_at,
        }
    }

    fn is_available(&self, service: &Service, now: Timestamp) -> bool {
        self.ready_since().is_some_and(|since| since + service.spec.min_healthy <= now)
    }
}

/// A live job that requires services.
#[derive(Debug)]
struct Requirer {
    spec: Arc<JobSpec>,
    executions: u32,
}

/// What a commit did.
#[derive(Debug, Default)]
struct Done {
    /// Jobs with required services that were placed.
    placed: Vec<JobId>,
    created: Vec<JobId>,
    /// Replicas that were told to stop.
    stopped: Vec<JobId>,
    ended: Vec<JobId>,
}

/// Services and their replicas, from commit to commit.
#[derive(Debug, Default)]
pub(super) struct Services {
    services: BTreeMap<ServiceId, Service>,
    replicas: BTreeMap<JobId, Replica>,
    requirers: BTreeMap<JobId, Requirer>,
    workers: BTreeMap<WorkerId, (WorkerStatus, Admission)>,
    /// Engine time of the newest commit.
    now: Timestamp,
}

impl Services {
    pub(super) fn take(&mut self, facts: &Facts<'_>, index: usize, commit: &Commit, findings: &mut Findings) {
        let before = if self.may_place(commit) { self.available() } else { BTreeMap::new() };
        self.now = commit.now;
        let mut done = Done::default();
        for row in &commit.rows {
            match row {
                Row::Service(row) => self.take_service(facts, index, row, findings),
                Row::ServiceRemoved(id) => self.take_removal(facts, index, *id, commit, findings),
                Row::Worker { worker, status, admission, .. } => {
                    self.workers.insert(*worker, (*status, *admission));
                }
                Row::Job(row) => self.take_job(facts, index, row, &mut done, findings),
                Row::Execution(row) => self.take_execution(index, row, findings),
                _ => {}
            }
        }
        self.check_requirements(index, &done.placed, &before, findings);
        self.check_revisions(index, &done.created, findings);
        let created = done.created.iter().filter_map(|job| self.replicas.get(job));
        let grown: BTreeSet<ServiceId> = created.map(|replica| replica.service).collect();
        for job in done.ended {
            self.replicas.remove(&job);
        }
        for service in grown {
            self.check_growth(index, service, findings);
        }
        self.check_stops(facts, index, &done.stopped, findings);
    }

    fn take_service(&mut self, facts: &Facts<'_>, index: usize, row: &ServiceRow, findings: &mut Findings) {
        let id = row.service;
        let known = self.services.remove(&id);
        let is_new_deletion = row.deleting && known.as_ref().is_none_or(|known| !known.row.deleting);
        if is_new_deletion && !facts.has_delete_request(id, index) {
            findings.add(Invariant::I24, id, "being deleted without a request to delete it", [index]);
        }
        if let Some(known) = &known {
            check_rollout(index, known, row, findings);
        } else if !row.new {
            findings.add(Invariant::I4, id, "the first row is not new", [index]);
        }
        let is_unchanged = |known: &Service| known.row.version == row.version;
        let paused_before =
            known.as_ref().filter(|known| is_unchanged(known)).and_then(|known| known.paused_at);
        let paused_at = row.rollout.paused.then(|| paused_before.unwrap_or(index));
        let (spec, templates) = match (&row.spec, known) {
            (Some(spec), _) => (Arc::clone(spec), row.templates.clone()),
            (None, Some(known)) => (known.spec, known.templates),
            (None, None) => return,
        };
        let row = ServiceRow { spec: None, ..row.clone() };
        self.services.insert(id, Service { spec, templates, row, at: index, paused_at });
    }

    /// A service is removed on request, after its last replica.
    fn take_removal(
        &mut self,
        facts: &Facts<'_>,
        index: usize,
        id: ServiceId,
        commit: &Commit,
        findings: &mut Findings,
    ) {
        // The request may be in an earlier slice of the history than the removal.
        let was_deleting = self.services.remove(&id).is_some_and(|known| known.row.deleting);
        let ends_here = |job: JobId| {
            let end = |row: &Row| matches!(row, Row::Job(row) if row.job == job && row.status.is_final());
            commit.rows.iter().any(end)
        };
        let left = self.replicas.iter().find(|(job, replica)| replica.service == id && !ends_here(**job));
        if let Some((job, _)) = left {
            findings.add(Invariant::I24, id, format!("removed before its replica {job} ended"), [index]);
        }
        if !was_deleting && !facts.has_delete_request(id, index) {
            findings.add(Invariant::I24, id, "removed without a request to delete it", [index]);
        }
    }

    fn take_job(
        &mut self,
        facts: &Facts<'_>,
        index: usize,
        row: &JobRow,
        done: &mut Done,
        findings: &mut Findings,
    ) {
        if let (true, Some(origin)) = (row.new, row.replica.as_deref()) {
            let spec = row.spec.as_deref();
            let replica = Replica {
                service: origin.service,
                number: origin.replica,
                revision: origin.revision,
                worker: spec.and_then(bound_to),
                has_checks: spec.is_some_and(|spec| !spec.ports.is_empty() || spec.health.is_some()),
                is_stopping: false,
                is_running: false,
                execution: None,
            };
            let service = self.services.get(&origin.service);
            if let Some(service) = service.filter(|service| service.row.rollout.revision == origin.revision)
                && !spec.is_some_and(|spec| is_of_template(spec, &service.spec))
            {
                let message = format!("its spec is not that of revision {}", origin.revision);
                findings.add(Invariant::I24, row.job, message, [service.at, index]);
            }
            self.replicas.insert(row.job, replica);
            done.created.push(row.job);
        }
        self.take_requirer(row, done);
        let Some(replica) = self.replicas.get_mut(&row.job) else { return };
        replica.is_running = row.status == JobStatus::Running;
        if row.cancel_requested && !std::mem::replace(&mut replica.is_stopping, true) {
            done.stopped.push(row.job);
        }
        if row.status.is_final() {
            done.ended.push(row.job);
            let is_spent = row.executions.max(row.losses) >= EXECUTIONS_MIN;
            let is_asked = row.cancel_requested || facts.has_cancel_request(row.job, index);
            if row.status != JobStatus::Cancelled && !is_spent && !is_asked {
                let message = format!("ended as {}, without a request to stop it", row.status);
                findings.add(Invariant::I24, row.job, message, [index]);
            }
        }
    }

    fn take_requirer(&mut self, row: &JobRow, done: &mut Done) {
        if let Some(spec) = row.spec.as_ref().filter(|spec| !spec.requires.is_empty()) {
            let executions = self.requirers.get(&row.job).map_or(0, |known| known.executions);
            self.requirers.insert(row.job, Requirer { spec: Arc::clone(spec), executions });
        } else if row.spec.is_some() {
            self.requirers.remove(&row.job);
        }
        let Some(known) = self.requirers.get_mut(&row.job) else { return };
        if row.executions > std::mem::replace(&mut known.executions, row.executions) {
            done.placed.push(row.job);
        }
        if row.status.is_final() && done.placed.last() != Some(&row.job) {
            self.requirers.remove(&row.job);
        }
    }

    /// Whether a commit may place a job that requires services.
    fn may_place(&self, commit: &Commit) -> bool {
        commit.rows.iter().any(|row| match row {
            Row::Job(row) if row.status == JobStatus::Running => {
                self.requirers.contains_key(&row.job)
                    || row.spec.as_ref().is_some_and(|spec| !spec.requires.is_empty())
            }
            _ => false,
        })
    }

    /// Returns the number of available replicas of each service.
    fn available(&self) -> BTreeMap<(String, String), u32> {
        let mut available = BTreeMap::new();
        for replica in self.replicas.values().filter(|replica| !replica.is_stopping) {
            let Some(service) = self.services.get(&replica.service) else { continue };
            let name = (service.spec.namespace.clone(), service.spec.name.clone());
            let counts = !service.row.deleting && replica.is_available(service, self.now);
            *available.entry(name).or_default() += u32::from(counts);
        }
        available
    }

    /// A job is placed only if its required services are available, at the beginning or at the end of the commit.
    fn check_requirements(
        &self,
        index: usize,
        placed: &[JobId],
        before: &BTreeMap<(String, String), u32>,
        findings: &mut Findings,
    ) {
        let after = if placed.is_empty() { BTreeMap::new() } else { self.available() };
        for (job, known) in placed.iter().filter_map(|job| Some((job, self.requirers.get(job)?))) {
            for required in &known.spec.requires {
                let name = (known.spec.namespace.clone(), required.service.clone());
                let of = |counts: &BTreeMap<(String, String), u32>| counts.get(&name).copied().unwrap_or(0);
                let available = of(before).max(of(&after));
                if available < required.min_available {
                    let (service, min) = (&required.service, required.min_available);
                    let message = format!(
                        "it starts with {available} available replicas of {service}, it requires {min}"
                    );
                    findings.add(Invariant::I24, job, message, [index]);
                }
            }
        }
    }

    fn take_execution(&mut self, index: usize, row: &ExecutionRow, findings: &mut Findings) {
        let Some(replica) = self.replicas.get_mut(&row.job) else { return };
        if let Some(by) = row.preempted_by {
            findings.add(Invariant::I24, row.job, format!("a replica is preempted by {by}"), [index]);
        }
        let is_newest = replica.execution.as_ref().is_none_or(|known| known.id == row.execution);
        let health =
            replica.execution.as_ref().filter(|known| known.id == row.execution && known.is_checked());
        if health.is_some() && row.health.is_some_and(|(status, _)| status == HealthStatus::Starting) {
            findings.add(Invariant::I10, row.execution, "an old report of its health counts", [index]);
        }
        if row.new || is_newest {
            replica.execution = Some(Execution {
                id: row.execution,
                status: row.status,
                started_at: row.started_at,
                health: row.health,
            });
        }
    }

    fn replicas_of(&self, id: ServiceId) -> impl Iterator<Item = (JobId, &Replica)> {
        let own = self.replicas.iter().filter(move |(_, replica)| replica.service == id);
        own.map(|(job, replica)| (*job, replica))
    }

    /// While a rollout is paused, new replicas have the stable revision.
    fn check_revisions(&self, index: usize, created: &[JobId], findings: &mut Findings) {
        for job in created {
            let Some(replica) = self.replicas.get(job) else { continue };
            let Some(service) = self.services.get(&replica.service) else { continue };
            if service.is_held(index) && service.is_updated(replica) {
                let message =
                    format!("it gets revision {}, although the rollout is paused", replica.revision);
                findings.add(Invariant::I24, job, message, [service.at, index]);
            }
        }
    }

    /// Workers of the replicas that are not being stopped.
    fn workers_of(&self, id: ServiceId) -> impl Iterator<Item = WorkerId> {
        let live = self.replicas_of(id).filter(|(_, replica)| !replica.is_stopping);
        live.filter_map(|(_, replica)| replica.worker)
    }

    /// Whether a worker may keep its replica of a service with one replica on each worker.
    fn is_matching(&self, worker: WorkerId) -> bool {
        let known = self.workers.get(&worker);
        known.is_some_and(|(status, admission)| {
            *status != WorkerStatus::Lost && *admission != Admission::Draining
        })
    }

    /// A new replica has a free number, and does not exceed the surge.
    fn check_growth(&self, index: usize, id: ServiceId, findings: &mut Findings) {
        let Some(service) = self.services.get(&id) else { return };
        let mut numbers = BTreeMap::new();
        for (job, replica) in self.replicas_of(id) {
            if let Some(other) = numbers.insert(replica.number, job) {
                let message = format!("{other} and {job} are both replica {}", replica.number);
                findings.add(Invariant::I24, id, message, [index]);
            }
        }
        let workers: Vec<_> = self.workers_of(id).collect();
        let distinct: BTreeSet<_> = workers.iter().collect();
        if service.spec.per_worker && distinct.len() < workers.len() {
            findings.add(Invariant::I24, id, "two replicas are bound to one worker", [index]);
        }
        let live = self.replicas_of(id).filter(|(_, replica)| !replica.is_stopping).count();
        if live > service.live_max() as usize {
            let message = format!("{live} replicas exceed the limit of {}", service.live_max());
            findings.add(Invariant::I24, id, message, [service.at, index]);
        }
    }

    /// An available replica is stopped only if enough others are available.
    fn check_stops(&self, facts: &Facts<'_>, index: usize, stopped: &[JobId], findings: &mut Findings) {
        for job in stopped {
            let Some(replica) = self.replicas.get(job) else { continue };
            let Some(service) = self.services.get(&replica.service).filter(|known| !known.row.deleting)
            else {
                continue;
            };
            if !replica.is_available(service, self.now) || facts.has_cancel_request(*job, index) {
                continue;
            }
            if service.spec.per_worker && replica.worker.is_some_and(|worker| !self.is_matching(worker)) {
                continue;
            }
            let others = self
                .replicas_of(replica.service)
                .filter(|(_, other)| !other.is_stopping && other.is_available(service, self.now));
            let others = others.count();
            if others < service.min_available() as usize {
                let least = service.min_available();
                let message =
                    format!("an available replica is stopped, but {others} of {least} others are available");
                findings.add(Invariant::I24, job, message, [service.at, index]);
            }
        }
    }

    /// Each service has exactly its desired replicas, all available and with the current revision; or its rollout has
    /// failed, and no replica is missing. Clients have resumed and promoted all rollouts before.
    pub(super) fn judge_desired(&self, index: usize, findings: &mut Findings) {
        for (&id, service) in self.services.iter().filter(|(_, service)| !service.row.deleting) {
            let row = &service.row;
            if let Some(scaling) = &service.spec.scaling
                && !(scaling.min..=scaling.max).contains(&row.replicas)
            {
                let (min, max) = (scaling.min, scaling.max);
                let message = format!("{} replicas are desired, expected {min} to {max}", row.replicas);
                findings.add(Invariant::I24, id, message, [service.at, index]);
            }
            if service.spec.per_worker {
                self.judge_workers(index, id, findings);
            }
            let live: Vec<_> =
                self.replicas_of(id).map(|(_, replica)| replica).filter(|known| !known.is_stopping).collect();
            let count = |is: &dyn Fn(&Replica) -> bool| live.iter().filter(|replica| is(replica)).count();
            let available = count(&|replica| replica.is_available(service, self.now));
            let updated = count(&|replica| service.is_updated(replica));
            let desired = row.replicas as usize;
            let status = row.rollout.status;
            let is_as_desired = match status {
                RolloutStatus::Failed => live.len() >= desired,
                RolloutStatus::Completed => [live.len(), available, updated] == [desired; 3],
                RolloutStatus::Progressing | RolloutStatus::AwaitingPromotion => false,
            };
            if !is_as_desired {
                let message = format!(
                    "{desired} replicas are desired, but {} exist, {available} are available, and {updated} have \
                     revision {}; the rollout is {status}",
                    live.len(),
                    row.rollout.revision,
                );
                findings.add(Invariant::I24, id, message, [service.at, index]);
            }
        }
    }

    /// Each open worker has one replica, and each replica is on a worker that may keep it.
    fn judge_workers(&self, index: usize, id: ServiceId, findings: &mut Findings) {
        let found: BTreeSet<WorkerId> = self.workers_of(id).collect();
        let is_open = |(status, admission): &(WorkerStatus, Admission)| {
            *status != WorkerStatus::Lost && *admission == Admission::Open
        };
        let lacking = self.workers.iter().filter(|(_, known)| is_open(known)).map(|(id, _)| *id);
        let lacking =
            lacking.filter(|worker| !found.contains(worker)).map(|worker| (worker, "has no replica"));
        let surplus = found.iter().filter(|worker| !self.is_matching(**worker));
        let surplus = surplus.map(|worker| (*worker, "must not have a replica"));
        for (worker, wrong) in lacking.chain(surplus) {
            findings.add(Invariant::I24, id, format!("{worker} {wrong}"), [index]);
        }
    }

    /// I26: after the faults, a service that is being deleted is removed.
    pub(super) fn finish(&self, facts: &Facts<'_>, findings: &mut Findings) {
        if !facts.are_settled {
            return;
        }
        for (id, service) in self.services.iter().filter(|(_, service)| service.row.deleting) {
            findings.add(Invariant::I26, id, "still being deleted at the end", [service.at]);
        }
    }
}

/// Label in the constraint that binds a job to a worker.
const WORKER_LABEL: &str = "belfry.worker";

/// Returns the worker that a job is bound to.
fn bound_to(spec: &JobSpec) -> Option<WorkerId> {
    let pin = spec.constraints.iter().find(|constraint| constraint.label == WORKER_LABEL)?;
    pin.values.first()?.parse().ok()
}

/// Whether a job has the spec of the replicas of a service, and is bound to a worker if it must be.
fn is_of_template(spec: &JobSpec, service: &ServiceSpec) -> bool {
    let mut unbound = spec.clone();
    unbound.constraints.retain(|constraint| constraint.label != WORKER_LABEL);
    unbound == service.replica_job() && bound_to(spec).is_some() == service.per_worker
}

/// The rollout of a revision changes its status by legal steps, and revisions and versions grow.
fn check_rollout(index: usize, known: &Service, row: &ServiceRow, findings: &mut Findings) {
    let (id, before, after) = (row.service, &known.row.rollout, &row.rollout);
    let excerpt = [known.at, index];
    if row.version < known.row.version || after.revision < before.revision {
        findings.add(Invariant::I5, id, "its version or revision decreases", excerpt);
    }
    if known.row.deleting && !row.deleting {
        findings.add(Invariant::I5, id, "its deletion was undone", excerpt);
    }
    if after.revision == before.revision && !is_legal(before, after) {
        let message = format!("the rollout changes from {} to {}", before.status, after.status);
        findings.add(Invariant::I24, id, message, excerpt);
    }
    let is_stable = row.stable_revision == Some(after.revision);
    if is_stable != (after.status == RolloutStatus::Completed) {
        let message =
            format!("the stable revision is {:?}, but the rollout is {}", row.stable_revision, after.status);
        findings.add(Invariant::I24, id, message, excerpt);
    }
}

/// Whether a rollout may change like this, in one step or in several steps of one commit.
fn is_legal(before: &Rollout, after: &Rollout) -> bool {
    use RolloutStatus::{AwaitingPromotion, Completed, Failed, Progressing};
    if before.promoted && !after.promoted {
        return false;
    }
    match (before.status, after.status) {
        (Completed, after) => after == Completed,
        (AwaitingPromotion, Failed) | (Failed, AwaitingPromotion) => false,
        (Progressing | AwaitingPromotion | Failed, _) => true,
    }
}
