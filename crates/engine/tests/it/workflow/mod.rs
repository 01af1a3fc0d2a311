//! Scenarios of workflows: helpers for runs and steps, on top of [`Scenario`].
//!
//! - `job`, `each`, `act`: steps with defaults, for definitions in a test.
//! - `Scenario::apply`, `run`, `start_with`: workflows and runs, validated as the server validates them.
//! - `Scenario::give`, `succeed_step`, `fail_step`: ends of jobs, as their workers report them.
//! - `Scenario::steps`, `run_history`, `why_step`: what a test compares, mostly as text.
//!
//! `rules` and `control` test the basics. `lists`, `added_elements`, `files`, `waits`, `retries`, `scheduled`
//! and `triggers` test one feature each. `properties` and `liveness` play random workflows.

mod added_elements;
mod control;
mod files;
mod lists;
mod liveness;
mod properties;
mod retries;
mod rules;
mod scheduled;
mod triggers;
mod waits;

use std::sync::Arc;

use engine::input::CarriedResults;
use engine::input::ExecutionEnd;
use engine::{Expected, Input, NewRun, NewWorkflow, Reply, Report, WorkflowRequest};
use model::firing::Work;
use model::record::{Outcome, Usage};
use model::run::{
    Carried, ElementBatch, EndedCall, RetryFrom, RunState, StepKey, StepRecord, StepState, WorkflowHead,
};
use model::why::StepReason;
use model::workflow::{Action, Definition, ElementSource, ForEach, StepSpec};
use model::{JobId, JobSpec, Refusal, RunId, RunStatus, StepStatus, WorkflowId, WorkflowSpec};
use serde_json::{Map, Value, json};

use crate::scenario::{Scenario, known};

/// A step that runs a job.
pub(crate) fn job(name: &str, needs: &[&str]) -> StepSpec {
    let mut spec = JobSpec::command(["true"]);
    spec.resources.cpu = Some(model::Millicores(1));
    spec.resources.memory = Some(model::Bytes(1 << 10));
    StepSpec::job(name, spec).needs(needs.iter().copied())
}

/// A step that runs a job for each element of a list.
pub(crate) fn each(name: &str, needs: &[&str], over: ElementSource) -> StepSpec {
    StepSpec { for_each: Some(ForEach::new(over)), ..job(name, needs) }
}

/// A step with another action.
pub(crate) fn act(name: &str, needs: &[&str], action: Action) -> StepSpec {
    StepSpec::new(name, action).needs(needs.iter().copied())
}

/// The texts of a process that may have references.
pub(crate) fn env<'a>(step: &'a mut StepSpec, name: &str) -> &'a mut String {
    let Action::Job(job) = &mut step.action else { panic!("a job is expected") };
    let model::spec::Run::Process(process) = &mut job.run else { panic!("a process is expected") };
    process.env.entry(name.to_owned()).or_default()
}

/// Helpers for scenarios of a run.
impl Scenario {
    pub(crate) fn ask_for(&mut self, request: WorkflowRequest) -> Result<Reply, Refusal> {
        self.ask_by("alice", request)
    }

    pub(crate) fn ask_by(&mut self, actor: &str, request: WorkflowRequest) -> Result<Reply, Refusal> {
        self.ask(|ticket| Input::Workflow { ticket, request: Box::new(request), actor: actor.into() })
    }

    /// Adds a worker with capacity for all jobs of a scenario.
    pub(crate) fn with_room() -> Self {
        let mut t = Self::new();
        t.worker().slots(1_000_000).memory_mib(1 << 20).cpu(1_000_000).join();
        t
    }

    pub(crate) fn apply(&mut self, spec: &WorkflowSpec) -> WorkflowId {
        let mut spec = spec.clone();
        model::validate::workflow(&spec, self.now).unwrap();
        spec.fill();
        let body = serde_json::to_string(&spec).unwrap().into();
        let head = Arc::new(WorkflowHead { spec: Arc::new(spec), body });
        let workflows = vec![NewWorkflow { head, expected: Expected::Any }];
        match self.ask_for(WorkflowRequest::Apply { workflows }) {
            Ok(Reply::AppliedWorkflows(applied)) => applied[0].workflow,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the request that starts a run of an applied workflow.
    pub(crate) fn new_run(&self, workflow: WorkflowId, calls: &[&WorkflowSpec], given: &Value) -> NewRun {
        let (head, state) = &self.rows.workflows[&workflow];
        let mut definition = Definition { workflow: Arc::clone(&head.spec), calls: Default::default() };
        for &spec in calls {
            let mut spec = spec.clone();
            spec.fill();
            definition.calls.insert(spec.name.clone(), Arc::new(spec));
        }
        model::validate::definition(&definition).unwrap();
        let empty = Map::new();
        let given = given.as_object().unwrap_or(&empty);
        let parameters = model::workflow::complete(&head.spec.parameters, given).unwrap();
        NewRun {
            workflow: Some(workflow),
            generation: state.generation,
            body: definition.to_json().into(),
            definition: Arc::new(definition),
            parameters: Arc::new(parameters),
            priority: None,
            note: None,
            retry_of: None,
            origin: None,
            carried: CarriedResults::default(),
            key: None,
        }
    }

    /// Returns the results that a retry of a run carries over.
    pub(crate) fn takeover(&self, run: RunId, mut carried: Carried) -> CarriedResults {
        for again in carried.again.clone() {
            let Some(Work::Run(called)) = again.work.filter(|_| again.may_continue) else { continue };
            let head = &self.rows.runs[&called].0;
            if self.status_of_run(called) != RunStatus::Succeeded {
                let inner =
                    model::run::carried(&head.definition, &self.step_records(called), RetryFrom::Failed);
                let CarriedResults { records, batches } = self.takeover(called, inner);
                let parameters = (*head.parameters).clone();
                let repeats_at_most_once = false;
                let call = EndedCall { run: called, parameters, records, batches, repeats_at_most_once };
                carried.continue_call(&again, Arc::new(call));
            }
        }
        let taken = |batch: &&ElementBatch| batch.key.run == run && carried.takes(batch);
        let batches = self.rows.batches.values().filter(taken).cloned().collect();
        CarriedResults { records: carried.records, batches }
    }

    pub(crate) fn start_with(&mut self, new: NewRun) -> RunId {
        match self.ask_for(WorkflowRequest::Start(Box::new(new))) {
            Ok(Reply::RunStarted { run, .. }) => run,
            other => panic!("{other:?}"),
        }
    }

    /// Applies a workflow and starts a run of it.
    pub(crate) fn run(&mut self, spec: &WorkflowSpec) -> RunId {
        let workflow = self.apply(spec);
        self.start_with(self.new_run(workflow, &[], &json!({})))
    }

    pub(crate) fn run_state(&self, run: RunId) -> &RunState {
        &self.rows.runs[&run].1
    }

    pub(crate) fn status_of_run(&self, run: RunId) -> RunStatus {
        self.run_state(run).status
    }

    /// Returns the stored history: `running (started) → succeeded (succeeded)`.
    pub(crate) fn run_history(&self, run: RunId) -> String {
        let told = |e: &model::run::RunHistoryEntry| match &e.detail {
            Some(detail) => format!("{} ({}: {detail})", e.to, e.cause),
            None => format!("{} ({})", e.to, e.cause),
        };
        self.run_state(run).history.iter().map(told).collect::<Vec<_>>().join(" → ")
    }

    pub(crate) fn key(&self, run: RunId, step: &str) -> StepKey {
        let spec = &self.rows.runs[&run].0.definition.workflow;
        let place = spec.all_steps().position(|(_, known)| known.name == step);
        StepKey { run, step: u32::try_from(place.expect("the step exists")).unwrap(), item: None }
    }

    /// Returns the stored state of a step; `None` while it is pending.
    pub(crate) fn row(&self, run: RunId, step: &str) -> Option<&StepState> {
        self.rows.steps.get(&self.key(run, step))
    }

    pub(crate) fn step(&self, run: RunId, step: &str) -> StepStatus {
        self.row(run, step).map_or(StepStatus::Pending, |state| state.status)
    }

    /// Returns the stored statuses: `a succeeded (job_succeeded), b pending, …`.
    pub(crate) fn steps(&self, run: RunId) -> String {
        let spec = Arc::clone(&self.rows.runs[&run].0.definition.workflow);
        let told = |name: &str| match self.row(run, name) {
            Some(state) => format!("{name} {} ({})", state.status, state.cause),
            None => format!("{name} pending"),
        };
        spec.all_steps().map(|(_, step)| told(&step.name)).collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn job_of(&self, run: RunId, step: &str) -> JobId {
        self.row(run, step).and_then(|state| state.job).expect("the step has a job")
    }

    /// Returns the running job of an element.
    pub(crate) fn job_of_element(&self, run: RunId, step: &str, item: u32) -> Option<JobId> {
        let key = StepKey { item: Some(item), ..self.key(run, step) };
        let live = self.rows.jobs.iter().filter(|(_, (_, state))| !state.status.is_final());
        let mut own = live.filter(|(_, (head, _))| head.step.as_ref().is_some_and(|o| o.key() == key));
        own.next().map(|(&id, _)| id)
    }

    /// Returns the number of jobs that a step, or an element of it, has had.
    pub(crate) fn jobs_of(&self, key: StepKey) -> usize {
        let of_step = |head: &model::record::JobHead| head.step.as_ref().is_some_and(|o| o.key() == key);
        self.rows.jobs.values().filter(|(head, _)| of_step(head)).count()
    }

    /// Ends a job successfully, with an output.
    pub(crate) fn give(&mut self, job: JobId, output: &Value) {
        let outcome = Outcome { output: Some(output.to_string().into()), ..Outcome::default() };
        self.end_with(
            job,
            Report::Finished { how: ExecutionEnd::Succeeded, outcome, usage: Usage::default() },
        );
    }

    pub(crate) fn succeed_step(&mut self, run: RunId, step: &str) {
        self.succeed(self.job_of(run, step));
    }

    pub(crate) fn fail_step(&mut self, run: RunId, step: &str) {
        self.fail(self.job_of(run, step), 1);
    }

    /// Returns the spec of a job as sent to its worker.
    pub(crate) fn spec_of(&self, job: JobId) -> JobSpec {
        serde_json::from_str(&self.rows.jobs[&job].0.body).unwrap()
    }

    /// Returns an environment variable of a job.
    pub(crate) fn env_of(&self, job: JobId, name: &str) -> String {
        let spec = self.spec_of(job);
        let model::spec::Run::Process(process) = &spec.run else { panic!("a process is expected") };
        process.env[name].clone()
    }

    pub(crate) fn why_step(&mut self, run: RunId, step: &str) -> Vec<StepReason> {
        match self.ask_for(WorkflowRequest::Why { run, step: step.into() }) {
            Ok(Reply::StepWhy(why)) => known(why.reasons),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the rows of a run's steps, as a retry reads them.
    pub(crate) fn step_records(&self, run: RunId) -> Vec<StepRecord> {
        let own = self.rows.steps.iter().filter(|(key, _)| key.run == run);
        own.map(|(&key, state)| StepRecord { key, state: state.clone() }).collect()
    }
}
