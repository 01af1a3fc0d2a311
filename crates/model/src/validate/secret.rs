//! Validation of secrets, and of references to them.

use std::collections::BTreeSet;

use super::{Check, Invalid, shown, too_long, too_many};
use crate::limits;
use crate::secret::SecretSpec;
use crate::spec::{JobSpec, Run, SecretReference};

/// Checks a secret beyond its types. Messages never contain a value.
///
/// # Errors
/// Returns [`Invalid`] with all problems, in the order of the fields.
pub fn secret(secret: &SecretSpec) -> Result<(), Invalid> {
    let mut check = Check::default();
    check.own_name(&secret.name);
    check.name("namespace", &secret.namespace);
    check.note("description", secret.description.as_deref());
    let (count, max) = (secret.values.len(), limits::SECRET_VALUES_MAX);
    check
        .ensure((1..=max).contains(&count), "values", || format!("has {count} entries: expected 1 to {max}"));
    for (key, value) in &secret.values {
        let at = format!("values.{}", shown(key));
        check.ensure(is_key(key), &at, || not_a_key(key));
        let (length, max) = (value.expose().len(), limits::SECRET_VALUE_BYTES_MAX);
        check.ensure((1..=max).contains(&length), &at, || format!("has {length} bytes: expected 1 to {max}"));
        check.no_nul(&at, value.expose());
    }
    let size = secret.values.values().map(|value| value.expose().len()).sum();
    check.ensure(size <= limits::SECRET_BYTES_MAX, "values", || too_long(size, limits::SECRET_BYTES_MAX));
    check.finish()
}

/// Whether a text is a key of a secret.
fn is_key(text: &str) -> bool {
    (1..=limits::SECRET_KEY_LEN_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn not_a_key(text: &str) -> String {
    format!(
        "`{}` is not a key of a secret: expected 1 to {} letters, digits, `-`, `_` or `.`",
        shown(text),
        limits::SECRET_KEY_LEN_MAX
    )
}

/// Checks the references of a job to secrets. Whether the secrets exist is checked by the server.
pub(super) fn references(check: &mut Check, spec: &JobSpec) {
    let (count, max) = (spec.secrets.len(), limits::SECRET_REFERENCES_MAX);
    check.ensure(count <= max, "secrets", || too_many(count, max));
    let own = match &spec.run {
        Run::Process(process) => Some(&process.env),
        Run::Container(container) => Some(&container.env),
        Run::Http(_) => None,
    };
    let (mut variables, mut files) = (BTreeSet::new(), BTreeSet::new());
    for (i, SecretReference { secret, key, env, file }) in spec.secrets.iter().enumerate() {
        let at = |field: &str| format!("secrets[{i}].{field}");
        check.name(&at("secret"), secret);
        check.ensure(is_key(key), &at("key"), || not_a_key(key));
        check.ensure(env.is_some() != file.is_some(), &format!("secrets[{i}]"), || {
            "expected exactly one of `env` and `file`".into()
        });
        if let Some(name) = env {
            check.env_name(&at("env"), name);
            check.ensure(variables.insert(name), &at("env"), || {
                format!("repeats `{}`: expected each variable once", shown(name))
            });
            check.ensure(!own.is_some_and(|own| own.contains_key(name)), &at("env"), || {
                format!("`{}` is already set by `run.{}.env`", shown(name), spec.run.runtime())
            });
        }
        if let Some(name) = file {
            let is_name = is_key(name) && !name.starts_with('.');
            check.ensure(is_name, &at("file"), || {
                format!(
                    "`{}` is not a name of a file: expected 1 to {} letters, digits, `-`, `_` or `.`, not starting with `.`",
                    shown(name),
                    limits::SECRET_KEY_LEN_MAX
                )
            });
            check.ensure(files.insert(name), &at("file"), || {
                format!("repeats `{}`: expected each file once", shown(name))
            });
            check.ensure(own.is_some(), &at("file"), || {
                format!("cannot be set with the runtime `{}`: use `env`", Run::HTTP)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;

    fn problems(result: Result<(), Invalid>) -> String {
        result.map_or_else(|invalid| invalid.to_string().replace("; ", "\n"), |()| "valid".into())
    }

    #[test]
    fn each_wrong_field_of_a_secret_is_named_without_its_value() {
        let check = |json| problems(secret(&serde_json::from_value(json).unwrap()));
        assert_eq!(check(serde_json::json!({"name": "db", "values": {"password": "x"}})), "valid");
        insta::assert_snapshot!(check(serde_json::json!({"name": "db", "values": {}})), @"values: has 0 entries: expected 1 to 64");
        let wrong =
            serde_json::json!({"name": "d b", "values": {"a/b": "hunter2", "nul": "hun\0ter2", "none": ""}});
        insta::assert_snapshot!(check(wrong), @"
        name: `d b` is not a valid name: expected 1 to 63 letters, digits, `-`, `_` or `.`, starting with a letter or digit
        values.a/b: `a/b` is not a key of a secret: expected 1 to 255 letters, digits, `-`, `_` or `.`
        values.none: has 0 bytes: expected 1 to 65536
        values.nul: must not contain NUL bytes
        ");
    }

    #[test]
    fn each_wrong_reference_of_a_job_is_named() {
        let check = |json| {
            let spec: JobSpec = serde_json::from_value(json).unwrap();
            problems(super::super::job(&spec, Timestamp::default()))
        };
        let run = serde_json::json!({"process": {"command": ["x"], "env": {"A": "1"}}});
        let secrets = serde_json::json!([
            {"secret": "db", "key": "password", "env": "DB_PASSWORD"},
            {"secret": "db", "key": "ca.pem", "file": "ca.pem"},
        ]);
        assert_eq!(check(serde_json::json!({"run": run, "secrets": secrets})), "valid");
        let secrets = serde_json::json!([
            {"secret": "d b", "key": "a b", "env": "A"},
            {"secret": "db", "key": "k"},
            {"secret": "db", "key": "k", "env": "LD_PRELOAD", "file": "../x"},
            {"secret": "db", "key": "k", "file": "a"},
            {"secret": "db", "key": "k", "file": "a"},
        ]);
        insta::assert_snapshot!(check(serde_json::json!({"run": run, "secrets": secrets})), @"
        secrets[0].secret: `d b` is not a valid name: expected 1 to 63 letters, digits, `-`, `_` or `.`, starting with a letter or digit
        secrets[0].key: `a b` is not a key of a secret: expected 1 to 255 letters, digits, `-`, `_` or `.`
        secrets[0].env: `A` is already set by `run.process.env`
        secrets[1]: expected exactly one of `env` and `file`
        secrets[2]: expected exactly one of `env` and `file`
        secrets[2].env: is reserved: Belfry sets `BELFRY_*`, and `LD_*` controls the dynamic linker
        secrets[2].file: `../x` is not a name of a file: expected 1 to 255 letters, digits, `-`, `_` or `.`, not starting with `.`
        secrets[4].file: repeats `a`: expected each file once
        ");
        let http = serde_json::json!({"http": {"url": "https://example.com"}});
        let secrets = serde_json::json!([{"secret": "db", "key": "k", "file": "a"}]);
        insta::assert_snapshot!(check(serde_json::json!({"run": http, "secrets": secrets})), @"secrets[0].file: cannot be set with the runtime `http`: use `env`");
    }

    #[test]
    fn the_debug_output_of_a_secret_hides_its_values() {
        let spec = serde_json::json!({"name": "db", "values": {"password": "hunter2"}});
        let mut spec: SecretSpec = serde_json::from_value(spec).unwrap();
        assert!(!format!("{spec:?}").contains("hunter2"));
        spec.hide_values();
        assert_eq!(serde_json::to_value(&spec).unwrap()["values"]["password"], "******");
    }
}
