//! Inputs that made the engine panic, so that the engine does not receive them forever.
//!
//! A client or worker that repeats an input would trigger the same defect again, and workers repeat reports until
//! they are acknowledged. An input that was being handled at [`PANICS_MAX`] panics is dropped from then on. `lead` calls
//! [`Suspects::count_panic`] after a panic, and [`Suspects::is_blocked`] before every input.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use engine::{Input, ScheduleRequest, ServiceRequest, WorkflowRequest};
use model::{BackfillId, ExecutionId, JobId, RunId, ScheduleId, ServiceId, WorkerId, WorkflowId};

/// Number of panics after which an input is dropped.
const PANICS_MAX: u32 = 2;
/// Maximum number of inputs that are counted; when it is exceeded, all counts are dropped.
const ENTRIES_MAX: usize = 1_024;

/// The object of an input, by which a repetition is recognized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is named after what it has")]
pub enum Suspect {
    /// No input: timers or dispatch.
    Flush,
    Submit {
        key: Option<u128>,
        jobs: usize,
    },
    Job(JobId),
    Execution(ExecutionId),
    Worker(WorkerId),
    Queue,
    Namespace,
    Schedule(ScheduleId),
    Backfill(BackfillId),
    Service(ServiceId),
    Metrics,
    Workflow(WorkflowId),
    Run(RunId),
    /// A named object, by a hash of the whole request.
    Named(u64),
}

impl Suspect {
    pub(crate) fn of(input: &Input) -> Self {
        match input {
            Input::Submit { jobs, .. } => {
                let key = jobs.first().and_then(|job| job.key).map(|key| key.key ^ key.body);
                Self::Submit { key, jobs: jobs.len() }
            }
            Input::Update { job, .. } | Input::Cancel { job, .. } | Input::Why { job, .. } => Self::Job(*job),
            Input::Report { execution, .. } | Input::Task { execution, .. } => Self::Execution(*execution),
            Input::Join(join) => Self::Worker(join.worker),
            Input::Heartbeat { worker, .. }
            | Input::Disconnect { worker, .. }
            | Input::SetAdmission { worker, .. }
            | Input::RemoveWorker { worker, .. } => Self::Worker(*worker),
            Input::SetQueue { .. } | Input::RemoveQueue { .. } => Self::Queue,
            Input::SetNamespace { .. } | Input::RemoveNamespace { .. } => Self::Namespace,
            Input::Schedule { request, .. } => Self::of_schedules(request),
            Input::Workflow { request, .. } => Self::of_workflows(request),
            Input::Service { request, .. } => Self::of_services(request),
            Input::Metrics { .. } => Self::Metrics,
            Input::Health { worker, .. } => Self::Worker(*worker),
            Input::Tick => Self::Flush,
        }
    }

    fn of_schedules(request: &ScheduleRequest) -> Self {
        match request {
            ScheduleRequest::Apply { schedules } => {
                let bodies: Vec<_> = schedules.iter().map(|new| &*new.head.body).collect();
                Self::Named(hash(&bodies))
            }
            ScheduleRequest::Pause { schedule, .. }
            | ScheduleRequest::Resume { schedule, .. }
            | ScheduleRequest::Delete { schedule, .. }
            | ScheduleRequest::Trigger { schedule, .. } => Self::Schedule(*schedule),
            ScheduleRequest::Backfill(new) => Self::Schedule(new.schedule),
            ScheduleRequest::CancelBackfill { backfill, .. } => Self::Backfill(*backfill),
            ScheduleRequest::SetCalendar { spec, .. } => Self::Named(hash(&format!("{spec:?}"))),
            ScheduleRequest::RemoveCalendar { namespace, name, .. } => Self::Named(hash(&(namespace, name))),
        }
    }

    fn of_services(request: &ServiceRequest) -> Self {
        match request {
            ServiceRequest::Apply { services } => {
                let bodies: Vec<_> = services.iter().map(|new| &*new.body).collect();
                Self::Named(hash(&bodies))
            }
            ServiceRequest::Delete { service, .. }
            | ServiceRequest::Scale { service, .. }
            | ServiceRequest::Restart { service }
            | ServiceRequest::Rollback { service, .. }
            | ServiceRequest::PauseRollout { service }
            | ServiceRequest::ResumeRollout { service }
            | ServiceRequest::PromoteRollout { service } => Self::Service(*service),
        }
    }

    fn of_workflows(request: &WorkflowRequest) -> Self {
        match request {
            WorkflowRequest::Apply { workflows } => {
                let bodies: Vec<_> = workflows.iter().map(|new| &*new.head.body).collect();
                Self::Named(hash(&bodies))
            }
            WorkflowRequest::Delete { workflow, .. } => Self::Workflow(*workflow),
            WorkflowRequest::Start(new) => match new.workflow {
                Some(workflow) => Self::Workflow(workflow),
                None => Self::Named(hash(&new.body)),
            },
            WorkflowRequest::Cancel { run, .. }
            | WorkflowRequest::Pause { run, .. }
            | WorkflowRequest::Resume { run }
            | WorkflowRequest::Mark { run, .. }
            | WorkflowRequest::Decide { run, .. }
            | WorkflowRequest::Event { run, .. }
            | WorkflowRequest::Why { run, .. }
            | WorkflowRequest::WhyRun { run, .. } => Self::Run(*run),
        }
    }
}

fn hash(asked: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    asked.hash(&mut hasher);
    hasher.finish()
}

/// Counts engine panics by input.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    panics: BTreeMap<Suspect, u32>,
}

impl Suspects {
    /// Counts a panic of the engine during this input.
    pub(crate) fn count_panic(&mut self, suspect: Suspect) {
        // A submission without a key cannot be distinguished from others, and time always passes.
        if matches!(
            suspect,
            Suspect::Flush | Suspect::Queue | Suspect::Namespace | Suspect::Submit { key: None, .. }
        ) {
            return;
        }
        if self.panics.len() >= ENTRIES_MAX {
            self.panics.clear();
        }
        *self.panics.entry(suspect).or_default() += 1;
    }

    /// Whether this input made the engine panic in [`PANICS_MAX`] cases or more, so that it is dropped.
    pub(crate) fn is_blocked(&self, suspect: &Suspect) -> bool {
        !self.panics.is_empty() && self.panics.get(suspect).is_some_and(|strikes| *strikes >= PANICS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_blocked_after_its_second_panic_and_others_are_not() {
        let mut suspects = Suspects::default();
        let job = Suspect::Job(JobId::from_bits(1));
        suspects.count_panic(job);
        assert!(!suspects.is_blocked(&job));
        suspects.count_panic(job);
        assert!(suspects.is_blocked(&job));
        assert!(!suspects.is_blocked(&Suspect::Job(JobId::from_bits(2))));
    }

    #[test]
    fn the_flush_is_never_blocked() {
        let mut suspects = Suspects::default();
        for _ in 0..10 {
            suspects.count_panic(Suspect::Flush);
        }
        assert!(!suspects.is_blocked(&Suspect::Flush));
    }
}
