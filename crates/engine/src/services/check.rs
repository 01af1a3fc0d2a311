//! Invariants of services, and the comparison with a rebuilt engine.

use std::collections::{BTreeMap, BTreeSet};

use model::service::ServiceState;
use model::{JobId, ServiceId};

use super::plan::{Plan, plan};
use super::{Replica, Service, Services};
use crate::context::Context;
use crate::difference::{Difference, count_difference, first};
use crate::jobs::Jobs;
use crate::timer::Timer;

impl Services {
    /// A service has exactly its live jobs, its plan is empty after a flush, and its timer is armed.
    pub(crate) fn check_services(&self, cx: &Context, jobs: &Jobs) -> Result<(), String> {
        let mut replicas: BTreeMap<ServiceId, BTreeSet<JobId>> = BTreeMap::new();
        for (id, job) in jobs.iter() {
            if let Some(origin) = &job.replica {
                replicas.entry(origin.service).or_default().insert(id);
            }
        }
        for (&id, service) in &self.all {
            let known: BTreeSet<JobId> = service.replicas.keys().copied().collect();
            let expected = replicas.remove(&id).unwrap_or_default();
            if known != expected {
                return Err(format!("{id} has the replicas {known:?}, expected {expected:?}"));
            }
            self.check_service(cx, jobs, id, service)?;
        }
        if jobs.known_services() > self.all.len() {
            return Err(format!("jobs know {} services of {}", jobs.known_services(), self.all.len()));
        }
        Ok(())
    }

    fn check_service(
        &self,
        cx: &Context,
        jobs: &Jobs,
        id: ServiceId,
        service: &Service,
    ) -> Result<(), String> {
        let numbers: BTreeSet<u32> = service.replicas.values().map(|replica| replica.number).collect();
        if numbers.len() != service.replicas.len() {
            return Err(format!("two replicas of {id} have the same number: {:?}", service.replicas));
        }
        let live = service
            .replicas
            .iter()
            .filter(|(job, _)| jobs.replica_facts(**job).is_some_and(|facts| !facts.is_stopping));
        let mut bound = BTreeSet::new();
        if let Some((job, _)) = live
            .filter(|_| service.spec().per_worker)
            .find(|(_, replica)| replica.worker.is_some_and(|worker| !bound.insert(worker)))
        {
            return Err(format!("{job} is the second replica of {id} on its worker"));
        }
        if service.armed.is_some_and(|at| !cx.wall_timers.is_armed(at, Timer::Service(id))) {
            return Err(format!("{id} is due at {:?}, but its timer is not armed", service.armed));
        }
        if cx.holds_new_work || self.pending.contains(&id) {
            return Ok(());
        }
        let survey = service.survey(cx.now, jobs);
        if survey.counts != service.state.counts {
            let (found, counts) = (service.state.counts, survey.counts);
            return Err(format!("{id} counts {found:?}, expected {counts:?}"));
        }
        let (found, expected) = (jobs.available_replicas(service.key()), Some(service.available()));
        if found != expected {
            return Err(format!("jobs know {found:?} available replicas of {id}, expected {expected:?}"));
        }
        if let Some(workers) = &survey.workers
            && !service.state.deleting
            && workers.len() != service.state.replicas
        {
            let (found, expected) = (service.state.replicas, workers.len());
            return Err(format!("{id} has {found} desired replicas, expected {expected}"));
        }
        let rest = plan(service.target(&survey), &survey.live);
        if rest != Plan::default() && !survey.is_waiting_for_workers {
            return Err(format!("{id} is not reconciled after a flush: {rest:?}"));
        }
        Ok(())
    }

    /// Returns the first service that differs from a rebuilt engine.
    pub(crate) fn service_difference(&self, other: &Self) -> Option<Difference> {
        let here = self.all.iter().map(|(&id, service)| (id, of_service(service)));
        first(here, |id| other.all.get(&id).map(of_service))
            .or_else(|| count_difference("services", [self.all.len()], [other.all.len()]))
    }
}

fn of_service(service: &Service) -> (&str, &str, &ServiceState, &BTreeMap<JobId, Replica>) {
    (&service.name, &service.head.body, &service.state, &service.replicas)
}
