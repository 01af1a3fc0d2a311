//! Runs of workflows: find them and their steps, and change what becomes of them.

use std::sync::Arc;

use model::api::{CancelRun, EventTaken, List, MarkStep, Note, RetryRun, RunItem, RunSteps, WorkflowRun};
use model::run::{RunStatus, StepStatus};
use model::why::{RunWhy, StepWhy};
use model::{BackfillId, RunId, ScheduleId};
use serde_json::{Map, Value};

use crate::error::Error;
use crate::http::{Client, Request};
use crate::page::{self, Items, Page};

/// Which runs; the default is all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunFilter {
    /// With one of these statuses; any where empty.
    pub status: Vec<RunStatus>,
    /// Of this namespace.
    pub namespace: Option<String>,
    /// Of this workflow: its id, or its name, with which runs that others called come too.
    pub workflow: Option<String>,
    /// That this run called.
    pub caller: Option<RunId>,
    /// Of this schedule.
    pub schedule: Option<ScheduleId>,
    /// Of this backfill.
    pub backfill: Option<BackfillId>,
}

impl RunFilter {
    fn request(&self, page: &Page) -> Request {
        let statuses: Vec<_> = self.status.iter().map(|s| s.as_str()).collect();
        Request::get(["runs"])
            .query_opt("status", (!statuses.is_empty()).then(|| statuses.join(",")))
            .query_opt("namespace", self.namespace.as_ref())
            .query_opt("workflow", self.workflow.as_ref())
            .query_opt("caller", self.caller)
            .query_opt("schedule", self.schedule)
            .query_opt("backfill", self.backfill)
            .page(page)
    }
}

fn get(id: RunId, path: &[&str]) -> Request {
    Request::get([&["runs", &id.to_string()], path].concat())
}

fn post(id: RunId, path: &[&str]) -> Request {
    Request::post([&["runs", &id.to_string()], path].concat())
}

fn said(note: Option<&str>) -> Note {
    Note { note: note.map(str::to_owned) }
}

impl Client {
    /// One run, with the spec that it is pinned to and its history.
    ///
    /// # Errors
    /// As every request.
    pub async fn run(&self, id: RunId) -> Result<WorkflowRun, Error> {
        self.json(get(id, &[])).await
    }

    /// One page of runs, newest first, without their specs and histories.
    ///
    /// # Errors
    /// As every request.
    pub async fn runs_page(&self, filter: &RunFilter, page: &Page) -> Result<List<WorkflowRun>, Error> {
        self.json(filter.request(page)).await
    }

    /// All runs that the filter lets through, newest first.
    pub fn runs(&self, filter: RunFilter) -> Items<WorkflowRun> {
        let (client, filter) = (self.clone(), Arc::new(filter));
        page::all(move |page| {
            let (client, filter) = (client.clone(), filter.clone());
            async move { client.runs_page(&filter, &page).await }
        })
    }

    /// All steps of a run, in the order of its workflow.
    ///
    /// # Errors
    /// As every request.
    pub async fn run_steps(&self, id: RunId) -> Result<RunSteps, Error> {
        self.json(get(id, &["steps"])).await
    }

    /// One page of the elements of a step that have ended, by their numbers.
    ///
    /// # Errors
    /// As every request.
    pub async fn run_items_page(
        &self,
        id: RunId,
        step: &str,
        statuses: &[StepStatus],
        page: &Page,
    ) -> Result<List<RunItem>, Error> {
        let statuses: Vec<_> = statuses.iter().map(|s| s.as_str()).collect();
        let statuses = (!statuses.is_empty()).then(|| statuses.join(","));
        self.json(get(id, &["steps", step, "items"]).query_opt("status", statuses).page(page)).await
    }

    /// All elements of a step that have ended, by their numbers; with one of these statuses, where any are named.
    pub fn run_items(&self, id: RunId, step: &str, statuses: &[StepStatus]) -> Items<RunItem> {
        let (client, step): (_, Arc<str>) = (self.clone(), step.into());
        let statuses: Arc<[StepStatus]> = statuses.into();
        page::all(move |page| {
            let (client, step, statuses) = (client.clone(), step.clone(), Arc::clone(&statuses));
            async move { client.run_items_page(id, &step, &statuses, &page).await }
        })
    }

    /// Why the steps of a run that have not ended stand where they stand; of `limit` steps at most.
    ///
    /// # Errors
    /// As every request.
    pub async fn run_why(&self, id: RunId, limit: usize) -> Result<RunWhy, Error> {
        self.json(get(id, &["why"]).query("limit", limit)).await
    }

    /// Why a step stands where it stands.
    ///
    /// # Errors
    /// As every request.
    pub async fn step_why(&self, id: RunId, step: &str) -> Result<StepWhy, Error> {
        self.json(get(id, &["steps", step, "why"])).await
    }

    /// Stops a run; `finally` runs all the same, where it is not left out.
    ///
    /// # Errors
    /// As every request.
    pub async fn cancel_run(&self, id: RunId, how: &CancelRun) -> Result<WorkflowRun, Error> {
        self.json(post(id, &["cancel"]).json(how).repeatable()).await
    }

    /// Lets no further step of a run begin until it is resumed.
    ///
    /// # Errors
    /// As every request.
    pub async fn pause_run(&self, id: RunId, note: Option<&str>) -> Result<WorkflowRun, Error> {
        self.json(post(id, &["pause"]).json(&said(note)).repeatable()).await
    }

    /// Lets a paused run go on.
    ///
    /// # Errors
    /// As every request.
    pub async fn resume_run(&self, id: RunId) -> Result<WorkflowRun, Error> {
        self.json(post(id, &["resume"]).repeatable()).await
    }

    /// Tries an ended run again; answers with the new run, which takes over what ended well.
    ///
    /// # Errors
    /// As every request.
    pub async fn retry_run(&self, id: RunId, how: &RetryRun) -> Result<WorkflowRun, Error> {
        self.json(post(id, &["retry"]).json(how)).await
    }

    /// Decides what becomes of a step that has not ended.
    ///
    /// # Errors
    /// As every request.
    pub async fn mark_step(&self, id: RunId, step: &str, what: &MarkStep) -> Result<WorkflowRun, Error> {
        self.json(post(id, &["steps", step, "mark"]).json(what)).await
    }

    /// Approves what a step waits for.
    ///
    /// # Errors
    /// As every request.
    pub async fn approve_step(
        &self,
        id: RunId,
        step: &str,
        note: Option<&str>,
    ) -> Result<WorkflowRun, Error> {
        self.json(post(id, &["steps", step, "approve"]).json(&said(note))).await
    }

    /// Rejects what a step waits for: it fails.
    ///
    /// # Errors
    /// As every request.
    pub async fn reject_step(&self, id: RunId, step: &str, note: Option<&str>) -> Result<WorkflowRun, Error> {
        self.json(post(id, &["steps", step, "reject"]).json(&said(note))).await
    }

    /// Sends an event to the steps of a run that wait, or will wait, for one of this name. Its payload is
    /// an object.
    ///
    /// # Errors
    /// As every request.
    pub async fn send_event(
        &self,
        id: RunId,
        event: &str,
        payload: Option<&Map<String, Value>>,
    ) -> Result<EventTaken, Error> {
        let request = post(id, &["events", event]);
        self.json(match payload {
            Some(payload) => request.json(payload),
            None => request,
        })
        .await
    }
}
