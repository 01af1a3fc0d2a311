//! Runs of schedules: started with the current version of the workflow when the firing starts.
//!
//! Such a run is created in the same batch as its ledger record. It is one of the unfinished runs of its
//! schedule until it ends, and its end is reported to the schedule. Runs that it calls belong to the same
//! firing, but are not runs of the schedule.
//!
//! # Cost
//! Resolving a workflow with the workflows that it calls: once, until any workflow changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::expression::{EvaluationError, Scope};
use model::firing::{DetailCode, FiringOutcome, Origin, ScheduledRun, Work};
use model::run::{RunCause, RunHead, RunState, RunStatus};
use model::workflow::template::fill;
use model::workflow::{Definition, complete};
use model::{JobStatus, RunId, WorkflowId, limits};
use serde_json::{Map, Value, json};

use super::elements::work_of;
use super::{Run, Workflows};
use crate::context::Context;
use crate::input::CarriedResults;
use crate::jobs::Jobs;
use crate::signal::{Signal, WorkEnd};

/// A workflow with the workflows that it calls.
#[derive(Debug, Clone)]
pub(super) struct Resolved {
    pub(super) definition: Arc<Definition>,
    pub(super) body: Arc<str>,
}

/// Reason why a firing created no job or run.
#[derive(Debug)]
pub(crate) struct NotStarted {
    pub(crate) outcome: FiringOutcome,
    pub(crate) detail: String,
}

impl Run {
    /// Returns the firing that it belongs to; `None` for a called run.
    pub(super) fn firing(&self) -> Option<&Arc<Origin>> {
        self.head.origin.as_ref().filter(|_| self.head.caller.is_none())
    }
}

impl Workflows {
    /// Returns the live runs of schedules, with their firings.
    pub(crate) fn scheduled_runs(&self) -> impl Iterator<Item = (RunId, &Origin)> {
        let live = self.runs.iter().filter(|(_, run)| !run.state.status.is_final());
        live.filter_map(|(&id, run)| Some((id, &**run.firing()?)))
    }

    /// Returns the firing that a run belongs to.
    pub(crate) fn origin_of(&self, run: RunId) -> Option<&Origin> {
        self.runs.get(&run)?.firing().map(|origin| &**origin)
    }

    /// Returns the topmost calling run, or the run itself if no run called it.
    pub(crate) fn outermost(&self, run: RunId) -> RunId {
        let mut outermost = run;
        while let Some(caller) = self.runs.get(&outermost).and_then(|run| run.head.caller) {
            outermost = caller.run;
        }
        outermost
    }

    /// Returns the running jobs and called runs of a run's steps, without those of called runs.
    pub(crate) fn live_work(&self, run: RunId) -> Vec<Work> {
        self.runs.get(&run).map(|run| run.steps.iter().flat_map(work_of).collect()).unwrap_or_default()
    }

    /// Returns the current version of a workflow with all workflows that it calls.
    ///
    /// # Errors
    /// The problems of the combined definition.
    ///
    /// # Cost
    /// Computed once until the next change of any workflow.
    pub(super) fn resolved(&mut self, id: WorkflowId) -> Result<Resolved, String> {
        if let Some(known) = self.resolved.get(&id) {
            return known.clone();
        }
        let found = self.resolve(id);
        self.resolved.insert(id, found.clone());
        found
    }

    fn resolve(&self, id: WorkflowId) -> Result<Resolved, String> {
        let workflow = self.all.get(&id).ok_or("the workflow does not exist")?;
        let find = |name: &str| {
            let called = self.all.get(&self.find(&workflow.namespace, name)?)?;
            Some(Arc::clone(&called.spec))
        };
        let definition = Definition::resolve(Arc::clone(&workflow.spec), find);
        model::validate::definition(&definition).map_err(|invalid| {
            let told = invalid.problems.iter().map(|p| format!("{}: {}", p.path, p.message));
            told.collect::<Vec<_>>().join(", ")
        })?;
        let body = definition.to_json().into();
        Ok(Resolved { definition: Arc::new(definition), body })
    }
}

fn refused(why: impl std::fmt::Display) -> NotStarted {
    let detail: String = why.to_string().chars().take(limits::NOTE_LEN_MAX / 4).collect();
    NotStarted { outcome: FiringOutcome::NotStarted, detail: DetailCode::WorkflowRefused.with(detail) }
}

impl Workflows {
    /// Starts the run of a firing with the current version of its workflow.
    ///
    /// # Errors
    /// The workflow does not exist, cannot be run or does not accept the parameters, or too many of its runs
    /// are waiting.
    pub(crate) fn start_scheduled(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        wanted: &ScheduledRun,
        origin: Origin,
        detail: Option<&str>,
    ) -> Result<RunId, NotStarted> {
        let name = &wanted.workflow.name;
        let id = self.find(&wanted.namespace, name).ok_or_else(|| NotStarted {
            outcome: FiringOutcome::NotStarted,
            detail: DetailCode::NoWorkflow.with(name),
        })?;
        let Some(workflow) = self.all.get(&id) else {
            return Err(refused("the workflow does not exist"));
        };
        let (waiting, generation) = (workflow.waiting.len(), workflow.state.generation);
        if waiting >= limits::WAITING_RUNS_MAX {
            return Err(NotStarted {
                outcome: FiringOutcome::SkippedLimit,
                detail: DetailCode::WorkflowFull.with(waiting),
            });
        }
        let Resolved { definition, body } = self.resolved(id).map_err(refused)?;
        let given = &wanted.workflow.parameters;
        let parameters = parameters_of(given, &definition, &FiringScope(&origin)).map_err(refused)?;
        let plans = &mut self.plans;
        let plan = plans.of(&definition, &body, wanted.priority, &mut cx.profiles).map_err(refused)?;
        let head = RunHead {
            workflow: Some(id),
            generation,
            number: 0,
            definition: Arc::clone(&plan.definition),
            body: Arc::clone(&plan.body),
            parameters: Arc::new(parameters),
            actor: format!("schedule {}", origin.name).into(),
            note: detail.map(Into::into),
            caller: None,
            retry_of: None,
            priority: wanted.priority,
            origin: Some(Arc::new(origin)),
            trigger: None,
        };
        Ok(self.admit_run(cx, jobs, id, head, plan, &CarriedResults::default()))
    }

    /// Reports the end of a run to its schedule.
    pub(super) fn report_to_schedule(&mut self, cx: &mut Context, id: RunId) {
        if let Some((origin, end)) = self.end_of(id) {
            cx.raise(Signal::RunEnded { run: id, origin, end });
        }
    }

    /// Returns the firing and the end of a run of a schedule that has ended since the last flush.
    pub(crate) fn end_of(&self, id: RunId) -> Option<(Arc<Origin>, WorkEnd)> {
        let run = self.runs.get(&id).filter(|run| run.state.status.is_final())?;
        let RunState { started_at, finished_at, updated_at, .. } = run.state;
        let cause = run.state.history.last()?.cause;
        let status = job_status_of(run.state.status, cause);
        let ended_at = finished_at.unwrap_or(updated_at);
        Some((Arc::clone(run.firing()?), WorkEnd { status, started_at, ended_at }))
    }

    /// Cancels a run because its schedule replaces it. With `kill`, skips `finally` and the grace period of
    /// its jobs.
    pub(crate) fn stop_scheduled(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        id: RunId,
        detail: &str,
        kill: bool,
    ) {
        if kill {
            for job in self.jobs_of(id) {
                jobs.stop_job(cx, job, detail, true);
            }
        }
        let _ = self.cancel_run(cx, jobs, id, detail, None, kill);
    }

    /// Returns the running jobs of a run and of the runs that it called.
    fn jobs_of(&self, id: RunId) -> Vec<model::JobId> {
        let mut jobs = Vec::new();
        let mut open = vec![id];
        let mut seen = BTreeSet::new();
        while let Some(run) = open.pop().filter(|run| seen.insert(*run)) {
            let Some(run) = self.runs.get(&run) else { continue };
            for work in run.steps.iter().flat_map(work_of) {
                match work {
                    Work::Job(job) => jobs.push(job),
                    Work::Run(called) => open.push(called),
                }
            }
        }
        jobs
    }
}

/// Maps the outcome of a run to that of a job.
pub(super) fn job_status_of(status: RunStatus, cause: RunCause) -> JobStatus {
    match status {
        _ if cause == RunCause::Expired => JobStatus::Expired,
        RunStatus::Succeeded => JobStatus::Succeeded,
        RunStatus::Cancelled => JobStatus::Cancelled,
        _ => JobStatus::Failed,
    }
}

/// Returns the complete parameters of a run that a schedule or trigger starts. A reference without a value,
/// such as the start of the first interval, omits its parameter.
///
/// # Errors
/// The invalid reference, or the parameter that the workflow does not accept.
pub(super) fn parameters_of(
    wanted: &BTreeMap<String, Value>,
    definition: &Definition,
    scope: &dyn Scope,
) -> Result<Map<String, Value>, String> {
    let mut given = Map::new();
    for (name, value) in wanted {
        let value = fill(value, scope).map_err(|error| format!("parameters.{name}: {error}"))?;
        if !value.is_null() {
            given.insert(name.clone(), value);
        }
    }
    let complete = complete(&definition.workflow.parameters, &given).map_err(|problems| {
        let told: Vec<_> =
            problems.iter().map(|(name, problem)| format!("parameters.{name} {problem}")).collect();
        told.join(", ")
    })?;
    let len = serde_json::to_string(&complete).map_or(0, |text| text.len());
    let most = limits::RUN_PARAMETERS_BYTES_MAX;
    if len > most {
        return Err(format!("the parameters have {len} bytes: expected at most {most}"));
    }
    Ok(complete)
}

/// Values that the parameters of a scheduled run can refer to.
struct FiringScope<'a>(&'a Origin);

impl Scope for FiringScope<'_> {
    fn value(&self, path: &[String]) -> Result<(Value, usize), EvaluationError> {
        let Self(origin) = self;
        match path.first().map(String::as_str) {
            Some("firing") => Ok((
                json!({
                    "schedule": &*origin.name,
                    "cause": origin.cause,
                    "scheduled_for": origin.scheduled_for,
                    "interval_start": origin.interval_start,
                    "interval_end": origin.interval_end,
                }),
                1,
            )),
            other => Err(EvaluationError(format!("there is no `{}`", other.unwrap_or_default()).into())),
        }
    }
}
