//! Services with one replica on each matching worker.
//!
//! Each replica is bound to its worker by a constraint. The desired number of replicas is the number of matching workers,
//! and follows their changes; so rollouts and limits work as for other services. A replica whose worker no longer matches
//! is stopped without a replacement. The limits of updates do not protect it, because no other replica
//! can take its place.

use std::collections::{BTreeSet, VecDeque};

use model::spec::Constraint;
use model::worker::{Admission, WorkerStatus};
use model::{ServiceId, WorkerId, limits};
use mutation::{Mutation, is_on};

use super::plan::Instance;
use super::{Service, Services};
use crate::context::Context;
use crate::jobs::Jobs;
use crate::workers::placement::{WORKER_LABEL, satisfies_all};

/// The workers that match a service.
#[derive(Debug)]
pub(super) struct MatchingWorkers {
    all: BTreeSet<WorkerId>,
    /// Those without a replica that is not being stopped.
    free: BTreeSet<WorkerId>,
}

impl MatchingWorkers {
    /// Number of matching workers: the desired number of replicas.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.all.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn contains(&self, worker: WorkerId) -> bool {
        self.all.contains(&worker)
    }

    /// Returns the workers for new replicas.
    pub(super) fn into_free(self) -> VecDeque<WorkerId> {
        self.free.into_iter().collect()
    }

    /// Corrects how a plan sees a replica that is bound to `worker`.
    pub(super) fn adjust(&self, instance: &mut Instance, worker: Option<WorkerId>) {
        match worker {
            Some(worker) if self.contains(worker) => instance.is_leaving = false,
            // It is stopped at once.
            Some(_) => {
                (instance.is_leaving, instance.is_healthy, instance.is_available) = (true, false, false);
            }
            // It was created before the service had one replica on each worker, and is replaced within the limits.
            None => instance.is_leaving = true,
        }
    }
}

impl Service {
    /// Returns the workers that match: a cordoned worker keeps its replica, but gets no new one.
    pub(super) fn matching_workers(&self, jobs: &Jobs) -> MatchingWorkers {
        let live = self
            .replicas
            .iter()
            .filter(|(job, _)| jobs.replica_facts(**job).is_some_and(|facts| !facts.is_stopping));
        let taken: BTreeSet<WorkerId> = live.filter_map(|(_, replica)| replica.worker).collect();
        let job = &self.spec().job;
        let matching = jobs.workers().filter(|worker| {
            let record = &worker.record;
            let is_admitted = match record.admission {
                Admission::Open => true,
                Admission::Cordoned => taken.contains(&record.id),
                Admission::Draining => false,
            };
            is_admitted
                && record.status != WorkerStatus::Lost
                && satisfies_all(&job.constraints, worker)
                && job.volumes.iter().all(|volume| record.capabilities.volumes.contains(&volume.name))
        });
        let ids: BTreeSet<WorkerId> = matching.map(|worker| worker.record.id).collect();
        let all: BTreeSet<WorkerId> = ids.into_iter().take(limits::REPLICAS_MAX as usize).collect();
        let is_mutated = is_on(Mutation::EngineBindsReplicasTwice);
        let free = if is_mutated { all.clone() } else { all.difference(&taken).copied().collect() };
        MatchingWorkers { all, free }
    }
}

impl Services {
    /// Sets the desired number of replicas to the number of matching workers.
    pub(super) fn follow_workers(
        &mut self,
        cx: &mut Context,
        id: ServiceId,
        workers: Option<&MatchingWorkers>,
    ) {
        let Some(workers) = workers else { return };
        let Some(service) = self.all.get_mut(&id).filter(|service| !service.state.deleting) else { return };
        let before = std::mem::replace(&mut service.state.replicas, workers.len());
        if before == workers.len() {
            return;
        }
        if workers.len() > before {
            // The new replicas get the whole deadline.
            service.state.rollout.progressed_at = cx.now;
        }
        self.touch(id);
        self.emit_availability(cx, id);
    }
}

/// Returns the worker that constraints bind a job to.
pub(super) fn bound_to(constraints: &[Constraint]) -> Option<WorkerId> {
    let pin = constraints.iter().rfind(|constraint| constraint.label == WORKER_LABEL)?;
    match pin.values.as_slice() {
        [worker] => worker.parse().ok(),
        _ => None,
    }
}
