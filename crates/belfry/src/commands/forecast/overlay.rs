//! Adds the definitions of files to a plan, as if the files were applied at the start of the range.

use std::path::PathBuf;

use forecast::{Plan, Schedule, Service};
use model::api::FieldError;
use model::validate::{self, Invalid};

use super::super::Namespace;
use super::super::apply::documents::{Document, Object, read};
use crate::failure::Failure;

/// Adds the definitions of the files to the plan.
///
/// # Errors
/// All validation errors of all files. Timings and calendar names are checked later, by the forecast.
pub(super) fn apply(plan: &mut Plan, files: &[PathBuf], namespace: &Namespace) -> Result<(), Failure> {
    let documents = read(files, namespace, None)?;
    let mut wrong = Vec::new();
    for document in &documents {
        if let Err(invalid) = check(plan, document) {
            wrong.extend(invalid.problems.into_iter().map(|problem| FieldError {
                pointer: String::new(),
                path: document.location(&problem.path),
                detail: problem.message,
            }));
        }
    }
    if !wrong.is_empty() {
        return Err(Failure::usage("the files contain invalid definitions").fields(wrong));
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
        Object::Service(spec) => validate::service(spec, plan.from),
        Object::Calendar(spec) => validate::calendar(spec),
        Object::Queue { name, settings } => validate::queue(name, settings),
        Object::Channel(spec) => validate::channel(spec),
        Object::AlertRule(spec) => validate::alert_rule(spec),
        Object::Monitor(spec) => validate::monitor(spec),
        Object::Secret(spec) => validate::secret(spec),
    }
}

/// Replaces the object with the same name, or adds the object. A replaced schedule keeps its state.
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
        Object::Service(spec) => {
            let known = plan
                .services
                .iter_mut()
                .find(|known| (&known.spec.namespace, &known.spec.name) == (&spec.namespace, &spec.name));
            match known {
                Some(known) => {
                    known.replicas = spec.replicas.unwrap_or(known.replicas);
                    known.spec = *spec;
                }
                None => plan.services.push(Service::from(*spec)),
            }
        }
        // Alerts and secrets change no run.
        Object::Channel(_) | Object::AlertRule(_) | Object::Monitor(_) | Object::Secret(_) => {}
    }
}
