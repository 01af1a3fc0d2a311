//! Versions of artifacts that a run needs: the versions that its steps stored.
//!
//! Downstream steps, retries of the run and called runs read these versions later. Retention therefore keeps them as
//! long as the run.

use std::collections::BTreeSet;

use serde_json::Value;

use super::StepState;

/// Number of hexadecimal digits of a SHA-256.
const DIGITS: usize = 64;

/// A version of an artifact in the namespace of a run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PinnedVersion {
    /// Name of the artifact.
    pub artifact: String,
    /// SHA-256 of the version, in lower-case hexadecimal.
    pub sha256: String,
}

impl PinnedVersion {
    /// Parses `NAME@sha256:HEX`; returns `None` for any other text.
    fn parse(reference: &str) -> Option<Self> {
        let (artifact, sha256) = reference.split_once("@sha256:")?;
        let is_digest =
            sha256.len() == DIGITS && sha256.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let is_name = !artifact.is_empty()
            && artifact.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        (is_digest && is_name).then(|| Self { artifact: artifact.to_owned(), sha256: sha256.to_owned() })
    }
}

impl StepState {
    /// Returns the versions that must not be deleted because of this row: those that the step stored, and those of
    /// the steps that its call takes over from an ended run.
    pub fn pinned_versions(&self) -> BTreeSet<PinnedVersion> {
        let mut pinned = BTreeSet::new();
        self.collect_pinned_versions(&mut pinned);
        pinned
    }

    fn collect_pinned_versions(&self, pinned: &mut BTreeSet<PinnedVersion>) {
        if let Some(files) = &self.files
            && let Ok(files) = serde_json::from_str::<Value>(files)
        {
            references(&files, pinned);
        }
        for record in self.continues.iter().flat_map(|call| &call.records) {
            record.state.collect_pinned_versions(pinned);
        }
    }
}

/// Collects all versions in a JSON value: a reference, or lists and objects of references.
fn references(value: &Value, pinned: &mut BTreeSet<PinnedVersion>) {
    match value {
        Value::String(reference) => pinned.extend(PinnedVersion::parse(reference)),
        Value::Array(values) => values.iter().for_each(|value| references(value, pinned)),
        Value::Object(values) => values.values().for_each(|value| references(value, pinned)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Map, json};

    use super::*;
    use crate::id::RunId;
    use crate::run::{EndedCall, FILES_TOO_LARGE, StepCause, StepKey, StepRecord, StepStatus, stored_files};

    fn storing(files: &Value) -> StepState {
        let files = Some(files.to_string().into());
        StepState { files, ..StepState::new(StepStatus::Succeeded, StepCause::JobSucceeded) }
    }

    fn names(state: &StepState) -> Vec<String> {
        let version = |version: PinnedVersion| format!("{}@{}", version.artifact, &version.sha256[..2]);
        state.pinned_versions().into_iter().map(version).collect()
    }

    #[test]
    fn a_step_pins_its_versions_and_those_of_its_continued_call() {
        let version = |name: &str, digit: &str| format!("{name}@sha256:{}", digit.repeat(64));
        let one = json!({ "data": version("data", "a"), "rows.csv": version("rows", "b") });
        assert_eq!(names(&storing(&one)), ["data@aa", "rows@bb"]);
        let list = json!({ "part": [version("part", "1"), null, version("part", "2")] });
        assert_eq!(names(&storing(&list)), ["part@11", "part@22"]);

        let run = RunId::from_bits(7);
        let record = StepRecord { key: StepKey { run, step: 0, item: None }, state: storing(&one) };
        let call = EndedCall {
            run,
            parameters: Map::new(),
            records: vec![record],
            batches: Vec::new(),
            repeats_at_most_once: false,
        };
        let pending = StepState::new(StepStatus::Pending, StepCause::CarriedOver);
        let pending = StepState { continues: Some(Arc::new(call)), ..pending };
        assert_eq!(names(&pending), ["data@aa", "rows@bb"]);
    }

    #[test]
    fn invalid_references_pin_no_version() {
        let short = format!("data@sha256:{}", "a".repeat(63));
        let upper = format!("data@sha256:{}", "A".repeat(64));
        let nameless = format!("@sha256:{}", "a".repeat(64));
        let files = json!({ "a": short, "b": upper, "c": nameless, "d": "data", "e": 7 });
        assert_eq!(names(&storing(&files)), [""; 0]);
        let text = StepState { files: Some("not JSON".into()), ..storing(&json!({})) };
        assert_eq!(names(&text), [""; 0]);
        let too_large = StepState { files: Some(FILES_TOO_LARGE.into()), ..storing(&json!({})) };
        assert_eq!(names(&too_large), [""; 0]);
    }

    #[test]
    fn names_under_which_nothing_was_stored_are_not_shown() {
        let version = format!("data@sha256:{}", "a".repeat(64));
        let files = json!({ "data": version, "part": [null, version], "none": null, "all": [null, null] });
        let shown = stored_files(&files.to_string()).unwrap();
        assert_eq!(Value::Object(shown), json!({ "data": version, "part": [null, version] }));
        assert_eq!(stored_files(FILES_TOO_LARGE), None);
    }
}
