//! Definitions of runs: a workflow and all workflows that it calls.
//!
//! A run is pinned to its definition at the start, so later changes of the workflows do not affect it. The code that
//! starts the run resolves the calls. Many runs share one definition.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Action, WorkflowSpec};

/// Section of a workflow that a step belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Section {
    /// The section `steps`, which runs first.
    Steps,
    /// The section `on_failure`, which runs if the run is about to fail.
    OnFailure,
    /// The section `finally`, which always runs last.
    Finally,
}

impl Section {
    /// Returns the field of the section in the spec.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Steps => "steps",
            Self::OnFailure => "on_failure",
            Self::Finally => "finally",
        }
    }
}

/// Definition of a run: a workflow, and all workflows that it calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// Spec of the workflow, with the fields that jobs take from the workflow.
    pub workflow: Arc<WorkflowSpec>,
    /// Specs of all workflows that are called directly or indirectly, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls: BTreeMap<String, Arc<WorkflowSpec>>,
}

impl Definition {
    /// Returns the definition of a workflow that calls no other workflow.
    pub fn of(mut workflow: WorkflowSpec) -> Self {
        workflow.fill();
        Self { workflow: Arc::new(workflow), calls: BTreeMap::new() }
    }

    /// Returns the definition of a workflow, with all called workflows that `find` returns.
    /// [`validate::definition`](crate::validate::definition) reports the missing ones.
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

    /// Returns the definition as JSON. Definitions are stored in this form, and compared by it.
    pub fn to_json(&self) -> String {
        // Serialization cannot fail: all maps have text keys, and all floats are finite.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the definition of a called workflow, or `None` if the name is unknown.
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

/// Returns the names of the workflows that a workflow calls directly; a name may occur twice.
fn called_by(spec: &WorkflowSpec) -> impl Iterator<Item = &str> {
    spec.all_steps().filter_map(|(_, step)| match &step.action {
        Action::Workflow(call) => Some(call.name.as_str()),
        _ => None,
    })
}
