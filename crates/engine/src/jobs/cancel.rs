//! A client cancels a job.

use model::{Cause, Duration, JobId, JobStatus, Refusal, StopReason};

use super::TransitionDetails;
use crate::context::Context;
use crate::input::Ticket;
use crate::jobs::{Job, Jobs};
use crate::output::{Effect, Reply};
use crate::signal::Signal;
use crate::timer::Timer;

impl Job {
    /// Returns why its execution is stopped. A job that needs not end is preempted, or leaves a draining worker.
    fn stop_reason(&self) -> StopReason {
        let is_preempted = self.live.as_ref().is_some_and(|live| live.record.preempted_by.is_some());
        match self.requested_end() {
            Some((_, Cause::FinishDeadlinePassed)) => StopReason::FinishDeadlinePassed,
            Some(_) if self.replica.is_some() => StopReason::Replaced,
            Some(_) => StopReason::Cancelled,
            None if is_preempted => StopReason::Preempted,
            None => StopReason::Drained,
        }
    }
}

impl Jobs {
    /// Ends a job without an execution or with an unknown outcome; otherwise tells its worker to stop it.
    ///
    /// A second cancel of a job that is being stopped changes nothing.
    pub(crate) fn cancel(
        &mut self,
        cx: &mut Context,
        ticket: Ticket,
        id: JobId,
        actor: &str,
        reason: Option<&str>,
    ) {
        let reply = self.try_cancel(cx, id, actor, reason);
        cx.reply(ticket, reply);
    }

    pub(crate) fn try_cancel(
        &mut self,
        cx: &mut Context,
        id: JobId,
        actor: &str,
        reason: Option<&str>,
    ) -> Result<Reply, Refusal> {
        let job = self.all.get(&id).ok_or(Refusal::JobNotLive { job: id })?;
        let status = job.state.status;
        // A job cancelled in this batch is still in memory: a second cancel returns the same reply.
        if status.is_final() && status != JobStatus::Cancelled {
            return Err(Refusal::JobNotLive { job: id });
        }
        let detail = match reason {
            Some(reason) => format!("{actor}: {reason}"),
            None => actor.to_owned(),
        };
        match status {
            JobStatus::Cancelled => {}
            JobStatus::Running => self.request_stop(cx, id, &detail),
            _ => {
                self.leave_queue(id);
                if let Some(job) = self.all.get_mut(&id) {
                    cx.wall_timers.disarm(job.state.due_at, Timer::JobReady(id));
                    job.state.cancel_requested_at = Some(cx.now);
                }
                let about = TransitionDetails { detail: Some(&detail), ..TransitionDetails::default() };
                self.end(cx, id, JobStatus::Cancelled, Cause::CancelRequested, about);
            }
        }
        let job = self.all.get(&id).ok_or(Refusal::JobNotLive { job: id })?;
        Ok(Reply::Cancelling { status: job.state.status, version: job.state.version })
    }

    /// Cancels a job; with `kill`, without its grace period.
    pub(crate) fn stop_job(&mut self, cx: &mut Context, job: JobId, detail: &str, kill: bool) {
        let stopping = self.all.get(&job).is_some_and(|job| job.state.cancel_requested_at.is_some());
        if kill && let Some(live) = self.all.get_mut(&job).and_then(|job| job.live.as_mut()) {
            live.without_grace = true;
        }
        let _ = self.try_cancel(cx, job, detail, None);
        if kill && stopping {
            // The job is already being stopped with its grace period.
            self.send_stop(cx, job);
        }
    }

    fn request_stop(&mut self, cx: &mut Context, id: JobId, detail: &str) {
        let now = cx.now;
        let Some(job) = self.all.get_mut(&id) else { return };
        if job.state.cancel_requested_at.is_some() {
            return;
        }
        job.state.cancel_requested_at = Some(now);
        // Stores the user for the end of the job.
        job.state.outcome.get_or_insert_default().message = Some(format!("cancelled by {detail}").into());
        if let Some(replica) = &job.replica {
            cx.raise(Signal::ReplicaChanged(replica.service));
        }
        self.stop_running(cx, id);
    }

    /// Stops the execution of a running job that must end.
    pub(super) fn stop_running(&mut self, cx: &mut Context, id: JobId) {
        let live = self.all.get(&id).and_then(|job| job.live.as_ref());
        let is_unknown = live.is_some_and(|live| live.is_unknown());
        self.touch(cx, id);
        if is_unknown {
            // The outcome no longer matters, as when the lease of the worker ends after the cancel.
            return self.end_lost_execution(cx, id);
        }
        self.send_stop(cx, id);
    }

    /// Sends a stop for the execution of a running job. A disconnected worker gets the stop when it
    /// reconnects.
    pub(crate) fn send_stop(&mut self, cx: &mut Context, id: JobId) {
        let Some((job, live)) = self.all.get(&id).and_then(|job| Some((job, job.live.as_ref()?))) else {
            return;
        };
        let worker = live.record.worker;
        if let Some(session) = self.workers.get(&worker).and_then(|w| w.session) {
            cx.send(Effect::Stop {
                worker,
                session,
                execution: live.record.id,
                fence: live.record.fence,
                grace: if live.without_grace { Duration::ZERO } else { job.profile.grace },
                discard: false,
                reason: job.stop_reason(),
            });
        }
    }
}
