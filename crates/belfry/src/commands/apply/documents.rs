//! Parses files into objects.
//!
//! A file contains one or more documents. A document has the keys `kind`, `name` and `spec`, and optionally `version`,
//! `namespace`, `labels` and `owner`. Commands for one kind also accept a bare spec.
//!
//! The metadata is merged into the spec while the spec is deserialized into its type. There is no untyped step between,
//! so no value changes its type: `no` stays a string, and so does `1.10`.
//!
//! Deserialization stops at the first error of a document; then [`input_errors::find`] looks for further errors, so that a
//! user sees all errors of all files together, each with its document, path and line.

use std::fmt;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use model::alert::{AlertRuleSpec, ChannelSpec, MonitorSpec};
use model::api::FieldError;
use model::calendar::CalendarSpec;
use model::queue::QueueSettings;
use model::secret::SecretSpec;
use model::workflow::Action;
use model::{ScheduleSpec, ServiceSpec, WorkflowSpec};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, IntoDeserializer as _, MapAccess, Visitor};
use serde_json::Value;
use serde_path_to_error::Track;
use server::input_errors::{self, InvalidField, Scalars};

use super::super::Namespace;
use super::secrets;
use crate::args::spec::read_text;
use crate::failure::Failure;

/// Object with its source.
#[derive(Debug)]
pub(in crate::commands) struct Document {
    /// File, with the number of the document if the file has several.
    source: String,
    pub(in crate::commands) object: Object,
}

impl Document {
    /// Formats the path of a field with its document, for messages.
    pub(in crate::commands) fn location(&self, path: &str) -> String {
        if path.is_empty() { self.source.clone() } else { format!("{}: {path}", self.source) }
    }
}

/// Object that a document defines.
#[derive(Debug)]
pub(in crate::commands) enum Object {
    Schedule(Box<ScheduleSpec>),
    Workflow(Box<WorkflowSpec>),
    Service(Box<ServiceSpec>),
    Calendar(CalendarSpec),
    Queue { name: String, settings: QueueSettings },
    Channel(Box<ChannelSpec>),
    AlertRule(Box<AlertRuleSpec>),
    Monitor(Box<MonitorSpec>),
    Secret(Box<SecretSpec>),
}

impl Object {
    /// Formats kind, namespace and name, for the headings of `belfry diff`.
    pub(super) fn title(&self) -> String {
        match self {
            Self::Schedule(spec) => format!("schedule {}/{}", spec.namespace, spec.name),
            Self::Workflow(spec) => format!("workflow {}/{}", spec.namespace, spec.name),
            Self::Service(spec) => format!("service {}/{}", spec.namespace, spec.name),
            Self::Calendar(spec) => format!("calendar {}/{}", spec.namespace, spec.name),
            Self::Queue { name, .. } => format!("queue {name}"),
            Self::Channel(spec) => format!("channel {}/{}", spec.namespace, spec.name),
            Self::AlertRule(spec) => format!("alert {}/{}", spec.namespace, spec.name),
            Self::Monitor(spec) => format!("monitor {}/{}", spec.namespace, spec.name),
            Self::Secret(spec) => format!("secret {}/{}", spec.namespace, spec.name),
        }
    }
}

/// Returns the errors of secrets that cannot be read.
fn unreadable(wrong: Vec<(String, String)>, is_document: bool) -> Vec<SpecError> {
    let at = |path| if is_document { format!("spec.{path}") } else { path };
    wrong.into_iter().map(|(path, detail)| SpecError { path: at(path), detail }).collect()
}

/// Supported kinds, for messages.
const KINDS: &str =
    "`workflow`, `schedule`, `service`, `calendar`, `queue`, `channel`, `alert`, `monitor` or `secret`";

/// Metadata of a document. A file without `spec` and `kind` is a bare spec.
#[derive(Debug, Default, Deserialize)]
struct Metadata {
    version: Option<u32>,
    kind: Option<String>,
    name: Option<String>,
    namespace: Option<String>,
    owner: Option<Value>,
    labels: Option<std::collections::BTreeMap<String, String>>,
    spec: Option<IgnoredAny>,
}

/// Parses all documents of the files; directories are searched recursively.
///
/// `kind` is the kind of documents without the key `kind`.
///
/// # Errors
/// One failure with all errors of all documents, or the first file that cannot be read.
pub(in crate::commands) fn read(
    files: &[PathBuf],
    namespace: &Namespace,
    kind: Option<&'static str>,
) -> Result<Vec<Document>, Failure> {
    let (mut documents, mut wrong) = (Vec::new(), Vec::new());
    for path in files_of(files)? {
        let source = if path == Path::new("-") { "stdin".into() } else { path.display().to_string() };
        let text = read_text(&path)?;
        let parts = parts(&text).map_err(|detail| Failure::usage(format!("`{source}`: {detail}")))?;
        let several = parts.len() > 1;
        for (i, part) in parts.iter().enumerate() {
            let source = if several { format!("{source} document {}", i + 1) } else { source.clone() };
            match part.object(namespace, kind) {
                Ok(object) => documents.push(Document { source, object }),
                Err(found) => wrong.extend(found.into_iter().map(|SpecError { path, detail }| {
                    let path = if path.is_empty() { source.clone() } else { format!("{source}: {path}") };
                    FieldError { pointer: String::new(), path, detail }
                })),
            }
        }
    }
    if !wrong.is_empty() {
        return Err(Failure::usage("the files contain invalid definitions").fields(wrong));
    }
    if documents.is_empty() {
        return Err(Failure::usage("the files contain no definitions")
            .help("in directories, only files that end in `.yaml`, `.yml` or `.json` are read"));
    }
    Ok(documents)
}

/// Returns the files: for a directory, all files in it that end in `.yaml`, `.yml` or `.json`, sorted by name.
fn files_of(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            collect(path, &mut files)?;
        } else {
            files.push(path.clone());
        }
    }
    Ok(files)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let failed =
        |error: std::io::Error| Failure::usage(format!("cannot read `{}`: {error}", folder.display()));
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        entries.push(entry.map_err(failed)?);
    }
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        // Symbolic links to directories are not followed, because they may form a cycle.
        let kind = entry.file_type().map_err(failed)?;
        let path = entry.path();
        let ending = path.extension().and_then(std::ffi::OsStr::to_str).unwrap_or_default();
        if kind.is_dir() {
            collect(&path, files)?;
        } else if matches!(ending, "yaml" | "yml" | "json") {
            files.push(path);
        }
    }
    Ok(())
}

/// Text of a document.
struct Part<'a> {
    text: &'a str,
    json: bool,
    /// Number of lines of the file before the document.
    lines_before: usize,
}

/// Error in a document: the path of the field, and the detail.
#[derive(Debug)]
struct SpecError {
    path: String,
    detail: String,
}

impl SpecError {
    /// Whether this error of an object is only a consequence of errors in its fields, which were removed as invalid.
    fn follows_from(&self, others: &[Self]) -> bool {
        let is_of_a_field = ["missing field", "unknown field", "invalid type"]
            .iter()
            .any(|said| self.detail.starts_with(said));
        let is_within = |other: &Self| {
            let rest = other.path.strip_prefix(&self.path);
            rest.is_some_and(|rest| self.path.is_empty() || rest.starts_with(['.', '[']))
        };
        !is_of_a_field && others.iter().any(is_within)
    }
}

fn yaml_options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        merge_keys: serde_saphyr::options::MergeKeyPolicy::Error,
        strict_booleans: true,
        with_snippet: false,
    }
}

fn parts(text: &str) -> Result<Vec<Part<'_>>, String> {
    match text.trim_start().chars().next() {
        Some('[') => {
            let all: Vec<&serde_json::value::RawValue> =
                serde_json::from_str(text).map_err(|error| error.to_string())?;
            Ok(all.into_iter().map(|raw| Part { text: raw.get(), json: true, lines_before: 0 }).collect())
        }
        Some('{') => Ok(vec![Part { text, json: true, lines_before: 0 }]),
        _ => Ok(yaml_parts(text)),
    }
}

/// Splits a file into YAML documents. A line that starts with `---` starts a document, also within a block scalar.
fn yaml_parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let (mut begin, mut lines_before, mut offset) = (0, 0, 0);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let rest =
            line.strip_prefix("---").map(|rest| rest.starts_with([' ', '\t', '\r', '\n']) || rest.is_empty());
        if rest == Some(true) {
            parts.push(Part { text: &text[begin..offset], json: false, lines_before });
            // The line belongs to the new document: content may follow the dashes.
            (begin, lines_before) = (offset, number);
        }
        offset += line.len();
    }
    parts.push(Part { text: &text[begin..], json: false, lines_before });
    let says_something = |part: &Part<'_>| {
        part.text.lines().any(|line| {
            let line = line.strip_prefix("---").unwrap_or(line).trim();
            !line.is_empty() && !line.starts_with('#') && line != "..."
        })
    };
    parts.retain(says_something);
    parts
}

impl Part<'_> {
    fn object(&self, namespace: &Namespace, kind: Option<&'static str>) -> Result<Object, Vec<SpecError>> {
        let metadata: Metadata = self.parse(PlainReader(PhantomData)).map_err(|wrong| vec![wrong])?;
        let wrong = |path: &str, detail: String| Err(vec![SpecError { path: path.to_owned(), detail }]);
        if let Some(version) = metadata.version.filter(|version| *version != 1) {
            return wrong("version", format!("unknown version `{version}`: expected 1"));
        }
        let known = match (metadata.kind.as_deref(), kind) {
            (Some(found), Some(kind)) if found != kind => {
                return wrong(
                    "kind",
                    format!("unexpected kind `{found}`: expected `{kind}`, or use `belfry apply`"),
                );
            }
            (Some(found), _) => found.to_owned(),
            (None, Some(kind)) => kind.to_owned(),
            (None, None) => {
                return wrong("kind", format!("is missing: expected {KINDS}"));
            }
        };
        let is_document = metadata.spec.is_some() || metadata.kind.is_some();
        match known.as_str() {
            "schedule" => {
                let mut spec: ScheduleSpec = self.spec(&metadata, is_document)?;
                if namespace.by_flag()
                    || spec.namespace == model::spec::DEFAULT && metadata.namespace.is_none()
                {
                    let given = one(namespace)?;
                    let before = spec.namespace.clone();
                    if let Some(job) = spec.job_mut().filter(|job| job.namespace == before) {
                        given.clone_into(&mut job.namespace);
                    }
                    given.clone_into(&mut spec.namespace);
                }
                spec.fill();
                Ok(Object::Schedule(Box::new(spec)))
            }
            "workflow" => {
                let mut spec: WorkflowSpec = self.spec(&metadata, is_document)?;
                if namespace.by_flag()
                    || spec.namespace == model::spec::DEFAULT && metadata.namespace.is_none()
                {
                    move_to(&mut spec, one(namespace)?);
                }
                spec.fill();
                Ok(Object::Workflow(Box::new(spec)))
            }
            "service" => {
                let mut spec: ServiceSpec = self.spec(&metadata, is_document)?;
                if namespace.by_flag()
                    || spec.namespace == model::spec::DEFAULT && metadata.namespace.is_none()
                {
                    let given = one(namespace)?;
                    if spec.job.namespace == spec.namespace {
                        given.clone_into(&mut spec.job.namespace);
                    }
                    given.clone_into(&mut spec.namespace);
                }
                spec.fill();
                Ok(Object::Service(Box::new(spec)))
            }
            "calendar" => {
                let mut spec: CalendarSpec = self.spec(&metadata, is_document)?;
                if namespace.by_flag()
                    || spec.namespace == model::spec::DEFAULT && metadata.namespace.is_none()
                {
                    one(namespace)?.clone_into(&mut spec.namespace);
                }
                Ok(Object::Calendar(spec))
            }
            "channel" => {
                let mut spec: ChannelSpec = self.spec(&metadata, is_document)?;
                if namespace.by_flag()
                    || spec.namespace == model::spec::DEFAULT && metadata.namespace.is_none()
                {
                    one(namespace)?.clone_into(&mut spec.namespace);
                }
                secrets::fill(&mut spec.to).map_err(|wrong| unreadable(wrong, is_document))?;
                Ok(Object::Channel(Box::new(spec)))
            }
            "alert" => {
                let mut spec: AlertRuleSpec = self.spec(&metadata, is_document)?;
                if namespace.by_flag()
                    || spec.namespace == model::spec::DEFAULT && metadata.namespace.is_none()
                {
                    one(namespace)?.clone_into(&mut spec.namespace);
                }
                Ok(Object::AlertRule(Box::new(spec)))
            }
            "monitor" => {
                let mut spec: MonitorSpec = self.spec(&metadata, is_document)?;
                if namespace.by_flag()
                    || spec.namespace == model::spec::DEFAULT && metadata.namespace.is_none()
                {
                    one(namespace)?.clone_into(&mut spec.namespace);
                }
                Ok(Object::Monitor(Box::new(spec)))
            }
            "secret" => {
                let mut spec: SecretSpec = self.spec(&metadata, is_document)?;
                if namespace.by_flag()
                    || spec.namespace == model::spec::DEFAULT && metadata.namespace.is_none()
                {
                    one(namespace)?.clone_into(&mut spec.namespace);
                }
                secrets::fill_values(&mut spec).map_err(|wrong| unreadable(wrong, is_document))?;
                Ok(Object::Secret(Box::new(spec)))
            }
            "queue" => {
                let Some(name) = metadata.name else { return wrong("name", "is missing".to_owned()) };
                let nameless = Metadata::default();
                let settings: QueueSettings = self.spec(&nameless, true)?;
                Ok(Object::Queue { name, settings })
            }
            "job" => {
                wrong("kind", "jobs cannot be applied: submit them with `belfry submit -f FILE`".to_owned())
            }
            other => {
                let shown: String = other.chars().take(64).collect();
                wrong("kind", format!("unknown kind `{shown}`: expected {KINDS}"))
            }
        }
    }

    fn spec<T: DeserializeOwned>(&self, metadata: &Metadata, is_document: bool) -> Result<T, Vec<SpecError>> {
        if !is_document {
            return self.parse(PlainReader(PhantomData)).map_err(|first| self.all_wrong::<T>(first, None));
        }
        let labels = metadata.labels.as_ref().map(|labels| {
            Value::Object(labels.iter().map(|(k, v)| (k.clone(), Value::String(v.clone()))).collect())
        });
        let text = |text: &Option<String>| text.clone().map(Value::String);
        let fields = [
            ("name", text(&metadata.name)),
            ("namespace", text(&metadata.namespace)),
            ("owner", metadata.owner.clone()),
            ("labels", labels),
        ];
        let fields: Fields = fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        let read = self.parse(DocumentReader { fields: fields.clone(), value: PhantomData });
        read.map_err(|first| self.all_wrong::<T>(first, Some(&fields)))
    }

    /// Finds all errors of a spec; deserialization stops at the `first` one. `outside` are the metadata fields that
    /// belong to the spec.
    fn all_wrong<T: DeserializeOwned>(&self, first: SpecError, outside: Option<&Fields>) -> Vec<SpecError> {
        let value: Option<Value> = match self.json {
            true => serde_json::from_str(self.text).ok(),
            false => serde_saphyr::from_str_with_options(self.text, yaml_options()).ok(),
        };
        let spec = match (value, outside) {
            (Some(mut document), Some(_)) => document.get_mut("spec").map(Value::take),
            (value, _) => value,
        };
        let Some(Value::Object(mut spec)) = spec else { return vec![first] };
        for (name, value) in outside.into_iter().flatten() {
            spec.entry(*name).or_insert_with(|| value.clone());
        }
        let scalars = if self.json { Scalars::Typed } else { Scalars::Text };
        let (_, found) = input_errors::find::<T>(Value::Object(spec), self.text.len(), scalars);
        let path = |misfit: &InvalidField| match (outside, misfit.path.as_str()) {
            (Some(_), "") => "spec".to_owned(),
            (Some(_), path) => format!("spec.{path}"),
            (None, path) => path.to_owned(),
        };
        let mut all = vec![first];
        for misfit in &found {
            let wrong = SpecError { path: path(misfit), detail: misfit.detail.clone() };
            if wrong.path != all[0].path && !wrong.follows_from(&all) {
                all.push(wrong);
            }
        }
        all
    }

    /// Deserializes a value. An error has the path of the field and the line in the file.
    fn parse<R: Read>(&self, reader: R) -> Result<R::Value, SpecError> {
        let mut track = Track::new();
        if self.json {
            let mut deserializer = serde_json::Deserializer::from_str(self.text);
            let read = reader.read(serde_path_to_error::Deserializer::new(&mut deserializer, &mut track));
            let read = read.and_then(|value| deserializer.end().map(|()| value));
            return read.map_err(|error| wrong(track, input_errors::plain(&error.to_string())));
        }
        let read = serde_saphyr::with_deserializer_from_str_with_options(
            self.text,
            yaml_options(),
            |deserializer| reader.read(serde_path_to_error::Deserializer::new(deserializer, &mut track)),
        );
        read.map_err(|error| {
            let said = error.to_string();
            let said = said.strip_prefix("error: ").unwrap_or(&said);
            // The location is reported once, as a line of the file, not of the document.
            let said = match said.split(" at line ").next().unwrap_or(said) {
                said if said.contains("merge keys are not allowed") => {
                    "merge keys (`<<`) are not supported: repeat the fields".to_owned()
                }
                said => input_errors::plain(said),
            };
            let line = error.location().and_then(|at| usize::try_from(at.line()).ok());
            match line.filter(|line| *line > 0) {
                Some(line) => wrong(track, format!("{said} (line {})", line + self.lines_before)),
                None => wrong(track, said),
            }
        })
    }
}

/// Moves a workflow into another namespace, with the jobs that are in its current namespace.
fn move_to(spec: &mut WorkflowSpec, namespace: &str) {
    let sections = [&mut spec.steps, &mut spec.on_failure, &mut spec.finally];
    for step in sections.into_iter().flatten() {
        if let Action::Job(job) = &mut step.action
            && job.namespace == spec.namespace
        {
            namespace.clone_into(&mut job.namespace);
        }
    }
    namespace.clone_into(&mut spec.namespace);
}

fn wrong(track: Track, detail: String) -> SpecError {
    let path = track.path().to_string();
    SpecError { path: if path == "." { String::new() } else { path }, detail }
}

/// Deserializes a value, independent of the format of the document.
trait Read {
    type Value;

    fn read<'de, D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error>;
}

/// Reader of a bare value.
struct PlainReader<T>(PhantomData<T>);

impl<T: DeserializeOwned> Read for PlainReader<T> {
    type Value = T;

    fn read<'de, D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        T::deserialize(deserializer)
    }
}

/// Reader of the value under `spec`, with additional fields from the metadata.
struct DocumentReader<T> {
    fields: Fields,
    value: PhantomData<T>,
}

type Fields = Vec<(&'static str, Value)>;

impl<T: DeserializeOwned> Read for DocumentReader<T> {
    type Value = T;

    fn read<'de, D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T: DeserializeOwned> Visitor<'de> for DocumentReader<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a document with `kind`, `name` and `spec`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let (mut fields, mut value) = (Some(self.fields), None);
        while let Some(key) = map.next_key::<String>()? {
            match (key.as_str(), fields.take()) {
                ("spec", Some(fields)) => {
                    value = Some(map.next_value_seed(FieldsReader { fields, value: PhantomData })?)
                }
                ("spec", None) => return Err(de::Error::duplicate_field("spec")),
                ("version" | "kind" | "name" | "namespace" | "owner" | "labels", kept) => {
                    fields = kept;
                    map.next_value::<IgnoredAny>()?;
                }
                (other, _) => {
                    let known = &["version", "kind", "name", "namespace", "labels", "owner", "spec"];
                    return Err(de::Error::unknown_field(other, known));
                }
            }
        }
        value.ok_or_else(|| de::Error::missing_field("spec"))
    }
}

/// Reader of a map with additional fields.
struct FieldsReader<T> {
    fields: Fields,
    value: PhantomData<T>,
}

impl<'de, T: DeserializeOwned> DeserializeSeed<'de> for FieldsReader<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T: DeserializeOwned> Visitor<'de> for FieldsReader<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the fields of a spec")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(Chained {
            fields: self.fields.into_iter(),
            value: None,
            map,
        }))
    }
}

/// Map access that returns the additional fields first, then those of a map.
struct Chained<A> {
    fields: std::vec::IntoIter<(&'static str, Value)>,
    value: Option<Value>,
    map: A,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Chained<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        match self.fields.next() {
            Some((name, value)) => {
                self.value = Some(value);
                seed.deserialize(name.into_deserializer()).map(Some)
            }
            None => self.map.next_key_seed(seed),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        match self.value.take() {
            Some(value) => seed.deserialize(value).map_err(de::Error::custom),
            None => self.map.next_value_seed(seed),
        }
    }
}

fn one(namespace: &Namespace) -> Result<&str, Vec<SpecError>> {
    namespace.one().map_err(|_| {
        vec![SpecError {
            path: "namespace".to_owned(),
            detail: "`*` is for lists only: expected the name of one namespace".to_owned(),
        }]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace(name: &str, by_flag: bool) -> Namespace {
        Namespace { name: name.into(), by_flag }
    }

    fn read_text_as(text: &str, kind: Option<&'static str>) -> Result<Vec<Object>, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("all.yaml");
        std::fs::write(&path, text).unwrap();
        let read = read(&[path], &namespace("default", false), kind);
        let shown = |failure: Failure| failure.render(false).replace(&dir.path().display().to_string(), "");
        read.map(|all| all.into_iter().map(|document| document.object).collect()).map_err(shown)
    }

    fn objects(text: &str) -> Result<Vec<Object>, String> {
        read_text_as(text, None)
    }

    /// An error has no words of the parsers or of Rust.
    #[test]
    fn an_error_names_the_expected_value_in_words_of_the_format() {
        let timing = "kind: schedule\nname: nightly\nspec:\n  timing: [daily]\n  job: {run: {process: {command: [x]}}}\n";
        let said = objects(timing).unwrap_err();
        for word in ["enum", "scalar", "mapping", "struct", "sequence"] {
            assert!(!said.contains(word), "{word}: {said}");
        }
        assert!(said.contains("spec.timing") && said.contains("expected"), "{said}");
    }

    const ALL: &str = "\
# What runs at night.
version: 1
kind: calendar
name: off
spec:
  steps:
    - include: { dates: [2026-12-24..2026-12-26] }
---
kind: schedule
name: nightly
namespace: pay
labels: { team: pay, flag: no }
owner: ann
spec:
  timing:
    rules: [ { cron: 0 2 * * * } ]
    exclude: [ { calendar: off } ]
  job:
    run:
      process:
        script: |
          echo one
          # no document begins within this line: ---
        env: { VERSION: 1.10, ANSWER: no }
---
kind: queue
name: night
spec: { concurrency: 2 }
";

    #[test]
    fn a_file_may_define_several_objects() {
        let all = objects(ALL).unwrap();
        let titles: Vec<_> = all.iter().map(Object::title).collect();
        assert_eq!(titles, ["calendar default/off", "schedule pay/nightly", "queue night"]);
        let Object::Schedule(spec) = &all[1] else { panic!("not a schedule") };
        let job = spec.job().expect("it has a job");
        assert_eq!((spec.owner.as_deref(), job.namespace.as_str()), (Some("ann"), "pay"));
        assert_eq!(spec.labels["flag"], "no");
        let model::spec::Run::Process(process) = &job.run else { panic!("not a process") };
        assert_eq!((process.env["VERSION"].as_str(), process.env["ANSWER"].as_str()), ("1.10", "no"));
    }

    #[test]
    fn json_says_the_same_in_an_object_and_in_a_list() {
        let one = r#"{"kind": "queue", "name": "night", "spec": {"concurrency": 2}}"#;
        assert_eq!(objects(one).unwrap().len(), 1);
        assert_eq!(objects(&format!("[{one}, {one}]")).unwrap().len(), 2);
    }

    #[test]
    fn a_bare_spec_is_known_where_its_kind_is() {
        let bare = "name: nightly\njob: { run: { process: { command: [\"true\"] } } }\n";
        assert!(matches!(read_text_as(bare, Some("schedule")).unwrap().as_slice(), [Object::Schedule(_)]));
        assert!(objects(bare).unwrap_err().contains("kind: is missing"));
    }

    /// All errors of a file are reported together, with document, path and line.
    #[test]
    fn errors_name_document_path_and_line() {
        insta::assert_snapshot!(objects(
            "kind: schedule\nname: a\nspec:\n  job: { run: { process: { command: [\"true\"] } } }\n  overlap: { policy: never }\n\
             ---\nkind: schedule\nname: b\nspec:\n  job: {}\n\
             ---\nkind: queue\nname: c\nspec:\n  rate: 3\n\
             ---\nkind: job\nname: d\nspec: {}\n\
             ---\nkind: cron\nname: e\nspec: {}\n\
             ---\nkind: queue\nversion: 2\nname: f\nspec: {}\n\
             ---\nkind: queue\nname: g\nspce: {}\n\
             ---\nkind: schedule\nname: h\nspec: { name: i, job: { run: { process: { command: [\"true\"] } } } }\n",
        )
        .unwrap_err());
    }

    /// Deserialization stops at the first error of a document; the other errors are reported too.
    #[test]
    fn all_errors_of_a_file_are_reported_together() {
        let slips = "\
kind: workflow
name: w
spec:
  max_parallel: many
  steps:
    - name: a
      retries: three
      job: { run: { process: { comand: [\"true\"] } } }
    - nmae: b
      job: { run: { process: { command: [\"true\"] } }, timeout: [5] }
    - c
    - name: d
      needs: a
      job: { run: { process: { command: [\"true\"] } } }
";
        insta::assert_snapshot!(objects(slips).unwrap_err());
    }

    #[test]
    fn a_folder_is_read_in_the_order_of_names() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("b")).unwrap();
        let queue = |name: &str| format!("kind: queue\nname: {name}\nspec: {{}}\n");
        for (file, name) in [("c.yaml", "three"), ("a.yml", "one"), ("b/x.json", ""), ("notes.txt", "none")] {
            let text = if name.is_empty() {
                r#"{"kind": "queue", "name": "two", "spec": {}}"#.to_owned()
            } else {
                queue(name)
            };
            std::fs::write(dir.path().join(file), text).unwrap();
        }
        let all = read(&[dir.path().to_owned()], &namespace("default", false), None).unwrap();
        let titles: Vec<_> = all.iter().map(|document| document.object.title()).collect();
        assert_eq!(titles, ["queue one", "queue two", "queue three"]);
    }

    #[test]
    fn a_namespace_of_the_command_line_goes_before_that_of_a_file_and_that_before_the_environments() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("all.yaml");
        std::fs::write(&path, ALL).unwrap();
        let titles = |name, by_flag| -> Vec<String> {
            let all = read(std::slice::from_ref(&path), &namespace(name, by_flag), None).unwrap();
            all.iter().map(|document| document.object.title()).collect()
        };
        assert_eq!(titles("mine", false)[..2], ["calendar mine/off", "schedule pay/nightly"]);
        assert_eq!(titles("mine", true)[..2], ["calendar mine/off", "schedule mine/nightly"]);
    }

    /// Each example is valid without a server; called workflows are in the same file.
    #[test]
    fn every_workflow_of_the_examples_is_valid() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/workflows");
        let now = "2026-11-21T08:00:00Z".parse().unwrap();
        let all = read(&[folder], &namespace("default", false), None).unwrap();
        let specs = all.iter().filter_map(|document| match &document.object {
            Object::Workflow(spec) => Some((document, std::sync::Arc::new(spec.as_ref().clone()))),
            _ => None,
        });
        let specs: Vec<_> = specs.collect();
        assert!(specs.len() >= 6, "{}", specs.len());
        let calls: std::collections::BTreeMap<_, _> =
            specs.iter().map(|(_, spec)| (spec.name.clone(), spec.clone())).collect();
        for (document, spec) in specs {
            let told = |error: model::validate::Invalid| panic!("{}: {error}", document.location(""));
            model::validate::workflow(&spec, now).unwrap_or_else(told);
            let warnings = model::validate::workflow_warnings(&spec);
            assert!(warnings.is_empty(), "{}: {warnings:?}", document.location(""));
            let definition = model::workflow::Definition { workflow: spec, calls: calls.clone() };
            model::validate::definition(&definition).unwrap_or_else(told);
        }
    }

    #[test]
    fn a_service_moves_with_its_job() {
        let text = "kind: service\nname: web\nlabels: { team: pay }\nspec:\n  replicas: 2\n  job: { run: { process: { command: [x] } } }\n";
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("web.yaml");
        std::fs::write(&path, text).unwrap();
        let all = read(&[path], &namespace("pay", true), None).unwrap();
        let Object::Service(spec) = &all[0].object else { panic!("not a service") };
        assert_eq!(
            (all[0].object.title().as_str(), spec.labels["team"].as_str()),
            ("service pay/web", "pay")
        );
        assert_eq!((spec.job.namespace.as_str(), spec.job.name.as_str()), ("pay", "web"));
    }

    #[test]
    fn a_workflow_moves_with_its_jobs() {
        let text = "kind: workflow\nname: w\nspec:\n  steps:\n    - { name: a, job: { run: { process: { command: [x] } } } }\n";
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w.yaml");
        std::fs::write(&path, text).unwrap();
        let all = read(&[path], &namespace("pay", true), None).unwrap();
        let Object::Workflow(spec) = &all[0].object else { panic!("not a workflow") };
        let Action::Job(job) = &spec.steps[0].action else { panic!("not a job") };
        assert_eq!(
            (spec.namespace.as_str(), job.namespace.as_str(), job.name.as_str()),
            ("pay", "pay", "w.a")
        );
    }
}
