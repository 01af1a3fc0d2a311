//! Stored form of job specs: JSON without the fields that have their default.
//!
//! Most fields of a spec have their default, and a server may store a million waiting jobs. The short form saves
//! memory, disk space and network traffic. Parsing a stored spec adds the defaults again. A default therefore never
//! changes; a test checks all of them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::{FinishBy, JOB, JobSpec, PriorityClass, default_job_name, default_name, default_priority};
use crate::time::Timestamp;

static DEFAULTS: LazyLock<JobSpec> = LazyLock::new(|| JobSpec::command([""]));

struct Compact<'a>(&'a JobSpec);

macro_rules! entries {
    ($spec:expr, $map:expr, $($field:ident),*) => {
        // Destructured without `..`, so that the compiler reports a new field that is missing here.
        let JobSpec { run, $($field),* } = $spec;
        $(if *$field != DEFAULTS.$field {
            $map.serialize_entry(stringify!($field), $field)?;
        })*
        $map.serialize_entry("run", run)?;
    };
}

impl Serialize for Compact<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        entries!(
            self.0,
            map,
            name,
            namespace,
            owner,
            labels,
            queue,
            priority_class,
            priority,
            run_at,
            start_deadline,
            finish_by,
            after,
            requires,
            inputs,
            outputs,
            ports,
            health,
            volumes,
            secrets,
            resources,
            constraints,
            placement,
            spread,
            retry,
            timeout,
            grace,
            stop_signal,
            log,
            delivery,
            concurrency,
            idempotency_key,
            retention
        );
        map.end()
    }
}

impl JobSpec {
    /// Returns the spec as JSON, without the fields that have their default. Parsing the JSON returns an equal spec.
    pub fn compact_json(&self) -> String {
        // Serialization cannot fail: all maps have text keys, and all floats are finite.
        serde_json::to_string(&Compact(self)).unwrap_or_default()
    }
}

/// Fields of a spec that lists show, parsed from its JSON without the other fields.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "they are those of the spec")]
pub struct Summary {
    #[serde(default = "default_job_name")]
    pub name: String,
    #[serde(default = "default_name")]
    pub namespace: String,
    #[serde(default)]
    pub owner: Option<String>,
    #[serde(default = "default_name")]
    pub queue: String,
    #[serde(default)]
    pub priority_class: PriorityClass,
    #[serde(default = "default_priority")]
    pub priority: u8,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub run_at: Option<Timestamp>,
    #[serde(default)]
    pub finish_by: Option<FinishBy>,
}

/// Returns the name of a job from its stored spec, without parsing the other fields.
pub fn name_in(body: &str) -> &str {
    #[derive(Deserialize)]
    struct Named<'a> {
        // A valid name has no character that JSON escapes, so it can be borrowed.
        name: Option<&'a str>,
    }
    serde_json::from_str::<Named<'_>>(body).ok().and_then(|named| named.name).unwrap_or(JOB)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Delivery;

    #[test]
    fn a_compact_spec_omits_defaults_and_round_trips() {
        let mut spec = JobSpec::command(["echo", "hi"]);
        assert_eq!(spec.compact_json(), r#"{"run":{"process":{"command":["echo","hi"]}}}"#);
        spec.delivery = Delivery::ExactlyOnce;
        spec.retry.max_retries = 7;
        spec.labels.insert("team".into(), "payments".into());
        spec.timeout = Some(crate::Duration::from_secs(60));
        let read: JobSpec = serde_json::from_str(&spec.compact_json()).unwrap();
        assert_eq!(read, spec);
    }

    #[test]
    fn name_in_reads_only_the_name_of_a_stored_spec() {
        let mut spec = JobSpec::command(["x"]);
        assert_eq!(name_in(&spec.compact_json()), spec.name);
        spec.name = "import".into();
        assert_eq!(name_in(&spec.compact_json()), "import");
    }

    #[test]
    fn a_summary_fills_in_the_same_defaults() {
        let spec = JobSpec::command(["x"]);
        let summary: Summary = serde_json::from_str(&spec.compact_json()).unwrap();
        let full: Summary = serde_json::from_str(&serde_json::to_string(&spec).unwrap()).unwrap();
        assert_eq!(summary, full);
    }

    /// Stored specs omit defaults, so a changed default would change jobs that already exist.
    #[test]
    fn the_defaults_of_a_spec_never_change() {
        insta::assert_snapshot!(serde_json::to_string(&JobSpec::command(["x"])).unwrap(), @r#"{"name":"job","namespace":"default","queue":"default","priority_class":"normal","priority":50,"run":{"process":{"command":["x"]}},"resources":{},"placement":"spread","retry":{"max_retries":0,"max_start_retries":3,"backoff":{"initial":"1s","factor":2.0,"max":"5m","jitter":0.2}},"grace":"10s","delivery":"at_least_once"}"#);
    }
}
