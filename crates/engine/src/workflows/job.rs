//! Jobs of steps: ordinary jobs in the shard of their run, with a reference to their step.

use std::sync::Arc;

use model::firing::Work;
use model::record::{Files, JobHead};
use model::run::{ElementOrigin, StepCause, StepOrigin, StepStatus};
use model::{JobId, JobSpec, JobStatus, RunId, Timestamp, limits};
use rand::Rng;

use super::StepDetails;
use super::plan::StepAction;
use super::scope::{Element, RunScope, as_text};
use crate::context::Context;
use crate::jobs::Jobs;
use crate::workflows::Workflows;

impl Workflows {
    /// Creates the job of a step or of one of its elements.
    ///
    /// # Errors
    /// The first reference without a value, or the problem of the resulting job.
    pub(super) fn create_job(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        id: RunId,
        step: u32,
        element: Option<&Element>,
    ) -> Result<JobId, String> {
        let Some(run) = self.runs.get(&id) else {
            return Err("the run no longer exists".into());
        };
        let plan = Arc::clone(&run.plan);
        let node = plan.node(step);
        let StepAction::Job(job) = &node.act else { return Err("the step has no job".into()) };
        let pinned = element.filter(|_| run.is_broadcast(step)).map(Self::pinned);
        let (spec, body, profile) = if job.template.is_plain() && pinned.is_none() && !job.reads_newest {
            (Arc::clone(job.template.spec()), Arc::clone(&job.body), Arc::clone(&job.profile))
        } else {
            let scope = RunScope { id, run, element };
            let mut spec = job.template.render(&scope).map_err(|error| error.to_string())?;
            if job.reads_newest {
                spec = self.with_pinned_inputs(id, step, spec)?;
            }
            check(&spec, cx.now)?;
            let is_pinned = pinned.is_some();
            if let Some(pinned) = pinned {
                let constraints = spec.constraints.iter().cloned().chain([pinned]).collect();
                spec = Arc::new(JobSpec { constraints, ..(*spec).clone() });
            }
            // References in other fields do not affect the profile.
            let profile = match is_pinned || job.template.places_jobs() {
                true => cx.profiles.of(&spec),
                false => Arc::clone(&job.profile),
            };
            let body: Arc<str> = spec.compact_json().into();
            if body.len() > limits::SPEC_BYTES_MAX {
                let (len, most) = (body.len(), limits::SPEC_BYTES_MAX);
                return Err(format!("the job has {len} bytes: expected at most {most}"));
            }
            (spec, body, profile)
        };
        let origin = StepOrigin {
            run: id,
            workflow: Arc::clone(&plan.name),
            name: Arc::clone(&node.name),
            step,
            element: element.map(|element| ElementOrigin {
                index: element.index,
                total: element.total,
                value: as_text(&element.value),
            }),
        };
        let job = JobId::from_bits(cx.ids.next(cx.now, id.shard(), cx.rng.next_u64()));
        let step = Some(Arc::new(origin));
        let head = JobHead { spec, body, retry_of: None, origin: None, step, replica: None };
        jobs.create_step_job(cx, job, &Arc::new(head), profile);
        Ok(job)
    }

    /// Handles the final status of the job of a step or of one of its elements. The job is still in memory.
    pub(crate) fn on_step_job_ended(
        &mut self,
        cx: &mut Context,
        jobs: &mut Jobs,
        id: JobId,
        origin: &StepOrigin,
        files: Option<Box<Files>>,
    ) {
        let key = origin.key();
        let Some(job) = jobs.get(id).filter(|_| self.is_job_of(id, origin)) else { return };
        let outcome = job.state.outcome.as_deref();
        let succeeded = job.state.status == JobStatus::Succeeded;
        // Also for a failed job: a compensation step needs to know the error.
        let output = outcome.and_then(|outcome| outcome.output.clone());
        let message = outcome.and_then(|outcome| outcome.message.clone()).filter(|_| !succeeded);
        let ended_at = job.state.finished_at;
        let (status, cause) = match job.state.status {
            JobStatus::Succeeded => (StepStatus::Succeeded, StepCause::JobSucceeded),
            JobStatus::Cancelled => (StepStatus::Cancelled, StepCause::JobCancelled),
            JobStatus::Expired => (StepStatus::Failed, StepCause::JobExpired),
            _ => (StepStatus::Failed, StepCause::JobFailed),
        };
        let files = files.filter(|_| succeeded);
        let files = files.and_then(|files| self.files_of_job(key.run, key.step, &files));
        let also = StepDetails { message, output, files, ended_at, ..StepDetails::default() };
        self.on_work_ended(cx, jobs, key, (status, cause), also);
    }

    /// Returns whether a job is the current one of its step or element.
    fn is_job_of(&self, job: JobId, origin: &StepOrigin) -> bool {
        let key = origin.key();
        let Some(run) = self.runs.get(&key.run) else { return false };
        let Some(step) = run.steps.get(super::index(key.step)) else { return false };
        match key.item {
            None => step.state.as_ref().is_some_and(|state| state.job == Some(job)),
            Some(item) => {
                let elements = step.elements.as_deref();
                elements.and_then(|elements| elements.work_of(item)) == Some(Work::Job(job))
            }
        }
    }
}

/// Checks the resulting spec: a value inserted by a reference may make it invalid.
fn check(spec: &JobSpec, now: Timestamp) -> Result<(), String> {
    model::validate::job(spec, now).map_err(|invalid| invalid.to_string())
}
