//! Templates: the job specs of the replicas of a revision.

use std::sync::Arc;

use model::{JobSpec, ServiceId, ServiceSpec, WorkerId};

use super::{Service, Services};
use crate::context::Context;
use crate::profile::Profile;
use crate::workers::placement::pin_to;

/// Number of templates that are kept of a service: that of the current revision, and that of the stable one.
const TEMPLATES_MAX: usize = 2;

/// Spec of the jobs of a revision, shared by all of them.
#[derive(Debug)]
pub(super) struct Template {
    pub(super) revision: u64,
    pub(super) spec: Arc<JobSpec>,
    /// The spec as JSON.
    pub(super) body: Arc<str>,
    pub(super) profile: Arc<Profile>,
}

impl Services {
    /// Returns the template of a revision; `None` if the revision is not kept.
    pub(super) fn template(
        &mut self,
        cx: &mut Context,
        id: ServiceId,
        revision: u64,
    ) -> Option<Arc<Template>> {
        let service = self.all.get_mut(&id)?;
        if let Some(known) = service.templates.iter().find(|known| known.revision == revision) {
            return Some(Arc::clone(known));
        }
        let spec = Arc::new(service.spec_of(revision)?.replica_job());
        let template =
            Template { revision, body: spec.compact_json().into(), profile: cx.profiles.of(&spec), spec };
        let template = Arc::new(template);
        if service.templates.len() >= TEMPLATES_MAX {
            service.templates.remove(0);
        }
        service.templates.push(Arc::clone(&template));
        Some(template)
    }
}

impl Template {
    /// Returns the template with a constraint that binds the job to a worker.
    pub(super) fn bound_to(&self, cx: &mut Context, worker: WorkerId) -> Self {
        let pin = pin_to(Some(worker.to_string()));
        let constraints = self.spec.constraints.iter().cloned().chain([pin]).collect();
        let spec = Arc::new(JobSpec { constraints, ..(*self.spec).clone() });
        let (body, profile) = (spec.compact_json().into(), cx.profiles.of(&spec));
        Self { revision: self.revision, spec, body, profile }
    }
}

impl Service {
    /// Returns the spec of the service at a revision; `None` if the revision is not kept.
    pub(super) fn spec_of(&self, revision: u64) -> Option<Arc<ServiceSpec>> {
        if revision == self.state.rollout.revision {
            return Some(Arc::clone(&self.head.spec));
        }
        serde_json::from_str(&self.revision(revision)?.body).ok().map(Arc::new)
    }
}
