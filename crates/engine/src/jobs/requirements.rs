//! Services that jobs require: a job is placed only while all of them have enough available replicas.
//!
//! The numbers come from the layer of services ([`crate::services`]), which sets them before each dispatch. A shape with a
//! service that is not available is blocked, like a shape without an eligible worker. But it preempts no job, and gets no
//! reservation because it waited long. A schedule that reserves in advance reserves all the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::why::UnavailableService;
use mutation::{Mutation, is_on};

use crate::jobs::Jobs;
use crate::profile::{RequiredService, Shape};

impl Jobs {
    /// Sets the number of available replicas of a service, by the hash of its namespace and name; `None` if the service
    /// does not exist.
    pub(crate) fn set_available_replicas(&mut self, service: u128, available: Option<u32>) {
        let before = match available {
            Some(available) => self.available_replicas.insert(service, available),
            None => self.available_replicas.swap_remove(&service),
        };
        if available <= before {
            return;
        }
        let requires = |shape: &Shape| shape.requires.iter().any(|required| required.key == service);
        let unblocked: Vec<u64> = self
            .blocked
            .iter()
            .filter(|(_, shape)| requires(shape) && self.has_required_services(shape))
            .map(|(&id, _)| id)
            .collect();
        for shape in unblocked {
            self.blocked.remove(&shape);
        }
        // A job with a reservation is placed without being blocked before.
        self.dispatch_wanted = true;
    }

    /// Returns the number of available replicas of a service; `None` if it does not exist.
    pub(crate) fn available_replicas(&self, service: u128) -> Option<u32> {
        self.available_replicas.get(&service).copied()
    }

    /// Returns the number of services whose available replicas are known.
    pub(crate) fn known_services(&self) -> usize {
        self.available_replicas.len()
    }

    /// Whether all services that a shape requires have enough available replicas.
    pub(crate) fn has_required_services(&self, shape: &Shape) -> bool {
        shape.requires.is_empty()
            || is_on(Mutation::EngineIgnoresRequiredServices)
            || shape.requires.iter().all(|required| self.is_available(required))
    }

    /// Returns the blocked shapes that wait for services.
    pub(crate) fn waiting_for_services(&self) -> BTreeMap<u64, Arc<Shape>> {
        let blocked = self.blocked.iter().filter(|(_, shape)| !self.has_required_services(shape));
        blocked.map(|(&id, shape)| (id, Arc::clone(shape))).collect()
    }

    /// Returns the services that a shape requires and that do not have enough available replicas.
    pub(super) fn unavailable_services(&self, shape: &Shape) -> Vec<UnavailableService> {
        let unavailable = shape.requires.iter().filter(|required| !self.is_available(required));
        unavailable
            .map(|required| UnavailableService {
                service: required.service.to_string(),
                available: self.available_replicas(required.key),
                min_available: required.min_available,
            })
            .collect()
    }

    fn is_available(&self, required: &RequiredService) -> bool {
        self.available_replicas(required.key).unwrap_or(0) >= required.min_available
    }
}
