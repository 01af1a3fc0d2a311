//! Templates in the job of a step.
//!
//! [`JobTemplate::parse`] finds the texts of a job that may have references; [`JobTemplate::render`] replaces the
//! references when the step starts. Texts that an interpreter runs as a program are never rendered.
//!
//! # Cost
//! A job without references is shared, not copied. Otherwise each rendered job costs one copy of its spec.

use std::sync::Arc;

use serde_json::Value;

use super::run_field::RunField;
use super::template::{Template, has_reference};
use crate::expression::{EvaluationError, ExpressionError, Scope};
use crate::spec::{InputFile, JobSpec};

/// Error of a field of a job whose references cannot be evaluated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct RenderError {
    /// Path of the field, for example `run.process.env.DATE`.
    pub path: String,
    /// Error of the reference.
    pub reason: EvaluationError,
}

/// Job of a step: its spec, and its texts that are templates.
#[derive(Debug, Clone, PartialEq)]
pub struct JobTemplate {
    spec: Arc<JobSpec>,
    texts: Vec<(TemplateField, Template)>,
}

/// Field of a job that may have references. Program texts are not among them.
#[derive(Debug, Clone, PartialEq)]
enum TemplateField {
    Owner,
    Label(String),
    Queue,
    Run(RunField),
    Input(usize),
    InputPath(usize),
    Output(usize),
    OutputPath(usize),
    /// A value of a constraint: index of the constraint, and index of the value.
    Value(usize, usize),
    ConcurrencyKey,
}

impl TemplateField {
    fn path(&self, runtime: &str) -> String {
        match self {
            Self::Owner => "owner".into(),
            Self::Label(key) => format!("labels.{key}"),
            Self::Queue => "queue".into(),
            Self::Run(field) => format!("run.{runtime}.{}", field.path()),
            Self::Input(i) => format!("inputs[{i}].artifact"),
            Self::InputPath(i) => format!("inputs[{i}].path"),
            Self::Output(i) => format!("outputs[{i}].artifact"),
            Self::OutputPath(i) => format!("outputs[{i}].path"),
            Self::Value(i, j) => format!("constraints[{i}].values[{j}]"),
            Self::ConcurrencyKey => "concurrency.key".into(),
        }
    }

    fn of(self, spec: &mut JobSpec) -> Option<&mut String> {
        match self {
            Self::Owner => spec.owner.as_mut(),
            Self::Label(key) => spec.labels.get_mut(&key),
            Self::Queue => Some(&mut spec.queue),
            Self::Run(field) => field.of(&mut spec.run),
            Self::Input(i) => spec.inputs.get_mut(i).map(|input| &mut input.artifact),
            Self::InputPath(i) => spec.inputs.get_mut(i).map(|input| &mut input.path),
            Self::Output(i) => spec.outputs.get_mut(i).map(|output| &mut output.artifact),
            Self::OutputPath(i) => spec.outputs.get_mut(i).map(|output| &mut output.path),
            Self::Value(i, j) => {
                spec.constraints.get_mut(i).and_then(|constraint| constraint.values.get_mut(j))
            }
            Self::ConcurrencyKey => spec.concurrency.as_mut().map(|concurrency| &mut concurrency.key),
        }
    }

    /// Returns whether the field affects the queue or the placement of the job.
    const fn affects_placement(&self) -> bool {
        matches!(self, Self::Queue | Self::Value(..))
    }
}

fn template_fields(spec: &JobSpec) -> Vec<(TemplateField, &str)> {
    let mut all: Vec<(TemplateField, &str)> = Vec::new();
    all.extend(spec.owner.iter().map(|text| (TemplateField::Owner, text.as_str())));
    all.extend(spec.labels.iter().map(|(key, text)| (TemplateField::Label(key.clone()), text.as_str())));
    all.push((TemplateField::Queue, &spec.queue));
    all.extend(RunField::all(&spec.run).into_iter().map(|(field, text)| (TemplateField::Run(field), text)));
    for (i, input) in spec.inputs.iter().enumerate() {
        all.extend([
            (TemplateField::Input(i), input.artifact.as_str()),
            (TemplateField::InputPath(i), input.path.as_str()),
        ]);
    }
    for (i, output) in spec.outputs.iter().enumerate() {
        all.extend([
            (TemplateField::Output(i), output.artifact.as_str()),
            (TemplateField::OutputPath(i), output.path.as_str()),
        ]);
    }
    for (i, constraint) in spec.constraints.iter().enumerate() {
        all.extend(
            constraint.values.iter().enumerate().map(|(j, text)| (TemplateField::Value(i, j), text.as_str())),
        );
    }
    all.extend(
        spec.concurrency.iter().map(|concurrency| (TemplateField::ConcurrencyKey, concurrency.key.as_str())),
    );
    all.retain(|(_, text)| has_reference(text));
    all
}

impl JobTemplate {
    /// Parses the templates of a spec.
    ///
    /// # Errors
    /// Returns all fields with invalid references, as pairs of path and error.
    pub fn parse(spec: Arc<JobSpec>) -> Result<Self, Vec<(String, ExpressionError)>> {
        let mut problems = Vec::new();
        let mut texts = Vec::new();
        for (place, text) in template_fields(&spec) {
            match Template::parse(text) {
                Ok(template) => texts.push((place, template)),
                Err(error) => problems.push((place.path(spec.run.runtime()), error)),
            }
        }
        if problems.is_empty() { Ok(Self { spec, texts }) } else { Err(problems) }
    }

    /// Returns the spec with unreplaced references.
    pub fn spec(&self) -> &Arc<JobSpec> {
        &self.spec
    }

    /// Returns whether the job has no references, so that all rendered jobs have the same spec.
    pub fn is_plain(&self) -> bool {
        self.texts.is_empty()
    }

    /// Returns whether references affect the queue or the placement of the job.
    pub fn places_jobs(&self) -> bool {
        self.texts.iter().any(|(place, _)| place.affects_placement())
    }

    /// Returns all templates with the paths of their fields.
    pub fn templates(&self) -> impl Iterator<Item = (String, &Template)> {
        let runtime = self.spec.run.runtime();
        self.texts.iter().map(move |(place, template)| (place.path(runtime), template))
    }

    /// Returns the spec with all references replaced.
    ///
    /// # Errors
    /// Returns the first field with a reference that cannot be evaluated.
    pub fn render(&self, scope: &dyn Scope) -> Result<Arc<JobSpec>, RenderError> {
        if self.is_plain() {
            return Ok(Arc::clone(&self.spec));
        }
        let mut spec = (*self.spec).clone();
        let mut lists = Vec::new();
        for (place, template) in &self.texts {
            let failed = |reason| RenderError { path: place.path(spec.run.runtime()), reason };
            if let (TemplateField::Input(i), Value::Array(list)) =
                (place, template.value(scope).map_err(failed)?)
            {
                lists.push((*i, list));
                continue;
            }
            let text = template.render(scope).map_err(failed)?;
            if let Some(field) = place.clone().of(&mut spec) {
                *field = text;
            }
        }
        // Starts with the last list, so that the indexes of earlier inputs stay valid.
        for (i, list) in lists.into_iter().rev() {
            let folder = spec.inputs.remove(i);
            spec.inputs.splice(i..i, inputs_from_list(&folder, &list));
        }
        Ok(Arc::new(spec))
    }

    /// Returns the spec with a placeholder, `x` and a number, for each template, for checks before a run. That of a URL is a
    /// URL, and that of a path is a path.
    pub fn with_placeholders(&self) -> JobSpec {
        let mut spec = (*self.spec).clone();
        for (i, (place, _)) in self.texts.iter().enumerate() {
            // Of the form that the field has.
            let start = match place {
                TemplateField::Run(RunField::Url) => "http://",
                TemplateField::Run(RunField::WorkingDirectory) => "/",
                _ => "",
            };
            if let Some(field) = place.clone().of(&mut spec) {
                *field = format!("{start}x{i}");
            }
        }
        spec
    }
}

/// Returns the inputs for a list of artifacts. Each file has its index in the list as its name, in the directory of
/// the input; `null` has no file.
fn inputs_from_list(folder: &InputFile, list: &[Value]) -> Vec<InputFile> {
    let file = |(place, version): (usize, &Value)| {
        let artifact = crate::expression::shown(version);
        (!version.is_null()).then(|| InputFile {
            artifact,
            path: format!("{}/{place}", folder.path),
            ..folder.clone()
        })
    };
    list.iter().enumerate().filter_map(file).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct World;

    impl Scope for World {
        fn value(&self, path: &[String]) -> Result<(Value, usize), EvaluationError> {
            match path.first().map(String::as_str) {
                Some("date") => Ok((json!("2026-11-21; rm -rf /"), 1)),
                Some("parts") => Ok((json!(["part@1", null, "part@2"]), 1)),
                _ => Err(EvaluationError("there is no such name".into())),
            }
        }
    }

    fn template(spec: JobSpec) -> JobTemplate {
        JobTemplate::parse(Arc::new(spec)).unwrap()
    }

    fn process(spec: &JobSpec) -> &crate::spec::ProcessRun {
        spec.run.as_process().unwrap()
    }

    /// C2. A value is one argument or one variable, with any content.
    #[test]
    fn a_value_stays_one_argument() {
        let mut spec = JobSpec::command(["load", "--date=${{ date }}"]);
        let run = spec.run.as_process_mut().unwrap();
        run.env.insert("DATE".into(), "${{ date }}".into());
        let rendered = template(spec).render(&World).unwrap();
        assert_eq!(process(&rendered).command, ["load", "--date=2026-11-21; rm -rf /"]);
        assert_eq!(process(&rendered).env["DATE"], "2026-11-21; rm -rf /");
    }

    /// C2. A list of artifacts becomes the files of a directory, named by index.
    #[test]
    fn a_list_of_artifacts_becomes_a_directory() {
        let mut spec = JobSpec::command(["merge"]);
        let input = |artifact: &str, path: &str| InputFile {
            artifact: artifact.into(),
            path: path.into(),
            executable: false,
        };
        spec.inputs = vec![input("${{ parts }}", "in"), input("tool", "tool"), input("x-${{ parts }}", "y")];
        let rendered = template(spec).render(&World).unwrap();
        let told: Vec<_> = rendered.inputs.iter().map(|i| format!("{} {}", i.artifact, i.path)).collect();
        assert_eq!(told, ["part@1 in/0", "part@2 in/2", "tool tool", r#"x-["part@1",null,"part@2"] y"#]);
    }

    #[test]
    fn a_reference_without_a_value_names_its_field() {
        let error = template(JobSpec::command(["load", "${{ when }}"])).render(&World).unwrap_err();
        assert_eq!(error.to_string(), "run.process.command[1]: `when`: there is no such name");
    }

    #[test]
    fn a_job_without_references_is_shared() {
        let spec = Arc::new(JobSpec::command(["true"]));
        let template = JobTemplate::parse(Arc::clone(&spec)).unwrap();
        assert!(Arc::ptr_eq(&template.render(&World).unwrap(), &spec));
    }
}
