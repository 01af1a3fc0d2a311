//! Steps of a workflow: dependencies, condition, elements and action.
//!
//! Files and requests have the action as exactly one of the fields `job`, `workflow`, `approval` and `wait`; a
//! private type converts between this form and [`StepSpec`].
//!
//! Parsing checks only the types. [`crate::validate`] checks dependencies, expressions and limits; the engine executes
//! the steps.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{JoinRule, ParameterType};
use crate::spec::{Constraint, JobSpec};
use crate::time::Duration;

/// A step of a workflow: its dependencies and its action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "StepText", into = "StepText")]
pub struct StepSpec {
    /// Name of the step, unique in the workflow. 1 to 63 letters, digits, `-`, `_` or `.`, starting with a letter or
    /// digit.
    pub name: String,
    /// Description of the step, at most 1,000 bytes.
    pub description: Option<String>,
    /// Names of the upstream steps, in the same section. The step starts when their statuses satisfy its join rule
    /// [default: none; the step starts with its section].
    pub needs: Vec<String>,
    /// Join rule: statuses of the upstream steps with which the step starts [default: `all_success`].
    pub join: JoinRule,
    /// Condition of the step, as an [expression](crate::expression), evaluated after the join rule is satisfied. If it
    /// is false, the step is skipped [default: no condition].
    pub when: Option<String>,
    /// Fan-out: executes the action once for each element of a list. Only for jobs and workflows [default: the action
    /// is executed once].
    pub for_each: Option<ForEach>,
    /// Action of the step.
    pub action: Action,
    /// Declared fields of the output of the step, with their types; at most 100. Expressions can then use only these
    /// fields, and the step fails if its output does not have them [default: any output is allowed].
    pub outputs: BTreeMap<String, ParameterType>,
    /// Whether the run and the downstream steps treat a failure of the step as a success [default: `false`].
    pub continue_on_failure: bool,
    /// Timeout of the step, including retries and the time in queues [default: no timeout].
    pub timeout: Option<Duration>,
}

/// Action of a step.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Runs a job.
    Job(Box<JobSpec>),
    /// Calls a workflow.
    Workflow(Call),
    /// Waits for an approval.
    Approval(Approval),
    /// Waits for a time or an event.
    Wait(Wait),
}

/// A step of a workflow: its dependencies, and exactly one of `job`, `workflow`, `approval` and `wait`.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = StepSpec)]
struct StepText {
    /// Name of the step, unique in the workflow. 1 to 63 letters, digits, `-`, `_` or `.`, starting with a letter or
    /// digit.
    name: String,
    /// Description of the step, at most 1,000 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// Names of the upstream steps, in the same section. The step starts when their statuses satisfy its join rule
    /// [default: none; the step starts with its section].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    needs: Vec<String>,
    /// Join rule: statuses of the upstream steps with which the step starts [default: `all_success`].
    #[serde(default, skip_serializing_if = "is_default")]
    join: JoinRule,
    /// Condition of the step, as an expression, evaluated after the join rule is satisfied. If it is false, the step is
    /// skipped [default: no condition].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    when: Option<String>,
    /// Fan-out: executes the action once for each element of a list. Only for jobs and workflows [default: the action
    /// is executed once].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    for_each: Option<ForEach>,
    /// Job that the step runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    job: Option<Box<JobSpec>>,
    /// Workflow in the same namespace that the step calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workflow: Option<Call>,
    /// Approval that the step waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    approval: Option<Approval>,
    /// Time or event that the step waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wait: Option<Wait>,
    /// Declared fields of the output of the step, with their types; at most 100. Expressions can then use only these
    /// fields, and the step fails if its output does not have them [default: any output is allowed].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    outputs: BTreeMap<String, ParameterType>,
    /// Whether the run and the downstream steps treat a failure of the step as a success [default: `false`].
    #[serde(default, skip_serializing_if = "is_default")]
    continue_on_failure: bool,
    /// Timeout of the step, including retries and the time in queues [default: no timeout].
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
    /// Returns the errors of an output, given as JSON, that does not match the declared outputs of the step; `None`
    /// if it matches.
    pub fn output_problems(&self, output: Option<&str>) -> Option<String> {
        if self.outputs.is_empty() {
            return None;
        }
        let given: Option<Value> = output.and_then(|output| serde_json::from_str(output).ok());
        let Some(Value::Object(given)) = given else {
            let names: Vec<_> = self.outputs.keys().map(|name| format!("`{name}`")).collect();
            return Some(format!("the step produced no output, but declares {}", names.join(", ")));
        };
        let wrong = |(name, kind): (&String, &ParameterType)| match given.get(name) {
            None => Some(format!("the output has no field `{name}`, which the step declares")),
            Some(value) if !kind.accepts(value) => {
                let shown: String = value.to_string().chars().take(64).collect();
                Some(format!("field `{name}` of the output is {shown}: expected `{}`", kind.as_str()))
            }
            Some(_) => None,
        };
        let wrong: Vec<_> = self.outputs.iter().filter_map(wrong).collect();
        (!wrong.is_empty()).then(|| wrong.join("; "))
    }

    /// Returns whether the step runs on every worker that is connected when the step starts.
    pub fn is_broadcast(&self) -> bool {
        self.for_each.as_ref().is_some_and(|each| matches!(each.over, ElementSource::Workers(_)))
    }

    /// Returns a step with this action; all other fields have their defaults.
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

    /// Returns a step that runs a job; all other fields have their defaults.
    pub fn job(name: impl Into<String>, job: JobSpec) -> Self {
        Self::new(name, Action::Job(Box::new(job)))
    }

    /// Returns the names of the steps whose tasks add elements; empty for other lists.
    pub fn adders(&self) -> &[String] {
        self.for_each.as_ref().map_or(&[], ForEach::adders)
    }

    /// Returns the step with these upstream steps.
    #[must_use]
    pub fn needs<I: IntoIterator<Item = S>, S: Into<String>>(mut self, needs: I) -> Self {
        self.needs = needs.into_iter().map(Into::into).collect();
        self
    }
}

/// Fan-out of a step: executes the action once for each element of a list, shard or worker. A downstream step can
/// combine the outputs.
///
/// A job has its element as `item` in templates and as the environment variable `BELFRY_ITEM`, with `index` and
/// `total`. Elements are independent: each is retried and moved to another worker separately.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForEach {
    /// List of elements.
    pub over: ElementSource,
    /// Maximum number of concurrent elements, at least 1 [default: unlimited].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_parallel: Option<u32>,
    /// Maximum number of failed elements; if more fail, the step fails and no further element starts [default: 0].
    #[serde(default, skip_serializing_if = "is_default")]
    pub max_failed: u32,
    /// Number of elements that must succeed, at least 1. The step succeeds when this number is reached, and the other
    /// elements are cancelled [default: all elements, except those that `max_failed` allows to fail].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_succeeded: Option<u32>,
    /// Treatment of workers that connect after the start of the step, for a list of `workers` [default: `report`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub late_workers: LatePolicy,
}

/// Treatment of a worker that connects or reconnects after the start of a mapped step over workers.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum LatePolicy {
    /// The step only records the name of the worker.
    #[default]
    Report,
    /// The step records the name of the worker and also runs on the worker.
    Include,
}

impl ForEach {
    /// Returns the names of the steps whose tasks add elements; empty for other lists.
    pub fn adders(&self) -> &[String] {
        match &self.over {
            ElementSource::AddedBy(steps) => steps,
            _ => &[],
        }
    }

    /// Returns a fan-out over this list; all other fields have their defaults.
    pub fn new(over: ElementSource) -> Self {
        Self {
            over,
            max_parallel: None,
            max_failed: 0,
            min_succeeded: None,
            late_workers: LatePolicy::Report,
        }
    }
}

/// List of elements of a fan-out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ElementSource {
    /// Fixed list of elements, at most 100,000. References are not replaced in them.
    Items(Vec<Value>),
    /// Expression that returns a list, for example from a parameter or from the output of an earlier step.
    List(String),
    /// Number of shards, from 1 to 100,000; the elements are the numbers from 0 to one less.
    Shards(u32),
    /// All workers that are connected at the start of the step and satisfy all these constraints. Each job runs on
    /// its own worker.
    Workers(Vec<Constraint>),
    /// Names of steps whose tasks add elements while they run; tasks of the step itself can add elements too. An
    /// element starts as soon as it is added. The list is complete when all these steps have ended.
    AddedBy(Vec<String>),
}

/// Call of a workflow in the same namespace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Name of the workflow.
    pub name: String,
    /// Parameters of the call, by name. Texts are templates.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, Value>,
}

/// An approval by a user. The output of the step has the fields `by`, the name of the user, and `note`, the note of
/// the user.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Approval {
    /// Users who may approve or reject, at most 100 [default: all users who may change the run].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvers: Vec<String>,
    /// Question for the approvers; a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Result of the step when its `timeout` passes [default: `fail`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_timeout: OnTimeout,
}

/// Result of a waiting step when its timeout passes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    /// The step fails.
    #[default]
    Fail,
    /// The step succeeds.
    Succeed,
    /// The step is skipped.
    Skip,
}

/// Time or event that a step waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// Duration of the wait, from the start of the step.
    For(Duration),
    /// Time at which the wait ends, in RFC 3339; a template. If it has passed, the wait ends at once.
    Until(String),
    /// Event that ends the wait, sent to the run by name. Its payload is the output of the step. An event that was
    /// sent before the step started counts.
    Event(EventWait),
}

/// Wait for an event that a client sends to the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EventWait {
    /// Name of the event.
    pub name: String,
    /// Result of the step when its `timeout` passes [default: `fail`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_timeout: OnTimeout,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_step_has_exactly_one_action() {
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
