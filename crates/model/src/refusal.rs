//! Reasons why the engine refuses a request.
//!
//! This module alone defines the message of each refusal (object and reason), its error [`Code`] and its hint. The
//! server renders them for HTTP and gRPC.
//!
//! # Invariants
//! - A refused request has changed nothing.
//! - A new variant does not compile without a message and a code. Its hint is that of the code, unless
//!   [`Refusal::hint`] has a more exact one.

use std::sync::Arc;

use crate::api::Code;
use crate::service::RolloutStatus;
use crate::spec::PriorityClass;
use crate::validate::Problem;
use crate::{
    BackfillId, ExecutionId, JobId, RunId, RunStatus, ScheduleId, ServiceId, StepStatus, WorkerId, WorkflowId,
};

/// A request that the engine refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum Refusal {
    /// The engine has live jobs only: the job has ended, or its ID is wrong.
    #[error("job `{job}` has ended or does not exist")]
    JobNotLive { job: JobId },
    /// The execution has ended, was replaced by another one, or its ID is wrong.
    #[error(
        "execution `{execution}` is not the current execution of its job: it has ended, was replaced or does not exist"
    )]
    ExecutionNotCurrent { execution: ExecutionId },
    /// The spec of a job is fixed as soon as its first execution exists.
    #[error("cannot change job `{job}`: it has already started")]
    JobStarted { job: JobId },
    /// A concurrent request changed the object after the caller had read it.
    #[error("the object was changed concurrently: expected version {expected}, but it has version {found}")]
    VersionMismatch { expected: u64, found: u64 },
    /// `jobs[index]` has the idempotency key of an earlier, different submission.
    #[error("the idempotency key of jobs[{index}] belongs to another submission, which created job `{job}`")]
    IdempotencyKeyReused { index: usize, job: JobId },
    /// Two different jobs of one submission have the same idempotency key.
    #[error("the idempotency key of jobs[{index}] also belongs to another job of this submission")]
    IdempotencyKeyRepeated { index: usize },
    /// An upstream job of `jobs[index]` is not live, and the request did not have its end.
    #[error("upstream job `{job}` of jobs[{index}] has ended or does not exist")]
    UpstreamJobNotFound { index: usize, job: JobId },
    /// The end of a job and its effect on the jobs that wait for it are one commit, so their number has a limit.
    #[error("cannot submit jobs[{index}]: {limit} jobs already wait for job `{job}`, which is the limit")]
    DownstreamJobLimit { index: usize, job: JobId, limit: usize },
    #[error("worker `{worker}` does not exist")]
    WorkerNotFound { worker: WorkerId },
    /// A worker can be removed only after it has disconnected.
    #[error("cannot remove worker `{worker}`: it is connected")]
    WorkerConnected { worker: WorkerId },
    /// The queue has no settings of its own.
    #[error("queue `{queue}` has no settings: none were set, or they were deleted")]
    QueueNotFound { queue: Box<str> },
    #[error("cannot delete queue `{queue}`: it has jobs (waiting: {waiting}, running: {running})")]
    QueueInUse { queue: Box<str>, waiting: u64, running: u32 },
    /// The namespace has no settings of its own.
    #[error("namespace `{namespace}` has no settings: none were set, or they were deleted")]
    NamespaceNotFound { namespace: Box<str> },
    /// The namespace of `jobs[index]` has as many jobs as its quota allows.
    #[error(
        "cannot submit jobs[{index}]: the quota of namespace `{namespace}` allows {limit} jobs that have not ended"
    )]
    NamespaceJobLimit { index: usize, namespace: Box<str>, limit: u64 },
    #[error(
        "priority class `{class}` is not allowed in namespace `{namespace}`: its highest priority class is `{highest}`"
    )]
    PriorityClassNotAllowed { namespace: Box<str>, class: PriorityClass, highest: PriorityClass },
    #[error("schedule `{schedule}` does not exist")]
    ScheduleNotFound { schedule: ScheduleId },
    #[error("schedule `{name}` already exists: `{schedule}`")]
    ScheduleExists { name: Arc<str>, schedule: ScheduleId },
    /// The timing of `schedules[index]` is invalid; the paths of `problems` start at the schedule.
    #[error("the timing of schedules[{index}] is invalid")]
    InvalidTiming { index: usize, problems: Vec<Problem> },
    /// The overlap policy of the schedule allows no further run now.
    #[error(
        "cannot start a run of schedule `{name}`: its overlap policy allows no more concurrent runs (open: {runs})"
    )]
    ScheduleRunLimit { name: Arc<str>, runs: usize },
    #[error("backfill `{backfill}` has ended or does not exist")]
    BackfillNotRunning { backfill: BackfillId },
    /// Scheduled times in the future, and those of a running backfill, are not backfilled.
    #[error(
        "cannot start a backfill: the range has no scheduled times left{}",
        .running.map(|id| format!(": backfill `{id}` is running and covers them")).unwrap_or_default()
    )]
    NothingToBackfill { running: Option<BackfillId> },
    #[error("cannot start a backfill: {limit} backfills are already running, which is the limit")]
    BackfillLimit { limit: usize },
    /// The definition of a calendar is invalid; the paths of `problems` start at the calendar.
    #[error("the calendar is invalid")]
    InvalidCalendar { problems: Vec<Problem> },
    #[error("calendar `{name}` does not exist in namespace `{namespace}`")]
    CalendarNotFound { namespace: Arc<str>, name: Arc<str> },
    /// `user` names one object that refers to the calendar, such as "schedule `nightly`".
    #[error("cannot delete calendar `{name}`: it is in use by {user}")]
    CalendarInUse { name: Arc<str>, user: String },
    #[error("service `{service}` does not exist")]
    ServiceNotFound { service: ServiceId },
    #[error("service `{name}` already exists: `{service}`")]
    ServiceExists { name: Arc<str>, service: ServiceId },
    #[error("service `{name}` is being deleted: its last {replicas} replicas are stopping")]
    ServiceDeleting { name: Arc<str>, replicas: usize },
    #[error("service `{name}` has one replica on each matching worker")]
    ServicePerWorker { name: Arc<str> },
    #[error("service `{name}` is scaled automatically")]
    ServiceAutoscaled { name: Arc<str> },
    /// A rollback to a revision that is not kept or that is the current one.
    #[error("service `{name}` cannot be rolled back: {reason}")]
    RevisionUnavailable { name: Arc<str>, reason: String },
    /// A pause, resumption or promotion does not fit the status of the rollout.
    #[error("the rollout of revision {revision} of service `{name}` cannot be {act}: it is `{status}`")]
    RolloutStatus { name: Arc<str>, revision: u64, act: &'static str, status: RolloutStatus },
    /// The job is a replica, so only its service changes it.
    #[error("job `{job}` is a replica of service `{name}`")]
    JobOfService { job: JobId, name: Arc<str> },
    #[error("workflow `{workflow}` does not exist")]
    WorkflowNotFound { workflow: WorkflowId },
    #[error("workflow `{name}` already exists: `{workflow}`")]
    WorkflowExists { name: Arc<str>, workflow: WorkflowId },
    /// Waiting runs are started by their workflow, so the workflow cannot be deleted before them.
    #[error("cannot delete workflow `{workflow}`: {count} of its runs wait to start, for example `{run}`")]
    RunsWaiting { workflow: WorkflowId, run: RunId, count: usize },
    #[error(
        "cannot start a run of workflow `{name}`: {limit} of its runs already wait to start, which is the limit"
    )]
    WaitingRunLimit { name: Arc<str>, limit: usize },
    /// The idempotency key has started a different run.
    #[error("the idempotency key belongs to another request, which started run `{run}`")]
    RunIdempotencyKeyReused { run: RunId },
    #[error("the workflow definition cannot be run: {reason}")]
    InvalidDefinition { reason: String },
    /// The engine has live runs only: the run has ended, or its ID is wrong.
    #[error("run `{run}` has ended or does not exist")]
    RunNotLive { run: RunId },
    #[error("run `{run}` is {status}: expected a running run")]
    RunNotRunning { run: RunId, status: RunStatus },
    #[error("run `{run}` has no step `{step}`")]
    StepNotFound { run: RunId, step: Box<str> },
    /// `step` is the step that the task named, if it named one; `allowed` are the steps whose `added_by` names
    /// the task's step.
    #[error("{}", elements_not_accepted(.step.as_deref(), .allowed))]
    ElementsNotAccepted { step: Option<Box<str>>, allowed: Vec<Arc<str>> },
    #[error("step `{step}` of run `{run}` cannot have more than {limit} elements")]
    ElementLimit { run: RunId, step: Box<str>, limit: usize },
    #[error("step `{step}` of run `{run}` has already ended ({status})")]
    StepEnded { run: RunId, step: Box<str>, status: StepStatus },
    /// Users may mark a step with three statuses only.
    #[error("cannot mark a step as {status}: expected succeeded, failed or skipped")]
    InvalidMark { status: StepStatus },
    #[error("step `{step}` of run `{run}` is not an approval")]
    NotAnApproval { run: RunId, step: Box<str> },
    #[error("step `{step}` of run `{run}` is not waiting for approval yet")]
    ApprovalNotPending { run: RunId, step: Box<str> },
    #[error("step `{step}` can be approved or rejected only by {}", .approvers.join(", "))]
    NotApprover { step: Box<str>, approvers: Vec<String> },
    #[error("no step of run `{run}` is waiting for event `{event}`, and none will")]
    EventNotAwaited { run: RunId, event: Box<str> },
    /// The payload of an event, in bytes.
    #[error("the payload of the event has {found} bytes: expected at most {limit}")]
    PayloadTooLarge { found: usize, limit: usize },
}

fn elements_not_accepted(step: Option<&str>, allowed: &[Arc<str>]) -> String {
    match (step, allowed) {
        (_, []) => "no step accepts elements from this task".into(),
        (Some(step), allowed) => {
            format!("step `{step}` accepts no elements from this task: expected {}", allowed.join(", "))
        }
        (None, allowed) => {
            format!("more than one step accepts elements from this task: name one of {}", allowed.join(", "))
        }
    }
}

impl Refusal {
    /// Returns the error code under which clients see the refusal.
    pub const fn code(&self) -> Code {
        match self {
            Self::JobNotLive { .. } | Self::ExecutionNotCurrent { .. } => Code::JobEnded,
            Self::JobStarted { .. } => Code::JobStarted,
            // A workflow or a service is created or replaced by PUT with a precondition, so its existence breaks that.
            Self::VersionMismatch { .. } | Self::WorkflowExists { .. } | Self::ServiceExists { .. } => {
                Code::VersionMismatch
            }
            Self::IdempotencyKeyReused { .. }
            | Self::IdempotencyKeyRepeated { .. }
            | Self::RunIdempotencyKeyReused { .. } => Code::IdempotencyKeyReused,
            Self::UpstreamJobNotFound { .. } => Code::JobNotFound,
            Self::DownstreamJobLimit { .. } => Code::DownstreamJobLimit,
            Self::WorkerNotFound { .. } => Code::WorkerNotFound,
            Self::WorkerConnected { .. } => Code::WorkerConnected,
            Self::QueueNotFound { .. } => Code::QueueNotFound,
            Self::QueueInUse { .. } => Code::QueueInUse,
            Self::NamespaceNotFound { .. } => Code::NamespaceNotFound,
            Self::NamespaceJobLimit { .. } => Code::NamespaceJobLimit,
            Self::PriorityClassNotAllowed { .. } => Code::PriorityClassNotAllowed,
            Self::ScheduleNotFound { .. } => Code::ScheduleNotFound,
            Self::ScheduleExists { .. } => Code::ScheduleExists,
            Self::ScheduleRunLimit { .. } => Code::ScheduleRunLimit,
            Self::BackfillNotRunning { .. } => Code::BackfillEnded,
            Self::NothingToBackfill { .. } => Code::NothingToBackfill,
            Self::BackfillLimit { .. } => Code::BackfillLimit,
            Self::CalendarNotFound { .. } => Code::CalendarNotFound,
            Self::CalendarInUse { .. } => Code::CalendarInUse,
            Self::ServiceNotFound { .. } => Code::ServiceNotFound,
            Self::ServiceDeleting { .. } => Code::ServiceDeleting,
            Self::ServicePerWorker { .. } => Code::ServicePerWorker,
            Self::ServiceAutoscaled { .. } => Code::ServiceAutoscaled,
            Self::RevisionUnavailable { .. } => Code::RevisionUnavailable,
            Self::RolloutStatus { .. } => Code::RolloutStatus,
            Self::JobOfService { .. } => Code::JobOfService,
            Self::WorkflowNotFound { .. } => Code::WorkflowNotFound,
            Self::RunsWaiting { .. } => Code::RunsWaiting,
            Self::WaitingRunLimit { .. } => Code::WaitingRunLimit,
            Self::RunNotLive { .. } => Code::RunNotFound,
            Self::RunNotRunning { .. } => Code::RunEnded,
            Self::StepNotFound { .. } | Self::ElementsNotAccepted { .. } => Code::StepNotFound,
            Self::StepEnded { .. } => Code::StepEnded,
            Self::NotAnApproval { .. } | Self::ApprovalNotPending { .. } => Code::ApprovalNotPending,
            Self::NotApprover { .. } => Code::NotApprover,
            Self::EventNotAwaited { .. } => Code::EventNotAwaited,
            Self::InvalidTiming { .. }
            | Self::InvalidCalendar { .. }
            | Self::InvalidDefinition { .. }
            | Self::ElementLimit { .. }
            | Self::InvalidMark { .. }
            | Self::PayloadTooLarge { .. } => Code::InvalidSpec,
        }
    }

    /// Returns what the caller can do next: the hint of the code, or a more exact one.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::ExecutionNotCurrent { .. } => "end the task: its execution is no longer current",
            Self::IdempotencyKeyRepeated { .. } => "give each job of the submission its own idempotency key",
            Self::WorkflowExists { .. } => {
                "to replace the workflow, repeat the request without `If-None-Match`"
            }
            Self::ServiceExists { .. } => {
                "to replace the service, repeat the request without `If-None-Match`"
            }
            Self::RunNotRunning { status: RunStatus::Waiting, .. } => {
                "wait until the run has started, or cancel it"
            }
            Self::RunNotRunning { status: RunStatus::Paused, .. } => "resume the run first",
            Self::InvalidDefinition { .. } => "correct the definition of the workflow",
            Self::ElementsNotAccepted { step: None, allowed } if !allowed.is_empty() => {
                "name the step: `step` in a request, `--to` on the command line"
            }
            Self::ElementsNotAccepted { .. } => {
                "name the task's step in `added_by` of the step that takes the elements"
            }
            Self::ElementLimit { .. } => "add fewer and larger elements",
            Self::InvalidMark { .. } => "use one of these three statuses",
            Self::NotAnApproval { .. } => "check the name of the step",
            Self::PayloadTooLarge { .. } => "store large data as an artifact, and send its name",
            _ => self.code().hint(),
        }
    }

    /// Returns the invalid fields, with paths that start at the request; empty for most refusals.
    pub fn problems(&self) -> Vec<Problem> {
        match self {
            Self::InvalidTiming { index, problems } => {
                let at_request = |problem: &Problem| Problem {
                    path: format!("schedules[{index}].{}", problem.path),
                    message: problem.message.clone(),
                };
                problems.iter().map(at_request).collect()
            }
            Self::InvalidCalendar { problems } => problems.clone(),
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_says_which_object_and_why() {
        let (job, execution, worker) =
            (JobId::from_bits(1), ExecutionId::from_bits(2), WorkerId::from_bits(3));
        let (schedule, backfill) = (ScheduleId::from_bits(4), BackfillId::from_bits(5));
        let (workflow, run) = (WorkflowId::from_bits(6), RunId::from_bits(7));
        let service = ServiceId::from_bits(8);
        let problems = vec![Problem { path: "cron".into(), message: "is empty".into() }];
        let refusals = [
            Refusal::JobNotLive { job },
            Refusal::ExecutionNotCurrent { execution },
            Refusal::JobStarted { job },
            Refusal::VersionMismatch { expected: 1, found: 2 },
            Refusal::IdempotencyKeyReused { index: 0, job },
            Refusal::IdempotencyKeyRepeated { index: 1 },
            Refusal::UpstreamJobNotFound { index: 0, job },
            Refusal::DownstreamJobLimit { index: 0, job, limit: 10_000 },
            Refusal::WorkerNotFound { worker },
            Refusal::WorkerConnected { worker },
            Refusal::QueueNotFound { queue: "mail".into() },
            Refusal::QueueInUse { queue: "mail".into(), waiting: 3, running: 1 },
            Refusal::NamespaceNotFound { namespace: "team-a".into() },
            Refusal::NamespaceJobLimit { index: 0, namespace: "team-a".into(), limit: 1_000 },
            Refusal::PriorityClassNotAllowed {
                namespace: "team-a".into(),
                class: PriorityClass::High,
                highest: PriorityClass::Normal,
            },
            Refusal::ScheduleNotFound { schedule },
            Refusal::ScheduleExists { name: "nightly".into(), schedule },
            Refusal::InvalidTiming { index: 2, problems: problems.clone() },
            Refusal::ScheduleRunLimit { name: "nightly".into(), runs: 1 },
            Refusal::BackfillNotRunning { backfill },
            Refusal::NothingToBackfill { running: Some(backfill) },
            Refusal::NothingToBackfill { running: None },
            Refusal::BackfillLimit { limit: 100 },
            Refusal::InvalidCalendar { problems },
            Refusal::CalendarNotFound { namespace: "default".into(), name: "cn".into() },
            Refusal::CalendarInUse { name: "cn".into(), user: "schedule `nightly`".into() },
            Refusal::ServiceNotFound { service },
            Refusal::ServiceExists { name: "web".into(), service },
            Refusal::ServiceDeleting { name: "web".into(), replicas: 2 },
            Refusal::ServicePerWorker { name: "agent".into() },
            Refusal::ServiceAutoscaled { name: "web".into() },
            Refusal::RevisionUnavailable { name: "web".into(), reason: "revision 3 is not kept".into() },
            Refusal::RolloutStatus {
                name: "web".into(),
                revision: 3,
                act: "promoted",
                status: RolloutStatus::Completed,
            },
            Refusal::JobOfService { job, name: "web".into() },
            Refusal::WorkflowNotFound { workflow },
            Refusal::WorkflowExists { name: "etl".into(), workflow },
            Refusal::RunsWaiting { workflow, run, count: 2 },
            Refusal::WaitingRunLimit { name: "etl".into(), limit: 10_000 },
            Refusal::RunIdempotencyKeyReused { run },
            Refusal::InvalidDefinition { reason: "step `a` depends on itself".into() },
            Refusal::RunNotLive { run },
            Refusal::RunNotRunning { run, status: RunStatus::Paused },
            Refusal::RunNotRunning { run, status: RunStatus::Stopping },
            Refusal::StepNotFound { run, step: "load".into() },
            Refusal::ElementsNotAccepted { step: None, allowed: Vec::new() },
            Refusal::ElementsNotAccepted { step: Some("c".into()), allowed: vec!["a".into(), "b".into()] },
            Refusal::ElementsNotAccepted { step: None, allowed: vec!["a".into(), "b".into()] },
            Refusal::ElementLimit { run, step: "load".into(), limit: 10_000 },
            Refusal::StepEnded { run, step: "load".into(), status: StepStatus::Succeeded },
            Refusal::InvalidMark { status: StepStatus::Running },
            Refusal::NotAnApproval { run, step: "load".into() },
            Refusal::ApprovalNotPending { run, step: "release".into() },
            Refusal::NotApprover { step: "release".into(), approvers: vec!["alice".into(), "bob".into()] },
            Refusal::EventNotAwaited { run, event: "paid".into() },
            Refusal::PayloadTooLarge { found: 70_000, limit: 65_536 },
        ];
        let mut shown = String::new();
        for refusal in refusals {
            let (code, hint) = (refusal.code(), refusal.hint());
            shown.push_str(&format!("{} {}: {refusal}\n  hint: {hint}\n", code.status(), code.as_str()));
        }
        insta::assert_snapshot!(shown);
    }

    #[test]
    fn the_path_of_an_invalid_timing_starts_at_the_request() {
        let problems = vec![Problem { path: "timing.cron".into(), message: "is empty".into() }];
        let paths: Vec<_> = Refusal::InvalidTiming { index: 2, problems }
            .problems()
            .into_iter()
            .map(|problem| problem.path)
            .collect();
        assert_eq!(paths, ["schedules[2].timing.cron"]);
    }
}
