//! Table of the running elements of a step (`belfry run get --step`).

use std::collections::BTreeMap;

use model::api::{Job, WorkflowRun};
use model::{JobId, RunId, Timestamp, WorkerId};
use serde::Serialize;

use super::OutputOptions;
use super::objects::{job_status, run_time};
use super::runs::run_status;
use super::table::{Cell, Column, Row, column, wide};
use super::text::short;
use super::workflows::VALUE_CHARS_MAX;

/// Element of a step that has not ended, or the only job or called run of a step without elements.
#[derive(Debug, Serialize)]
pub(crate) struct RunningElement {
    /// Index of the element, from 0; `None` for a step without elements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) index: Option<u32>,
    /// Value of the element: a string without quotes, any other value as JSON. `None` for called runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(flatten)]
    work: JobOrRun,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<Timestamp>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum JobOrRun {
    Job {
        job_id: JobId,
        status: model::JobStatus,
        #[serde(skip_serializing_if = "Option::is_none")]
        worker_id: Option<WorkerId>,
        #[serde(skip_serializing_if = "Option::is_none")]
        worker: Option<String>,
        /// Number of executions so far.
        executions: u32,
    },
    Run {
        run_id: RunId,
        status: model::RunStatus,
    },
}

impl RunningElement {
    /// Creates the row of a job. `workers` maps worker ids to names.
    pub(crate) fn of_job(job: Job, workers: &BTreeMap<WorkerId, String>) -> Self {
        let element = job.step.and_then(|step| step.element);
        Self {
            index: element.as_ref().map(|element| element.index),
            value: element.map(|element| element.value.to_string()),
            work: JobOrRun::Job {
                job_id: job.id,
                status: job.status,
                worker_id: job.worker_id,
                worker: job.worker_id.and_then(|id| workers.get(&id).cloned()),
                executions: job.executions,
            },
            started_at: job.started_at,
        }
    }

    /// Creates the row of a called run.
    pub(crate) fn of_run(run: &WorkflowRun) -> Self {
        Self {
            index: run.caller.and_then(|caller| caller.element),
            value: None,
            work: JobOrRun::Run { run_id: run.id, status: run.status },
            started_at: run.started_at,
        }
    }
}

impl Row for RunningElement {
    const COLUMNS: &'static [Column] = &[
        column("INDEX", 6),
        column("ELEMENT", 24).cut(10),
        column("STATUS", 9),
        column("WORKER", 16).cut(10).optional(1),
        column("ATTEMPTS", 8).optional(3),
        column("DURATION", 8).optional(2),
        column("JOB/RUN", 30),
        wide("STARTED", 27),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        let (status, worker, tries, id) = match &self.work {
            JobOrRun::Job { job_id, status, worker_id, worker, executions } => (
                job_status(*status),
                worker
                    .as_deref()
                    .map(Cell::from)
                    .or_else(|| worker_id.map(|id| Cell::whole(id.to_string())))
                    .unwrap_or_else(Cell::none),
                executions.to_string().into(),
                job_id.to_string(),
            ),
            JobOrRun::Run { run_id, status } => {
                (run_status(*status), Cell::none(), Cell::none(), run_id.to_string())
            }
        };
        vec![
            self.index.map(|index| index.to_string()).into(),
            self.value.as_deref().map(|value| short(value, VALUE_CHARS_MAX)).into(),
            status,
            worker,
            tries,
            run_time(look, self.started_at, None),
            id.into(),
            self.started_at.map(|at| at.to_string()).into(),
        ]
    }

    fn name(&self) -> String {
        match &self.work {
            JobOrRun::Job { job_id, .. } => job_id.to_string(),
            JobOrRun::Run { run_id, .. } => run_id.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::{Format, list};

    /// C4.
    #[test]
    fn running_elements_as_a_table() {
        const RUN: &str = "run_01k9zq3m6c0000000000000000";
        const WORKER: &str = "wkr_01k9zq3m6c0000000000000000";
        let job = |index: u32, changes: serde_json::Value| {
            let mut job = json!({
                "id": "job_01k9zq3m6c0000000000000000", "name": "load", "namespace": "default", "queue": "default",
                "priority": 50, "labels": {}, "status": "waiting", "version": 1,
                "step": {"run": RUN, "workflow": "etl", "name": "load", "step": 1,
                         "element": {"index": index, "total": 9, "value": "Shang\u{1b}hai"}},
                "created_at": "2026-11-21T08:00:00Z", "due_at": "2026-11-21T08:00:00Z",
                "updated_at": "2026-11-21T08:00:00Z", "executions": 0, "run_failures": 0, "start_failures": 0,
            });
            job.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            serde_json::from_value::<Job>(job).unwrap()
        };
        let workers = BTreeMap::from([(WORKER.parse().unwrap(), "edge-1".to_owned())]);
        let running = json!({"status": "running", "worker_id": WORKER, "executions": 2, "started_at": "2026-11-21T08:09:00Z"});
        let rows = [
            RunningElement::of_job(job(3, running), &workers),
            RunningElement::of_job(job(4, json!({})), &workers),
        ];
        let look = OutputOptions {
            format: Format::Table,
            color: false,
            now: "2026-11-21T08:10:00Z".parse().unwrap(),
            width: None,
        };
        insta::assert_snapshot!("running_elements", list(&look, &rows).unwrap());
    }
}
