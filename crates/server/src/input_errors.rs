//! Validation errors of a request body or a file: all invalid fields at once, in words for users.
//!
//! serde stops at the first error. So the text is parsed as a plain value, each invalid field is recorded and removed, and
//! the rest is parsed again, until parsing succeeds or nothing can be removed.
//!
//! # Cost
//! One pass for each invalid field, bounded by [`WORK_MAX`] bytes in all. Only rejected input is parsed here.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

/// Maximum number of bytes that are parsed again for one rejected input.
const WORK_MAX: usize = 4 << 20;
/// Maximum number of passes for one rejected input.
const PASSES_MAX: usize = 200;

/// How the scalars of the text are typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalars {
    /// Numbers and strings are distinct, as in JSON.
    Typed,
    /// A number is accepted where a string is expected, as in YAML.
    Text,
}

/// One invalid field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidField {
    /// Path of the field, such as `steps[1].retries`; empty for the whole value.
    pub path: String,
    /// Why the field is invalid.
    pub detail: String,
}

/// Finds all fields of a value that are invalid for `T`. Also returns the value parsed from the remaining fields, if that
/// succeeds.
///
/// `bytes` is the length of the text that the value was parsed from.
pub fn find<T: DeserializeOwned>(
    value: Value,
    bytes: usize,
    scalars: Scalars,
) -> (Option<T>, Vec<InvalidField>) {
    let mut search = Search { value, scalars, removed: Vec::new(), errors: Vec::new() };
    let parsed = search.run::<T>((WORK_MAX / bytes.max(1)).clamp(1, PASSES_MAX));
    (parsed, search.errors)
}

struct Search {
    value: Value,
    scalars: Scalars,
    /// Parent and name (or index in the original list) of each removed field.
    removed: Vec<(String, String)>,
    errors: Vec<InvalidField>,
}

impl Search {
    fn run<T: DeserializeOwned>(&mut self, passes: usize) -> Option<T> {
        for _ in 0..passes {
            let error = match serde_path_to_error::deserialize::<_, T>(&self.value) {
                Ok(parsed) => return Some(parsed),
                Err(error) => error,
            };
            let message = error.inner().to_string();
            let (place, names) = self.locate(error.path());
            if self.adapt(&place, &message) {
                continue;
            }
            let shown = names.join();
            let missing = message.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
            let is_consequence = missing.is_some_and(|field| {
                self.removed.iter().any(|(parent, name)| *parent == shown && name == field)
            });
            if !is_consequence {
                self.errors.push(InvalidField { path: shown, detail: plain(&message) });
            }
            if !self.remove(&place, &names) {
                return None;
            }
        }
        None
    }

    /// Resolves a path of serde: the steps in the current value, and the names in the original value.
    fn locate(&self, path: &Path) -> (Vec<Step>, Names) {
        let (mut at, mut place, mut names) = (&self.value, Vec::new(), Names(Vec::new()));
        for segment in path {
            let (step, name) = match segment {
                Segment::Seq { index } => (Step::Index(*index), self.original(&names, *index).to_string()),
                Segment::Map { key } | Segment::Enum { variant: key } => {
                    (Step::Key(key.clone()), key.clone())
                }
                Segment::Unknown => break,
            };
            let Some(next) = step.of(at) else { break };
            at = next;
            names.0.push((matches!(step, Step::Index(_)), name));
            place.push(step);
        }
        (place, names)
    }

    /// Returns the index that an element had before other elements of its list were removed.
    fn original(&self, list: &Names, index: usize) -> usize {
        let list = list.join();
        let mut gone: Vec<usize> = self
            .removed
            .iter()
            .filter(|(parent, _)| *parent == list)
            .filter_map(|(_, n)| n.parse().ok())
            .collect();
        gone.sort_unstable();
        gone.into_iter().fold(index, |index, gone| if gone <= index { index + 1 } else { index })
    }

    /// Converts a scalar to the type that its field expects, if that keeps its meaning.
    fn adapt(&mut self, place: &[Step], message: &str) -> bool {
        let found = place.iter().try_fold(&mut self.value, |at, step| step.of_mut(at));
        let Some(found) = found else { return false };
        let adapted = match &*found {
            Value::Number(number) if message.contains("floating point") => number.as_f64().and_then(whole),
            Value::Number(_) | Value::Bool(_)
                if self.scalars == Scalars::Text && message.ends_with("expected a string") =>
            {
                Some(Value::String(found.to_string()))
            }
            _ => None,
        };
        let Some(adapted) = adapted.filter(|adapted| adapted != found) else { return false };
        *found = adapted;
        true
    }

    fn remove(&mut self, place: &[Step], names: &Names) -> bool {
        let (Some((last, parents)), Some(((_, name), list))) = (place.split_last(), names.0.split_last())
        else {
            return false;
        };
        let Some(parent) = parents.iter().try_fold(&mut self.value, |at, step| step.of_mut(at)) else {
            return false;
        };
        match (last, parent) {
            (Step::Key(key), Value::Object(object)) => _ = object.remove(key),
            (Step::Index(index), Value::Array(list)) if *index < list.len() => _ = list.remove(*index),
            _ => return false,
        }
        self.removed.push((Names(list.to_vec()).join(), name.clone()));
        true
    }
}

/// Converts a number without a fraction to a JSON integer.
fn whole(number: f64) -> Option<Value> {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    #[expect(clippy::cast_possible_truncation, reason = "it has no fraction and is within the exact range")]
    (number.fract() == 0.0 && number.abs() <= EXACT_MAX).then(|| Value::from(number as i64))
}

/// One segment of a path into a value.
enum Step {
    Key(String),
    Index(usize),
}

impl Step {
    fn of<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        match self {
            Self::Key(key) => value.get(key),
            Self::Index(index) => value.get(index),
        }
    }

    fn of_mut<'a>(&self, value: &'a mut Value) -> Option<&'a mut Value> {
        match self {
            Self::Key(key) => value.get_mut(key),
            Self::Index(index) => value.get_mut(index),
        }
    }
}

/// The parts of a path; whether each is an index, and its text.
struct Names(Vec<(bool, String)>);

impl Names {
    fn join(&self) -> String {
        let mut path = String::new();
        for (is_index, name) in &self.0 {
            match is_index {
                true => path.extend(["[", name, "]"]),
                false if path.is_empty() => path.push_str(name),
                false => path.extend([".", name]),
            }
        }
        path
    }
}

/// Rewrites a message of serde without its names of Rust types.
pub fn plain(message: &str) -> String {
    const TYPES: &[(&str, &str)] = &[
        ("u8", "a whole number from 0 to 255"),
        ("u16", "a whole number from 0 to 65535"),
        ("u32", "a whole number from 0 to 4294967295"),
        ("u64", "a whole number of at least 0"),
        ("usize", "a whole number of at least 0"),
        ("i32", "a whole number"),
        ("i64", "a whole number"),
        ("f64", "a number"),
        ("a map", "an object"),
        ("map", "an object"),
        ("a sequence", "a list"),
        ("sequence", "a list"),
        ("mapping start", "an object"),
        ("sequence start", "a list"),
        ("scalar", "a single value"),
        ("a boolean", "`true` or `false`"),
        ("map with a single key", "an object with one key"),
        ("value", "an allowed value"),
    ];
    // The YAML parser's words for a value with several forms.
    if message.contains("externally tagged enum") {
        return "expected a name, or an object with one key".to_owned();
    }
    // The path already names the field, so the position in the text is dropped.
    let message = message.split(" at line ").next().unwrap_or(message);
    let message: String = message.chars().take(600).collect();
    let message =
        message.replace("floating point", "number").replace("invalid type: map", "invalid type: object");
    let message = message.replace("invalid value: map", "invalid value: object");
    let message = message.replace("invalid type: sequence", "invalid type: list");
    let Some((before, expected)) = message.rsplit_once("expected ") else { return message };
    if let Some((_, plain)) = TYPES.iter().find(|(word, _)| *word == expected) {
        return format!("{before}expected {plain}");
    }
    if expected.starts_with("struct ") || expected.starts_with("internally tagged enum") {
        return format!("{before}expected an object");
    }
    message
}

/// Rewrites a YAML parser's error without its advice for programmers.
pub(crate) fn yaml_problem(message: &str) -> String {
    if message.contains("Anchors") {
        return "anchors are not supported: repeat the value instead".to_owned();
    }
    if message.contains("Aliases") || message.contains("alias") {
        return "aliases are not supported: repeat the value instead".to_owned();
    }
    if message.to_lowercase().contains("multiple") {
        return "expected one YAML document but got several".to_owned();
    }
    match message.split_once("duplicate mapping key: ") {
        Some((before, rest)) => {
            let key = rest.split(", set ").next().unwrap_or(rest);
            format!("{before}duplicate key `{key}`")
        }
        None => message.to_owned(),
    }
}
