//! Values that the expressions of a run can refer to.

use std::sync::Arc;

use model::expression::{EvaluationError, Scope};
use model::run::{RunCause, RunStatus, StepStatus, stored_files};
use model::workflow::Section;
use model::{RunId, limits};
use serde_json::{Map, Value, json};

use super::Run;

/// One element of a mapped step.
#[derive(Debug)]
pub(super) struct Element {
    pub(super) index: u32,
    pub(super) total: u32,
    pub(super) value: Value,
}

/// The values of a run as one of its steps sees them. All of them are final at that time.
pub(super) struct RunScope<'a> {
    pub(super) id: RunId,
    pub(super) run: &'a Run,
    pub(super) element: Option<&'a Element>,
}

/// Describes the outcome of a step that did not succeed.
pub(super) fn outcome_text(status: StepStatus) -> &'static str {
    match status {
        StepStatus::Succeeded => "succeeded",
        StepStatus::Failed => "failed",
        StepStatus::UpstreamFailed => "did not start, because an upstream step failed",
        StepStatus::Skipped => "was skipped",
        StepStatus::Cancelled => "was cancelled",
        StepStatus::Pending => "has not started",
        StepStatus::Running | StepStatus::Waiting => "has not ended",
    }
}

fn missing<T>(message: impl Into<Box<str>>) -> Result<T, EvaluationError> {
    Err(EvaluationError(message.into()))
}

impl<'a> RunScope<'a> {
    pub(super) fn of_step(id: RunId, run: &'a Run) -> Self {
        Self { id, run, element: None }
    }

    fn parameter(&self, path: &[String]) -> Result<(Value, usize), EvaluationError> {
        match path.get(1) {
            None => Ok((Value::Object((*self.run.head.parameters).clone()), 1)),
            Some(name) => match self.run.head.parameters.get(name) {
                Some(value) => Ok((value.clone(), 2)),
                None => missing(format!("there is no parameter `{name}`")),
            },
        }
    }

    fn step(&self, path: &[String]) -> Result<(Value, usize), EvaluationError> {
        let (Some(name), Some(field)) = (path.get(1), path.get(2)) else {
            return missing("a step has no value as a whole: expected one of its fields");
        };
        let Some(place) = self.run.plan.place(name) else {
            return missing(format!("there is no step `{name}`"));
        };
        let step = self.run.step(place);
        let state = step.state.as_deref();
        let tally = state.and_then(|state| state.element_counts).unwrap_or_default();
        let value = match field.as_str() {
            "status" => json!(step.status()),
            "message" => json!(state.and_then(|state| state.message.as_deref()).unwrap_or_default()),
            "total" => json!(state.and_then(|state| state.total).unwrap_or(0)),
            "succeeded" => json!(tally.succeeded),
            "failed" => json!(tally.failed),
            "output" => return self.output(place, name),
            "files" => return self.files(place, path),
            _ => return missing(format!("a step has no field `{field}`")),
        };
        Ok((value, 3))
    }

    fn output(&self, place: u32, name: &str) -> Result<(Value, usize), EvaluationError> {
        let step = self.run.step(place);
        let output = step.state.as_deref().and_then(|state| state.output.as_deref());
        let Some(output) = output else {
            return match (step.status(), &self.run.plan.node(place).each) {
                (StepStatus::Succeeded, Some(_)) => missing(format!(
                    "the outputs of the elements of step `{name}` are larger than {} bytes: store artifacts instead",
                    limits::COLLECTED_BYTES_MAX
                )),
                (StepStatus::Succeeded, None) => missing(format!("step `{name}` has no output")),
                (status, _) => {
                    missing(format!("step `{name}` has no output to read: it {}", outcome_text(status)))
                }
            };
        };
        // A text that is not JSON is used as a string.
        let value = serde_json::from_str(output).unwrap_or_else(|_| Value::String(output.to_owned()));
        Ok((value, 3))
    }

    /// Returns the versions of artifacts that a step stored, or those of one of its outputs.
    fn files(&self, place: u32, path: &[String]) -> Result<(Value, usize), EvaluationError> {
        let step = self.run.step(place);
        let name = &self.run.plan.node(place).name;
        let Some(files) = step.state.as_deref().and_then(|state| state.files.as_deref()) else {
            return match (step.status(), &self.run.plan.node(place).each) {
                // Servers of older versions stored nothing if the list was too large.
                (StepStatus::Succeeded, Some(_)) => missing(format!(
                    "the elements of step `{name}` stored no artifacts, or the list of these is larger than {} bytes",
                    limits::COLLECTED_BYTES_MAX
                )),
                (StepStatus::Succeeded, None) => missing(format!("step `{name}` stored no artifacts")),
                (status, _) => {
                    missing(format!("step `{name}` stored no artifacts: it {}", outcome_text(status)))
                }
            };
        };
        let Some(files) = stored_files(files) else {
            return missing(format!(
                "the list of artifacts that step `{name}` stored is larger than {} bytes",
                limits::COLLECTED_BYTES_MAX
            ));
        };
        match path.get(3) {
            None => Ok((Value::Object(files), 3)),
            Some(artifact) => match files.get(artifact) {
                Some(version) => Ok((version.clone(), 4)),
                None => missing(format!("step `{name}` stored no artifact `{artifact}`")),
            },
        }
    }

    fn run(&self) -> Value {
        let head = &self.run.head;
        let state = &self.run.state;
        let mut map = Map::new();
        map.insert("id".into(), json!(self.id));
        map.insert("workflow".into(), json!(&*self.run.plan.name));
        map.insert("number".into(), json!(head.number));
        map.insert("actor".into(), json!(&*head.actor));
        map.insert("started_at".into(), json!(state.started_at.unwrap_or(state.created_at)));
        let origin = head.origin.as_deref();
        map.insert("scheduled_for".into(), json!(origin.map(|origin| origin.scheduled_for)));
        map.insert("interval_start".into(), json!(origin.and_then(|origin| origin.interval_start)));
        map.insert("interval_end".into(), json!(origin.map(|origin| origin.interval_end)));
        if state.section != Section::Steps {
            map.insert("status".into(), json!(self.outcome()));
        }
        Value::Object(map)
    }

    /// Returns the expected outcome of the run.
    fn outcome(&self) -> RunStatus {
        match self.run.state.stopping {
            Some(RunCause::CancelRequested | RunCause::ParentStopped) => RunStatus::Cancelled,
            Some(_) => RunStatus::Failed,
            None => {
                let count = u32::try_from(self.run.steps.len()).unwrap_or(u32::MAX);
                let failed = (0..count).any(|step| self.run.counts_as_failed(step));
                if failed { RunStatus::Failed } else { RunStatus::Succeeded }
            }
        }
    }
}

impl Scope for RunScope<'_> {
    fn value(&self, path: &[String]) -> Result<(Value, usize), EvaluationError> {
        let name = path.first().map_or("", String::as_str);
        match (name, self.element) {
            ("params", _) => self.parameter(path),
            ("steps", _) => self.step(path),
            ("run", _) => Ok((self.run(), 1)),
            ("item", Some(element)) => Ok((element.value.clone(), 1)),
            ("index", Some(element)) => Ok((json!(element.index), 1)),
            ("total", Some(element)) => Ok((json!(element.total), 1)),
            _ => missing(format!("there is no `{name}`")),
        }
    }
}

/// Returns a value in the form of an environment variable.
pub(super) fn as_text(value: &Value) -> Arc<str> {
    model::expression::shown(value).into()
}
