//! Workers that join while a broadcast is running.
//!
//! A broadcast has one element for each worker that is connected or expected when it starts. A worker that
//! joins later, or returns, is listed in the step's row. With the late policy `include`, the broadcast gets
//! an element for it.

use std::sync::Arc;

use model::record::{EventKind, WorkerRecord};
use model::run::StepStatus;
use model::workflow::LatePolicy;
use model::{RunId, WorkerId, limits};
use serde_json::Value;

use super::plan::{ForEachPlan, List};
use crate::context::Context;
use crate::jobs::Jobs;
use crate::workflows::Workflows;

impl Workflows {
    /// Handles a worker that joined, returned, or changed its labels.
    pub(crate) fn notify_broadcasts(&mut self, cx: &mut Context, jobs: &Jobs, worker: WorkerId) {
        if self.broadcasts.is_empty() {
            return;
        }
        let Some(record) = jobs.worker(worker).map(|worker| Arc::clone(&worker.record)) else { return };
        let going_on: Vec<_> = self.broadcasts.iter().copied().collect();
        for (run, step) in going_on {
            self.on_late_worker(cx, jobs, run, step, &record);
        }
    }

    fn on_late_worker(&mut self, cx: &mut Context, jobs: &Jobs, id: RunId, step: u32, worker: &WorkerRecord) {
        self.ensure_list(jobs, id, step);
        let Some(run) = self.runs.get_mut(&id) else { return };
        let plan = Arc::clone(&run.plan);
        let node = plan.node(step);
        let Some(ForEachPlan { list: List::Workers(constraints), late: policy, .. }) = &node.each else {
            return;
        };
        let known = run.step_mut(step);
        let (Some(state), Some(elements)) = (known.state.as_deref_mut(), known.elements.as_deref_mut())
        else {
            return;
        };
        let value = Value::String(worker.id.to_string());
        let fits = constraints.iter().all(|constraint| constraint.holds(&worker.labels));
        let named = state.late_workers.as_ref().is_some_and(|late| late.names.contains(&worker.name));
        if state.status != StepStatus::Running || !fits || named || elements.has(&value) {
            return;
        }
        let late = state.late_workers.get_or_insert_default();
        late.count += 1;
        if late.names.len() < limits::LATE_WORKERS_NAMED_MAX {
            late.names.push(worker.name.clone());
        }
        let takes_it = *policy == LatePolicy::Include && state.ending.is_none();
        let included = takes_it && elements.push(value);
        if included {
            (state.total, state.items) = (Some(elements.total()), elements.as_json());
            run.with_pending_elements.insert(step);
        }
        let kind =
            EventKind::LateWorker { run: id, step: Arc::clone(&node.name), worker: worker.id, included };
        let namespace = Some(Arc::clone(&plan.namespace));
        cx.emit(namespace, kind);
        self.touch_step(id, step);
        self.touch_run(cx, id);
        self.mark_for_advance(id);
    }
}
