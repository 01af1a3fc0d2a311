//! Reports of workers about executions.
//!
//! A report is processed only if it is about the live execution of its job, with that execution's fence, from
//! the worker that runs it. Any other report is stale: it is acknowledged, so that the worker can remove it,
//! and changes nothing.

use model::{Duration, ExecutionId, Fence, JobId, StopReason, WorkerId};
use mutation::{Mutation, is_on};

use crate::context::Context;
use crate::input::{Report, Session};
use crate::jobs::Jobs;
use crate::output::Effect;

impl Jobs {
    pub(crate) fn report(
        &mut self,
        cx: &mut Context,
        worker: WorkerId,
        session: Session,
        execution: ExecutionId,
        fence: Fence,
        report: Report,
    ) {
        if self.workers.get(&worker).is_none_or(|known| known.session != Some(session)) {
            return;
        }
        let last = report != Report::Started;
        let live = self.live_execution(execution).filter(|&(_, f, w)| f == fence && w == worker);
        match live {
            Some((job, ..)) if !last => self.on_started(cx, job),
            Some((job, ..)) => {
                // A refusal that a stop caused, because it preceded the assignment, says nothing about the worker.
                if matches!(report, Report::Refused { .. }) && !self.is_being_stopped(job) {
                    self.pause_placement(cx, worker);
                }
                self.on_ended(cx, job, report);
            }
            // The execution is running, but no job needs it any more.
            None if !last && !is_on(Mutation::EngineIgnoresStrayExecutions) => {
                let grace = Duration::ZERO;
                let reason = StopReason::Superseded;
                cx.send(Effect::Stop { worker, session, execution, fence, grace, discard: true, reason });
            }
            None => {}
        }
        cx.send(Effect::Ack { worker, session, execution, fence, last });
    }

    /// Returns the job, fence and worker of a live execution.
    pub(crate) fn live_execution(&self, execution: ExecutionId) -> Option<(JobId, Fence, WorkerId)> {
        let job = *self.executions.get(&execution)?;
        let record = &self.all.get(&job)?.live.as_ref()?.record;
        (record.id == execution).then_some((job, record.fence, record.worker))
    }
}
