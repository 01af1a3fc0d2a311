//! Workflows that clients apply, runs that they start, and requests about these runs.
//!
//! Workflows are drawn at random: chains, diamonds, lists, calls, approvals, waits and events, with every
//! join rule. Steps that wait for a client have a timeout, so that everything ends after the last request.
//!
//! `schedule_runs` plans the requests of a world; `some_workflow` draws a definition. The first workflow is a
//! chain that the others call, and a workflow is triggered only by earlier ones, so neither calls nor
//! triggers form a cycle.
//!
//! Requests go through [`client`](super::client) like those about jobs. Everything here is drawn from
//! `run_dice`.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::input::{CarriedResults, Key};
use engine::{Expected, NewRun, NewWorkflow, TaskRequest, WorkflowRequest};
use model::run::{StepOrigin, WorkflowHead};
use model::workflow::{
    Action, Approval, Call, Definition, ElementSource, EventWait, FailurePolicy, ForEach, JoinRule,
    OnTimeout, RequiredResult, Source, SourceKind, StepSpec, TriggerSources, TriggerSpec, Wait,
};
use model::{Duration, JobSpec, RunId, StepStatus, WorkflowSpec};

use super::client::{ClientMessage, Op};
use super::{World, WorldEvent};
use crate::dice::Dice;
use crate::history::{Added, Ask};

/// Name of the event that steps wait for.
const EVENT: &str = "go";
/// Number of additions of elements for each run that clients start.
const ADDS_A_RUN: u32 = 20;

impl World {
    pub(super) fn schedule_runs(&mut self) {
        let rough = self.plan.rough.as_millis();
        for index in 0..self.plan.workflows {
            let at = self.begin + self.clients.run_dice.millis(0, rough / 4);
            self.put(at, WorldEvent::Client(ClientMessage::ApplyWorkflow(index)));
        }
        for (count, message) in [
            (self.plan.runs, ClientMessage::StartRun),
            (self.plan.run_asks, ClientMessage::AskRun),
            (self.plan.runs * ADDS_A_RUN, ClientMessage::AddElements),
            (self.plan.runs / 2, ClientMessage::RetryRun),
        ] {
            for _ in 0..count {
                let at = self.begin + self.clients.run_dice.millis(rough / 10, rough);
                self.put(at, WorldEvent::Client(message.clone()));
            }
        }
    }

    /// Creates a workflow, or changes its spec.
    pub(super) fn apply_workflow(&mut self, index: u32) {
        let (job, _) = self.clients.run_dice.pick(&self.clients.templates).clone();
        let spec = some_workflow(&mut self.clients.run_dice, index, job);
        let name = spec.name.clone();
        let body = serde_json::to_string(&spec).expect("a spec serializes to JSON").into();
        let head = Arc::new(WorkflowHead { spec: Arc::new(spec), body });
        let workflows = vec![NewWorkflow { head, expected: Expected::Any }];
        let op = Op::Workflow(WorkflowRequest::Apply { workflows });
        self.begin_request(Ask::ApplyWorkflow { name }, Arc::new(op), true);
    }

    pub(super) fn start_run(&mut self) {
        let all = self.store.workflows();
        if all.is_empty() {
            return;
        }
        let (workflow, head, generation) = self.clients.run_dice.pick(&all).clone();
        let find = |name: &str| {
            let known = all.iter().find(|(_, head, _)| head.spec.name == name);
            known.map(|(_, head, _)| Arc::clone(&head.spec))
        };
        let definition = Definition::resolve(Arc::clone(&head.spec), find);
        if model::validate::definition(&definition).is_err() {
            return;
        }
        let number = self.clients.run_dice.number();
        let key = Key { key: number.into(), body: number.into() };
        let key = self.clients.run_dice.chance(0.6).then_some(key);
        let op = Op::Workflow(WorkflowRequest::Start(Box::new(NewRun {
            workflow: Some(workflow),
            generation,
            body: definition.to_json().into(),
            definition: Arc::new(definition),
            parameters: Arc::default(),
            priority: None,
            note: None,
            retry_of: None,
            carried: CarriedResults::default(),
            origin: None,
            key,
        })));
        let ask = Ask::Start { workflow: head.spec.name.clone() };
        self.begin_request(ask, Arc::new(op), key.is_some());
    }

    /// Retries a failed run.
    pub(super) fn retry_run(&mut self) {
        let failed = self.store.failed_runs();
        if failed.is_empty() {
            return;
        }
        let (run, head, carried) = self.clients.run_dice.pick(&failed).clone();
        let op = Op::Workflow(WorkflowRequest::Start(Box::new(NewRun {
            workflow: head.workflow,
            generation: head.generation,
            body: Arc::clone(&head.body),
            definition: Arc::clone(&head.definition),
            parameters: Arc::clone(&head.parameters),
            priority: head.priority,
            note: None,
            retry_of: Some(run),
            carried,
            origin: None,
            key: None,
        })));
        let ask = Ask::Start { workflow: head.definition.workflow.name.clone() };
        self.begin_request(ask, Arc::new(op), false);
    }

    /// A running task adds elements, if its workflow has a step for them. A repeated request has the same content and
    /// name.
    pub(super) fn add_elements(&mut self) {
        let runs: BTreeMap<RunId, Arc<WorkflowSpec>> = self.store.runs().into_iter().collect();
        let adds = |origin: &StepOrigin| {
            let steps = runs.get(&origin.run)?.all_steps();
            let takes = |step: &StepSpec| {
                let own = *step.name == *origin.name && !step.adders().is_empty();
                own || step.adders().iter().any(|adder| **adder == *origin.name)
            };
            (0..).zip(steps).find(|(_, (_, step))| takes(step)).map(|(n, (_, step))| (n, step.name.clone()))
        };
        let all = self.store.executions_of_steps();
        let all: Vec<_> = all.into_iter().filter_map(|found| Some((adds(&found.2)?, found))).collect();
        if all.is_empty() {
            return;
        }
        let dice = &mut self.clients.run_dice;
        let ((step, name), (execution, fence, origin)) = dice.pick(&all).clone();
        let batch = format!("b{}", dice.below(3));
        let count = dice.between(1, 4);
        let key = origin.key();
        let added = Added { run: key.run, step, by: (key.step, key.item), batch: batch.clone() };
        let request = TaskRequest::AddElements {
            step: dice.chance(0.5).then(|| name.as_str().into()),
            batch: batch.into(),
            elements: (0..count).map(serde_json::Value::from).collect(),
        };
        self.begin_request(Ask::Add(added), Arc::new(Op::Task(execution, fence, request)), true);
    }

    /// Cancels, pauses, resumes, marks or decides a run or step, or sends an event.
    pub(super) fn ask_of_run(&mut self) {
        let runs = self.store.runs();
        if runs.is_empty() {
            return self.start_run();
        }
        let dice = &mut self.clients.run_dice;
        let (run, spec) = dice.pick(&runs).clone();
        let steps: Vec<&str> = spec.all_steps().map(|(_, step)| step.name.as_str()).collect();
        let step: Box<str> = (*dice.pick(&steps)).into();
        let (what, request) = match dice.below(9) {
            0 | 1 => {
                let skip_finally = dice.chance(0.3);
                ("cancel", WorkflowRequest::Cancel { run, reason: None, skip_finally })
            }
            2 => ("pause", WorkflowRequest::Pause { run, note: None }),
            3 => ("resume", WorkflowRequest::Resume { run }),
            4 => {
                let status = *dice.pick(&[StepStatus::Succeeded, StepStatus::Failed, StepStatus::Skipped]);
                ("mark", WorkflowRequest::Mark { run, step, status, note: None })
            }
            5 | 6 => {
                let approve = dice.chance(0.7);
                ("decide", WorkflowRequest::Decide { run, step, approve, note: None })
            }
            _ => ("event", WorkflowRequest::Event { run, event: EVENT.into(), payload: "1".into() }),
        };
        self.ask_run(run, what, request);
    }

    fn ask_run(&mut self, run: RunId, what: &str, request: WorkflowRequest) {
        // A second event is a different event.
        let repeatable = !matches!(request, WorkflowRequest::Event { .. });
        let ask = Ask::Run { run, what: what.to_owned() };
        self.begin_request(ask, Arc::new(Op::Workflow(request)), repeatable);
    }

    /// Resumes all runs.
    pub(super) fn resume_runs(&mut self) {
        for (run, _) in self.store.runs() {
            self.ask_run(run, "resume", WorkflowRequest::Resume { run });
        }
    }
}

/// Draws a workflow. The first one is a chain that the others call.
fn some_workflow(dice: &mut Dice, index: u32, mut job: JobSpec) -> WorkflowSpec {
    let job_name = job.name.clone();
    "default".clone_into(&mut job.queue);
    "default".clone_into(&mut job.namespace);
    job.concurrency = None;
    let count = if index == 0 { 2 } else { 1 + dice.below(8) };
    let names: Vec<String> = (0..count).map(|n| format!("s{n}")).collect();
    let mut steps = Vec::new();
    for (place, name) in names.iter().enumerate() {
        let mut step = StepSpec::new(name.as_str(), some_action(dice, index, &job));
        if matches!(step.action, Action::Approval(_) | Action::Wait(_)) {
            step.timeout = Some(Duration::from_secs(dice.between(5, 60)));
        } else if dice.chance(0.1) {
            step.timeout = Some(Duration::from_secs(dice.between(5, 120)));
        }
        if matches!(step.action, Action::Job(_) | Action::Workflow(_)) && index > 0 && dice.chance(0.25) {
            let mut each =
                ForEach::new(ElementSource::Shards(u32::try_from(dice.between(1, 5)).unwrap_or(1)));
            each.max_parallel = dice.chance(0.5).then_some(2);
            each.max_failed = u32::try_from(dice.below(2)).unwrap_or(0);
            step.for_each = Some(each);
        }
        let wanted = if index == 0 { 1 } else { dice.below(3) };
        let mut needs: Vec<&String> = (0..wanted.min(place))
            .map(|_| if index == 0 { place - 1 } else { dice.below(place) })
            .map(|need| &names[need])
            .collect();
        needs.sort_unstable();
        needs.dedup();
        step.needs = needs.into_iter().cloned().collect();
        if !step.needs.is_empty() && dice.chance(0.35) {
            step.join = *dice.pick(&JoinRule::ALL);
        }
        if matches!(step.action, Action::Job(_)) && index > 0 && dice.chance(0.25) {
            let adders: Vec<&StepSpec> =
                steps.iter().filter(|step: &&StepSpec| matches!(step.action, Action::Job(_))).collect();
            if !adders.is_empty() {
                let adder = dice.pick(&adders).name.clone();
                step.needs.retain(|need| *need != adder);
                let mut each = ForEach::new(ElementSource::AddedBy(vec![adder]));
                each.max_parallel = dice.chance(0.3).then_some(2);
                each.max_failed = u32::try_from(dice.below(4)).unwrap_or(0);
                step.for_each = Some(each);
                if step.needs.is_empty() {
                    step.join = JoinRule::AllSuccess;
                }
            }
        }
        step.when = dice.chance(0.1).then(|| "1 > 2".to_owned());
        step.continue_on_failure = dice.chance(0.15);
        steps.push(step);
    }
    let mut spec = WorkflowSpec::new(format!("w{index}"), steps);
    if dice.chance(0.3) {
        spec.on_failure.push(StepSpec::job("sorry", job.clone()));
    }
    if dice.chance(0.4) {
        spec.finally.push(StepSpec::job("clean", job));
    }
    if dice.chance(0.25) {
        spec.failure = FailurePolicy::FailFast;
    }
    if dice.chance(0.2) {
        spec.timeout = Some(Duration::from_secs(dice.between(10, 200)));
    }
    spec.max_parallel_steps = dice.chance(0.3).then(|| 1 + u32::try_from(dice.below(3)).unwrap_or(0));
    spec.max_parallel_runs = dice.chance(0.3).then(|| 1 + u32::try_from(dice.below(2)).unwrap_or(0));
    if let Some(trigger) = (index > 0 && dice.chance(0.5)).then(|| some_trigger(dice, index, &job_name)) {
        spec.triggers.push(trigger);
    }
    // Depends on the index instead of a draw, so that the worlds of known seeds stay the same.
    if index % 3 == 2 {
        spec.retry.max_retries = 2;
        spec.retry.backoff.initial = Duration::from_secs(5);
    }
    spec.fill();
    spec
}

/// Draws a trigger on jobs and earlier workflows, so that no workflow triggers itself.
fn some_trigger(dice: &mut Dice, index: u32, job: &str) -> TriggerSpec {
    let mut source = |kind, name: String| Source {
        kind,
        name,
        on: *dice.pick(&[RequiredResult::Success, RequiredResult::Failure, RequiredResult::Any]),
        labels: Default::default(),
        within: dice.chance(0.2).then(|| Duration::from_secs(dice.between(10, 100))),
    };
    let run = source(SourceKind::Workflow, format!("w{}", index - 1));
    let other = source(SourceKind::Job, job.to_owned());
    // Most jobs succeed, and there are many, so this source listens to failures.
    let other = Source { on: RequiredResult::Failure, ..other };
    let listens = match dice.below(5) {
        0 => TriggerSources::To(other),
        1 => TriggerSources::All {
            sources: vec![run, other],
            window: Duration::from_secs(dice.between(5, 200)),
        },
        _ => TriggerSources::To(run),
    };
    TriggerSpec { listens, parameters: Default::default(), paused: dice.chance(0.1) }
}

fn some_action(dice: &mut Dice, index: u32, job: &JobSpec) -> Action {
    let on_timeout = *dice.pick(&[OnTimeout::Fail, OnTimeout::Succeed, OnTimeout::Skip]);
    match dice.below(if index == 0 { 6 } else { 11 }) {
        7 => Action::Workflow(Call { name: "w0".into(), parameters: Default::default() }),
        8 => Action::Approval(Approval { approvers: Vec::new(), message: None, on_timeout }),
        9 => Action::Wait(Wait::For(Duration::from_secs(dice.between(1, 20)))),
        10 => Action::Wait(Wait::Event(EventWait { name: EVENT.into(), on_timeout })),
        _ => Action::Job(Box::new(job.clone())),
    }
}
