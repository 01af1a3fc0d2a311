//! What a workflow listens to: the end of jobs and of runs of other workflows.
//!
//! A trigger has one source, or joins several that must all have ended within a window. It starts a run in
//! the commit that ends its source, so it starts exactly one for each end.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::status::JobStatus;
use crate::time::Duration;

/// Starts a run when something ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "TriggerText", into = "TriggerText")]
pub struct TriggerSpec {
    /// What it listens to.
    pub listens: Listens,
    /// What the run is started with; texts are templates over `trigger`.
    pub parameters: BTreeMap<String, Value>,
    /// Starts nothing for the time being.
    pub paused: bool,
}

/// What a trigger listens to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listens {
    /// To one source; each end of it starts a run.
    To(Source),
    /// To several: a run is started once all of them ended.
    All {
        /// At least two.
        sources: Vec<Source>,
        /// How far apart their ends may be.
        window: Duration,
    },
}

impl Listens {
    /// Its sources; one, or those of the join in their order.
    pub fn sources(&self) -> &[Source] {
        match self {
            Self::To(source) => std::slice::from_ref(source),
            Self::All { sources, .. } => sources,
        }
    }

    /// Whether all of several sources must have ended.
    pub const fn joins(&self) -> bool {
        matches!(self, Self::All { .. })
    }
}

/// Jobs of a name, or runs of a workflow, of the namespace, that end in a certain way.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    /// Whether it is about jobs or about runs.
    pub kind: SourceKind,
    /// The name of the jobs, or of the workflow.
    pub name: String,
    /// How they must end.
    pub on: EndsIn,
    /// Labels that the job, or the workflow, must have.
    pub labels: BTreeMap<String, String>,
    /// How long after the time that it was scheduled for, or was created at, it must have ended.
    pub within: Option<Duration>,
}

/// What ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SourceKind {
    /// A job that is not a step of a run.
    Job,
    /// A run that no other run called.
    Workflow,
}

impl SourceKind {
    /// Its word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Workflow => "workflow",
        }
    }
}

/// How a source must end.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum EndsIn {
    /// It succeeded.
    #[default]
    Success,
    /// It failed, with no retries left, or its starting deadline passed.
    Failure,
    /// It ended, whatever it ended in; a cancel too.
    Any,
}

impl EndsIn {
    /// Whether an end is one of these.
    pub const fn includes(self, status: JobStatus) -> bool {
        match self {
            Self::Success => matches!(status, JobStatus::Succeeded),
            Self::Failure => matches!(status, JobStatus::Failed | JobStatus::Expired),
            Self::Any => true,
        }
    }
}

/// How far apart the ends that a trigger joins may be, where it does not say.
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

/// A source as it is written: exactly one of `job` and `workflow`.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TriggerSource)]
struct SourceText {
    /// Any job of this name that is not a step of a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    job: Option<String>,
    /// Any run of this workflow that no other run called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workflow: Option<String>,
    /// How it must end.
    #[serde(default, skip_serializing_if = "is_default")]
    on: EndsIn,
    /// Labels that the job, or the workflow, must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    /// It must have ended so long after the time that it was scheduled for, at most; after it was created,
    /// where no schedule made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    within: Option<Duration>,
}

impl SourceText {
    fn read(self) -> Result<Source, String> {
        let Self { job, workflow, on, labels, within } = self;
        let (kind, name) = match (job, workflow) {
            (Some(name), None) => (SourceKind::Job, name),
            (None, Some(name)) => (SourceKind::Workflow, name),
            _ => return Err("a trigger: expected exactly one of `job`, `workflow` and `all`".into()),
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

/// A trigger as it is written: exactly one of `job`, `workflow` and `all`.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TriggerSpec)]
struct TriggerText {
    /// Starts a run when a job of this name ended; one that is not a step of a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    job: Option<String>,
    /// Starts a run when a run of this workflow ended; one that no other run called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workflow: Option<String>,
    /// How it must end.
    #[serde(default, skip_serializing_if = "is_default")]
    on: EndsIn,
    /// Labels that the job, or the workflow, must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    /// It must have ended so long after the time that it was scheduled for, at most; after it was created,
    /// where no schedule made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    within: Option<Duration>,
    /// Starts a run when all of these ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    all: Vec<SourceText>,
    /// How far apart the ends of `all` may be.
    #[serde(default = "window", skip_serializing_if = "is_window")]
    window: Duration,
    /// What the run is started with; texts are templates over `trigger`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    parameters: BTreeMap<String, Value>,
    /// Starts nothing for the time being; why is told by the workflow and its events.
    #[serde(default, skip_serializing_if = "is_default")]
    paused: bool,
}

impl TryFrom<TriggerText> for TriggerSpec {
    type Error = String;

    fn try_from(text: TriggerText) -> Result<Self, String> {
        let TriggerText { job, workflow, on, labels, within, all, window, parameters, paused } = text;
        let listens = if all.is_empty() {
            if window != WINDOW {
                return Err("a trigger: `window` is about the sources of `all`: expected `within`".into());
            }
            Listens::To(SourceText { job, workflow, on, labels, within }.read()?)
        } else {
            if job.is_some() || workflow.is_some() {
                return Err("a trigger: expected exactly one of `job`, `workflow` and `all`".into());
            }
            if on != EndsIn::default() || !labels.is_empty() || within.is_some() {
                return Err("a trigger: `on`, `labels` and `within` stand in each source of `all`".into());
            }
            let sources = all.into_iter().map(SourceText::read).collect::<Result<_, _>>()?;
            Listens::All { sources, window }
        };
        Ok(Self { listens, parameters, paused })
    }
}

impl From<TriggerSpec> for TriggerText {
    fn from(spec: TriggerSpec) -> Self {
        let TriggerSpec { listens, parameters, paused } = spec;
        match listens {
            Listens::To(source) => {
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
            Listens::All { sources, window } => Self {
                job: None,
                workflow: None,
                on: EndsIn::default(),
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
    fn a_trigger_listens_to_exactly_one_thing() {
        let read = |text: Value| serde_json::from_value::<TriggerSpec>(text);
        let trigger = read(json!({"job": "import"})).unwrap();
        assert_eq!(trigger.listens.sources()[0].on, EndsIn::Success);
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
