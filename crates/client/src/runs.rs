//! Runs of workflows: list, explain, cancel, pause, resume and retry runs; mark, approve and reject steps.
//!
//! A run is one pass through a workflow, pinned to the definition at its start. [`Client::start_run`] starts
//! a run, and [`Client::watch_run`] watches it.
//!
//! Reads and requests that have the same effect when repeated are retried if their outcome is unknown.
//! Retries, marks, decisions and events are not: a second one could create a second run, or be refused
//! because of the first.

use std::sync::Arc;

use model::api::{
    CancelRun, EventDelivery, List, MarkStep, Note, RetryRun, RunElement, RunSteps, WorkflowRun,
};
use model::run::{RunStatus, StepStatus};
use model::why::{RunWhy, StepWhy};
use model::{BackfillId, RunId, ScheduleId, Timestamp};
use serde_json::{Map, Value};

use crate::error::Error;
use crate::http::{Client, Request};
use crate::page::{self, Items, Page};

/// Filter for runs. By default it selects all runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunFilter {
    /// Statuses; an empty list selects all.
    pub status: Vec<RunStatus>,
    /// Namespace; `None` selects all namespaces.
    pub namespace: Option<String>,
    /// Workflow, by id or name. A name also selects runs that other workflows called.
    pub workflow: Option<String>,
    /// Text that the name of the workflow contains; letter case is ignored.
    pub text: Option<String>,
    /// Run whose steps called the runs.
    pub caller: Option<RunId>,
    /// Schedule that started the runs.
    pub schedule: Option<ScheduleId>,
    /// Backfill that started the runs.
    pub backfill: Option<BackfillId>,
    /// Start of the range of start times, inclusive.
    pub created_after: Option<Timestamp>,
    /// End of the range of start times, exclusive.
    pub created_before: Option<Timestamp>,
}

impl RunFilter {
    fn request(&self, page: &Page) -> Request {
        let statuses: Vec<_> = self.status.iter().map(|s| s.as_str()).collect();
        Request::get(["runs"])
            .query_opt("status", (!statuses.is_empty()).then(|| statuses.join(",")))
            .query_opt("namespace", self.namespace.as_ref())
            .query_opt("workflow", self.workflow.as_ref())
            .query_opt("text", self.text.as_ref())
            .query_opt("caller", self.caller)
            .query_opt("schedule", self.schedule)
            .query_opt("backfill", self.backfill)
            .query_opt("created_after", self.created_after)
            .query_opt("created_before", self.created_before)
            .page(page)
    }
}

fn get(id: RunId, path: &[&str]) -> Request {
    Request::get([&["runs", &id.to_string()], path].concat())
}

fn post(id: RunId, path: &[&str]) -> Request {
    Request::post([&["runs", &id.to_string()], path].concat())
}

fn note_body(note: Option<&str>) -> Note {
    Note { note: note.map(str::to_owned) }
}

impl Client {
    /// Returns a run with its history and the definition that it is pinned to.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `run_not_found`.
    pub async fn run(&self, id: RunId) -> Result<WorkflowRun, Error> {
        self.json(get(id, &[])).await
    }

    /// Returns one page of runs, newest first, without their definitions and histories.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn runs_page(&self, filter: &RunFilter, page: &Page) -> Result<List<WorkflowRun>, Error> {
        self.json(filter.request(page)).await
    }

    /// Streams all runs that match the filter, newest first.
    pub fn runs(&self, filter: RunFilter) -> Items<WorkflowRun> {
        let (client, filter) = (self.clone(), Arc::new(filter));
        page::all(move |page| {
            let (client, filter) = (client.clone(), filter.clone());
            async move { client.runs_page(&filter, &page).await }
        })
    }

    /// Returns all steps of a run, in the order of the definition.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `run_not_found`.
    pub async fn run_steps(&self, id: RunId) -> Result<RunSteps, Error> {
        self.json(get(id, &["steps"])).await
    }

    /// Returns one page of the ended elements of a step, sorted by index. An empty list of statuses selects all.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `run_not_found` and `step_not_found`.
    pub async fn run_elements_page(
        &self,
        id: RunId,
        step: &str,
        statuses: &[StepStatus],
        page: &Page,
    ) -> Result<List<RunElement>, Error> {
        let statuses: Vec<_> = statuses.iter().map(|s| s.as_str()).collect();
        let statuses = (!statuses.is_empty()).then(|| statuses.join(","));
        self.json(get(id, &["steps", step, "elements"]).query_opt("status", statuses).page(page)).await
    }

    /// Streams all ended elements of a step, sorted by index. An empty list of statuses selects all.
    pub fn run_elements(&self, id: RunId, step: &str, statuses: &[StepStatus]) -> Items<RunElement> {
        let (client, step): (_, Arc<str>) = (self.clone(), step.into());
        let statuses: Arc<[StepStatus]> = statuses.into();
        page::all(move |page| {
            let (client, step, statuses) = (client.clone(), step.clone(), Arc::clone(&statuses));
            async move { client.run_elements_page(id, &step, &statuses, &page).await }
        })
    }

    /// Explains why the steps of a run that have not ended are waiting, for at most `limit` steps.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `run_not_found`.
    pub async fn run_why(&self, id: RunId, limit: usize) -> Result<RunWhy, Error> {
        self.json(get(id, &["why"]).query("limit", limit)).await
    }

    /// Explains why a step is waiting, or why it ended as it did.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `run_not_found` and `step_not_found`.
    pub async fn step_why(&self, id: RunId, step: &str) -> Result<StepWhy, Error> {
        self.json(get(id, &["steps", step, "why"])).await
    }

    /// Cancels a run. The `on_failure` and `finally` steps still run, unless `how.skip_finally` is set.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `run_not_found` and `run_ended`.
    pub async fn cancel_run(&self, id: RunId, how: &CancelRun) -> Result<WorkflowRun, Error> {
        self.json(post(id, &["cancel"]).json(how).repeatable()).await
    }

    /// Pauses a run: running steps continue, but no further step starts until the run is resumed.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `run_not_found` and `run_ended`.
    pub async fn pause_run(&self, id: RunId, note: Option<&str>) -> Result<WorkflowRun, Error> {
        self.json(post(id, &["pause"]).json(&note_body(note)).repeatable()).await
    }

    /// Resumes a paused run.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `run_not_found` and `run_ended`.
    pub async fn resume_run(&self, id: RunId) -> Result<WorkflowRun, Error> {
        self.json(post(id, &["resume"]).repeatable()).await
    }

    /// Retries an ended run as a new run, with the same definition and parameters. Returns the new run.
    ///
    /// The new run keeps the results of steps that succeeded or were skipped, and runs the other steps, with everything
    /// downstream of them. With `how.from` it also runs that step and everything downstream.
    ///
    /// An `at_most_once` job that has started is not started again, unless `how.repeat` names its step.
    ///
    /// The request is not retried if its outcome is unknown.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `run_not_found`, `run_not_ended` and `repeat_forbidden`.
    pub async fn retry_run(&self, id: RunId, how: &RetryRun) -> Result<WorkflowRun, Error> {
        self.json(post(id, &["retry"]).json(how)).await
    }

    /// Sets the final status of a step that has not ended. A running step is stopped first.
    ///
    /// The request is not retried if its outcome is unknown.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `run_not_found`, `run_ended`, `step_not_found` and
    /// `step_ended`.
    pub async fn mark_step(&self, id: RunId, step: &str, what: &MarkStep) -> Result<WorkflowRun, Error> {
        self.json(post(id, &["steps", step, "mark"]).json(what)).await
    }

    /// Approves a step that waits for approval; the step succeeds.
    ///
    /// The request is not retried if its outcome is unknown.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `step_not_found`, `approval_not_pending` and `not_approver`.
    pub async fn approve_step(
        &self,
        id: RunId,
        step: &str,
        note: Option<&str>,
    ) -> Result<WorkflowRun, Error> {
        self.json(post(id, &["steps", step, "approve"]).json(&note_body(note))).await
    }

    /// Rejects a step that waits for approval; the step fails.
    ///
    /// The request is not retried if its outcome is unknown.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `step_not_found`, `approval_not_pending` and `not_approver`.
    pub async fn reject_step(&self, id: RunId, step: &str, note: Option<&str>) -> Result<WorkflowRun, Error> {
        self.json(post(id, &["steps", step, "reject"]).json(&note_body(note))).await
    }

    /// Sends an event to all steps of a run that wait for an event with this name, or will wait for it.
    ///
    /// `payload` becomes the output of these steps. Returns the number of steps that received the event.
    ///
    /// The request is not retried if its outcome is unknown.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `run_not_found`, `run_ended` and `event_not_awaited`.
    pub async fn send_event(
        &self,
        id: RunId,
        event: &str,
        payload: Option<&Map<String, Value>>,
    ) -> Result<EventDelivery, Error> {
        let request = post(id, &["events", event]);
        self.json(match payload {
            Some(payload) => request.json(payload),
            None => request,
        })
        .await
    }
}
