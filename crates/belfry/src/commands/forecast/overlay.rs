//! What files define, on top of a plan: as if they were applied at the beginning of the range.

use std::path::PathBuf;

use forecast::{Plan, Schedule};
use model::api::FieldError;
use model::validate::{self, Invalid};

use super::super::Namespace;
use super::super::apply::documents::{Document, Object, read};
use crate::failure::Failure;

/// Takes in what the files define.
///
/// # Errors
/// Everything that is wrong with any of them; whether times and names of calendars can be used is seen
/// when they are.
pub(super) fn apply(plan: &mut Plan, files: &[PathBuf], namespace: &Namespace) -> Result<(), Failure> {
    let documents = read(files, namespace, None)?;
    let mut wrong = Vec::new();
    for document in &documents {
        if let Err(invalid) = check(plan, document) {
            wrong.extend(invalid.problems.into_iter().map(|problem| FieldError {
                pointer: String::new(),
                path: document.place(&problem.path),
                detail: problem.message,
            }));
        }
    }
    if !wrong.is_empty() {
        return Err(Failure::usage("what the files define cannot be used").fields(wrong));
    }
    for document in documents {
        put(plan, document.object);
    }
    Ok(())
}

fn check(plan: &Plan, document: &Document) -> Result<(), Invalid> {
    match &document.object {
        Object::Schedule(spec) => validate::schedule(spec, plan.from),
        Object::Workflow(spec) => validate::workflow(spec, plan.from),
        Object::Calendar(spec) => validate::calendar(spec),
        Object::Queue { name, settings } => validate::queue(name, settings),
    }
}

/// Puts one thing where there is one of its name, or behind the others. A schedule stays as far as it is.
fn put(plan: &mut Plan, object: Object) {
    match object {
        Object::Schedule(spec) => {
            let known = plan
                .schedules
                .iter_mut()
                .find(|known| known.spec.namespace == spec.namespace && known.spec.name == spec.name);
            match known {
                Some(known) => known.spec = *spec,
                None => plan.schedules.push(Schedule::from(*spec)),
            }
        }
        Object::Workflow(spec) => {
            plan.workflows.retain(|known| (&known.namespace, &known.name) != (&spec.namespace, &spec.name));
            plan.workflows.push(*spec);
        }
        Object::Calendar(spec) => {
            plan.calendars.retain(|known| (&known.namespace, &known.name) != (&spec.namespace, &spec.name));
            plan.calendars.push(spec);
        }
        Object::Queue { name, settings } => {
            plan.queues.insert(name, settings);
        }
    }
}
