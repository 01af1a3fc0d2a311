//! Workflows: named DAGs of steps, as a user writes them.
//!
//! ```text
//! WorkflowSpec ─ triggers                         whose end starts a run
//!              ─ steps ──┬─ needs, join, when     which steps exist, and when
//!                        ├─ for_each              once for each item, shard or worker
//!                        └─ action                a job, a workflow, an approval, a wait
//! Definition = a spec and the specs of every workflow that it calls: what a run is pinned to
//! ```
//!
//! A workflow decides which jobs exist and when; each of them is an ordinary job. Steps stand in three
//! sections that run one after the other: `steps`, then `on_failure` if the run is about to fail, then
//! `finally` in any case. What a spec must hold beyond its types is in [`crate::validate`].

mod definition;
mod join;
mod parameter;
mod render;
mod retry;
mod step;
pub mod template;
mod trigger;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use definition::{Definition, Section};
pub use join::{JoinRule, NeedCounts, Verdict};
pub use parameter::{Parameter, ParameterType, complete, schema_problems};
pub use render::{JobTemplate, RenderError};
pub use retry::{RunFailure, RunRetryPolicy};
pub use step::{Action, Approval, Call, EventWait, ForEach, LatePolicy, OnTimeout, Over, StepSpec, Wait};
pub use trigger::{EndsIn, Listens, Source, SourceKind, TriggerSpec};

use crate::spec::{DEFAULT, default_priority};
use crate::time::Duration;

fn default_namespace() -> String {
    DEFAULT.to_owned()
}

/// A named DAG of steps.
///
/// `name` and `steps` are the only fields without a default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkflowSpec {
    /// Unique in its namespace. Letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// The tenant that it belongs to; its jobs belong to the same.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Who answers for it, and for its jobs where they name nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Free words to find and group workflows by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What it is for, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What a run is started with.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, Parameter>,
    /// What starts runs of it: the end of jobs and of runs of other workflows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<TriggerSpec>,
    /// The steps. Their order decides nothing but what is shown, and who is first where a limit lets
    /// only some of them start.
    #[schema(min_items = 1)]
    pub steps: Vec<StepSpec>,
    /// Steps that run once all others ended, if the run is about to fail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_failure: Vec<StepSpec>,
    /// Steps that run last, whatever happened; also after a cancel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finally: Vec<StepSpec>,
    /// What a run gives, as templates over its steps; read once the steps ended well.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, serde_json::Value>,
    /// What becomes of other steps once one failed.
    #[serde(default)]
    pub failure: FailurePolicy,
    /// How many steps of a run may go on at once; an item of a `for_each` counts as one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_parallel_steps: Option<u32>,
    /// How many runs may go on at once; more wait for their turn, in order. Runs that other workflows
    /// call do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_parallel_runs: Option<u32>,
    /// When a run that failed is tried again.
    #[serde(default, skip_serializing_if = "RunRetryPolicy::is_default")]
    pub retry: RunRetryPolicy,
    /// The longest that `steps` may take, from the start of the run; of each try, where it has more than one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// The priority of its jobs where they name none: 0 (last) to 100 (first).
    #[serde(default = "default_priority")]
    pub priority: u8,
    /// The queue of its jobs where they name none.
    #[serde(default = "default_namespace")]
    pub queue: String,
    /// How long a run is kept once it ended; the server's default where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Duration>,
}

impl WorkflowSpec {
    /// A workflow of these steps with every default.
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
            priority: default_priority(),
            queue: default_namespace(),
            retention: None,
        }
    }

    /// Gives each job what it takes over from its workflow: namespace, owner, queue and priority, where
    /// it has none of its own, and a name of workflow and step. Idempotent.
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
            if job.priority == default_priority() {
                job.priority = self.priority;
            }
            if job.name == crate::spec::default_job_name() {
                job.name = joined_name(&self.name, &step.name);
            }
        }
    }

    /// Every step in the order of sections: `steps`, `on_failure`, `finally`. The place of a step in
    /// this order is its number in rows.
    pub fn all_steps(&self) -> impl Iterator<Item = (Section, &StepSpec)> {
        let main = self.steps.iter().map(|step| (Section::Steps, step));
        let on_failure = self.on_failure.iter().map(|step| (Section::OnFailure, step));
        let finally = self.finally.iter().map(|step| (Section::Finally, step));
        main.chain(on_failure).chain(finally)
    }

    /// Returns the step at a place in the order of [`all_steps`](Self::all_steps), counted from 0.
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

/// `workflow.step`, as long as a name may be.
fn joined_name(workflow: &str, step: &str) -> String {
    let joined = format!("{workflow}.{step}");
    if joined.len() <= crate::limits::NAME_LEN_MAX { joined } else { step.to_owned() }
}

/// What becomes of other steps once one failed whose failure counts.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum FailurePolicy {
    /// What does not depend on it goes on.
    #[default]
    FinishWhatCan,
    /// Steps that have not begun never do, and those that go on are stopped.
    FailFast,
}
