//! A worker reports that an execution started.

use std::sync::Arc;

use model::record::EventKind;
use model::{ExecutionStatus, JobId};

use crate::context::Context;
use crate::jobs::Jobs;

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
        job.state.started_at.get_or_insert(now);
        let kind = EventKind::Started { job: id, execution: live.record.id, worker: live.record.worker };
        let namespace = Some(Arc::clone(&job.profile.namespace));
        cx.emit(namespace, kind);
        self.touch_execution(cx, id);
    }
}
