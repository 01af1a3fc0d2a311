//! Requests of users: create, change, delete, scale and restart services.

use std::sync::Arc;

use model::api::ApplyChange;
use model::record::ServiceEvent;
use model::service::{
    ReplicaCounts, Revision, RevisionCause, Rollout, RolloutStatus, ServiceHead, ServiceState,
};
use model::{Refusal, ServiceId, ServiceSpec, limits};
use rand::Rng;

use super::{Service, Services};
use crate::context::Context;
use crate::input::{Expected, NewService};
use crate::jobs::Jobs;
use crate::names::{name_hash, shard_of};
use crate::output::{AppliedService, Reply};

impl Services {
    /// Creates or changes all services, or none.
    pub(super) fn apply(
        &mut self,
        cx: &mut Context,
        jobs: &Jobs,
        services: &[NewService],
        actor: &Arc<str>,
    ) -> Result<Reply, Refusal> {
        for new in services {
            self.check_new(jobs, new)?;
        }
        let applied = services.iter().map(|new| self.apply_one(cx, new, actor)).collect();
        Ok(Reply::AppliedServices(applied))
    }

    fn check_new(&self, jobs: &Jobs, new: &NewService) -> Result<(), Refusal> {
        let spec = &new.spec;
        jobs.check_class(&spec.namespace, spec.priority_class)?;
        let known = self.find(&spec.namespace, &spec.name);
        let found = known.and_then(|id| self.all.get(&id));
        if let Some(service) = found.filter(|service| service.state.deleting) {
            let (name, replicas) = (Arc::clone(&service.name), service.replicas.len());
            return Err(Refusal::ServiceDeleting { name, replicas });
        }
        let version = found.map_or(0, |found| found.state.version);
        match (new.expected, known) {
            (Expected::Absent, Some(service)) => {
                Err(Refusal::ServiceExists { name: spec.name.as_str().into(), service })
            }
            (Expected::Version(expected), _) if expected != version => {
                Err(Refusal::VersionMismatch { expected, found: version })
            }
            _ => Ok(()),
        }
    }

    fn apply_one(&mut self, cx: &mut Context, new: &NewService, actor: &Arc<str>) -> AppliedService {
        let (id, change) = match self.find(&new.spec.namespace, &new.spec.name) {
            None => (self.create(cx, new, actor), ApplyChange::Created),
            Some(id) => (id, self.change(cx, id, new, actor)),
        };
        let state = self.all.get(&id).map(|service| &service.state);
        let (revision, version) = state.map_or((0, 0), |state| (state.rollout.revision, state.version));
        AppliedService { service: id, change, revision, version }
    }

    fn create(&mut self, cx: &mut Context, new: &NewService, actor: &Arc<str>) -> ServiceId {
        let now = cx.now;
        let hash = name_hash(&new.spec.namespace, &new.spec.name);
        let shard = shard_of(hash, cx.shards);
        let id = ServiceId::from_bits(cx.ids.next(now, shard, cx.rng.next_u64()));
        let revision = Revision {
            number: 1,
            body: Arc::clone(&new.body),
            created_at: now,
            cause: RevisionCause::Applied,
            rollback_to: None,
            actor: Arc::clone(actor),
            completed: false,
        };
        let head = ServiceHead {
            spec: Arc::clone(&new.spec),
            body: Arc::clone(&new.body),
            revisions: vec![Arc::new(revision)],
        };
        let state = ServiceState {
            deleting: false,
            version: 0,
            created_at: now,
            updated_at: now,
            replicas: new.spec.first_replicas(),
            rollout: new_rollout(cx, 1),
            stable_revision: None,
            counts: ReplicaCounts::default(),
            scaled: None,
            scaling_problem: None,
        };
        let mut service = Service::new(Arc::new(head), state);
        (service.new, service.head_changed) = (true, true);
        self.names.insert(hash, id);
        self.all.insert(id, service);
        self.touch_by_user(cx, id, ServiceEvent::Created);
        self.emit_availability(cx, id);
        id
    }

    fn change(&mut self, cx: &mut Context, id: ServiceId, new: &NewService, actor: &Arc<str>) -> ApplyChange {
        let Some(service) = self.all.get_mut(&id) else { return ApplyChange::Unchanged };
        let replicas = new.spec.replicas.unwrap_or(service.state.replicas);
        if service.head.body == new.body && service.state.replicas == replicas {
            return ApplyChange::Unchanged;
        }
        if replicas > service.state.replicas {
            service.state.rollout.progressed_at = cx.now;
        }
        let is_scaled = std::mem::replace(&mut service.state.replicas, replicas) != replicas;
        let is_new_template = !new.spec.has_template_of(service.spec());
        self.set_spec(id, Arc::clone(&new.spec), Arc::clone(&new.body));
        if is_new_template {
            self.add_revision(cx, id, RevisionCause::Applied, None, actor, None);
        }
        self.touch_by_user(cx, id, ServiceEvent::Changed);
        if is_scaled {
            self.emit_availability(cx, id);
        }
        ApplyChange::Changed
    }

    fn set_spec(&mut self, id: ServiceId, spec: Arc<ServiceSpec>, body: Arc<str>) {
        let Some(service) = self.all.get_mut(&id) else { return };
        let revisions = service.head.revisions.clone();
        if service.head.spec.scaling != spec.scaling {
            service.scaler = None;
            service.state.scaling_problem = None;
        }
        if spec.scaling.is_none() {
            service.state.scaled = None;
        }
        service.head = Arc::new(ServiceHead { spec, body, revisions });
        service.head_changed = true;
    }

    /// Adds a revision with the current spec, and starts its rollout.
    pub(super) fn add_revision(
        &mut self,
        cx: &mut Context,
        id: ServiceId,
        cause: RevisionCause,
        rollback_to: Option<u64>,
        actor: &Arc<str>,
        reason: Option<Box<str>>,
    ) {
        let Some(service) = self.all.get_mut(&id) else { return };
        let number = service.state.rollout.revision + 1;
        let revision = Revision {
            number,
            body: Arc::clone(&service.head.body),
            created_at: cx.now,
            cause,
            rollback_to,
            actor: Arc::clone(actor),
            completed: false,
        };
        let mut head = (*service.head).clone();
        head.revisions.push(Arc::new(revision));
        if head.revisions.len() > limits::REVISIONS_MAX {
            // The stable revision stays, because a failed rollout returns to it.
            let stable = service.state.stable_revision;
            let oldest = head.revisions.iter().position(|kept| Some(kept.number) != stable);
            head.revisions.remove(oldest.unwrap_or(0));
        }
        service.head = Arc::new(head);
        service.head_changed = true;
        service.state.rollout = Rollout { reason, ..new_rollout(cx, number) };
        self.touch(id);
        self.emit_rollout(cx, id);
    }

    pub(super) fn delete(
        &mut self,
        cx: &mut Context,
        id: ServiceId,
        expected: Option<u64>,
    ) -> Result<Reply, Refusal> {
        check_version(self.live_mut(id)?, expected)?.state.deleting = true;
        self.touch_by_user(cx, id, ServiceEvent::Deleting);
        self.reply(id)
    }

    pub(super) fn scale(
        &mut self,
        cx: &mut Context,
        id: ServiceId,
        replicas: u32,
        expected: Option<u64>,
    ) -> Result<Reply, Refusal> {
        let service = check_version(self.live_mut(id)?, expected)?;
        if service.spec().per_worker {
            return Err(Refusal::ServicePerWorker { name: Arc::clone(&service.name) });
        }
        if service.spec().scaling.is_some() {
            return Err(Refusal::ServiceAutoscaled { name: Arc::clone(&service.name) });
        }
        let before = std::mem::replace(&mut service.state.replicas, replicas);
        if before != replicas {
            if replicas > before {
                // The new replicas get the whole deadline.
                service.state.rollout.progressed_at = cx.now;
            }
            self.touch_by_user(cx, id, ServiceEvent::Scaled);
            self.emit_availability(cx, id);
        }
        self.reply(id)
    }

    pub(super) fn restart(
        &mut self,
        cx: &mut Context,
        id: ServiceId,
        actor: &Arc<str>,
    ) -> Result<Reply, Refusal> {
        self.live_mut(id)?;
        self.add_revision(cx, id, RevisionCause::Restarted, None, actor, None);
        self.touch_by_user(cx, id, ServiceEvent::Changed);
        self.reply(id)
    }

    pub(super) fn rollback(
        &mut self,
        cx: &mut Context,
        jobs: &Jobs,
        id: ServiceId,
        revision: Option<u64>,
        actor: &Arc<str>,
    ) -> Result<Reply, Refusal> {
        let service = self.live_mut(id)?;
        let target = revision.or_else(|| service.previous_revision());
        let unavailable = |reason| Refusal::RevisionUnavailable { name: Arc::clone(&service.name), reason };
        let Some(target) = target else {
            return Err(unavailable("no earlier revision was rolled out completely".to_owned()));
        };
        let current = service.state.rollout.revision;
        if service.template_of(target) == service.template_of(current) {
            let same =
                format!("its current revision {current} already has the template of revision {target}");
            return Err(unavailable(same));
        }
        let Some(spec) = service.spec_of(target) else {
            let kept = limits::REVISIONS_MAX;
            return Err(unavailable(format!("revision {target} is not kept; only {kept} revisions are")));
        };
        jobs.check_class(&spec.namespace, spec.priority_class)?;
        self.return_to(cx, id, target, actor, None);
        self.touch_by_user(cx, id, ServiceEvent::Changed);
        self.reply(id)
    }

    /// Starts the rollout of a revision with the template of an earlier one, which must be kept.
    pub(super) fn return_to(
        &mut self,
        cx: &mut Context,
        id: ServiceId,
        target: u64,
        actor: &Arc<str>,
        reason: Option<Box<str>>,
    ) {
        let Some(service) = self.all.get(&id) else { return };
        let Some(old) = service.spec_of(target) else { return };
        let spec = service.spec().with_template_of(&old);
        let template = service.template_of(target);
        // A spec that was stored can be serialized.
        let body = serde_json::to_string(&spec).unwrap_or_default();
        self.set_spec(id, Arc::new(spec), body.into());
        self.add_revision(cx, id, RevisionCause::RolledBack, Some(template), actor, reason);
    }

    pub(super) fn reply(&self, id: ServiceId) -> Result<Reply, Refusal> {
        self.all.get(&id).map(Service::reply).ok_or(Refusal::ServiceNotFound { service: id })
    }
}

impl Service {
    /// Returns the revision that a rollback without a number returns to.
    fn previous_revision(&self) -> Option<u64> {
        let current = self.template_of(self.state.rollout.revision);
        let completed = self.head.revisions.iter().rev().filter(|revision| revision.completed);
        completed.map(|revision| revision.number).find(|number| self.template_of(*number) != current)
    }
}

fn check_version(service: &mut Service, expected: Option<u64>) -> Result<&mut Service, Refusal> {
    let found = service.state.version;
    match expected.filter(|&expected| expected != found) {
        Some(expected) => Err(Refusal::VersionMismatch { expected, found }),
        None => Ok(service),
    }
}

fn new_rollout(cx: &Context, revision: u64) -> Rollout {
    Rollout {
        revision,
        status: RolloutStatus::Progressing,
        paused: false,
        promoted: false,
        started_at: cx.now,
        progressed_at: cx.now,
        reached: 0,
        ended_at: None,
        reason: None,
    }
}
