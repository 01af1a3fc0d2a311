//! Timers of a job: its ready time, the end of its backoff, and reminders to its worker.

use model::{Cause, ExecutionId, ExecutionStatus, JobId, JobStatus};
use mutation::{Mutation, is_on};

use super::{REMINDER_INTERVAL, TransitionDetails};
use crate::context::Context;
use crate::jobs::Jobs;
use crate::output::Effect;
use crate::timer::Timer;

impl Jobs {
    pub(crate) fn on_due(&mut self, cx: &mut Context, id: JobId) {
        let Some(job) = self.all.get(&id).filter(|job| job.state.due_at <= cx.now) else { return };
        let cause = match job.state.status {
            JobStatus::Ready if !job.state.upstream.is_empty() => return,
            JobStatus::Ready => Cause::Due,
            JobStatus::Retrying => Cause::BackoffEnded,
            _ => return,
        };
        self.transition(cx, id, JobStatus::Waiting, cause, TransitionDetails::default());
        self.enqueue(cx, id);
        self.expire_if_late(cx, id);
    }

    /// Repeats the last message to a silent worker about an execution, in case it was lost: an assignment or
    /// a stop. Both are idempotent.
    pub(crate) fn on_remind(&mut self, cx: &mut Context, execution: ExecutionId) {
        let Some(&id) = self.executions.get(&execution) else { return };
        let evicted = self.is_evicted(id);
        let Some(job) = self.all.get_mut(&id) else { return };
        let stops = job.is_stopping();
        let Some(live) = job.live.as_mut().filter(|live| live.record.id == execution) else { return };
        live.remind_at = cx.steady + REMINDER_INTERVAL;
        cx.steady_timers.arm(live.remind_at, Timer::Remind(execution));
        if stops || evicted {
            if !is_on(Mutation::EngineSendsNoStop) {
                self.send_stop(cx, id);
            }
        } else if live.record.status == ExecutionStatus::Assigned
            && !is_on(Mutation::EngineSendsAssignmentsOnce)
        {
            self.send_assignment(cx, id);
        }
    }

    /// Sends the execution of a running job to its worker, if the worker is connected.
    pub(crate) fn send_assignment(&mut self, cx: &mut Context, id: JobId) {
        let Some((job, live)) = self.all.get(&id).and_then(|job| Some((job, job.live.as_ref()?))) else {
            return;
        };
        let worker = live.record.worker;
        if let Some(session) = self.workers.get(&worker).and_then(|w| w.session) {
            let assignment = crate::output::Assignment {
                execution: live.record.id,
                job: id,
                fence: live.record.fence,
                number: live.record.number,
                body: std::sync::Arc::clone(&job.body),
                origin: job.origin.clone(),
                step: job.step.clone(),
                replica: job.replica.clone(),
                checkpoint: job.state.checkpoint.as_ref().map(|checkpoint| checkpoint.version),
            };
            cx.send(Effect::Assign { worker, session, assignment });
        }
    }
}
