//! Services: apply, scale, restart, roll back and delete, and their replicas, revisions and endpoints.
//!
//! A service is a long-running job that is kept at a number of replicas. Each change of its job template is a new
//! revision, and a rollout replaces the replicas of older revisions. A [`ServiceRef`] names a service by id, or by name
//! and namespace.
//!
//! A restart and a rollback create a revision, so they are not retried if their outcome is unknown.

use std::sync::Arc;

use model::api::{
    AppliedServices, ApplyServices, DiscoveryTarget, Endpoint, List, Replica, RollbackService, ScaleService,
    Service, ServiceChanged, ServiceRevision,
};
use model::{ServiceId, ServiceSpec};

use crate::error::Error;
use crate::http::{Client, Request};
use crate::page::{self, Items, Page};

/// Reference to a service: by id, or by name and namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceRef {
    /// Id or name.
    pub name: String,
    /// Namespace of the name; `None` for `default`. Ignored for an id.
    pub namespace: Option<String>,
}

impl From<ServiceId> for ServiceRef {
    fn from(id: ServiceId) -> Self {
        Self { name: id.to_string(), namespace: None }
    }
}

impl ServiceRef {
    fn get(&self, verbs: &[&str]) -> Request {
        self.scoped(Request::get(self.path(verbs)))
    }

    fn post(&self, verb: &str) -> Request {
        self.scoped(Request::post(self.path(&[verb])))
    }

    fn path<'a>(&'a self, verbs: &[&'a str]) -> Vec<&'a str> {
        [&["services", self.name.as_str()], verbs].concat()
    }

    fn scoped(&self, request: Request) -> Request {
        // An id already determines the namespace.
        let by_name = self.name.parse::<ServiceId>().is_err();
        request.query_opt("namespace", self.namespace.as_ref().filter(|_| by_name))
    }
}

/// Filter for services. By default it selects all services.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceFilter {
    /// Owner.
    pub owner: Option<String>,
    /// Namespace; `None` selects all namespaces.
    pub namespace: Option<String>,
    /// Part of the name.
    pub text: Option<String>,
    /// Labels, of which the service must have all.
    pub labels: Vec<(String, String)>,
    /// Whether to return the specs.
    pub specs: bool,
}

impl ServiceFilter {
    fn request(&self, page: &Page) -> Request {
        let request = Request::get(["services"])
            .query_opt("owner", self.owner.as_ref())
            .query_opt("namespace", self.namespace.as_ref())
            .query_opt("text", self.text.as_ref())
            .query_opt("specs", self.specs.then_some(true))
            .page(page);
        self.labels.iter().fold(request, |r, (key, value)| r.query("label", format!("{key}={value}")))
    }
}

/// Filter for the targets of Prometheus. By default it selects the endpoints of all services.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TargetFilter {
    /// Namespace; `None` selects all namespaces.
    pub namespace: Option<String>,
    /// Name of the service.
    pub service: Option<String>,
    /// Name of the port.
    pub port: Option<String>,
}

impl Client {
    /// Creates a service, or replaces its spec. An equal spec changes nothing; a changed job template is a new revision.
    ///
    /// With `version`, the request fails unless the stored service has this version; `Some(0)` requires that it does
    /// not exist.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `invalid_spec`, `service_deleting` and `version_mismatch`.
    pub async fn put_service(&self, spec: &ServiceSpec, version: Option<u64>) -> Result<Service, Error> {
        let request = put(spec);
        self.json(match version {
            Some(0) => request.header("if-none-match", "*").once(),
            version => request.if_match(version),
        })
        .await
    }

    /// Validates a service and returns it with all defaults, without storing it.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `invalid_spec`.
    pub async fn put_service_dry_run(&self, spec: &ServiceSpec) -> Result<ServiceSpec, Error> {
        self.json(put(spec).query("dry_run", true)).await
    }

    /// Creates services or replaces their specs, in one transaction. Returns the change of each service.
    ///
    /// With `dry_run`, nothing is stored.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `invalid_spec` and `service_deleting`.
    pub async fn apply_services(
        &self,
        services: Vec<ServiceSpec>,
        dry_run: bool,
    ) -> Result<AppliedServices, Error> {
        let request = Request::post(["services", "apply"]).json(&ApplyServices { services }).repeatable();
        self.json(request.query_opt("dry_run", dry_run.then_some(true))).await
    }

    /// Returns a service with its spec.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `service_not_found`.
    pub async fn service(&self, service: &ServiceRef) -> Result<Service, Error> {
        self.json(service.get(&[])).await
    }

    /// Returns one page of services, newest first, without their specs.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn services_page(&self, filter: &ServiceFilter, page: &Page) -> Result<List<Service>, Error> {
        self.json(filter.request(page)).await
    }

    /// Streams all services that match the filter, newest first. Specs are included only with
    /// [`ServiceFilter::specs`].
    pub fn services(&self, filter: ServiceFilter) -> Items<Service> {
        let (client, filter) = (self.clone(), Arc::new(filter));
        page::all(move |page| {
            let (client, filter) = (client.clone(), filter.clone());
            async move { client.services_page(&filter, &page).await }
        })
    }

    /// Stops all replicas of a service with their grace periods; then the service is deleted.
    ///
    /// The request returns before the replicas have stopped. With `version`, it fails unless the service still has this
    /// version.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `service_not_found`, `service_deleting` and
    /// `version_mismatch`.
    pub async fn delete_service(&self, service: &ServiceRef, version: Option<u64>) -> Result<(), Error> {
        self.send_ignoring_body(service.scoped(Request::delete(service.path(&[]))).if_match(version)).await
    }

    /// Changes the desired number of replicas of a service.
    ///
    /// With `version`, the request fails unless the service still has this version.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `service_not_found`, `service_deleting`, `invalid_spec` and
    /// `version_mismatch`.
    pub async fn scale_service(
        &self,
        service: &ServiceRef,
        replicas: u32,
        version: Option<u64>,
    ) -> Result<ServiceChanged, Error> {
        let request = service.post("scale").json(&ScaleService { replicas }).repeatable();
        self.json(request.if_match(version)).await
    }

    /// Replaces all replicas of a service, within the limits of its update policy. This is a new revision.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `service_not_found` and `service_deleting`.
    pub async fn restart_service(&self, service: &ServiceRef) -> Result<ServiceChanged, Error> {
        self.json(service.post("restart")).await
    }

    /// Creates a revision with the template of an earlier one: `revision`, or the last one that was rolled out
    /// completely before the current one.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `service_not_found`, `service_deleting` and
    /// `revision_unavailable`.
    pub async fn rollback_service(
        &self,
        service: &ServiceRef,
        revision: Option<u64>,
    ) -> Result<ServiceChanged, Error> {
        self.json(service.post("rollback").json(&RollbackService { revision })).await
    }

    /// Pauses the rollout of a service: no replica of an older revision is replaced.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `service_not_found` and `rollout_status`.
    pub async fn pause_rollout(&self, service: &ServiceRef) -> Result<ServiceChanged, Error> {
        self.json(service.post("pause")).await
    }

    /// Resumes the paused rollout of a service, or retries a failed rollout.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `service_not_found` and `rollout_status`.
    pub async fn resume_rollout(&self, service: &ServiceRef) -> Result<ServiceChanged, Error> {
        self.json(service.post("resume")).await
    }

    /// Promotes the canaries of a rollout: the rollout then replaces the other replicas.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `service_not_found` and `rollout_status`.
    pub async fn promote_rollout(&self, service: &ServiceRef) -> Result<ServiceChanged, Error> {
        self.json(service.post("promote")).await
    }

    /// Returns the replicas of a service by number: its jobs that have not ended.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `service_not_found`.
    pub async fn replicas(&self, service: &ServiceRef) -> Result<Vec<Replica>, Error> {
        Ok(self.json::<List<Replica>>(service.get(&["replicas"])).await?.items)
    }

    /// Returns the revisions of a service that are kept, newest first.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `service_not_found`.
    pub async fn revisions(&self, service: &ServiceRef) -> Result<Vec<ServiceRevision>, Error> {
        Ok(self.json::<List<ServiceRevision>>(service.get(&["revisions"])).await?.items)
    }

    /// Returns the ports of the healthy replicas of a service, by number of the replica.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `service_not_found`.
    pub async fn endpoints(&self, service: &ServiceRef) -> Result<Vec<Endpoint>, Error> {
        Ok(self.json::<List<Endpoint>>(service.get(&["endpoints"])).await?.items)
    }

    /// Returns the endpoints of all services in the form of Prometheus' HTTP service discovery. Endpoints on workers
    /// without an address are left out.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn service_targets(&self, filter: &TargetFilter) -> Result<Vec<DiscoveryTarget>, Error> {
        let request = Request::get(["services", "targets"])
            .query_opt("namespace", filter.namespace.as_ref())
            .query_opt("service", filter.service.as_ref())
            .query_opt("port", filter.port.as_ref());
        self.json(request).await
    }
}

fn put(spec: &ServiceSpec) -> Request {
    Request::put(["services", &spec.name]).query("namespace", &spec.namespace).json(spec)
}
