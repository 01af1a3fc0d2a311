//! Deadlines of a job: the start deadline for its first start, and the completion deadline for its end.
//!
//! At its start deadline, a job that has not started ends as `expired`. At its completion deadline, a job ends as the
//! action of the deadline says: as `failed` or `cancelled`, or it continues. A running job is stopped first, as for a
//! cancel; it succeeds if its task succeeds nevertheless.
//!
//! # Invariants
//! - The completion deadline of a live job is armed, or `JobState::overdue` is set. So it acts once, also after a restart.
//! - A job that ends after its completion deadline is overdue, also if its end comes before the timer in a flush.
//! - A job whose completion deadline ends it starts no further execution.

use std::sync::Arc;

use model::firing::finish_deadline;
use model::record::{EventKind, JobHead, Outcome};
use model::spec::{FinishAction, FinishBy};
use model::{Cause, JobId, JobStatus, Timestamp};
use mutation::{Mutation, is_on};

use super::TransitionDetails;
use crate::context::Context;
use crate::jobs::{Job, Jobs};
use crate::timer::Timer;

/// Deadlines of a job that has any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deadlines {
    /// Deadline of the first start.
    start_by: Option<Timestamp>,
    /// Deadline of the end.
    finish_by: Option<(Timestamp, FinishAction)>,
}

impl Deadlines {
    /// Returns the deadlines of a job that was created at `created_at`, or `None` if it has none.
    pub(super) fn of(head: &JobHead, created_at: Timestamp) -> Option<Box<Self>> {
        let (spec, origin) = (&head.spec, head.origin.as_deref());
        let start_by = match origin {
            Some(origin) => origin.start_by,
            None => spec.start_deadline.map(|deadline| spec.run_at.unwrap_or(created_at) + deadline),
        };
        let finish_by = spec
            .finish_by
            .map(|by: FinishBy| (finish_deadline(by, origin, spec.run_at, created_at), by.action));
        (start_by.is_some() || finish_by.is_some()).then(|| Box::new(Self { start_by, finish_by }))
    }
}

impl Job {
    /// Returns the deadline of the first start.
    pub(crate) fn start_by(&self) -> Option<Timestamp> {
        self.deadlines.as_ref()?.start_by
    }

    /// Returns the completion deadline.
    pub(crate) fn finish_by(&self) -> Option<Timestamp> {
        Some(self.deadlines.as_ref()?.finish_by?.0)
    }

    /// Returns what happens at the completion deadline.
    pub(crate) fn finish_action(&self) -> Option<FinishAction> {
        Some(self.deadlines.as_ref()?.finish_by?.1)
    }

    /// Returns the final status of a job that its completion deadline ends.
    pub(super) fn overdue_status(&self) -> Option<JobStatus> {
        match self.finish_action().filter(|_| self.state.overdue)? {
            FinishAction::Fail => Some(JobStatus::Failed),
            FinishAction::Cancel => Some(JobStatus::Cancelled),
            FinishAction::Report => None,
        }
    }

    /// Whether the task of the job must stop: after a request to cancel the job, or after its completion deadline.
    pub(super) fn is_stopping(&self) -> bool {
        self.requested_end().is_some()
    }
}

impl Jobs {
    /// Arms the deadlines that can still act.
    pub(super) fn arm_deadlines(&self, cx: &mut Context, id: JobId) {
        let Some(job) = self.all.get(&id) else { return };
        if let Some(at) = job.start_by().filter(|_| job.state.started_at.is_none()) {
            cx.wall_timers.arm(at, Timer::StartBy(id));
        }
        if let Some(at) = job.finish_by().filter(|_| !job.state.overdue) {
            cx.wall_timers.arm(at, Timer::FinishBy(id));
        }
    }

    pub(super) fn disarm_deadlines(&self, cx: &mut Context, id: JobId) {
        let Some(job) = self.all.get(&id) else { return };
        if let Some(at) = job.start_by() {
            cx.wall_timers.disarm(at, Timer::StartBy(id));
        }
        if let Some(at) = job.finish_by() {
            cx.wall_timers.disarm(at, Timer::FinishBy(id));
        }
    }

    /// Expires a job whose start deadline passed while it was blocked for another reason.
    pub(crate) fn expire_if_late(&mut self, cx: &mut Context, id: JobId) {
        if self.all.get(&id).and_then(Job::start_by).is_some_and(|start_by| start_by <= cx.now) {
            self.on_start_deadline(cx, id);
        }
    }

    /// Ends a waiting job whose deadline has passed. A flush fires a limited number of timers, so that its timer may not
    /// have fired yet. Returns whether the job has ended.
    pub(super) fn end_if_overdue(&mut self, cx: &mut Context, id: JobId) -> bool {
        let Some(deadlines) = self.all.get(&id).and_then(|job| job.deadlines.as_deref().copied()) else {
            return false;
        };
        if deadlines.start_by.is_some_and(|at| at <= cx.now) {
            self.on_start_deadline(cx, id);
        }
        if deadlines.finish_by.is_some_and(|(at, _)| at <= cx.now) {
            self.on_finish_deadline(cx, id);
        }
        self.all.get(&id).is_none_or(|job| job.state.status.is_final())
    }

    /// Expires a job at its start deadline. A job that has started once never expires.
    pub(crate) fn on_start_deadline(&mut self, cx: &mut Context, id: JobId) {
        let Some(job) = self.all.get(&id).filter(|job| job.state.started_at.is_none()) else { return };
        let is_missed = is_on(Mutation::EngineMissesDeadlines);
        if is_missed || !matches!(job.state.status, JobStatus::Ready | JobStatus::Waiting) {
            return;
        }
        self.leave_queue(id);
        if let Some(job) = self.all.get(&id) {
            cx.wall_timers.disarm(job.state.due_at, Timer::JobReady(id));
        }
        self.end(cx, id, JobStatus::Expired, Cause::DeadlinePassed, TransitionDetails::default());
    }

    /// Reports a job at its completion deadline, and ends or stops it as the action of the deadline says.
    pub(crate) fn on_finish_deadline(&mut self, cx: &mut Context, id: JobId) {
        if !self.pass_finish_deadline(cx, id) {
            return;
        }
        self.touch(cx, id);
        let Some(job) = self.all.get_mut(&id) else { return };
        let Some(finish_by) = job.finish_by() else { return };
        let stops_for_a_user = job.state.cancel_requested_at.is_some();
        let Some(status) = job.overdue_status().filter(|_| !stops_for_a_user) else { return };
        let detail = format!("the job did not end by {finish_by}");
        if job.state.status == JobStatus::Running {
            // Kept for the end of the job.
            job.state.outcome.get_or_insert_default().message = Some(detail.into());
            return self.stop_running(cx, id);
        }
        cx.wall_timers.disarm(job.state.due_at, Timer::JobReady(id));
        let error = Some(Cause::FinishDeadlinePassed.as_str().into());
        let message = Some(detail.as_str().into());
        job.state.outcome = Some(Box::new(Outcome { error, message, ..Outcome::default() }));
        self.leave_queue(id);
        let about = TransitionDetails { detail: Some(&detail), ..TransitionDetails::default() };
        self.end(cx, id, status, Cause::FinishDeadlinePassed, about);
    }

    /// Marks a live job as overdue and reports it, once, if its completion deadline has passed. Returns whether it did.
    pub(super) fn pass_finish_deadline(&mut self, cx: &mut Context, id: JobId) -> bool {
        let Some(job) = self.all.get_mut(&id) else { return false };
        let Some(finish_by) = job.finish_by().filter(|&at| at <= cx.now) else { return false };
        if job.state.status.is_final() || job.state.overdue || is_on(Mutation::EngineMissesFinishDeadlines) {
            return false;
        }
        job.state.overdue = true;
        let namespace = Some(Arc::clone(&job.profile.namespace));
        let schedule = job.origin.as_ref().map(|origin| origin.schedule);
        cx.emit(namespace, EventKind::Overdue { job: id, finish_by, schedule });
        true
    }

    /// Checks that the completion deadline of a live job will act, or has acted.
    pub(super) fn check_deadlines(&self, cx: &Context, id: JobId, job: &Job) -> Result<(), String> {
        let is_armed = |at| cx.wall_timers.is_armed(at, Timer::FinishBy(id));
        match job.finish_by() {
            Some(at) if is_armed(at) == job.state.overdue => {
                Err(format!("the completion deadline of {id} is neither armed nor passed, or both"))
            }
            _ => Ok(()),
        }
    }
}
