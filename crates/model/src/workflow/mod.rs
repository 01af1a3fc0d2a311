//! Specs of workflows: named DAGs of steps, as a user writes them.
//!
//! ```text
//! WorkflowSpec ─ triggers                         jobs and workflows whose end starts a run
//!              ─ steps ──┬─ needs, join, when     upstream steps, join rule, condition
//!                        ├─ for_each              one job or call for each item, shard or worker
//!                        └─ action                a job, a workflow, an approval or a wait
//! Definition = the spec and the specs of all workflows that it calls; a run is pinned to it
//! ```
//!
//! A workflow decides which jobs exist and when; each of them is an ordinary job. Steps belong to three sections that
//! run in order: `steps`, then `on_failure` if the run is about to fail, then always `finally`. [`crate::validate`]
//! checks everything beyond the types.

mod definition;
mod join;
mod parameter;
mod render;
mod retry;
mod run_field;
mod step;
pub mod template;
mod trigger;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use definition::{Definition, Section};
pub use join::{JoinRule, UpstreamCounts, Verdict};
pub use parameter::{Parameter, ParameterType, complete, schema_problems};
pub use render::{JobTemplate, RenderError};
pub use retry::{RunFailure, RunRetryPolicy};
pub use step::{
    Action, Approval, Call, ElementSource, EventWait, ForEach, LatePolicy, OnTimeout, StepSpec, Wait,
};
pub use trigger::{RequiredResult, Source, SourceKind, TriggerSources, TriggerSpec};

use crate::spec::{DEFAULT, PriorityClass, default_priority};
use crate::time::Duration;

fn default_namespace() -> String {
    DEFAULT.to_owned()
}

/// A workflow: a named DAG of steps.
///
/// Only `name` and `steps` are required.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkflowSpec {
    /// Name of the workflow, unique in its namespace. 1 to 63 letters, digits, `-`, `_` or `.`, starting with a
    /// letter or digit.
    pub name: String,
    /// Namespace (tenant) of the workflow, its runs and their jobs [default: `default`].
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Owner of the workflow: the person or team responsible for it, at most 128 bytes. Also the owner of its jobs,
    /// unless a job sets one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Labels of the workflow, for filtering and grouping; at most 64. Syntax: that of the labels of a job.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Description of the workflow, at most 1,000 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Parameters of a run, by name; at most 100.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, Parameter>,
    /// Triggers, at most 32: each starts a run when jobs, or runs of other workflows, end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<TriggerSpec>,
    /// Steps of the workflow; at most 10,000 in all three sections together. Dependencies decide when a step starts.
    /// The order of the list matters only for display, and when a limit allows only some steps to start.
    #[schema(min_items = 1)]
    pub steps: Vec<StepSpec>,
    /// Steps that run after all `steps` have ended, if the run is about to fail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_failure: Vec<StepSpec>,
    /// Steps that always run last, also after a failure, a timeout or a cancel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finally: Vec<StepSpec>,
    /// Outputs of a run, by name: templates that can refer to steps, evaluated after the steps have succeeded. At
    /// most 100.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, serde_json::Value>,
    /// Treatment of the other steps after a step fails [default: `keep_going`].
    #[serde(default)]
    pub failure: FailurePolicy,
    /// Maximum number of concurrent steps of a run; each element of a `for_each` counts as one step [default:
    /// unlimited].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_parallel_steps: Option<u32>,
    /// Maximum number of concurrent runs of the workflow; further runs wait in order. Runs that other workflows call do
    /// not count [default: unlimited].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_parallel_runs: Option<u32>,
    /// Retry policy of failed runs [default: no retries].
    #[serde(default, skip_serializing_if = "RunRetryPolicy::is_default")]
    pub retry: RunRetryPolicy,
    /// Timeout of the section `steps`, from the start of the run. With retries, it applies to each attempt [default: no
    /// timeout].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// Priority class of jobs of the workflow that set none or `normal` [default: `normal`].
    #[serde(default)]
    pub priority_class: PriorityClass,
    /// Priority of jobs of the workflow that set none, from 0 to 100; jobs with a higher priority start first [default:
    /// 50].
    #[serde(default = "default_priority")]
    pub priority: u8,
    /// Queue of jobs of the workflow that set none [default: `default`].
    #[serde(default = "default_namespace")]
    pub queue: String,
    /// Retention of a run after it has ended; the server then deletes the run. At most 3,660 days [default: the setting
    /// `server.retention`, `30d`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Duration>,
}

impl WorkflowSpec {
    /// Returns a workflow with these steps; all other fields have their defaults.
    pub fn new(name: impl Into<String>, steps: Vec<StepSpec>) -> Self {
        Self {
            name: name.into(),
            namespace: default_namespace(),
            owner: None,
            labels: BTreeMap::new(),
            description: None,
            parameters: BTreeMap::new(),
            triggers: Vec::new(),
            steps,
            on_failure: Vec::new(),
            finally: Vec::new(),
            outputs: BTreeMap::new(),
            failure: FailurePolicy::default(),
            max_parallel_steps: None,
            max_parallel_runs: None,
            retry: RunRetryPolicy::default(),
            timeout: None,
            priority_class: PriorityClass::default(),
            priority: default_priority(),
            queue: default_namespace(),
            retention: None,
        }
    }

    /// Sets namespace, owner, queue, priority class and priority of each job to those of the workflow, unless the job sets
    /// its own.
    /// Sets its name to `workflow.step`, unless it has one. Idempotent.
    pub fn fill(&mut self) {
        let sections = [&mut self.steps, &mut self.on_failure, &mut self.finally];
        for step in sections.into_iter().flatten() {
            let Action::Job(job) = &mut step.action else { continue };
            if job.namespace == DEFAULT {
                job.namespace.clone_from(&self.namespace);
            }
            if job.owner.is_none() {
                job.owner.clone_from(&self.owner);
            }
            if job.queue == DEFAULT {
                job.queue.clone_from(&self.queue);
            }
            if job.priority_class == PriorityClass::default() {
                job.priority_class = self.priority_class;
            }
            if job.priority == default_priority() {
                job.priority = self.priority;
            }
            if job.name == crate::spec::default_job_name() {
                job.name = joined_name(&self.name, &step.name);
            }
        }
    }

    /// Returns the highest priority class of the jobs of the workflow. A job without a class has that of the workflow.
    pub fn highest_priority_class(&self) -> PriorityClass {
        let of_job = |step: &StepSpec| match &step.action {
            Action::Job(job) if job.priority_class != PriorityClass::default() => job.priority_class,
            _ => self.priority_class,
        };
        self.all_steps().map(|(_, step)| of_job(step)).max().unwrap_or_default()
    }

    /// Returns all steps in the order of the sections: `steps`, `on_failure`, `finally`. The position of a step in
    /// this order is its number in stored rows.
    pub fn all_steps(&self) -> impl Iterator<Item = (Section, &StepSpec)> {
        let main = self.steps.iter().map(|step| (Section::Steps, step));
        let on_failure = self.on_failure.iter().map(|step| (Section::OnFailure, step));
        let finally = self.finally.iter().map(|step| (Section::Finally, step));
        main.chain(on_failure).chain(finally)
    }

    /// Returns the step at a position in the order of [`all_steps`](Self::all_steps), counted from 0.
    pub fn step_at(&self, place: usize) -> Option<&StepSpec> {
        let mut place = place;
        for section in [&self.steps, &self.on_failure, &self.finally] {
            match section.get(place) {
                Some(step) => return Some(step),
                None => place -= section.len(),
            }
        }
        None
    }
}

/// Returns `workflow.step`, or only `step` if the joined name is too long.
fn joined_name(workflow: &str, step: &str) -> String {
    let joined = format!("{workflow}.{step}");
    if joined.len() <= crate::limits::NAME_LEN_MAX { joined } else { step.to_owned() }
}

/// Treatment of the other steps after a step fails. Steps with `continue_on_failure` do not count.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum FailurePolicy {
    /// Steps that do not depend on the failed step continue.
    #[default]
    KeepGoing,
    /// Running steps are stopped, and no further step starts.
    FailFast,
}
