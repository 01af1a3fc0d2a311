//! Merge patches (RFC 7386) on the spec of a job.

use model::JobSpec;
use serde_json::Value;

use super::problem::{ApiError, field_error};

/// Applies a merge patch to a spec: members are replaced, `null` restores the default.
///
/// # Errors
/// `invalid_spec` if the result is not a valid spec, or if the patch changes a fixed field.
pub(super) fn apply(spec: &JobSpec, patch: &Value) -> Result<JobSpec, ApiError> {
    if !patch.is_object() {
        return Err(ApiError::invalid_fields(vec![field_error(
            "",
            "expected an object with the fields to change",
        )]));
    }
    let mut merged = serde_json::to_value(spec).map_err(|error| ApiError::internal(&error))?;
    // The recursion is as deep as its arguments, whose depth is limited.
    json_patch::merge(&mut merged, patch);
    let patched: JobSpec = serde_path_to_error::deserialize(merged).map_err(|error| {
        let path = error.path().to_string();
        ApiError::invalid_fields(vec![field_error(path.trim_start_matches('.'), &error.inner().to_string())])
    })?;
    let fixed = [
        ("namespace", patched.namespace != spec.namespace),
        ("after", patched.after != spec.after),
        ("idempotency_key", patched.idempotency_key != spec.idempotency_key),
    ];
    let changed: Vec<_> = fixed
        .iter()
        .filter(|(_, changed)| *changed)
        .map(|(field, _)| field_error(field, "cannot be changed: submit another job"))
        .collect();
    if changed.is_empty() { Ok(patched) } else { Err(ApiError::invalid_fields(changed)) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(patch: Value) -> Result<JobSpec, String> {
        let spec = JobSpec { priority: 70, ..JobSpec::command(["true"]) };
        apply(&spec, &patch).map_err(|error| error.into_problem(None).detail)
    }

    #[test]
    fn a_patch_changes_its_fields_and_null_restores_the_default() {
        let spec = patched(json!({"name": "other", "priority": null, "retry": {"max_retries": 2}})).unwrap();
        assert_eq!((spec.name.as_str(), spec.priority, spec.retry.max_retries), ("other", 50, 2));
        assert_eq!(spec.run, JobSpec::command(["true"]).run);
    }

    #[test]
    fn an_invalid_patch_names_the_field() {
        insta::assert_snapshot!(patched(json!({"retry": {"max_retries": "many"}})).unwrap_err(), @r#"retry.max_retries: invalid type: string "many", expected u32"#);
        insta::assert_snapshot!(patched(json!([1])).unwrap_err());
        insta::assert_snapshot!(patched(json!({"namespace": "x"})).unwrap_err(), @"namespace: cannot be changed: submit another job");
    }
}
