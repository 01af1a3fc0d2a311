//! Rebuilds services from rows: first the rows of the services, then the replicas from the restored jobs.

use std::sync::Arc;

use model::ServiceId;
use model::service::{ServiceHead, ServiceState};

use super::{Replica, Service, Services};
use crate::context::Context;
use crate::jobs::Jobs;
use crate::names::name_hash;

impl Services {
    pub(crate) fn restore_service(
        &mut self,
        cx: &mut Context,
        id: ServiceId,
        head: ServiceHead,
        state: ServiceState,
    ) {
        cx.now = cx.now.max(state.updated_at);
        self.names.insert(name_hash(&head.spec.namespace, &head.spec.name), id);
        self.all.insert(id, Service::new(Arc::new(head), state));
    }

    /// Removes a service as if its row had never been restored. Only before the start.
    pub(crate) fn remove_restored_service(&mut self, id: ServiceId) {
        if let Some(service) = self.all.swap_remove(&id) {
            self.names.swap_remove(&name_hash(&service.namespace, &service.name));
        }
    }

    /// Finds the replicas of all services among the restored jobs. Called once, at the start.
    pub(crate) fn find_replicas(&mut self, jobs: &Jobs) {
        let replicas = jobs.iter().filter_map(|(id, job)| Some((id, job.replica.as_ref()?, job)));
        for (job, origin, state) in replicas {
            let job_constraints = &state.profile.shape.constraints;
            // A job without its service runs on: its row was lost, and an operator may restore it.
            if let Some(service) = self.all.get_mut(&origin.service) {
                let worker = super::per_worker::bound_to(job_constraints);
                let replica = Replica { number: origin.replica, revision: origin.revision, worker };
                service.replicas.insert(job, replica);
            }
        }
        self.pending.extend(self.all.keys());
    }
}
