//! Artifacts within a run: what a step stored is what the steps after it read.
//!
//! An artifact has a name and versions, and another run may store a newer version of the name at any moment. So an input
//! that names an artifact without a version is pinned, when its job is made, to the version that a step before it
//! stored in this run. Only an artifact that no step before it stores is read in its newest version.
//!
//! ```text
//! make (stores data) ──ended──> files of the step: {"data": "data@sha256:HEX"} ──> use: inputs data ─> data@sha256:HEX
//! ```
//!
//! What a step stored stands in its row, so a retry of the run that takes the step over reads the same version. A step over a
//! list has a list for each name, in the order of its elements. A step that calls a workflow has what the steps of the
//! called run stored, and those read what was stored before the call.
//!
//! # Always true
//! - An input is pinned only to a version that an execution of the same run, or of a run that called it, stored and
//!   that succeeded.
//! - A step that stores an artifact and failed, or did not store it, makes an input of that name fail: it is never
//!   replaced by the version of another run. One that was skipped stores nothing, and then the newest version is read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::record::Files;
use model::run::{Caller, StepStatus};
use model::{JobSpec, RunId, Timestamp, limits};
use serde_json::{Map, Value};

use super::Run;
use super::elements::Elements;
use super::plan::Act;
use crate::engine::Engine;

impl Engine {
    /// What the job of a step stored, as its row has it.
    pub(super) fn files_of_job(&self, id: RunId, step: u32, files: &Files) -> Option<Arc<str>> {
        let Act::Job(job) = &self.workflows.runs.get(&id)?.plan.node(step).act else { return None };
        let outputs = &job.template.spec().outputs;
        if outputs.is_empty() {
            return None;
        }
        let named = |artifact: &str| outputs.iter().any(|output| output.artifact == artifact);
        let stored = files.outputs.iter().map(|version| {
            let key = if named(&version.artifact) { &version.artifact } else { &version.path };
            (key.clone(), Value::String(version.reference()))
        });
        Some(Value::Object(stored.collect()).to_string().into())
    }

    /// A job with each input that names no version pinned to what a step before it stored.
    ///
    /// # Errors
    /// The input whose artifact a step before it was to store and did not.
    pub(super) fn with_pinned_inputs(
        &self,
        id: RunId,
        step: u32,
        spec: Arc<JobSpec>,
    ) -> Result<Arc<JobSpec>, String> {
        let mut pinned = Vec::new();
        for (i, input) in spec.inputs.iter().enumerate().filter(|(_, input)| !input.artifact.contains('@')) {
            let version = self.stored_before(id, step, &input.artifact);
            let version = version.map_err(|reason| format!("inputs[{i}].artifact: {reason}"))?;
            pinned.extend(version.map(|version| (i, version)));
        }
        if pinned.is_empty() {
            return Ok(spec);
        }
        let mut spec = (*spec).clone();
        for (i, version) in pinned {
            spec.inputs[i].artifact = version;
        }
        Ok(Arc::new(spec))
    }

    /// The version of an artifact that a step before this one stored, in this run or in one that called it.
    fn stored_before(&self, id: RunId, step: u32, artifact: &str) -> Result<Option<String>, String> {
        let mut place = Some((id, step));
        while let Some((id, step)) = place {
            let Some(run) = self.workflows.runs.get(&id) else { return Ok(None) };
            if let Some(version) = run.stored_before(step, artifact)? {
                return Ok(Some(version));
            }
            place = run.head.caller.map(|Caller { run, step, .. }| (run, step));
        }
        Ok(None)
    }
}

impl Run {
    fn stored_before(&self, step: u32, artifact: &str) -> Result<Option<String>, String> {
        let mut newest: Option<(Timestamp, u32, BTreeSet<String>)> = None;
        for producer in self.plan.producers.before(step, artifact) {
            let Some(state) = self.step(producer).state.as_deref() else { continue };
            let stored = state.files.as_deref().filter(|_| state.status == StepStatus::Succeeded);
            let versions = stored.map(|files| versions_in(files, artifact)).unwrap_or_default();
            let at = (state.finished_at.unwrap_or_default(), producer);
            if !versions.is_empty() && newest.as_ref().is_none_or(|(time, step, _)| (*time, *step) < at) {
                newest = Some((at.0, at.1, versions));
            }
        }
        if let Some((_, producer, versions)) = newest {
            let mut versions = versions.into_iter();
            return match (versions.next(), versions.next()) {
                (version, None) => Ok(version),
                _ => Err(format!(
                    "the elements of step `{name}` stored different versions of `{artifact}`: take them by `steps.{name}.files`",
                    name = self.plan.node(producer).name
                )),
            };
        }
        for producer in self.plan.producers.storing(step, artifact) {
            let known = self.step(producer);
            let (status, state) = (known.status(), known.state.as_deref());
            let is_told = state.is_some_and(|state| state.files.is_some());
            let stores_none = match status {
                // Workers of older versions do not report files, and a step that a user marked has none.
                StepStatus::Succeeded => is_told,
                StepStatus::Failed | StepStatus::UpstreamFailed | StepStatus::Cancelled => true,
                // A step with the join rule `one_success` may begin before this one has ended.
                StepStatus::Skipped | StepStatus::Pending | StepStatus::Running | StepStatus::Waiting => {
                    false
                }
            };
            if stores_none {
                let name = &self.plan.node(producer).name;
                return Err(match status {
                    StepStatus::Succeeded => {
                        format!("step `{name}` stored no artifact `{artifact}` in this run")
                    }
                    _ => format!(
                        "step `{name}` stored no artifact `{artifact}` in this run: it {}",
                        past(status)
                    ),
                });
            }
        }
        Ok(None)
    }

    /// What all steps of a run stored, for the step that called it.
    pub(super) fn files(&self) -> Option<Arc<str>> {
        let mut stored: Vec<_> = self
            .steps
            .iter()
            .filter_map(|step| step.state.as_deref())
            .filter(|state| state.status == StepStatus::Succeeded)
            .filter_map(|state| Some((state.finished_at, state.files.as_deref()?)))
            .collect();
        if stored.is_empty() {
            return None;
        }
        stored.sort_by_key(|(at, _)| *at);
        let mut all = Map::new();
        for (_, files) in stored {
            all.extend(serde_json::from_str::<Map<String, Value>>(files).unwrap_or_default());
        }
        let text = Value::Object(all).to_string();
        (text.len() <= limits::COLLECTED_BYTES_MAX).then(|| text.into())
    }
}

/// What became of a step that did not succeed, in words.
pub(super) fn past(status: StepStatus) -> &'static str {
    match status {
        StepStatus::Succeeded => "succeeded",
        StepStatus::Failed => "failed",
        StepStatus::UpstreamFailed => "did not begin, because a step before it failed",
        StepStatus::Skipped => "was skipped",
        StepStatus::Cancelled => "was cancelled",
        StepStatus::Pending => "has not begun",
        StepStatus::Running | StepStatus::Waiting => "has not ended",
    }
}

/// The versions of an artifact in the text of what a step stored. The text is not parsed: it may be long, and each element of a
/// list after the step asks.
fn versions_in(files: &str, artifact: &str) -> BTreeSet<String> {
    const DIGITS: usize = 64;
    let wanted = format!("\"{artifact}@sha256:");
    let mut found = BTreeSet::new();
    let mut rest = files;
    while let Some(at) = rest.find(&wanted) {
        let reference = &rest[at + 1..];
        let len = wanted.len() - 1 + DIGITS;
        found.extend(reference.get(..len).map(str::to_owned));
        rest = reference;
    }
    found
}

impl Elements {
    /// What the elements stored: for each name a list in their order, with null where one stored none. Nothing if that is
    /// too large, or none of them told.
    pub(super) fn collected_files(&self) -> Option<Arc<str>> {
        let stored = self.stored();
        if stored.is_empty() {
            return None;
        }
        let mut all: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        let total = self.total() as usize;
        for (&item, files) in stored {
            let files: Map<String, Value> = serde_json::from_str(files).unwrap_or_default();
            for (name, version) in files {
                if !all.contains_key(&name) {
                    // Each name has a list of all elements, so many names are refused before their lists are made.
                    let least = (all.len() + 1).saturating_mul(total).saturating_mul("null,".len());
                    if least > limits::COLLECTED_BYTES_MAX {
                        return None;
                    }
                }
                let list = all.entry(name).or_insert_with(|| vec![Value::Null; total]);
                if let Some(place) = list.get_mut(item as usize) {
                    *place = version;
                }
            }
        }
        let text = serde_json::to_string(&all).ok()?;
        (text.len() <= limits::COLLECTED_BYTES_MAX).then(|| text.into())
    }
}
