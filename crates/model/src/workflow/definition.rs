//! What a run is pinned to.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Action, WorkflowSpec};

/// Where in a workflow a step stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Section {
    /// In `steps`.
    Steps,
    /// In `on_failure`.
    OnFailure,
    /// In `finally`.
    Finally,
}

impl Section {
    /// Its field in the spec.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Steps => "steps",
            Self::OnFailure => "on_failure",
            Self::Finally => "finally",
        }
    }
}

/// A workflow, and every workflow that it calls: what a run is pinned to when it starts, so that nothing
/// that is applied later changes what it does.
///
/// Calls are resolved by whoever starts the run. Many runs share one definition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// The workflow, filled.
    pub workflow: Arc<WorkflowSpec>,
    /// The workflows that it calls, directly or through others, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls: BTreeMap<String, Arc<WorkflowSpec>>,
}

impl Definition {
    /// Of a workflow that calls none.
    pub fn of(mut workflow: WorkflowSpec) -> Self {
        workflow.fill();
        Self { workflow: Arc::new(workflow), calls: BTreeMap::new() }
    }

    /// Of a workflow, with every workflow that it calls and that `find` finds. What is missing is told by
    /// [`validate::definition`](crate::validate::definition).
    pub fn resolve(
        workflow: Arc<WorkflowSpec>,
        mut find: impl FnMut(&str) -> Option<Arc<WorkflowSpec>>,
    ) -> Self {
        let mut calls = BTreeMap::new();
        let mut open = vec![Arc::clone(&workflow)];
        while let Some(spec) = open.pop() {
            for name in called_by(&spec) {
                if calls.contains_key(name) {
                    continue;
                }
                if let Some(called) = find(name) {
                    calls.insert(name.to_owned(), Arc::clone(&called));
                    open.push(called);
                }
            }
        }
        Self { workflow, calls }
    }

    /// The definition as JSON; what is stored, and what tells one from another.
    pub fn to_json(&self) -> String {
        // Its maps have text keys and its floats are numbers, so JSON can always show it.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The definition of a workflow that is called by this one.
    pub fn called(&self, name: &str) -> Option<Self> {
        let workflow = Arc::clone(self.calls.get(name)?);
        let mut calls = BTreeMap::new();
        let mut open = vec![Arc::clone(&workflow)];
        while let Some(spec) = open.pop() {
            for name in called_by(&spec) {
                if let Some(inner) = self.calls.get(name).filter(|_| !calls.contains_key(name)) {
                    calls.insert(name.to_owned(), Arc::clone(inner));
                    open.push(Arc::clone(inner));
                }
            }
        }
        Some(Self { workflow, calls })
    }
}

/// The names of the workflows that a workflow calls by itself; one may come twice.
fn called_by(spec: &WorkflowSpec) -> impl Iterator<Item = &str> {
    spec.all_steps().filter_map(|(_, step)| match &step.action {
        Action::Workflow(call) => Some(call.name.as_str()),
        _ => None,
    })
}
