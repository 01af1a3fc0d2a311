//! Reconciliation: brings a service closer to its spec.
//!
//! It looks at all replicas of the service, updates the numbers and the rollout, carries out the [`plan`](super::plan),
//! and arms the timer for the next change that only time causes.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use model::record::{EventKind, JobHead};
use model::service::{ReplicaCounts, ReplicaOrigin};
use model::{JobId, ServiceId, Timestamp, WorkerId};
use mutation::{Mutation, is_on};
use rand::Rng;

use super::per_worker::MatchingWorkers;
use super::plan::{Instance, Mode, Plan, Target, count_leaving, plan};
use super::{Replica, Service, Services};
use crate::context::Context;
use crate::jobs::Jobs;

/// Maximum number of replicas that one flush creates, so that its batch stays small enough to commit.
const CREATED_PER_FLUSH_MAX: u32 = 1_000;

/// The replicas of a service at a time.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// Replicas that are not being stopped.
    pub(super) live: Vec<Instance>,
    pub(super) counts: ReplicaCounts,
    /// Whether a replica is on a worker that has not reconnected since the leader started. Its health may be outdated, so
    /// nothing is decided from it; within a lease, the worker is either connected or lost.
    pub(super) is_waiting_for_workers: bool,
    /// When the next healthy replica becomes available.
    next_available: Option<Timestamp>,
    /// For a service with one replica on each worker: the matching workers.
    pub(super) workers: Option<MatchingWorkers>,
}

impl Service {
    /// Looks at all replicas.
    pub(super) fn survey(&self, now: Timestamp, jobs: &Jobs) -> Survey {
        let workers = self.spec().per_worker.then(|| self.matching_workers(jobs));
        let mut survey = Survey::default();
        let current = self.template_of(self.state.rollout.revision);
        for (&job, replica) in &self.replicas {
            let Some(facts) = jobs.replica_facts(job) else { continue };
            if facts.is_stopping {
                survey.counts.stopping += 1;
                continue;
            }
            let available_from = facts.healthy_since.map(|since| since + self.spec().min_healthy);
            let is_available = available_from.is_some_and(|at| at <= now);
            if let Some(at) = available_from.filter(|_| !is_available) {
                survey.next_available = Some(survey.next_available.map_or(at, |next| next.min(at)));
            }
            let is_updated = self.template_of(replica.revision) == current;
            let counts = &mut survey.counts;
            counts.live += 1;
            counts.running += u32::from(facts.is_running);
            counts.available += u32::from(is_available);
            counts.updated += u32::from(is_updated);
            counts.updated_available += u32::from(is_updated && is_available);
            let mut instance = Instance {
                job,
                is_updated,
                is_leaving: facts.is_leaving,
                is_healthy: facts.healthy_since.is_some(),
                is_available,
            };
            if let Some(workers) = &workers {
                workers.adjust(&mut instance, replica.worker);
            }
            survey.live.push(instance);
            survey.is_waiting_for_workers |= facts.is_expected;
        }
        survey.workers = workers;
        survey
    }

    pub(super) fn target(&self, survey: &Survey) -> Target {
        if self.state.deleting {
            return Target { desired: 0, max_surge: 0, max_unavailable: u32::MAX, mode: Mode::Replace };
        }
        let update = &self.spec().update;
        Target {
            desired: self.state.replicas,
            max_surge: match &survey.workers {
                // Those that leave are on other workers than their successors.
                Some(_) => count_leaving(&survey.live),
                None => update.max_surge,
            },
            max_unavailable: self.spec().max_unavailable()
                + u32::from(is_on(Mutation::EngineStopsTooManyReplicas)),
            mode: self.mode(),
        }
    }

    /// Returns the `count` lowest numbers that no live replica has.
    fn free_numbers(&self, count: u32) -> Vec<u32> {
        let count = count as usize;
        if is_on(Mutation::EngineReusesReplicaNumbers) {
            return vec![0; count];
        }
        let used: BTreeSet<u32> = self.replicas.values().map(|replica| replica.number).collect();
        (0..).filter(|number| !used.contains(number)).take(count).collect()
    }
}

impl Services {
    /// Returns the number of replicas that a flush may create.
    pub(crate) fn creation_budget() -> u32 {
        CREATED_PER_FLUSH_MAX
    }

    /// Reconciles all services that changed. `budget` is the number of replicas that the flush may still create; services
    /// that need more stay pending.
    pub(crate) fn reconcile_pending(&mut self, cx: &mut Context, jobs: &mut Jobs, budget: &mut u32) {
        for id in std::mem::take(&mut self.pending) {
            self.reconcile(cx, jobs, id, budget);
        }
    }

    fn reconcile(&mut self, cx: &mut Context, jobs: &mut Jobs, id: ServiceId, budget: &mut u32) {
        self.scale_automatically(cx, jobs, id);
        let Some(service) = self.all.get(&id) else { return };
        let mut survey = service.survey(cx.now, jobs);
        self.follow_workers(cx, id, survey.workers.as_ref());
        let Some(service) = self.all.get(&id) else { return };
        if survey.is_waiting_for_workers && !service.state.deleting {
            let next = [survey.next_available, service.scaling_due()].into_iter().flatten().min();
            self.set_counts(cx, jobs, id, survey.counts);
            return self.arm(cx, id, next);
        }
        let revision = service.state.rollout.revision;
        self.advance_rollout(cx, id, survey.counts);
        let Some(service) = self.all.get(&id) else { return };
        if service.state.rollout.revision != revision {
            // A rollback started: other replicas have the current template now.
            survey = service.survey(cx.now, jobs);
        }
        self.set_counts(cx, jobs, id, survey.counts);
        let Some(service) = self.all.get(&id) else { return };
        if service.state.deleting && service.replicas.is_empty() {
            return self.remove(cx, jobs, id);
        }
        let plan = plan(service.target(&survey), &survey.live);
        let mut free = survey.workers.map(MatchingWorkers::into_free);
        self.carry_out(cx, jobs, id, plan, budget, &mut free);
        let Some(service) = self.all.get(&id) else { return };
        let next = [survey.next_available, service.progress_deadline(self.resumed_at), service.scaling_due()];
        self.arm(cx, id, next.into_iter().flatten().min());
    }

    fn set_counts(&mut self, cx: &mut Context, jobs: &mut Jobs, id: ServiceId, counts: ReplicaCounts) {
        let Some(service) = self.all.get_mut(&id) else { return };
        let before = std::mem::replace(&mut service.state.counts, counts);
        jobs.set_available_replicas(service.key(), Some(service.available()));
        if before == counts {
            return;
        }
        if before.available != counts.available {
            self.emit_availability(cx, id);
        }
        self.touch(id);
    }

    /// Emits an event when the number of available or of desired replicas has changed.
    pub(super) fn emit_availability(&self, cx: &mut Context, id: ServiceId) {
        let Some(service) = self.all.get(&id) else { return };
        let kind = EventKind::Availability {
            service: id,
            name: Arc::clone(&service.name),
            available: service.state.counts.available,
            replicas: if service.state.deleting { 0 } else { service.state.replicas },
        };
        cx.emit(Some(Arc::clone(&service.namespace)), kind);
    }

    /// Carries out a plan. `free` has the workers for new replicas, if the service has one replica on each worker.
    fn carry_out(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        id: ServiceId,
        plan: Plan,
        budget: &mut u32,
        free: &mut Option<VecDeque<WorkerId>>,
    ) {
        let Plan { create_updated, create_stable, stop } = plan;
        let Some(service) = self.all.get(&id) else { return };
        let state = &service.state;
        let current = state.rollout.revision;
        let stable = state.stable_revision.unwrap_or(current);
        let has_stopped = !stop.is_empty();
        for job in stop {
            let detail = service.reason_to_stop(job, jobs);
            jobs.stop_job(cx, job, &detail, false);
        }
        let is_cut = create_updated.saturating_add(create_stable) > *budget;
        let created = create_updated.min(*budget);
        let created_stable = create_stable.min(*budget - created);
        *budget -= created + created_stable;
        let new = (0..created).map(|_| current).chain((0..created_stable).map(|_| stable));
        let mut has_created = false;
        for (number, revision) in service.free_numbers(created + created_stable).into_iter().zip(new) {
            let worker = match free {
                Some(free) => match free.pop_front() {
                    Some(worker) => Some(worker),
                    None => break,
                },
                None => None,
            };
            has_created |= self.create_replica(cx, jobs, id, (number, revision), worker);
        }
        if has_created || has_stopped || is_cut {
            // The numbers have changed, and further replicas may be missing.
            self.pending.insert(id);
        }
    }

    /// Creates a replica; returns whether the revision is known.
    fn create_replica(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        id: ServiceId,
        (number, revision): (u32, u64),
        worker: Option<WorkerId>,
    ) -> bool {
        let Some(mut template) = self.template(cx, id, revision) else { return false };
        if let Some(worker) = worker {
            template = Arc::new(template.bound_to(cx, worker));
        }
        let Some(service) = self.all.get_mut(&id) else { return false };
        let origin =
            ReplicaOrigin { service: id, name: Arc::clone(&service.name), revision, replica: number };
        let job = JobId::from_bits(cx.ids.next(cx.now, id.shard(), cx.rng.next_u64()));
        service.replicas.insert(job, Replica { number, revision, worker });
        let head = JobHead {
            spec: Arc::clone(&template.spec),
            body: Arc::clone(&template.body),
            retry_of: None,
            origin: None,
            step: None,
            replica: Some(Arc::new(origin)),
        };
        let detail = format!("replica {number}, revision {revision}");
        jobs.create_replica(cx, job, &Arc::new(head), Arc::clone(&template.profile), &detail);
        true
    }
}

impl Service {
    /// Returns why the service stops a replica, for the history of its job.
    fn reason_to_stop(&self, job: JobId, jobs: &Jobs) -> String {
        let name = &self.name;
        let bound = self.replicas.get(&job).and_then(|replica| replica.worker);
        let is_unmatched = self.spec().per_worker
            && bound.is_some_and(|worker| !self.matching_workers(jobs).contains(worker));
        let is_leaving = jobs.replica_facts(job).is_some_and(|facts| facts.is_leaving);
        let revision = self.replicas.get(&job).map(|replica| replica.revision);
        let current = self.state.rollout.revision;
        match revision {
            _ if self.state.deleting => format!("service {name}: the service is deleted"),
            _ if is_leaving => format!("service {name}: the worker is drained"),
            _ if is_unmatched => format!("service {name}: its worker is lost or no longer matches"),
            Some(old) if self.template_of(old) != self.template_of(current) => {
                format!("service {name}: replaced by revision {current}")
            }
            _ => format!("service {name}: scaled to {} replicas", self.state.replicas),
        }
    }
}
