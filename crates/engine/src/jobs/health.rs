//! Workers report the health of executions.
//!
//! A worker runs the health checks itself, so a report only updates the row of the execution. Reports are not
//! acknowledged: the worker sends the health of all its executions again when it opens a session.

use std::sync::Arc;

use model::WorkerId;
use model::record::EventKind;
use model::spec::ExecutionHealth;
use mutation::{Mutation, is_on};

use crate::context::Context;
use crate::input::{HealthReport, Session};
use crate::jobs::Jobs;
use crate::signal::Signal;

impl Jobs {
    /// Records the health of executions. Reports about executions that are not current have no effect.
    pub(crate) fn record_health(
        &mut self,
        cx: &mut Context,
        worker: WorkerId,
        session: Session,
        reports: Vec<HealthReport>,
    ) {
        let is_current = self.workers.get(&worker).is_some_and(|known| known.session == Some(session));
        if !is_current && !is_on(Mutation::EngineAcceptsStaleHealth) {
            return;
        }
        for report in reports {
            self.record_health_of(cx, worker, report);
        }
    }

    fn record_health_of(&mut self, cx: &mut Context, worker: WorkerId, report: HealthReport) {
        let HealthReport { execution, fence, status, detail, ports } = report;
        let current = self.live_execution(execution).filter(|&(_, known, on)| known == fence && on == worker);
        let Some((id, ..)) = current else { return };
        let Some(job) = self.all.get_mut(&id) else { return };
        let Some(live) = job.live.as_mut() else { return };
        let before = live.record.health.as_deref();
        let since = before.filter(|before| before.status == status).map_or(cx.now, |before| before.since);
        let is_new = before.is_none_or(|before| before.status != status);
        let health = ExecutionHealth { status, since, detail, ports };
        if before == Some(&health) {
            return;
        }
        live.record.health = Some(Box::new(health));
        let namespace = Some(Arc::clone(&job.profile.namespace));
        if let Some(replica) = job.replica.as_ref().filter(|_| is_new) {
            cx.raise(Signal::ReplicaChanged(replica.service));
        }
        if is_new {
            cx.emit(namespace, EventKind::Health { job: id, execution, status });
        }
        self.touch_execution(cx, id);
    }
}
