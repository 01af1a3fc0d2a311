//! The job of a step, with the texts of it that are templates.

use std::sync::Arc;

use super::template::{Template, has_reference};
use crate::expression::{EvaluationError, ExpressionError, Scope};
use crate::spec::{JobSpec, Run};

/// Why a job could not be made from its template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct RenderError {
    /// The field, such as `run.process.env.DATE`.
    pub path: String,
    /// Why its reference has no value.
    pub reason: EvaluationError,
}

/// The job of a step: its spec, and which of its texts are templates.
#[derive(Debug, Clone, PartialEq)]
pub struct JobTemplate {
    spec: Arc<JobSpec>,
    texts: Vec<(Place, Template)>,
}

/// A text of a job that may have references.
#[derive(Debug, Clone, PartialEq)]
enum Place {
    Command(usize),
    Env(String),
    Stdin,
    Input(usize),
    Output(usize),
}

impl Place {
    fn path(&self) -> String {
        match self {
            Self::Command(i) => format!("run.process.command[{i}]"),
            Self::Env(name) => format!("run.process.env.{name}"),
            Self::Stdin => "run.process.stdin".into(),
            Self::Input(i) => format!("inputs[{i}].artifact"),
            Self::Output(i) => format!("outputs[{i}].artifact"),
        }
    }

    fn of(self, spec: &mut JobSpec) -> Option<&mut String> {
        let Run::Process(process) = &mut spec.run;
        match self {
            Self::Command(i) => process.command.get_mut(i),
            Self::Env(name) => process.env.get_mut(&name),
            Self::Stdin => process.stdin.as_mut(),
            Self::Input(i) => spec.inputs.get_mut(i).map(|input| &mut input.artifact),
            Self::Output(i) => spec.outputs.get_mut(i).map(|output| &mut output.artifact),
        }
    }
}

fn places(spec: &JobSpec) -> Vec<(Place, &str)> {
    let Run::Process(process) = &spec.run;
    let command = process.command.iter().enumerate().map(|(i, text)| (Place::Command(i), text.as_str()));
    let env = process.env.iter().map(|(name, text)| (Place::Env(name.clone()), text.as_str()));
    let stdin = process.stdin.iter().map(|text| (Place::Stdin, text.as_str()));
    let inputs = spec.inputs.iter().enumerate().map(|(i, file)| (Place::Input(i), file.artifact.as_str()));
    let outputs = spec.outputs.iter().enumerate().map(|(i, file)| (Place::Output(i), file.artifact.as_str()));
    let all = command.chain(env).chain(stdin).chain(inputs).chain(outputs);
    all.filter(|(_, text)| has_reference(text)).collect()
}

impl JobTemplate {
    /// Reads the templates of a spec.
    ///
    /// # Errors
    /// Every text whose references make no sense, by its path.
    pub fn parse(spec: Arc<JobSpec>) -> Result<Self, Vec<(String, ExpressionError)>> {
        let mut problems = Vec::new();
        let mut texts = Vec::new();
        for (place, text) in places(&spec) {
            match Template::parse(text) {
                Ok(template) => texts.push((place, template)),
                Err(error) => problems.push((place.path(), error)),
            }
        }
        if problems.is_empty() { Ok(Self { spec, texts }) } else { Err(problems) }
    }

    /// Its spec, with references as they were written.
    pub fn spec(&self) -> &Arc<JobSpec> {
        &self.spec
    }

    /// Whether every job that is made from it has the same spec.
    pub fn is_plain(&self) -> bool {
        self.texts.is_empty()
    }

    /// Its templates and the paths of their fields.
    pub fn templates(&self) -> impl Iterator<Item = (String, &Template)> {
        self.texts.iter().map(|(place, template)| (place.path(), template))
    }

    /// The spec with every reference replaced.
    ///
    /// # Errors
    /// The first field whose reference has no value.
    pub fn render(&self, scope: &dyn Scope) -> Result<Arc<JobSpec>, RenderError> {
        if self.is_plain() {
            return Ok(Arc::clone(&self.spec));
        }
        let mut spec = (*self.spec).clone();
        for (place, template) in &self.texts {
            let text = template.render(scope).map_err(|reason| RenderError { path: place.path(), reason })?;
            if let Some(field) = place.clone().of(&mut spec) {
                *field = text;
            }
        }
        Ok(Arc::new(spec))
    }

    /// The spec as far as it is known before anything ran: with an `x` wherever there is a template.
    pub fn outline(&self) -> JobSpec {
        let mut spec = (*self.spec).clone();
        for (place, _) in &self.texts {
            if let Some(field) = place.clone().of(&mut spec) {
                "x".clone_into(field);
            }
        }
        spec
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    struct World;

    impl Scope for World {
        fn value(&self, path: &[String]) -> Result<(Value, usize), EvaluationError> {
            match path.first().map(String::as_str) {
                Some("date") => Ok((json!("2026-11-21; rm -rf /"), 1)),
                _ => Err(EvaluationError("there is no such name".into())),
            }
        }
    }

    fn template(spec: JobSpec) -> JobTemplate {
        JobTemplate::parse(Arc::new(spec)).unwrap()
    }

    fn process(spec: &JobSpec) -> &crate::spec::ProcessRun {
        let Run::Process(process) = &spec.run;
        process
    }

    /// C2. A value is one argument or one variable, whatever stands in it.
    #[test]
    fn a_value_stays_one_argument() {
        let mut spec = JobSpec::command(["load", "--date=${{ date }}"]);
        let Run::Process(run) = &mut spec.run;
        run.env.insert("DATE".into(), "${{ date }}".into());
        let rendered = template(spec).render(&World).unwrap();
        assert_eq!(process(&rendered).command, ["load", "--date=2026-11-21; rm -rf /"]);
        assert_eq!(process(&rendered).env["DATE"], "2026-11-21; rm -rf /");
    }

    #[test]
    fn a_reference_without_a_value_names_its_field() {
        let error = template(JobSpec::command(["load", "${{ when }}"])).render(&World).unwrap_err();
        assert_eq!(error.to_string(), "run.process.command[1]: there is no such name");
    }

    #[test]
    fn a_job_without_references_is_shared() {
        let spec = Arc::new(JobSpec::command(["true"]));
        let template = JobTemplate::parse(Arc::clone(&spec)).unwrap();
        assert!(Arc::ptr_eq(&template.render(&World).unwrap(), &spec));
    }
}
