//! Artifacts within a run: a step reads what earlier steps stored.
//!
//! An artifact has a name and versions, and another run may store a newer version at any time. So the
//! creation of a job pins each input without a version to the version that an earlier step of this run
//! stored. Only an artifact that no earlier step stores is read in its newest version.
//!
//! ```text
//! make (stores data) ──ended──> files of the step: {"data": "data@sha256:HEX"} ──> use: inputs data ─> data@sha256:HEX
//! ```
//!
//! The stored versions are part of the step's row, so a retry of the run that carries the step over reads the
//! same version. A mapped step has a list of versions for each name, in the order of its elements. A
//! step that calls a workflow has the versions that the called run stored; the steps of the called run read
//! versions stored before the call.
//!
//! # Invariants
//! - An input is pinned only to a version that a succeeded execution stored, in the same run or in a run that
//!   called it.
//! - If an earlier step was to store the artifact and failed, or did not store it, the input fails: it never
//!   falls back to the version of another run. A skipped step stores nothing; then the newest version is
//!   read.
//! - The same applies to a call whose called run did not store the artifact, and to an artifact name with
//!   references that may give this name. If the list of versions is too large for the step's row, the input
//!   fails, too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::record::Files;
use model::run::{Caller, FILES_TOO_LARGE, StepStatus, is_not_stored};
use model::{JobSpec, RunId, Timestamp, limits};
use serde_json::{Map, Value};

use super::Run;
use super::elements::Elements;
use super::plan::{JobPlan, StepAction};
use super::producers::template;
use super::scope::{RunScope, outcome_text};
use crate::workflows::Workflows;

impl Workflows {
    /// Returns the artifacts that the job of a step stored, in the form of its row.
    pub(super) fn files_of_job(&self, id: RunId, step: u32, files: &Files) -> Option<Arc<str>> {
        let StepAction::Job(job) = &self.runs.get(&id)?.plan.node(step).act else { return None };
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

    /// Returns the spec with each unversioned input pinned to the version that an earlier step stored.
    ///
    /// # Errors
    /// The input whose artifact an earlier step was to store and did not.
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

    /// Returns the version of an artifact that an earlier step stored, in this run or in a run that called
    /// it.
    fn stored_before(&self, id: RunId, step: u32, artifact: &str) -> Result<Option<String>, String> {
        let mut place = Some((id, step));
        while let Some((id, step)) = place {
            let Some(run) = self.runs.get(&id) else { return Ok(None) };
            if let Some(version) = run.stored_before(id, step, artifact)? {
                return Ok(Some(version));
            }
            place = run.head.caller.map(|Caller { run, step, .. }| (run, step));
        }
        Ok(None)
    }
}

impl Run {
    fn stored_before(&self, id: RunId, step: u32, artifact: &str) -> Result<Option<String>, String> {
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
                    "the elements of step `{name}` stored different versions of `{artifact}`: select them with `steps.{name}.files`",
                    name = self.plan.node(producer).name
                )),
            };
        }
        let producers = &self.plan.producers;
        let named =
            producers.storing(step, artifact).find_map(|producer| self.not_stored(producer, artifact));
        let unread = named.or_else(|| {
            let mut others = producers.may_store(step, artifact);
            others.find_map(|producer| self.not_stored_by_other(id, producer, artifact))
        });
        unread.map_or(Ok(None), Err)
    }

    /// Returns why a step that should store an artifact has no version of it; `None` if that is unknown.
    fn not_stored(&self, producer: u32, artifact: &str) -> Option<String> {
        let (name, step) = (&self.plan.node(producer).name, self.step(producer));
        match step.status() {
            StepStatus::Succeeded => {
                // Workers of older versions do not report files, and a step marked by a user has none.
                let files = step.state.as_deref()?.files.as_deref()?;
                Some(match files == FILES_TOO_LARGE {
                    true => format!(
                        "the list of artifacts that step `{name}` stored in this run is larger than {} bytes, so the \
                         version of `{artifact}` is unknown: let the step store fewer artifacts, or name a version",
                        limits::COLLECTED_BYTES_MAX
                    ),
                    false => format!("step `{name}` stored no artifact `{artifact}` in this run"),
                })
            }
            status @ (StepStatus::Failed | StepStatus::UpstreamFailed | StepStatus::Cancelled) => {
                Some(format!(
                    "step `{name}` stored no artifact `{artifact}` in this run: it {}",
                    outcome_text(status)
                ))
            }
            // A step with the join rule `one_success` may start before this one has ended.
            StepStatus::Skipped | StepStatus::Pending | StepStatus::Running | StepStatus::Waiting => None,
        }
    }

    /// Does the same for a step of which only its execution shows whether it stores an artifact of this name:
    /// a call, or a job whose artifact names have references.
    fn not_stored_by_other(&self, id: RunId, producer: u32, artifact: &str) -> Option<String> {
        let reason = self.not_stored(producer, artifact)?;
        let is_missing = match &self.plan.node(producer).act {
            StepAction::Job(job) => {
                self.missing_of_job(id, producer, job).any(|name| may_match(&name, artifact))
            }
            _ => self.files_of(producer).is_none_or(|files| {
                self.lacks_elements_of_call(producer)
                    || files == FILES_TOO_LARGE
                    || has_missing(files, artifact)
            }),
        };
        is_missing.then_some(reason)
    }

    /// Returns the artifacts that a succeeded step stored.
    fn files_of(&self, step: u32) -> Option<&str> {
        let state = self.step(step).state.as_deref()?;
        state.files.as_deref().filter(|_| state.status == StepStatus::Succeeded)
    }

    /// Returns whether elements of a call did not succeed, so that the artifacts that they should have stored
    /// are unknown.
    fn lacks_elements_of_call(&self, step: u32) -> bool {
        let state = self.step(step).state.as_deref();
        let counts = state.and_then(|state| Some((state.element_counts?, state.total?)));
        counts.is_some_and(|(tally, total)| tally.succeeded < total)
    }

    /// Returns the artifacts that the job of an ended step did not store: by name, or by the template of the
    /// name if the name is unknown, as with elements that have one each.
    fn missing_of_job(&self, id: RunId, step: u32, job: &JobPlan) -> impl Iterator<Item = String> {
        let (files, outputs) = (self.files_of(step), &job.template.spec().outputs);
        outputs.iter().filter_map(move |output| {
            let known = match template(&output.artifact) {
                None => Some(output.artifact.clone()),
                Some(_) if self.plan.node(step).each.is_some() => None,
                Some(template) => template.render(&RunScope::of_step(id, self)).ok(),
            };
            let is_missing = files.is_none_or(|files| match &known {
                Some(name) => versions_in(files, name).is_empty(),
                None => has_gaps(files, outputs.len()),
            });
            is_missing.then(|| known.unwrap_or_else(|| output.artifact.clone()))
        })
    }

    /// Returns the artifacts that all steps of a run stored, for the calling step, with null for missing
    /// ones.
    pub(super) fn files(&self, id: RunId) -> Option<Arc<str>> {
        let mut stored: Vec<_> = self
            .steps
            .iter()
            .filter_map(|step| step.state.as_deref())
            .filter(|state| state.status == StepStatus::Succeeded)
            .filter_map(|state| Some((state.finished_at, state.files.as_deref()?)))
            .collect();
        stored.sort_by_key(|(at, _)| *at);
        let mut all = Map::new();
        let mut missing = self.missing(id);
        for &(_, files) in &stored {
            if files == FILES_TOO_LARGE {
                return Some(FILES_TOO_LARGE.into());
            }
            let files = serde_json::from_str::<Map<String, Value>>(files).unwrap_or_default();
            for (name, version) in files {
                match is_not_stored(&version) {
                    true => missing.push(name),
                    false => drop(all.insert(name, version)),
                }
            }
        }
        for name in missing {
            all.entry(name).or_insert(Value::Null);
        }
        if stored.is_empty() && all.is_empty() {
            return None;
        }
        Some(bounded(Value::Object(all).to_string()))
    }

    /// Returns the artifacts that steps should have stored and did not, by name or by the template of the
    /// name.
    fn missing(&self, id: RunId) -> Vec<String> {
        let mut missing = Vec::new();
        for (step, node) in (0..).zip(&self.plan.nodes) {
            if self.not_stored(step, "").is_none() {
                continue;
            }
            match &node.act {
                StepAction::Job(job) => missing.extend(self.missing_of_job(id, step, job)),
                StepAction::Call(_) if self.files_of(step).is_none() || self.lacks_elements_of_call(step) => {
                    missing.extend(self.plan.producers.names_of_call(step).map(str::to_owned));
                }
                _ => {}
            }
        }
        missing
    }
}

/// Returns the versions of an artifact in the text of a step's files. The text is not parsed, because it may
/// be long and each element of a later step reads it.
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
    /// Returns the artifacts of all elements: a list for each name in the order of the elements, with null
    /// for an element that stored none. `None` if no element reported artifacts.
    pub(super) fn collected_files(&self) -> Option<Arc<str>> {
        let stored = self.stored();
        if stored.is_empty() {
            return None;
        }
        let mut all: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        let total = self.total() as usize;
        for (&item, files) in stored {
            if &**files == FILES_TOO_LARGE {
                return Some(FILES_TOO_LARGE.into());
            }
            let files: Map<String, Value> = serde_json::from_str(files).unwrap_or_default();
            for (name, version) in files {
                if !all.contains_key(&name) {
                    // Each name has a list of all elements, so too many names are refused before their lists
                    // are created.
                    let least = (all.len() + 1).saturating_mul(total).saturating_mul("null,".len());
                    if least > limits::COLLECTED_BYTES_MAX {
                        return Some(FILES_TOO_LARGE.into());
                    }
                }
                let list = all.entry(name).or_insert_with(|| vec![Value::Null; total]);
                if let Some(place) = list.get_mut(item as usize) {
                    *place = version;
                }
            }
        }
        serde_json::to_string(&all).ok().map(bounded)
    }
}

/// Returns the text, or a marker if it is too large for a row.
fn bounded(text: String) -> Arc<str> {
    match text.len() <= limits::COLLECTED_BYTES_MAX {
        true => text.into(),
        false => FILES_TOO_LARGE.into(),
    }
}

/// Returns whether a job with this number of outputs, or an element of it, did not store all of them.
fn has_gaps(files: &str, outputs: usize) -> bool {
    let files: Map<String, Value> = serde_json::from_str(files).unwrap_or_default();
    let has_null = |version: &Value| match version {
        Value::Array(versions) => versions.iter().any(Value::is_null),
        version => version.is_null(),
    };
    files.len() < outputs || files.values().any(has_null)
}

/// Returns whether a call, or each of its elements, should have stored an artifact and did not.
fn has_missing(files: &str, artifact: &str) -> bool {
    let files: Map<String, Value> = serde_json::from_str(files).unwrap_or_default();
    files.iter().any(|(name, version)| is_not_stored(version) && may_match(name, artifact))
}

/// Returns whether a name, or the template of a name, can be that of an artifact.
fn may_match(name: &str, artifact: &str) -> bool {
    template(name).map_or(name == artifact, |template| template.can_render(artifact))
}
