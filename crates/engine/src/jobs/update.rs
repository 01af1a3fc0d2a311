//! A client changes a job that has not started.

use std::sync::Arc;

use model::record::JobHead;
use model::{Cause, JobId, JobStatus, Refusal};

use super::{Job, TransitionDetails};
use crate::context::Context;
use crate::input::Ticket;
use crate::jobs::Jobs;
use crate::output::Reply;
use crate::timer::Timer;

impl Jobs {
    pub(crate) fn update(
        &mut self,
        cx: &mut Context,
        ticket: Ticket,
        id: JobId,
        head: &Arc<JobHead>,
        expected_version: Option<u64>,
        actor: &str,
    ) {
        let reply = self.try_update(cx, id, head, expected_version, actor);
        cx.reply(ticket, reply);
    }

    fn try_update(
        &mut self,
        cx: &mut Context,
        id: JobId,
        head: &Arc<JobHead>,
        expected_version: Option<u64>,
        actor: &str,
    ) -> Result<Reply, Refusal> {
        let job = self.all.get(&id).filter(|job| !job.state.status.is_final());
        let job = job.ok_or(Refusal::JobNotLive { job: id })?;
        if job.has_started() {
            return Err(Refusal::JobStarted { job: id });
        }
        if let Some(replica) = &job.replica {
            return Err(Refusal::JobOfService { job: id, name: Arc::clone(&replica.name) });
        }
        let found = job.state.version;
        if let Some(expected) = expected_version.filter(|&expected| expected != found) {
            return Err(Refusal::VersionMismatch { expected, found });
        }
        self.check_class(&head.spec.namespace, head.spec.priority_class)?;
        self.leave_queue(id);
        self.disarm_deadlines(cx, id);
        self.respec(cx, id, head);
        let waits = |job: &Job| job.state.due_at > cx.now || !job.state.upstream.is_empty();
        let due = !self.all.get(&id).is_some_and(waits);
        let about = TransitionDetails { detail: Some(actor), ..TransitionDetails::default() };
        if due {
            self.transition(cx, id, JobStatus::Waiting, Cause::Updated, about);
            self.enqueue(cx, id);
        } else {
            self.transition(cx, id, JobStatus::Ready, Cause::Updated, about);
        }
        let version = self.all.get(&id).map_or(0, |job| job.state.version);
        Ok(Reply::Updated { version })
    }

    /// Replaces the spec of a job that is in no queue, and arms its timers again.
    fn respec(&mut self, cx: &mut Context, id: JobId, head: &Arc<JobHead>) {
        let now = cx.now;
        let tightened = self.with_min_sandbox(head).map(Arc::new);
        let head = tightened.as_ref().unwrap_or(head);
        let profile = cx.profiles.of(&head.spec);
        let Some(job) = self.all.get_mut(&id) else { return };
        // Users cannot change the origin of a job.
        let head =
            &Arc::new(JobHead { origin: job.origin.clone(), step: job.step.clone(), ..(**head).clone() });
        cx.wall_timers.disarm(job.state.due_at, Timer::JobReady(id));
        let finish_by = job.finish_by();
        let mut state = job.state.clone();
        state.due_at = head.spec.run_at.unwrap_or(now).max(now);
        if state.due_at > now {
            cx.wall_timers.arm(state.due_at, Timer::JobReady(id));
        }
        if job.profile.namespace != profile.namespace {
            self.queues.quotas_mut().job_ended(&job.profile.namespace);
            self.queues.quotas_mut().job_created(&profile.namespace);
        }
        let renewed = Job::new(cx, head, profile, state, id.created_at());
        *job = Job { head: Some(Arc::clone(head)), new: job.new, dirty: job.dirty, ..renewed };
        // A deadline that has passed already acts again only if it changed.
        job.state.overdue &= job.finish_by() == finish_by;
        self.arm_deadlines(cx, id);
    }
}
