//! Plans: compiled definitions, shared by all runs of a definition.
//!
//! Names are resolved to numbers and texts are parsed to expressions. The jobs of steps without references
//! are prepared once; all runs share their spec, body and profile.
//!
//! # Invariants
//! - The number of a step is its index in `nodes`, in the order of sections; it is stored in rows and never
//!   changes for a definition.
//! - A plan never changes. A run with another priority has another plan.
//!
//! # Cost
//! Compiled once for each distinct definition and priority; dropped when no run uses it and the table grows.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::JobSpec;
use model::expression::{Expression, Scope};
use model::run::{ApprovalRequest, RunStatus};
use model::spec::Constraint;
use model::workflow::template::Template;
use model::workflow::{
    Action, Approval, Call, Definition, ElementSource, FailurePolicy, ForEach, JobTemplate, JoinRule,
    LatePolicy, OnTimeout, Section, StepSpec, Wait,
};
use model::{Duration, Timestamp, limits};
use serde_json::Value;

use super::Run;
use super::producers::Producers;
use crate::interner::Interner;
use crate::profile::{Profile, Profiles};

/// A compiled definition.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(super) definition: Arc<Definition>,
    /// The definition as JSON.
    pub(super) body: Arc<str>,
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
    /// All steps in the order of sections; the index of a step is its number.
    pub(super) nodes: Box<[StepPlan]>,
    /// Steps that may have stored an artifact that a step reads.
    pub(super) producers: Producers,
    places: BTreeMap<Arc<str>, u32>,
    /// Definitions of the workflows that its steps call, with their JSON.
    pub(super) calls: BTreeMap<String, (Arc<Definition>, Arc<str>)>,
}

/// A compiled step.
#[derive(Debug)]
pub(super) struct StepPlan {
    pub(super) name: Arc<str>,
    pub(super) section: Section,
    pub(super) needs: Box<[u32]>,
    pub(super) dependents: Box<[u32]>,
    /// Steps whose tasks add its elements.
    pub(super) adders: Box<[u32]>,
    /// Steps that its tasks may add elements to.
    pub(super) adds_elements_to: Box<[u32]>,
    pub(super) join: JoinRule,
    pub(super) when: Option<Expression>,
    pub(super) each: Option<ForEachPlan>,
    pub(super) act: StepAction,
    pub(super) continue_on_failure: bool,
    pub(super) timeout: Option<Duration>,
}

/// List of a step with elements, and its limits.
#[derive(Debug)]
pub(super) struct ForEachPlan {
    pub(super) list: List,
    pub(super) max_parallel: u32,
    pub(super) max_failed: u32,
    pub(super) enough: Option<u32>,
    pub(super) late: LatePolicy,
}

#[derive(Debug)]
pub(super) enum List {
    Items(Arc<[Value]>),
    Expression(Expression),
    Shards(u32),
    Workers(Vec<Constraint>),
    /// Elements that tasks add.
    Added,
}

#[derive(Debug)]
pub(super) enum StepAction {
    Job(JobPlan),
    Call(Call),
    Approval(ApprovalPlan),
    For(Duration),
    Until(Template),
    Event { name: Box<str>, on_timeout: OnTimeout },
}

/// Message and approvers of an approval.
#[derive(Debug)]
pub(super) struct ApprovalPlan {
    pub(super) message: Option<Template>,
    pub(super) approvers: Box<[Template]>,
    pub(super) on_timeout: OnTimeout,
}

impl ApprovalPlan {
    fn compile(spec: &Approval) -> Result<Self, String> {
        let parse = |text: &String| Template::parse(text).map_err(|error| error.to_string());
        Ok(Self {
            message: spec.message.as_ref().map(parse).transpose()?,
            approvers: spec.approvers.iter().map(parse).collect::<Result<_, _>>()?,
            on_timeout: spec.on_timeout,
        })
    }

    /// Evaluates the message and the approvers in a run. If the definition names approvers, the result has at
    /// least one: an empty list would allow every user to approve.
    ///
    /// # Errors
    /// The field with a reference that has no value, or with a value that is not a name.
    pub(super) fn asks(&self, scope: &dyn Scope) -> Result<ApprovalRequest, String> {
        let message = self.message.as_ref().map(|template| template.render(scope)).transpose();
        let message = message.map_err(|error| format!("approval.message: {error}"))?;
        let mut approvers: Vec<String> = Vec::new();
        for (i, template) in self.approvers.iter().enumerate() {
            let at = |problem: String| format!("approval.approvers[{i}]: {problem}");
            let names = match template.value(scope).map_err(|error| at(error.to_string()))? {
                Value::Array(list) => list,
                one => vec![one],
            };
            for name in names {
                let Value::String(name) = name else {
                    return Err(at(format!("{name} is not a name: expected a string or a list of strings")));
                };
                if name.is_empty() || name.len() > limits::OWNER_LEN_MAX {
                    return Err(at(format!("expected names of 1 to {} bytes", limits::OWNER_LEN_MAX)));
                }
                if !approvers.contains(&name) {
                    approvers.push(name);
                }
            }
        }
        if approvers.is_empty() && !self.approvers.is_empty() {
            return Err("approval.approvers: is empty: expected at least one name".into());
        }
        if approvers.len() > limits::APPROVERS_MAX {
            let (count, most) = (approvers.len(), limits::APPROVERS_MAX);
            return Err(format!("approval.approvers: has {count} entries: expected at most {most}"));
        }
        if let Some(len) = message.as_ref().map(String::len).filter(|&len| len > limits::NOTE_LEN_MAX) {
            let most = limits::NOTE_LEN_MAX;
            return Err(format!("approval.message: has {len} bytes: expected at most {most}"));
        }
        Ok(ApprovalRequest { message, approvers })
    }
}

#[derive(Debug)]
pub(super) struct JobPlan {
    /// Whether it has inputs without a version.
    pub(super) reads_newest: bool,
    pub(super) template: JobTemplate,
    /// Spec as JSON, with its references unresolved.
    pub(super) body: Arc<str>,
    pub(super) profile: Arc<Profile>,
}

pub(crate) type Plans = Interner<Plan>;

impl Plans {
    /// Returns the plan of a definition.
    ///
    /// # Errors
    /// The problem in the definition, which validation should have found.
    pub(super) fn of(
        &mut self,
        definition: &Arc<Definition>,
        body: &Arc<str>,
        priority: Option<u8>,
        profiles: &mut Profiles,
    ) -> Result<Arc<Plan>, String> {
        let key: Arc<str> = match priority {
            None => Arc::clone(body),
            Some(priority) => format!("{priority} {body}").into(),
        };
        if let Some(known) = self.get(&key) {
            return Ok(known);
        }
        Plan::compile(definition, body, priority, profiles).map(|plan| self.insert(key, plan))
    }
}

fn number(place: usize) -> u32 {
    u32::try_from(place).expect("a workflow has 10,000 steps at most")
}

impl Plan {
    fn compile(
        definition: &Arc<Definition>,
        body: &Arc<str>,
        priority: Option<u8>,
        profiles: &mut Profiles,
    ) -> Result<Self, String> {
        let spec = &definition.workflow;
        let places: BTreeMap<Arc<str>, u32> = spec
            .all_steps()
            .enumerate()
            .map(|(i, (_, step))| (step.name.as_str().into(), number(i)))
            .collect();
        let mut nodes = Vec::with_capacity(places.len());
        let mut calls = BTreeMap::new();
        for (section, step) in spec.all_steps() {
            let told = |problem: String| format!("step `{}`: {problem}", step.name);
            nodes.push(StepPlan::compile(section, step, &places, priority, profiles).map_err(told)?);
            if let Action::Workflow(call) = &step.action {
                let missing = || told(format!("workflow `{}` does not exist", call.name));
                let called = definition.called(&call.name).ok_or_else(missing)?;
                let body = called.to_json().into();
                calls.insert(call.name.clone(), (Arc::new(called), body));
            }
        }
        let mut dependents = vec![Vec::new(); nodes.len()];
        let mut fills = vec![Vec::new(); nodes.len()];
        for (i, node) in nodes.iter().enumerate() {
            for &need in &node.needs {
                dependents[index(need)].push(number(i));
            }
            for &adder in &node.adders {
                fills[index(adder)].push(number(i));
            }
            if matches!(node.each, Some(ForEachPlan { list: List::Added, .. })) {
                fills[i].push(number(i));
            }
        }
        for ((node, dependents), fills) in nodes.iter_mut().zip(dependents).zip(fills) {
            (node.dependents, node.adds_elements_to) = (dependents.into(), fills.into());
        }
        Ok(Self {
            namespace: spec.namespace.as_str().into(),
            name: spec.name.as_str().into(),
            definition: Arc::clone(definition),
            body: Arc::clone(body),
            producers: Producers::of(&nodes, definition),
            nodes: nodes.into(),
            places,
            calls,
        })
    }

    pub(super) fn node(&self, step: u32) -> &StepPlan {
        &self.nodes[index(step)]
    }

    pub(super) fn place(&self, name: &str) -> Option<u32> {
        self.places.get(name).copied()
    }

    pub(super) fn fails_fast(&self) -> bool {
        self.definition.workflow.failure == FailurePolicy::FailFast
    }

    /// Maximum number of concurrent steps and elements.
    pub(super) fn max_parallel(&self) -> u32 {
        self.definition.workflow.max_parallel_steps.unwrap_or(u32::MAX)
    }

    pub(super) fn steps_of(&self, section: Section) -> impl Iterator<Item = u32> + use<'_> {
        let steps = self.nodes.iter().enumerate().filter(move |(_, node)| node.section == section);
        steps.map(|(i, _)| number(i))
    }
}

/// Converts the number of a step to an index.
pub(super) fn index(step: u32) -> usize {
    step as usize
}

impl StepPlan {
    fn compile(
        section: Section,
        step: &StepSpec,
        places: &BTreeMap<Arc<str>, u32>,
        priority: Option<u8>,
        profiles: &mut Profiles,
    ) -> Result<Self, String> {
        let place = |other: &String| {
            let place = places.get(other.as_str()).copied();
            place.ok_or_else(|| format!("the step refers to step `{other}`, which does not exist"))
        };
        Ok(Self {
            name: step.name.as_str().into(),
            section,
            needs: step.needs.iter().map(place).collect::<Result<_, _>>()?,
            dependents: Box::default(),
            adders: step.adders().iter().map(place).collect::<Result<_, _>>()?,
            adds_elements_to: Box::default(),
            join: step.join,
            when: step
                .when
                .as_deref()
                .map(Expression::parse)
                .transpose()
                .map_err(|error| error.to_string())?,
            each: step.for_each.as_ref().map(ForEachPlan::compile).transpose()?,
            act: StepAction::compile(&step.action, priority, profiles)?,
            continue_on_failure: step.continue_on_failure,
            timeout: step.timeout,
        })
    }
}

impl ForEachPlan {
    fn compile(spec: &ForEach) -> Result<Self, String> {
        let list = match &spec.over {
            ElementSource::Items(items) => List::Items(items.clone().into()),
            ElementSource::List(text) => {
                List::Expression(Expression::parse(text).map_err(|error| error.to_string())?)
            }
            ElementSource::Shards(count) => List::Shards(*count),
            ElementSource::Workers(constraints) => List::Workers(constraints.clone()),
            ElementSource::AddedBy(_) => List::Added,
        };
        let max_parallel = spec.max_parallel.unwrap_or(u32::MAX);
        Ok(Self {
            list,
            max_parallel,
            max_failed: spec.max_failed,
            enough: spec.min_succeeded,
            late: spec.late_workers,
        })
    }
}

impl StepAction {
    fn compile(action: &Action, priority: Option<u8>, profiles: &mut Profiles) -> Result<Self, String> {
        Ok(match action {
            Action::Job(spec) => Self::Job(JobPlan::compile(spec, priority, profiles)?),
            Action::Workflow(call) => Self::Call(call.clone()),
            Action::Approval(approval) => Self::Approval(ApprovalPlan::compile(approval)?),
            Action::Wait(Wait::For(length)) => Self::For(*length),
            Action::Wait(Wait::Until(text)) => {
                Self::Until(Template::parse(text).map_err(|error| error.to_string())?)
            }
            Action::Wait(Wait::Event(event)) => {
                Self::Event { name: event.name.as_str().into(), on_timeout: event.on_timeout }
            }
        })
    }
}

impl JobPlan {
    fn compile(spec: &JobSpec, priority: Option<u8>, profiles: &mut Profiles) -> Result<Self, String> {
        let spec = JobSpec { priority: priority.unwrap_or(spec.priority), ..spec.clone() };
        let reads_newest = spec.inputs.iter().any(|input| !input.artifact.contains('@'));
        let body = spec.compact_json().into();
        let profile = profiles.of(&spec);
        let template = JobTemplate::parse(Arc::new(spec)).map_err(|problems| {
            let told: Vec<_> = problems.iter().map(|(path, error)| format!("{path}: {error}")).collect();
            told.join("; ")
        })?;
        Ok(Self { reads_newest, template, body, profile })
    }
}

/// Returns when the timer of a run fires. A running run: the timeout of its steps. A waiting run: the start
/// deadline of its schedule. A run that waits for a retry: the start of that retry.
pub(super) fn deadline(run: &Run) -> Option<Timestamp> {
    let state = &run.state;
    match state.next_attempt_at() {
        Some(next_at) => Some(next_at).filter(|_| state.status == RunStatus::Retrying),
        None => match state.attempt_started_at() {
            Some(began_at) => Some(began_at + run.plan.definition.workflow.timeout?),
            None => run.firing()?.start_by,
        },
    }
}
