//! Changed fields of a definition.
//!
//! Two JSON documents are compared field by field, down to values without fields of their own. Elements of lists are
//! compared by index. A created definition has only new values, a deleted one only old values.
//!
//! # Bounds
//! At most [`CHANGES_MAX`] fields and [`BYTES_MAX`] bytes. The comparison stops there, so a large document costs no
//! more than a small one, except for the fields that are equal.

use std::collections::BTreeSet;

use model::audit::FieldChange;
use serde_json::Value;

use crate::text::clean;

/// Most changed fields of an entry.
pub const CHANGES_MAX: usize = 64;
/// Longest shown value, in characters.
pub const VALUE_CHARS_MAX: usize = 256;
/// Longest shown path, in characters.
const PATH_CHARS_MAX: usize = 256;
/// Bytes from which on a path does not grow: more than an entry shows of it.
const PATH_BYTES_MAX: usize = 4 * PATH_CHARS_MAX;
/// Most bytes of all changes of an entry.
const BYTES_MAX: usize = 32 * 1024;
/// Text in place of a value that may be secret.
const HIDDEN: &str = "(hidden)";

/// Parts of the names of fields whose values are never shown.
const SECRET_WORDS: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "hash",
    "credential",
    "credentials",
    "apikey",
    "authorization",
];

/// Changed fields.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Difference {
    /// Changed fields, in the order of their names.
    pub changes: Vec<FieldChange>,
    /// Whether more fields were changed.
    pub truncated: bool,
    bytes: usize,
}

impl Difference {
    /// Adds the changed fields of a further definition; their paths begin with `prefix`.
    pub fn add(&mut self, prefix: &str, old: Option<&Value>, new: Option<&Value>) {
        self.compare(&Path { text: prefix.to_owned(), is_secret: false }, old, new);
    }

    fn compare(&mut self, path: &Path, old: Option<&Value>, new: Option<&Value>) {
        if old == new || self.truncated {
            return;
        }
        match (old, new) {
            (Some(Value::Object(old)), Some(Value::Object(new))) => self.fields(path, Some(old), Some(new)),
            (Some(Value::Array(old)), Some(Value::Array(new))) => self.items(path, old, new),
            (Some(Value::Object(old)), None) if !old.is_empty() => self.fields(path, Some(old), None),
            (None, Some(Value::Object(new))) if !new.is_empty() => self.fields(path, None, Some(new)),
            (Some(Value::Array(old)), None) if !old.is_empty() => self.items(path, old, &[]),
            (None, Some(Value::Array(new))) if !new.is_empty() => self.items(path, &[], new),
            // A list or an object took the place of another value: all fields of one are removed, those of the other
            // are added.
            (Some(old), Some(new)) if is_nested(old) || is_nested(new) => {
                self.compare(path, Some(old), None);
                self.compare(path, None, Some(new));
            }
            (old, new) => self.push(path, old, new),
        }
    }

    fn fields(&mut self, path: &Path, old: Option<&Fields>, new: Option<&Fields>) {
        let names: BTreeSet<&String> = [old, new].into_iter().flatten().flat_map(Fields::keys).collect();
        for name in names {
            if self.truncated {
                break;
            }
            let (old, new) =
                (old.and_then(|fields| fields.get(name)), new.and_then(|fields| fields.get(name)));
            if old != new {
                self.compare(&path.field(name), old, new);
            }
        }
    }

    fn items(&mut self, path: &Path, old: &[Value], new: &[Value]) {
        for i in 0..old.len().max(new.len()) {
            if self.truncated {
                break;
            }
            let (old, new) = (old.get(i), new.get(i));
            if old != new {
                self.compare(&path.item(i), old, new);
            }
        }
    }

    fn push(&mut self, path: &Path, old: Option<&Value>, new: Option<&Value>) {
        let shown = |value: &Value| if path.is_secret { HIDDEN.to_owned() } else { shown(value) };
        let change =
            FieldChange { path: clean(&path.text, PATH_CHARS_MAX), old: old.map(shown), new: new.map(shown) };
        let values = [&change.old, &change.new].into_iter().flatten();
        let bytes = self.bytes + change.path.len() + values.map(String::len).sum::<usize>();
        if self.changes.len() >= CHANGES_MAX || bytes > BYTES_MAX {
            self.truncated = true;
            return;
        }
        self.bytes = bytes;
        self.changes.push(change);
    }
}

type Fields = serde_json::Map<String, Value>;

/// Returns the changed fields between two versions of a definition. `None` if it did not exist, or was deleted.
pub fn difference(old: Option<&Value>, new: Option<&Value>) -> Difference {
    let mut difference = Difference::default();
    difference.add("", old, new);
    difference
}

fn is_nested(value: &Value) -> bool {
    matches!(value, Value::Object(_) | Value::Array(_))
}

/// Returns a value as JSON. A long text is shortened before it is converted. The user and the password of an address are
/// hidden.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) if has_user(text) => HIDDEN.to_owned(),
        Value::String(text) => clean(&Value::from(clean(text, VALUE_CHARS_MAX)).to_string(), VALUE_CHARS_MAX),
        value => clean(&value.to_string(), VALUE_CHARS_MAX),
    }
}

/// Whether a text contains an address with a user, such as `https://user:password@host`.
fn has_user(text: &str) -> bool {
    text.split("://").skip(1).any(|rest| {
        let host = rest.split(['/', '?', '#', ' ', '"', '\'']).next().unwrap_or_default();
        host.contains('@')
    })
}

/// Path of a field, such as `job.run.process.command[0]`.
struct Path {
    text: String,
    /// Whether values at this path, and below, may be secret.
    is_secret: bool,
}

impl Path {
    fn field(&self, name: &str) -> Self {
        let separator = if self.text.is_empty() { "" } else { "." };
        let name = clean(name, PATH_CHARS_MAX);
        Self { is_secret: self.is_secret || may_be_secret(&name), text: self.with(separator, &name) }
    }

    fn item(&self, index: usize) -> Self {
        Self { text: self.with("", &format!("[{index}]")), is_secret: self.is_secret }
    }

    /// Returns the path with a further part. A path that is longer than an entry shows does not grow.
    fn with(&self, separator: &str, part: &str) -> String {
        match self.text.len() {
            0..PATH_BYTES_MAX => format!("{}{separator}{part}", self.text),
            _ => self.text.clone(),
        }
    }
}

/// Returns whether the values of a field are hidden: those of environment variables, and of fields that are named like a
/// secret.
fn may_be_secret(name: &str) -> bool {
    // `accessToken`, `access-token` and `ACCESS_TOKENS` are the same.
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        let starts = !c.is_ascii_alphanumeric() || (c.is_ascii_uppercase() && was_lower);
        if starts {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_ascii_alphanumeric()) {
            word.push(c.to_ascii_lowercase());
        }
        was_lower = c.is_ascii_lowercase() || c.is_ascii_digit();
    }
    let is_secret = |word: &String| {
        let singular = word.strip_suffix('s').unwrap_or(word);
        SECRET_WORDS.contains(&word.as_str()) || SECRET_WORDS.contains(&singular)
    };
    let joined = words.concat();
    matches!(name, "env" | "stdin")
        || words.iter().any(is_secret)
        || ["apikey", "privatekey", "accesskey", "secretkey"].iter().any(|key| joined.contains(key))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn listed(old: Option<Value>, new: Option<Value>) -> String {
        let difference = difference(old.as_ref(), new.as_ref());
        let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".into());
        let lines = difference
            .changes
            .iter()
            .map(|it| format!("{}: {} → {}", it.path, shown(&it.old), shown(&it.new)));
        lines.chain(difference.truncated.then(|| "…".to_owned())).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn changed_fields_are_listed_with_their_values() {
        let old = json!({"name": "a", "retry": {"max": 3, "on": []}, "rules": [{"cron": "0 2 * * *"}], "labels": {}});
        let new = json!({"name": "a", "retry": {"max": 5}, "rules": [{"cron": "0 3 * * *"}, {"every": "1h"}],
            "labels": {"team": "pay"}, "owner": null});
        insta::assert_snapshot!(listed(Some(old), Some(new)), @r#"
        labels.team: - → "pay"
        owner: - → null
        retry.max: 3 → 5
        retry.on: [] → -
        rules[0].cron: "0 2 * * *" → "0 3 * * *"
        rules[1].every: - → "1h"
        "#);
    }

    #[test]
    fn a_created_or_deleted_definition_has_one_side() {
        let value = || json!({"name": "a", "steps": [{"include": {"dates": ["2026-12-24"]}}]});
        insta::assert_snapshot!(listed(None, Some(value())), @r#"
        name: - → "a"
        steps[0].include.dates[0]: - → "2026-12-24"
        "#);
        insta::assert_snapshot!(listed(Some(value()), None), @r#"
        name: "a" → -
        steps[0].include.dates[0]: "2026-12-24" → -
        "#);
        assert_eq!(listed(Some(value()), Some(value())), "");
    }

    #[test]
    fn secrets_are_hidden_however_they_are_named() {
        let names =
            ["accessToken", "db-passwords", "X-Api-Key", "PRIVATE_KEY", "stdin", "tokens", "clientSecret"];
        for name in names {
            assert!(may_be_secret(name), "{name}");
        }
        for name in ["tokenizer", "name", "keys", "stdout", "passenger"] {
            assert!(!may_be_secret(name), "{name}");
        }
        let url =
            json!({"url": "https://ann:pw@example.com/x", "mail": "ann@example.com", "to": "https://a.b/@c"});
        insta::assert_snapshot!(listed(None, Some(url)), @r#"
        mail: - → "ann@example.com"
        to: - → "https://a.b/@c"
        url: - → (hidden)
        "#);
    }

    /// A request may have a key of half a megabyte with tens of thousands of fields.
    #[test]
    fn a_long_path_costs_no_more_than_an_entry_shows() {
        let fields: Fields = (0..60_000).map(|n| (format!("f{n}"), json!(n))).collect();
        let long = "x".repeat(500_000);
        let difference = difference(None, Some(&json!({ long: fields })));
        assert!(difference.truncated && difference.changes.len() <= CHANGES_MAX);
        assert!(difference.changes.iter().all(|change| change.path.chars().count() <= PATH_CHARS_MAX));
    }

    #[test]
    fn another_kind_of_value_replaces_all_fields() {
        let (old, new) = (json!({"job": {"run": 1}}), json!({"job": ["x"]}));
        insta::assert_snapshot!(listed(Some(old), Some(new)), @r#"
        job.run: 1 → -
        job[0]: - → "x"
        "#);
        insta::assert_snapshot!(listed(Some(json!({"a": {}})), Some(json!({"a": 1}))), @r"
        a: {} → -
        a: - → 1
        ");
    }

    /// An entry must not tell what its reader may not know.
    #[test]
    fn values_that_may_be_secret_are_hidden() {
        let old = json!({"run": {"process": {"env": {"PATH": "/bin", "KEY": "s1"}}}});
        let new = json!({"run": {"process": {"env": {"PATH": "/bin", "KEY": "s2"}}}, "db_password": "s3",
            "auth": {"Token": ["s4"], "apiKey": "s5", "private_key_file": "s6"}, "tokens": 3});
        let shown = listed(Some(old), Some(new));
        insta::assert_snapshot!(shown, @r"
        auth.Token[0]: - → (hidden)
        auth.apiKey: - → (hidden)
        auth.private_key_file: - → (hidden)
        db_password: - → (hidden)
        run.process.env.KEY: (hidden) → (hidden)
        tokens: - → (hidden)
        ");
    }

    #[test]
    fn a_large_difference_is_cut() {
        let many: Value = (0..10_000).map(|i| (format!("field{i:05}"), json!(i))).collect::<Fields>().into();
        let cut = difference(None, Some(&many));
        assert_eq!((cut.changes.len(), cut.truncated), (CHANGES_MAX, true));
        let long: Value =
            (0..60).map(|i| (format!("{i:03}"), json!("钟".repeat(100_000)))).collect::<Fields>().into();
        let cut = difference(None, Some(&long));
        let bytes: usize =
            cut.changes.iter().map(|it| it.path.len() + it.new.as_ref().map_or(0, String::len)).sum();
        assert!(cut.truncated && (BYTES_MAX - 4_096..=BYTES_MAX).contains(&bytes), "{bytes}");
        assert!(cut.changes[0].new.as_ref().unwrap().ends_with('…'));
    }
}
