//! The rollout of the current revision: canaries, completion, deadline and rollback.
//!
//! ```text
//! progressing ───────── all replicas available ─────> completed
//! progressing ───────── canaries available ─────────> awaiting_promotion
//! awaiting_promotion ── promote ────────────────────> progressing
//! progressing ───────── progress deadline ──────────> failed
//! failed ────────────── resume ─────────────────────> progressing
//! ```
//!
//! The progress deadline starts again each time that more replicas of the revision are available than before in this
//! rollout. After a failure, the rollout of a rollback starts if the spec asks for it and a stable revision is kept.
//!
//! Each request and each change of a replica leads here through [`super::reconcile`]. So a rollout always ends, or a
//! timer or a user ends it.

use std::sync::Arc;

use model::record::{EventKind, ServiceEvent};
use model::service::{ReplicaCounts, RevisionCause, RolloutStatus};
use model::{Refusal, ServiceId, Timestamp};
use mutation::{Mutation, is_on};

use super::plan::Mode;
use super::{Service, Services};
use crate::context::Context;
use crate::output::Reply;

impl Service {
    /// Returns how the replicas of older revisions are treated.
    pub(super) fn mode(&self) -> Mode {
        let rollout = &self.state.rollout;
        if rollout.paused && !is_on(Mutation::EngineContinuesPausedRollouts) {
            return Mode::Hold;
        }
        if !self.has_other_stable() || rollout.status == RolloutStatus::Completed {
            return Mode::Replace;
        }
        if rollout.status == RolloutStatus::Failed {
            return Mode::Hold;
        }
        match self.canaries() {
            Some(canaries) if !rollout.promoted => Mode::Canaries(canaries),
            _ => Mode::Replace,
        }
    }

    /// Returns whether a revision with another template was rolled out completely, and is kept.
    fn has_other_stable(&self) -> bool {
        self.state.stable_revision.is_some_and(|stable| {
            let current = self.state.rollout.revision;
            self.template_of(stable) != self.template_of(current) && self.revision(stable).is_some()
        })
    }

    /// Returns the number of canaries of the rollout; `None` if it has none. A rollback has none.
    fn canaries(&self) -> Option<u32> {
        let revision = self.revision(self.state.rollout.revision)?;
        let canaries = self.spec().update.canaries;
        (canaries > 0 && revision.cause != RevisionCause::RolledBack).then_some(canaries)
    }

    /// Returns whether the rollout waits for a promotion that the current spec does not require any more.
    fn waits_for_nothing(&self) -> bool {
        let rollout = &self.state.rollout;
        let is_needed = matches!(self.mode(), Mode::Canaries(_)) && !self.spec().update.auto_promote;
        rollout.status == RolloutStatus::AwaitingPromotion && !rollout.paused && !is_needed
    }

    /// Returns when the progress deadline passes, counted from `resumed_at` at the earliest; `None` if no deadline applies.
    pub(super) fn progress_deadline(&self, resumed_at: Timestamp) -> Option<Timestamp> {
        let rollout = &self.state.rollout;
        let counts = rollout.status == RolloutStatus::Progressing && !rollout.paused && !self.state.deleting;
        counts.then(|| rollout.progressed_at.max(resumed_at) + self.spec().update.progress_deadline)
    }

    /// Returns whether all desired replicas have the current revision and are available.
    fn is_rolled_out(&self, counts: &ReplicaCounts) -> bool {
        let desired = self.state.replicas;
        counts.updated_available >= desired && counts.live == counts.updated && counts.updated == desired
    }
}

impl Services {
    /// Updates the rollout of a service for the current numbers of its replicas.
    pub(super) fn advance_rollout(&mut self, cx: &mut Context, id: ServiceId, counts: ReplicaCounts) {
        let Some(service) = self.all.get_mut(&id).filter(|service| !service.state.deleting) else { return };
        let rollout = &mut service.state.rollout;
        if counts.updated_available > rollout.reached {
            (rollout.reached, rollout.progressed_at) = (counts.updated_available, cx.now);
            self.touch(id);
        }
        let Some(service) = self.all.get_mut(&id) else { return };
        if service.state.rollout.status == RolloutStatus::Completed {
            return;
        }
        if service.is_rolled_out(&counts) {
            return self.complete_rollout(cx, id);
        }
        if service.waits_for_nothing() {
            let rollout = &mut service.state.rollout;
            (rollout.status, rollout.progressed_at) = (RolloutStatus::Progressing, cx.now);
            self.touch(id);
            self.emit_rollout(cx, id);
        }
        let Some(service) = self.all.get_mut(&id) else { return };
        if let Mode::Canaries(canaries) = service.mode()
            && service.state.rollout.status == RolloutStatus::Progressing
            && counts.updated_available >= canaries.min(service.state.replicas)
        {
            if service.spec().update.auto_promote {
                service.state.rollout.promoted = true;
                service.state.rollout.progressed_at = cx.now;
            } else {
                service.state.rollout.status = RolloutStatus::AwaitingPromotion;
            }
            self.touch(id);
            return self.emit_rollout(cx, id);
        }
        let resumed_at = self.resumed_at;
        if service.progress_deadline(resumed_at).is_some_and(|deadline| deadline <= cx.now) {
            self.fail_rollout(cx, id);
        }
    }

    /// Ends a rollout whose replicas are all available.
    fn complete_rollout(&mut self, cx: &mut Context, id: ServiceId) {
        let Some(service) = self.all.get_mut(&id) else { return };
        let number = service.state.rollout.revision;
        let is_rollback =
            service.revision(number).is_some_and(|known| known.cause == RevisionCause::RolledBack);
        service.state.rollout.paused = false;
        if !is_rollback {
            service.state.rollout.reason = None;
        }
        service.state.stable_revision = Some(number);
        // Without replicas, nothing is known about the revision.
        if service.state.replicas > 0 {
            service.mark_completed(number);
        }
        self.end_rollout(cx, id, RolloutStatus::Completed, None);
    }

    /// Ends a rollout whose progress deadline has passed, and returns to the stable revision if the spec wants that.
    fn fail_rollout(&mut self, cx: &mut Context, id: ServiceId) {
        let Some(service) = self.all.get(&id) else { return };
        let (revision, deadline) = (service.state.rollout.revision, service.spec().update.progress_deadline);
        let reason = format!("no further replica of revision {revision} became available within {deadline}");
        let is_rollback =
            service.revision(revision).is_some_and(|known| known.cause == RevisionCause::RolledBack);
        let stable = service.state.stable_revision.filter(|&stable| {
            service.template_of(stable) != service.template_of(revision) && service.revision(stable).is_some()
        });
        let target = stable.filter(|_| service.spec().update.auto_rollback && !is_rollback);
        self.end_rollout(cx, id, RolloutStatus::Failed, Some(reason.as_str().into()));
        if let Some(target) = target {
            let reason = format!("revision {revision} failed: {reason}");
            self.return_to(cx, id, target, &Arc::from(""), Some(reason.into()));
            // The spec has changed.
            self.touch_by_user(cx, id, ServiceEvent::Changed);
        }
    }

    fn end_rollout(
        &mut self,
        cx: &mut Context,
        id: ServiceId,
        status: RolloutStatus,
        reason: Option<Box<str>>,
    ) {
        let Some(service) = self.all.get_mut(&id) else { return };
        let rollout = &mut service.state.rollout;
        (rollout.status, rollout.ended_at) = (status, Some(cx.now));
        if reason.is_some() {
            rollout.reason = reason;
        }
        self.touch(id);
        self.emit_rollout(cx, id);
    }

    /// Pauses or resumes a rollout that has not completed.
    pub(super) fn pause(&mut self, cx: &mut Context, id: ServiceId, pause: bool) -> Result<Reply, Refusal> {
        let service = self.live_mut(id)?;
        let rollout = &mut service.state.rollout;
        if rollout.status == RolloutStatus::Completed || (rollout.status == RolloutStatus::Failed && pause) {
            let act = if pause { "paused" } else { "resumed" };
            return Err(refused(service, act));
        }
        if rollout.paused == pause && rollout.status != RolloutStatus::Failed {
            return self.reply(id);
        }
        rollout.paused = pause;
        if !pause {
            // Also a failed rollout: the user tries again.
            if rollout.status == RolloutStatus::Failed {
                (rollout.status, rollout.ended_at, rollout.reason) = (RolloutStatus::Progressing, None, None);
            }
            rollout.progressed_at = cx.now;
        }
        self.touch_by_user(cx, id, ServiceEvent::Changed);
        self.emit_rollout(cx, id);
        self.reply(id)
    }

    /// Promotes the canaries: the rollout replaces the other replicas.
    pub(super) fn promote(&mut self, cx: &mut Context, id: ServiceId) -> Result<Reply, Refusal> {
        let service = self.live_mut(id)?;
        let is_canary = service.canaries().is_some()
            && service.has_other_stable()
            && !service.state.rollout.promoted
            && matches!(
                service.state.rollout.status,
                RolloutStatus::Progressing | RolloutStatus::AwaitingPromotion
            );
        if !is_canary {
            return Err(refused(service, "promoted"));
        }
        let rollout = &mut service.state.rollout;
        (rollout.promoted, rollout.paused) = (true, false);
        (rollout.status, rollout.progressed_at) = (RolloutStatus::Progressing, cx.now);
        self.touch_by_user(cx, id, ServiceEvent::Changed);
        self.emit_rollout(cx, id);
        self.reply(id)
    }

    pub(super) fn emit_rollout(&self, cx: &mut Context, id: ServiceId) {
        let Some(service) = self.all.get(&id) else { return };
        let rollout = &service.state.rollout;
        let kind = EventKind::Rollout {
            service: id,
            name: Arc::clone(&service.name),
            revision: rollout.revision,
            status: rollout.status,
            paused: rollout.paused,
        };
        cx.emit(Some(Arc::clone(&service.namespace)), kind);
    }
}

fn refused(service: &Service, act: &'static str) -> Refusal {
    let rollout = &service.state.rollout;
    Refusal::RolloutStatus {
        name: Arc::clone(&service.name),
        revision: rollout.revision,
        act,
        status: rollout.status,
    }
}
