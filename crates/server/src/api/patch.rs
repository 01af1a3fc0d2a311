//! Merge patches (RFC 7386) on the spec of a job.

use model::JobSpec;
use serde_json::{Map, Value};

use super::problem::{Trouble, field_error};

/// The spec with a merge patch applied: members are replaced, `null` brings the default back.
///
/// # Errors
/// `invalid_spec`, if what comes of it is no spec, or if it changes what cannot be changed.
pub(super) fn apply(spec: &JobSpec, patch: Value) -> Result<JobSpec, Trouble> {
    if !patch.is_object() {
        return Err(Trouble::invalid_fields(vec![field_error(
            "",
            "the patch is no object: expected the fields to change",
        )]));
    }
    let mut merged = serde_json::to_value(spec).map_err(|error| Trouble::internal(&error))?;
    merge(&mut merged, patch);
    let patched: JobSpec = serde_path_to_error::deserialize(merged).map_err(|error| {
        let path = error.path().to_string();
        Trouble::invalid_fields(vec![field_error(path.trim_start_matches('.'), &error.inner().to_string())])
    })?;
    let fixed = [
        ("namespace", patched.namespace != spec.namespace),
        ("idempotency_key", patched.idempotency_key != spec.idempotency_key),
    ];
    let changed: Vec<_> = fixed
        .iter()
        .filter(|(_, changed)| *changed)
        .map(|(field, _)| field_error(field, "cannot be changed: submit another job"))
        .collect();
    if changed.is_empty() { Ok(patched) } else { Err(Trouble::invalid_fields(changed)) }
}

/// The algorithm of RFC 7386, section 2. As deep as its arguments, which were parsed with a bound.
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (name, value) in patch {
        if value.is_null() {
            target.remove(&name);
        } else {
            merge(target.entry(name).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The examples of RFC 7386, appendix A.
    #[test]
    fn merging_follows_the_rfc() {
        for (target, patch, result) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"a": "b"}), json!(["c"]), json!(["c"])),
            (json!({"a": "foo"}), json!(null), json!(null)),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ] {
            let mut merged = target.clone();
            merge(&mut merged, patch.clone());
            assert_eq!(merged, result, "{target} with {patch}");
        }
    }

    fn patched(patch: Value) -> Result<JobSpec, String> {
        let spec = JobSpec { priority: 70, ..JobSpec::command(["true"]) };
        apply(&spec, patch).map_err(|trouble| trouble.into_problem(None).detail)
    }

    #[test]
    fn a_patch_changes_what_it_names_and_null_brings_the_default_back() {
        let spec = patched(json!({"name": "other", "priority": null, "retry": {"max_retries": 2}})).unwrap();
        assert_eq!((spec.name.as_str(), spec.priority, spec.retry.max_retries), ("other", 50, 2));
        assert_eq!(spec.run, JobSpec::command(["true"]).run);
    }

    #[test]
    fn a_patch_that_makes_no_spec_names_the_field() {
        insta::assert_snapshot!(patched(json!({"retry": {"max_retries": "many"}})).unwrap_err(), @r#"retry.max_retries: invalid type: string "many", expected u32"#);
        insta::assert_snapshot!(patched(json!([1])).unwrap_err());
        insta::assert_snapshot!(patched(json!({"namespace": "x"})).unwrap_err(), @"namespace: cannot be changed: submit another job");
    }
}
