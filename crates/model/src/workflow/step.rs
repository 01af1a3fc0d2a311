//! One step of a workflow.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{JoinRule, ParameterType};
use crate::spec::{Constraint, JobSpec};
use crate::time::Duration;

/// One step: what it waits for, and what it does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "StepText", into = "StepText")]
pub struct StepSpec {
    /// Unique in its workflow.
    pub name: String,
    /// What it is for, for people.
    pub description: Option<String>,
    /// The steps of its section that it waits for.
    pub needs: Vec<String>,
    /// When it goes, by how they ended.
    pub join: JoinRule,
    /// An [expression](crate::expression) that must hold, or it is skipped; asked once the join rule let it
    /// through.
    pub when: Option<String>,
    /// Does it once for each element of a list.
    pub for_each: Option<ForEach>,
    /// What it does.
    pub action: Action,
    /// What it promises to give: fields of its output, and of what type. Where it promises any, expressions may speak
    /// of no others.
    pub outputs: BTreeMap<String, ParameterType>,
    /// Whether its failure counts as a success for the run and for the steps that need it.
    pub continue_on_failure: bool,
    /// The longest that it may take in all, retries and waiting in queues included.
    pub timeout: Option<Duration>,
}

/// What a step does.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Runs a job.
    Job(Box<JobSpec>),
    /// Runs a workflow.
    Workflow(Call),
    /// Waits until somebody approves.
    Approval(Approval),
    /// Waits for time to pass or for something to happen.
    Wait(Wait),
}

/// A step as it is written: exactly one of `job`, `workflow`, `approval` and `wait`.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = StepSpec)]
struct StepText {
    /// Unique in its workflow.
    name: String,
    /// What it is for, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// The steps of its section that it waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    needs: Vec<String>,
    /// When it goes, by how they ended.
    #[serde(default, skip_serializing_if = "is_default")]
    join: JoinRule,
    /// An expression that must hold, or it is skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    when: Option<String>,
    /// Does it once for each element of a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    for_each: Option<ForEach>,
    /// Runs a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    job: Option<Box<JobSpec>>,
    /// Runs a workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workflow: Option<Call>,
    /// Waits until somebody approves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    approval: Option<Approval>,
    /// Waits for time to pass or for something to happen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wait: Option<Wait>,
    /// What it promises to give: fields of its output, and of what type. Where it promises any, expressions may speak
    /// of no others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    outputs: BTreeMap<String, ParameterType>,
    /// Whether its failure counts as a success for the run and for the steps that need it.
    #[serde(default, skip_serializing_if = "is_default")]
    continue_on_failure: bool,
    /// The longest that it may take in all, retries and waiting in queues included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout: Option<Duration>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl TryFrom<StepText> for StepSpec {
    type Error = String;

    fn try_from(text: StepText) -> Result<Self, String> {
        let StepText {
            name, description, needs, join, when, for_each, job, workflow, approval, wait, ..
        } = text;
        let actions = [
            job.map(Action::Job),
            workflow.map(Action::Workflow),
            approval.map(Action::Approval),
            wait.map(Action::Wait),
        ];
        let mut actions = actions.into_iter().flatten();
        let (Some(action), None) = (actions.next(), actions.next()) else {
            let shown: String = name.chars().take(64).collect();
            return Err(format!(
                "step `{shown}`: expected exactly one of `job`, `workflow`, `approval` and `wait`"
            ));
        };
        let StepText { outputs, continue_on_failure, timeout, .. } = text;
        Ok(Self {
            name,
            description,
            needs,
            join,
            when,
            for_each,
            action,
            outputs,
            continue_on_failure,
            timeout,
        })
    }
}

impl From<StepSpec> for StepText {
    fn from(step: StepSpec) -> Self {
        let (mut job, mut workflow, mut approval, mut wait) = (None, None, None, None);
        match step.action {
            Action::Job(spec) => job = Some(spec),
            Action::Workflow(call) => workflow = Some(call),
            Action::Approval(spec) => approval = Some(spec),
            Action::Wait(spec) => wait = Some(spec),
        }
        let StepSpec { name, description, needs, join, when, for_each, .. } = step;
        let StepSpec { outputs, continue_on_failure, timeout, .. } = step;
        Self {
            name,
            description,
            needs,
            join,
            when,
            for_each,
            job,
            workflow,
            approval,
            wait,
            outputs,
            continue_on_failure,
            timeout,
        }
    }
}

impl utoipa::PartialSchema for StepSpec {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        StepText::schema()
    }
}

impl ToSchema for StepSpec {
    fn schemas(schemas: &mut Vec<(String, utoipa::openapi::RefOr<utoipa::openapi::schema::Schema>)>) {
        StepText::schemas(schemas);
    }
}

impl StepSpec {
    /// What is wrong with an output, as JSON, that is not what the step promises.
    pub fn broken_promise(&self, output: Option<&str>) -> Option<String> {
        if self.outputs.is_empty() {
            return None;
        }
        let given: Option<Value> = output.and_then(|output| serde_json::from_str(output).ok());
        let Some(Value::Object(given)) = given else {
            let names: Vec<_> = self.outputs.keys().map(|name| format!("`{name}`")).collect();
            return Some(format!("it gave no output, and promises {}", names.join(", ")));
        };
        let wrong = |(name, kind): (&String, &ParameterType)| match given.get(name) {
            None => Some(format!("its output has no field `{name}`, which the step promises")),
            Some(value) if !kind.takes(value) => {
                let shown: String = value.to_string().chars().take(64).collect();
                Some(format!(
                    "field `{name}` of its output is {shown}: the step promises `{}`",
                    kind.as_str()
                ))
            }
            Some(_) => None,
        };
        let wrong: Vec<_> = self.outputs.iter().filter_map(wrong).collect();
        (!wrong.is_empty()).then(|| wrong.join("; "))
    }

    /// Whether it is done once on every worker that is there when it begins.
    pub fn is_broadcast(&self) -> bool {
        self.for_each.as_ref().is_some_and(|each| matches!(each.over, Over::Workers(_)))
    }

    /// A step that does this, with every default.
    pub fn new(name: impl Into<String>, action: Action) -> Self {
        Self {
            name: name.into(),
            description: None,
            needs: Vec::new(),
            join: JoinRule::default(),
            when: None,
            for_each: None,
            action,
            outputs: BTreeMap::new(),
            continue_on_failure: false,
            timeout: None,
        }
    }

    /// A step that runs a job.
    pub fn job(name: impl Into<String>, job: JobSpec) -> Self {
        Self::new(name, Action::Job(Box::new(job)))
    }

    /// The steps whose tasks add its elements, where they do.
    pub fn adders(&self) -> &[String] {
        self.for_each.as_ref().map_or(&[], ForEach::adders)
    }

    /// The same step, after these.
    #[must_use]
    pub fn needs<I: IntoIterator<Item = S>, S: Into<String>>(mut self, needs: I) -> Self {
        self.needs = needs.into_iter().map(Into::into).collect();
        self
    }
}

/// Does a step once for each element of a list: a map, a sharded job, or a broadcast. A later step that
/// needs this one reduces what they gave.
///
/// Each element is told to its job as `item` in templates and as `BELFRY_ITEM`, with `index` and `total`.
/// Elements are independent: each is retried and moved to another worker by itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForEach {
    /// The list.
    pub over: Over,
    /// How many may go on at once; all where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_parallel: Option<u32>,
    /// How many may fail before the step fails, and no further ones begin.
    #[serde(default, skip_serializing_if = "is_default")]
    pub max_failed: u32,
    /// How many must succeed for the step to have succeeded; the others are then cancelled. All where
    /// absent, less those that may fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enough: Option<u32>,
    /// Over `workers`: what becomes of workers that come while the step goes on.
    #[serde(default, skip_serializing_if = "is_default")]
    pub late: LatePolicy,
}

/// What becomes of a worker that comes, or comes back, while a step over workers goes on.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum LatePolicy {
    /// The step names it.
    #[default]
    Name,
    /// The step names it, and is done on it too.
    Include,
}

impl ForEach {
    /// The steps whose tasks add its elements, where they do.
    pub fn adders(&self) -> &[String] {
        match &self.over {
            Over::AddedBy(steps) => steps,
            _ => &[],
        }
    }

    /// Over a list, with every default.
    pub fn new(over: Over) -> Self {
        Self { over, max_parallel: None, max_failed: 0, enough: None, late: LatePolicy::Name }
    }
}

/// The list that a step goes over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Over {
    /// These.
    Items(Vec<Value>),
    /// What this expression gives: from parameters, or from the output of an earlier step.
    List(String),
    /// The numbers from 0 to this one, exclusive: one job in so many shards.
    Shards(u32),
    /// Every worker that is there when the step begins and satisfies all of these; each job runs on its
    /// own one.
    Workers(Vec<Constraint>),
    /// What tasks of these steps add while they run, and tasks of this step's own elements. It is whole once all
    /// of these have ended; elements begin as soon as they were added.
    AddedBy(Vec<String>),
}

/// A call of another workflow of the same namespace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Which.
    pub name: String,
    /// What it is called with; texts are templates.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, Value>,
}

/// Waits until somebody approves. What they say about it is the step's output.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Approval {
    /// Who may approve or reject; whoever may change the run, where nobody is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvers: Vec<String>,
    /// What they are asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What happens when the step's `timeout` passes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_timeout: OnTimeout,
}

/// What becomes of a waiting step when its time is over.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    /// It fails.
    #[default]
    Fail,
    /// It succeeds.
    Succeed,
    /// It is skipped.
    Skip,
}

/// Waits for time to pass or for something to happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// So long.
    For(Duration),
    /// Until an instant in RFC 3339; a template. One that has passed is over at once.
    Until(String),
    /// Until an event of this name comes for the run; its payload is the step's output. One that came
    /// before the step began counts.
    Event(EventWait),
}

/// A wait for an external event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EventWait {
    /// The name of the event.
    pub name: String,
    /// What happens when the step's `timeout` passes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_timeout: OnTimeout,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_step_does_exactly_one_thing() {
        let step: StepSpec = serde_json::from_value(json!({"name": "nap", "wait": {"for": "5m"}})).unwrap();
        assert_eq!(step, StepSpec::new("nap", Action::Wait(Wait::For(Duration::from_secs(300)))));
        for text in [
            json!({"name": "nap"}),
            json!({"name": "nap", "wait": {"for": "5m"}, "approval": {}}),
            json!({"name": "nap", "wait": {"for": "5m"}, "unless": "x"}),
        ] {
            assert!(serde_json::from_value::<StepSpec>(text).is_err());
        }
    }

    #[test]
    fn a_step_reads_back_the_same() {
        let text = json!({
            "name": "load", "needs": ["a"], "join": "one_success", "when": "true",
            "for_each": {"over": {"shards": 4}, "max_parallel": 2},
            "job": {"run": {"process": {"command": ["load"]}}}, "continue_on_failure": true, "timeout": "1h",
        });
        let step: StepSpec = serde_json::from_value(text).unwrap();
        let again: StepSpec = serde_json::from_str(&serde_json::to_string(&step).unwrap()).unwrap();
        assert_eq!(again, step);
    }
}
