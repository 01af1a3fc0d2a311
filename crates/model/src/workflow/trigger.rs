//! Triggers of a workflow: the end of jobs, or of runs of other workflows, starts a run.
//!
//! A trigger has one source, or joins several sources that must all end within a window. It starts the run in the
//! commit that ends the source, so each end starts exactly one run.
//!
//! Files and requests have the source as exactly one of the fields `job`, `workflow` and `all`; a private type converts
//! between this form and [`TriggerSpec`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::status::JobStatus;
use crate::time::Duration;

/// A trigger: starts a run of the workflow when a job, or a run of another workflow, ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "TriggerText", into = "TriggerText")]
pub struct TriggerSpec {
    /// Sources of the trigger.
    pub listens: TriggerSources,
    /// Parameters of the run, by name. Texts are templates that can refer to `trigger`.
    pub parameters: BTreeMap<String, Value>,
    /// Whether the trigger is paused: a paused trigger starts no runs.
    pub paused: bool,
}

/// Sources of a trigger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TriggerSources {
    /// One source; each end of it starts a run.
    To(Source),
    /// Several sources; a run starts when all of them have ended.
    All {
        /// Sources, from 2 to 8.
        sources: Vec<Source>,
        /// Maximum time between the first and the last end.
        window: Duration,
    },
}

impl TriggerSources {
    /// Returns the sources of the trigger, in order.
    pub fn sources(&self) -> &[Source] {
        match self {
            Self::To(source) => std::slice::from_ref(source),
            Self::All { sources, .. } => sources,
        }
    }

    /// Returns whether the trigger joins several sources.
    pub const fn joins(&self) -> bool {
        matches!(self, Self::All { .. })
    }
}

/// Source of a trigger: jobs with this name, or runs of this workflow, in the same namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    /// Kind of the source: jobs or runs of a workflow.
    pub kind: SourceKind,
    /// Name of the jobs or of the workflow.
    pub name: String,
    /// Result that the source must have.
    pub on: RequiredResult,
    /// Labels that the job or workflow must have, with these values [default: none].
    pub labels: BTreeMap<String, String>,
    /// Maximum time from the scheduled time of the source, or from its creation if it has none, to its end.
    pub within: Option<Duration>,
}

/// Kind of the source of a trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SourceKind {
    /// A job that does not belong to a workflow run.
    Job,
    /// A workflow run that no other run called.
    Workflow,
}

impl SourceKind {
    /// Returns the name of the kind in files and in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Workflow => "workflow",
        }
    }
}

/// Result that the source of a trigger must have.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum RequiredResult {
    /// The source succeeded.
    #[default]
    Success,
    /// The source failed and has no retries left, or its start deadline passed.
    Failure,
    /// The source ended with any result, including a cancel.
    Any,
}

impl RequiredResult {
    /// Returns whether a job with this final status matches.
    pub const fn includes(self, status: JobStatus) -> bool {
        match self {
            Self::Success => matches!(status, JobStatus::Succeeded),
            Self::Failure => matches!(status, JobStatus::Failed | JobStatus::Expired),
            Self::Any => true,
        }
    }
}

/// Default window of a trigger with several sources.
const WINDOW: Duration = Duration::from_hours(24);

fn window() -> Duration {
    WINDOW
}

fn is_window(value: &Duration) -> bool {
    *value == WINDOW
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Source of a trigger: exactly one of `job` and `workflow`.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TriggerSource)]
struct SourceText {
    /// Name of the jobs. Jobs of workflow runs do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    job: Option<String>,
    /// Name of the workflow. Runs that another run called do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workflow: Option<String>,
    /// Result that the source must have [default: `success`].
    #[serde(default, skip_serializing_if = "is_default")]
    on: RequiredResult,
    /// Labels that the job or workflow must have, with these values [default: none].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    /// Maximum time from the scheduled time of the source to its end; from its creation, if no schedule created it. A
    /// later end starts no run [default: unlimited].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    within: Option<Duration>,
}

impl SourceText {
    fn read(self) -> Result<Source, String> {
        let Self { job, workflow, on, labels, within } = self;
        let (kind, name) = match (job, workflow) {
            (Some(name), None) => (SourceKind::Job, name),
            (None, Some(name)) => (SourceKind::Workflow, name),
            _ => return Err("trigger: expected exactly one of `job`, `workflow` and `all`".into()),
        };
        Ok(Source { kind, name, on, labels, within })
    }
}

impl From<Source> for SourceText {
    fn from(source: Source) -> Self {
        let Source { kind, name, on, labels, within } = source;
        let (job, workflow) = match kind {
            SourceKind::Job => (Some(name), None),
            SourceKind::Workflow => (None, Some(name)),
        };
        Self { job, workflow, on, labels, within }
    }
}

/// A trigger: starts a run of the workflow when a job, or a run of another workflow, ends. Exactly one of `job`,
/// `workflow` and `all` is required.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TriggerSpec)]
struct TriggerText {
    /// Name of the jobs whose end starts a run. Jobs of workflow runs do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    job: Option<String>,
    /// Name of the workflow whose ended runs start a run. Runs that another run called do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workflow: Option<String>,
    /// Result that the source must have [default: `success`].
    #[serde(default, skip_serializing_if = "is_default")]
    on: RequiredResult,
    /// Labels that the job or workflow must have, with these values [default: none].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    /// Maximum time from the scheduled time of the source to its end; from its creation, if no schedule created it. A
    /// later end starts no run [default: unlimited].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    within: Option<Duration>,
    /// Several sources, from 2 to 8; a run starts when all of them have ended. Each source has its own `on`, `labels`
    /// and `within`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    all: Vec<SourceText>,
    /// Maximum time between the first and the last end of the sources in `all` [default: `1d`].
    #[serde(default = "window", skip_serializing_if = "is_window")]
    window: Duration,
    /// Parameters of the run, by name. Texts are templates that can refer to `trigger`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    parameters: BTreeMap<String, Value>,
    /// Whether the trigger is paused. A paused trigger starts no runs; the workflow and its events show the ends that
    /// it ignored [default: `false`].
    #[serde(default, skip_serializing_if = "is_default")]
    paused: bool,
}

impl TryFrom<TriggerText> for TriggerSpec {
    type Error = String;

    fn try_from(text: TriggerText) -> Result<Self, String> {
        let TriggerText { job, workflow, on, labels, within, all, window, parameters, paused } = text;
        let listens = if all.is_empty() {
            if window != WINDOW {
                return Err(
                    "trigger: `window` is allowed only with `all`: for a single source, use `within`".into(),
                );
            }
            TriggerSources::To(SourceText { job, workflow, on, labels, within }.read()?)
        } else {
            if job.is_some() || workflow.is_some() {
                return Err("trigger: expected exactly one of `job`, `workflow` and `all`".into());
            }
            if on != RequiredResult::default() || !labels.is_empty() || within.is_some() {
                return Err("trigger: `on`, `labels` and `within` must be set in each source of `all`".into());
            }
            let sources = all.into_iter().map(SourceText::read).collect::<Result<_, _>>()?;
            TriggerSources::All { sources, window }
        };
        Ok(Self { listens, parameters, paused })
    }
}

impl From<TriggerSpec> for TriggerText {
    fn from(spec: TriggerSpec) -> Self {
        let TriggerSpec { listens, parameters, paused } = spec;
        match listens {
            TriggerSources::To(source) => {
                let SourceText { job, workflow, on, labels, within } = source.into();
                Self {
                    job,
                    workflow,
                    on,
                    labels,
                    within,
                    all: Vec::new(),
                    window: WINDOW,
                    parameters,
                    paused,
                }
            }
            TriggerSources::All { sources, window } => Self {
                job: None,
                workflow: None,
                on: RequiredResult::default(),
                labels: BTreeMap::new(),
                within: None,
                all: sources.into_iter().map(SourceText::from).collect(),
                window,
                parameters,
                paused,
            },
        }
    }
}

impl utoipa::PartialSchema for TriggerSpec {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        TriggerText::schema()
    }
}

impl ToSchema for TriggerSpec {
    fn schemas(schemas: &mut Vec<(String, utoipa::openapi::RefOr<utoipa::openapi::schema::Schema>)>) {
        TriggerText::schemas(schemas);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_trigger_has_exactly_one_kind_of_source() {
        let read = |text: Value| serde_json::from_value::<TriggerSpec>(text);
        let trigger = read(json!({"job": "import"})).unwrap();
        assert_eq!(trigger.listens.sources()[0].on, RequiredResult::Success);
        for text in [
            json!({}),
            json!({"job": "a", "workflow": "b"}),
            json!({"job": "a", "all": [{"job": "b"}]}),
            json!({"job": "a", "window": "1h"}),
            json!({"all": [{"job": "a"}, {"job": "b", "workflow": "c"}]}),
            json!({"on": "any", "all": [{"job": "a"}, {"job": "b"}]}),
            json!({"job": "a", "when": "true"}),
        ] {
            assert!(read(text.clone()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_trigger_reads_back_as_it_was_written() {
        for text in [
            json!({"job": "a", "on": "any", "labels": {"x": "y"}, "within": "2h", "paused": true}),
            json!({"all": [{"job": "a"}, {"workflow": "b", "on": "failure"}], "window": "6h",
                   "parameters": {"n": "${{ trigger.id }}"}}),
        ] {
            let trigger: TriggerSpec = serde_json::from_value(text.clone()).unwrap();
            assert_eq!(serde_json::to_value(&trigger).unwrap(), text);
        }
    }
}
