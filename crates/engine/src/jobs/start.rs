//! A worker reports that an execution started.

use std::sync::Arc;

use model::record::EventKind;
use model::{ExecutionStatus, JobId, Timestamp};

use crate::context::Context;
use crate::jobs::{Job, Jobs};
use crate::signal::Signal;

impl Job {
    /// Records the start of its live execution, and counts it.
    pub(super) fn record_start(&mut self, cx: &mut Context, at: Timestamp) {
        let Some(live) = &self.live else { return };
        let first = self.state.started_at.is_none();
        let delay = self.state.queued_at.filter(|_| first).map(|queued_at| at.since(queued_at));
        cx.statistics.count_started(&self.source, live.record.worker, delay);
        self.state.started_at.get_or_insert(at);
    }
}

impl Jobs {
    /// Records the start of an execution. The caller has checked that the report is about the job's live
    /// execution.
    pub(crate) fn on_started(&mut self, cx: &mut Context, id: JobId) {
        let now = cx.now;
        let Some(job) = self.all.get_mut(&id) else { return };
        let Some(live) = job.live.as_mut().filter(|live| live.record.status == ExecutionStatus::Assigned)
        else {
            return;
        };
        live.record.status = ExecutionStatus::Running;
        live.record.started_at = Some(now);
        let kind = EventKind::Started { job: id, execution: live.record.id, worker: live.record.worker };
        job.record_start(cx, now);
        let namespace = Some(Arc::clone(&job.profile.namespace));
        cx.emit(namespace, kind);
        if let Some(replica) = &job.replica {
            cx.raise(Signal::ReplicaChanged(replica.service));
        }
        self.touch_execution(cx, id);
    }
}
