//! Triggers: runs started by the end of a job or of a run of another workflow.
//!
//! Every end of a job or run is compared with the triggers that listen to its name. The new run is created in
//! the batch of that end, so there is exactly one for each end. A trigger with several sources keeps the ends
//! that arrived first in the row of its workflow. If an end that a trigger listens to starts no run, the
//! reason is stored there too and emitted as an event.
//!
//! # Invariants
//! - A chain of triggers is limited in length, and so is the number of runs that one end starts.
//! - Called runs and jobs of steps trigger nothing.
//!
//! # Cost
//! Without triggers, an end costs one lookup in an empty map.

use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::fast::FixedState;
use indexmap::IndexMap;
use model::expression::{EvaluationError, Scope};
use model::firing::{Origin, Work};
use model::record::EventKind;
use model::run::{
    Ended, PendingEnd, RunCause, RunHead, RunTrigger, TriggerRefusal, TriggerRefusalReason, TriggerState,
};
use model::spec::{Summary, name_in};
use model::workflow::{SourceKind, TriggerSources, TriggerSpec};
use model::{Duration, JobId, JobStatus, RunId, WorkflowId, WorkflowSpec, limits};
use serde_json::{Value, json};

use super::scheduled::{Resolved, job_status_of, parameters_of};
use super::{Workflow, Workflows, index};
use crate::context::Context;
use crate::input::CarriedResults;
use crate::jobs::Jobs;
use crate::names::name_hash;

/// A source of a trigger of a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Listener {
    workflow: WorkflowId,
    trigger: u32,
    source: u32,
}

type ByName = IndexMap<u128, Vec<Listener>, FixedState>;

/// Triggers by the hash of the namespace and name of their source.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Listeners {
    jobs: ByName,
    runs: ByName,
}

impl Listeners {
    fn of(&self, kind: SourceKind) -> &ByName {
        match kind {
            SourceKind::Job => &self.jobs,
            SourceKind::Workflow => &self.runs,
        }
    }

    fn of_mut(&mut self, kind: SourceKind) -> &mut ByName {
        match kind {
            SourceKind::Job => &mut self.jobs,
            SourceKind::Workflow => &mut self.runs,
        }
    }

    pub(super) fn add(&mut self, id: WorkflowId, spec: &WorkflowSpec) {
        for (key, kind, listener) in all_of(id, spec) {
            let listening = self.of_mut(kind).entry(key).or_default();
            // A fixed order, independent of the order in which the engine learns of them.
            let place = listening.partition_point(|known| *known < listener);
            listening.insert(place, listener);
        }
    }

    pub(super) fn remove(&mut self, id: WorkflowId, spec: &WorkflowSpec) {
        for (key, kind, _) in all_of(id, spec) {
            let Some(listening) = self.of_mut(kind).get_mut(&key) else { continue };
            listening.retain(|known| known.workflow != id);
            if listening.is_empty() {
                self.of_mut(kind).swap_remove(&key);
            }
        }
    }
}

fn all_of(
    workflow: WorkflowId,
    spec: &WorkflowSpec,
) -> impl Iterator<Item = (u128, SourceKind, Listener)> + use<'_> {
    (0..).zip(&spec.triggers).flat_map(move |(trigger, listens)| {
        (0..).zip(listens.listens.sources()).map(move |(source, to)| {
            (name_hash(&spec.namespace, &to.name), to.kind, Listener { workflow, trigger, source })
        })
    })
}

/// Returns the states of the triggers of a new spec. A trigger with the same sources as one before keeps its
/// state.
pub(super) fn states_of(
    spec: &WorkflowSpec,
    before: Option<(&WorkflowSpec, &[TriggerState])>,
) -> Vec<TriggerState> {
    let known = |trigger: &TriggerSpec| {
        let (spec, states) = before?;
        let place = spec.triggers.iter().position(|before| before.listens == trigger.listens)?;
        states.get(place).cloned()
    };
    spec.triggers.iter().map(|trigger| known(trigger).unwrap_or_default()).collect()
}

impl Workflows {
    /// Checks that exactly the triggers of the specs are registered.
    pub(super) fn check_listeners(&self) -> Result<(), String> {
        let mut found = Listeners::default();
        for (&id, Workflow { spec, state, .. }) in &self.all {
            found.add(id, spec);
            if state.triggers.len() != spec.triggers.len() {
                return Err(format!("{id} has the states of {} triggers", state.triggers.len()));
            }
            for (trigger, state) in spec.triggers.iter().zip(&state.triggers) {
                let fits = state.waiting_events.is_empty()
                    || state.waiting_events.len() < trigger.listens.sources().len();
                if !fits || !state.waiting_events.is_sorted_by(|a, b| a.source < b.source) {
                    return Err(format!("a trigger of {id} keeps {:?}", state.waiting_events));
                }
            }
        }
        if found != self.listeners { Err("listeners differ from the specs".into()) } else { Ok(()) }
    }
}

/// Reason why a trigger starts no run, with details if available.
type Refused = (TriggerRefusalReason, Option<String>);

impl Workflows {
    /// Handles the final status of a job. It is still in memory.
    pub(crate) fn notify_listeners_of_job(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        id: JobId,
        status: JobStatus,
    ) {
        if self.listeners.jobs.is_empty() {
            return;
        }
        let Some(job) = jobs.get(id).filter(|job| job.step.is_none()) else { return };
        let (namespace, name) = (Arc::clone(&job.profile.namespace), name_in(&job.body));
        if !self.listeners.jobs.contains_key(&name_hash(&namespace, name)) {
            return;
        }
        let name: Arc<str> = name.into();
        let output = job.state.outcome.as_deref().and_then(|outcome| outcome.output.clone());
        let origin = job.origin.as_deref();
        let end = PendingEnd {
            created_at: id.created_at(),
            output: output.filter(|_| status == JobStatus::Succeeded),
            chain: vec![Arc::clone(&name)],
            ..common_end(Ended::new(id.into(), name, status, cx.now), origin)
        };
        self.notify_listeners(cx, jobs, &namespace, &end);
    }

    /// Handles the final status of a run that no other run called. It is still in memory.
    pub(super) fn notify_listeners_of_run(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        id: RunId,
        cause: RunCause,
    ) {
        if self.listeners.runs.is_empty() {
            return;
        }
        let Some(run) = self.runs.get(&id) else { return };
        let (namespace, name) = (Arc::clone(&run.plan.namespace), Arc::clone(&run.plan.name));
        let status = job_status_of(run.state.status, cause);
        let mut chain = run.head.trigger.as_deref().map(|trigger| trigger.chain.clone()).unwrap_or_default();
        chain.push(Arc::clone(&name));
        let end = PendingEnd {
            created_at: run.state.created_at,
            output: run.state.output.clone().filter(|_| status == JobStatus::Succeeded),
            chain,
            ..common_end(Ended::new(id.into(), name, status, cx.now), run.head.origin.as_deref())
        };
        self.notify_listeners(cx, jobs, &namespace, &end);
    }

    fn notify_listeners(&mut self, cx: &mut Context, jobs: &mut Jobs, namespace: &str, end: &PendingEnd) {
        let ended = &end.ended;
        let listening = self.listeners.of(ended.kind()).get(&name_hash(namespace, &ended.name));
        for listener in listening.cloned().unwrap_or_default() {
            let Some(workflow) = self.all.get(&listener.workflow) else { continue };
            let spec = Arc::clone(&workflow.spec);
            let Some(trigger) = spec.triggers.get(index(listener.trigger)) else { continue };
            let Some(source) = trigger.listens.sources().get(index(listener.source)) else { continue };
            let meant = spec.namespace == namespace
                && *source.name == *ended.name
                && source.on.includes(ended.status)
                && self.has_labels(jobs, ended, &source.labels);
            if !meant {
                continue;
            }
            match self.on_source_ended(cx, jobs, listener, trigger, source.within, end) {
                Ok(Some(run)) => self.record_triggered(jobs, listener, ended, run),
                Ok(None) => {}
                Err((reason, detail)) => self.refuse_trigger(cx, listener, ended.clone(), reason, detail),
            }
        }
    }

    fn has_labels(&self, jobs: &Jobs, ended: &Ended, wanted: &BTreeMap<String, String>) -> bool {
        let all_in = |labels: &BTreeMap<String, String>| wanted.iter().all(|(k, v)| labels.get(k) == Some(v));
        if wanted.is_empty() {
            return true;
        }
        if let Some(run) = ended.run_id.and_then(|run| self.runs.get(&run)) {
            return all_in(&run.plan.definition.workflow.labels);
        }
        let job = ended.job_id.and_then(|job| jobs.get(job));
        let summary = job.and_then(|job| serde_json::from_str::<Summary>(&job.body).ok());
        summary.is_some_and(|summary| all_in(&summary.labels))
    }

    /// Starts the run for an end, or keeps the end until the other sources have ended too.
    fn on_source_ended(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        listener: Listener,
        trigger: &TriggerSpec,
        within: Option<Duration>,
        end: &PendingEnd,
    ) -> Result<Option<RunId>, Refused> {
        if trigger.paused {
            return Err((TriggerRefusalReason::Paused, None));
        }
        let took = end.ended.at.since(end.scheduled_for.unwrap_or(end.created_at));
        if let Some(within) = within.filter(|&within| took > within) {
            return Err((
                TriggerRefusalReason::Late,
                Some(format!("ended after {took}: expected at most {within}")),
            ));
        }
        let ends = match &trigger.listens {
            TriggerSources::To(_) => vec![end.clone()],
            TriggerSources::All { sources, window } => {
                self.keep_end(cx, listener, *window, end);
                let Some(state) = self.trigger_state(listener) else { return Ok(None) };
                if state.waiting_events.len() < sources.len() {
                    return Ok(None);
                }
                std::mem::take(&mut state.waiting_events)
            }
        };
        self.start_triggered(cx, jobs, listener, trigger, end, &ends).map(Some)
    }

    fn trigger_state(&mut self, listener: Listener) -> Option<&mut TriggerState> {
        self.all.get_mut(&listener.workflow)?.state.triggers.get_mut(index(listener.trigger))
    }

    /// Keeps the newest end of each source. Drops ends that are too old to be combined with this one.
    fn keep_end(&mut self, cx: &mut Context, listener: Listener, window: Duration, end: &PendingEnd) {
        let Some(state) = self.trigger_state(listener) else { return };
        state.waiting_events.retain(|kept| kept.source != listener.source);
        let is_old = |kept: &mut PendingEnd| end.ended.at.since(kept.ended.at) > window;
        let old: Vec<_> = state.waiting_events.extract_if(.., is_old).map(|kept| kept.ended).collect();
        let output = end.output.clone().filter(|text| text.len() <= limits::STORED_OUTPUT_BYTES_MAX);
        let place = state.waiting_events.partition_point(|kept| kept.source < listener.source);
        state.waiting_events.insert(place, PendingEnd { source: listener.source, output, ..end.clone() });
        self.touch_workflow(listener.workflow);
        for ended in old {
            let detail = format!("{} ended more than {window} later", end.ended);
            self.refuse_trigger(cx, listener, ended, TriggerRefusalReason::OutsideWindow, Some(detail));
        }
    }

    /// Starts the run of a trigger.
    ///
    /// # Errors
    /// The reason why no run can be started.
    fn start_triggered(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        listener: Listener,
        trigger: &TriggerSpec,
        last: &PendingEnd,
        ends: &[PendingEnd],
    ) -> Result<RunId, Refused> {
        let id = listener.workflow;
        let told = |reason| move |detail: String| (reason, Some(detail));
        let chains = ends.iter().map(|end| &end.chain);
        let chain = chains.max_by_key(|chain| chain.len()).cloned().unwrap_or_default();
        if chain.len() > limits::TRIGGER_CHAIN_MAX {
            return Err((TriggerRefusalReason::ChainTooLong, Some(chain.join(" → "))));
        }
        let full = |count: usize, most: usize, what: &str| {
            (TriggerRefusalReason::TooManyRuns, Some(format!("{count} runs {what} (limit {most})")))
        };
        let started = self.started_by(jobs, &last.ended);
        if started >= limits::TRIGGERED_RUNS_MAX {
            return Err(full(started, limits::TRIGGERED_RUNS_MAX, "were already triggered by this source"));
        }
        let Some(workflow) = self.all.get(&id) else {
            return Err((TriggerRefusalReason::BadWorkflow, None));
        };
        let (waiting, generation) = (workflow.waiting.len(), workflow.state.generation);
        if waiting >= limits::WAITING_RUNS_MAX {
            return Err(full(waiting, limits::WAITING_RUNS_MAX, "of the workflow are already waiting"));
        }
        let Resolved { definition, body } =
            self.resolved(id).map_err(told(TriggerRefusalReason::BadWorkflow))?;
        let scope = TriggerScope { last, ends, joins: trigger.listens.joins() };
        let parameters = parameters_of(&trigger.parameters, &definition, &scope)
            .map_err(told(TriggerRefusalReason::BadParameters))?;
        let plans = &mut self.plans;
        let plan = plans
            .of(&definition, &body, None, &mut cx.profiles)
            .map_err(told(TriggerRefusalReason::BadWorkflow))?;
        let actors: Vec<_> = ends.iter().map(|end| end.ended.to_string()).collect();
        let head = RunHead {
            workflow: Some(id),
            generation,
            number: 0,
            definition: Arc::clone(&plan.definition),
            body: Arc::clone(&plan.body),
            parameters: Arc::new(parameters),
            actor: actors.join(", ").into(),
            note: None,
            caller: None,
            retry_of: None,
            priority: None,
            origin: None,
            trigger: Some(Arc::new(RunTrigger {
                number: listener.trigger,
                ended: ends.iter().map(|end| end.ended.clone()).collect(),
                chain,
            })),
        };
        Ok(self.admit_run(cx, jobs, id, head, plan, &CarriedResults::default()))
    }

    /// Returns the number of runs that an end has started so far.
    fn started_by(&self, jobs: &Jobs, ended: &Ended) -> usize {
        let of_job = ended.job_id.and_then(|job| jobs.get(job)).map(|job| job.state.started.len());
        let run = ended.run_id.and_then(|run| self.runs.get(&run));
        of_job.or(run.map(|run| run.state.started.len())).unwrap_or(0)
    }

    /// Records the started run at its source and at the trigger.
    fn record_triggered(&mut self, jobs: &mut Jobs, listener: Listener, ended: &Ended, run: RunId) {
        let is_job = ended.job_id.is_some_and(|job| jobs.record_started_run(job, run));
        if is_job {
        } else if let Some(source) = ended.run_id.and_then(|run| self.runs.get_mut(&run)) {
            source.state.started.push(run);
        }
        if let Some(state) = self.trigger_state(listener) {
            state.runs += 1;
            state.last_run = Some(run);
        }
        self.touch_workflow(listener.workflow);
    }

    /// Records the reason why there is no run, and emits an event.
    fn refuse_trigger(
        &mut self,
        cx: &mut Context,
        listener: Listener,
        ended: Ended,
        reason: TriggerRefusalReason,
        detail: Option<String>,
    ) {
        let at = cx.now;
        let detail = detail.map(|detail| keep_tail(&detail));
        let refusal = Box::new(TriggerRefusal { at, ended, reason, detail });
        if let Some(state) = self.trigger_state(listener) {
            state.refused += 1;
            state.last_refusal = Some(refusal.clone());
        }
        self.touch_workflow(listener.workflow);
        let Some(workflow) = self.all.get(&listener.workflow) else { return };
        let name = Arc::clone(&workflow.name);
        let (workflow, namespace) = (listener.workflow, Some(Arc::clone(&workflow.namespace)));
        let kind = EventKind::NotTriggered { workflow, name, trigger: listener.trigger, refusal };
        cx.emit(namespace, kind);
    }
}

/// Creates the fields of an end that jobs and runs have in common.
fn common_end(ended: Ended, origin: Option<&Origin>) -> PendingEnd {
    PendingEnd {
        source: 0,
        created_at: ended.at,
        ended,
        scheduled_for: origin.map(|origin| origin.scheduled_for),
        interval_start: origin.and_then(|origin| origin.interval_start),
        output: None,
        chain: Vec::new(),
    }
}

/// Keeps the end of a text: for a chain it shows what repeats.
fn keep_tail(text: &str) -> Box<str> {
    let count = text.chars().count();
    match count.checked_sub(limits::NOTE_LEN_MAX / 4) {
        None | Some(0) => text.into(),
        Some(more) => text.chars().skip(more).collect::<String>().into(),
    }
}

/// Values that the parameters of a trigger can refer to.
struct TriggerScope<'a> {
    last: &'a PendingEnd,
    ends: &'a [PendingEnd],
    joins: bool,
}

fn shown(end: &PendingEnd) -> Value {
    let ended = &end.ended;
    let output = end.output.as_deref();
    // A text that is not JSON is used as a string.
    let read = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
    json!({
        "id": ended.job_id.map(Work::Job).or(ended.run_id.map(Work::Run)),
        "kind": ended.kind(),
        "name": &*ended.name,
        "status": ended.status,
        "ended_at": ended.at,
        "created_at": end.created_at,
        "scheduled_for": end.scheduled_for,
        "interval_start": end.interval_start,
        "output": output.map(read),
    })
}

impl Scope for TriggerScope<'_> {
    fn value(&self, path: &[String]) -> Result<(Value, usize), EvaluationError> {
        match path.first().map(String::as_str) {
            Some("trigger") => {
                let mut value = shown(self.last);
                if let (true, Some(fields)) = (self.joins, value.as_object_mut()) {
                    fields.insert("all".into(), self.ends.iter().map(shown).collect());
                }
                Ok((value, 1))
            }
            other => Err(EvaluationError(format!("there is no `{}`", other.unwrap_or_default()).into())),
        }
    }
}
