//! Status transitions of a job: one table of all legal ones.
//!
//! The engine checks each transition against the table, and the docs contain a diagram of it. A row is (from, to,
//! cause). Each cause has a sentence, which the API returns, so a user understands the history of a job without its
//! log.

use crate::status::JobStatus::{
    self, Cancelled, Expired, Failed, Ready, Retrying, Running, Succeeded, Waiting,
};

/// Defines an enum of causes with a name, a sentence and a number for each.
macro_rules! causes {
    ($(#[$head:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $code:literal, $text:literal, $sentence:literal;)* }) => {
        $(#[$head])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
            utoipa::ToSchema,
        )]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$doc])* #[doc = $sentence] $variant,)* }

        impl $name {
            /// All causes, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the stable name of the cause in the API.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// Returns the cause as one English sentence.
            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$variant => $sentence,)* }
            }

            /// Returns the number of the cause in stores; a number never changes its meaning.
            pub const fn code(self) -> u8 {
                match self { $(Self::$variant => $code,)* }
            }

            /// Returns the cause with this number, or `None` if there is none.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)* _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

pub(crate) use causes;

causes! {
    /// Why a job changed its status.
    Cause {
        Submitted = 0, "submitted", "The job was submitted.";
        Due = 1, "due", "The scheduled time was reached.";
        Placed = 2, "placed", "The job was placed on a worker.";
        Succeeded = 3, "succeeded", "The execution succeeded.";
        RunFailed = 4, "run_failed", "The execution failed.";
        StartFailed = 5, "start_failed", "The execution could not be started.";
        TimedOut = 6, "timed_out", "The execution exceeded its timeout.";
        WorkerLost = 7, "worker_lost", "The worker of the execution was lost.";
        Interrupted = 8, "interrupted", "The execution was interrupted on the worker; the job did not cause this.";
        Refused = 9, "refused", "The worker declined the execution before it started.";
        OutcomeUnknown = 10, "outcome_unknown", "The worker was lost, and the job must not be started twice.";
        BackoffEnded = 11, "backoff_ended", "The retry delay ended.";
        CancelRequested = 12, "cancel_requested", "The job was cancelled.";
        DeadlinePassed = 13, "deadline_passed", "The job could not start before its start deadline.";
        Updated = 14, "updated", "The job was changed before it started.";
        Fired = 15, "fired", "A schedule created the job.";
        StepStarted = 16, "step_started", "A step of a workflow run created the job.";
        WorkerReturned = 17, "worker_returned", "The lost worker reconnected with the execution before another execution was started.";
        DependenciesSatisfied = 18, "dependencies_satisfied", "All upstream jobs ended as required.";
        DependencyNeverSatisfied = 19, "dependency_never_satisfied", "An upstream job did not end as required.";
        FinishDeadlinePassed = 20, "finish_deadline_passed", "The job did not end before its completion deadline.";
        Preempted = 21, "preempted", "A job of a higher priority class took the place of the execution on its worker.";
        ReplicaStarted = 22, "replica_started", "A service created the job for one of its replicas.";
        ReplicaExited = 23, "replica_exited", "The execution exited by itself; the service restarts it.";
    }
}

/// Legal status transition of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    /// Status before the transition; `None` for a new job.
    pub from: Option<JobStatus>,
    /// Status after the transition.
    pub to: JobStatus,
    /// Cause of the transition.
    pub cause: Cause,
}

const fn step(from: JobStatus, to: JobStatus, cause: Cause) -> Transition {
    Transition { from: Some(from), to, cause }
}

/// All legal transitions. No transition leaves a final status.
pub const TRANSITIONS: &[Transition] = &[
    Transition { from: None, to: Ready, cause: Cause::Submitted },
    Transition { from: None, to: Waiting, cause: Cause::Submitted },
    Transition { from: None, to: Waiting, cause: Cause::Fired },
    Transition { from: None, to: Waiting, cause: Cause::StepStarted },
    Transition { from: None, to: Waiting, cause: Cause::ReplicaStarted },
    step(Ready, Waiting, Cause::Due),
    step(Ready, Waiting, Cause::DependenciesSatisfied),
    step(Ready, Cancelled, Cause::DependencyNeverSatisfied),
    step(Ready, Ready, Cause::Updated),
    step(Ready, Waiting, Cause::Updated),
    step(Ready, Cancelled, Cause::CancelRequested),
    step(Ready, Expired, Cause::DeadlinePassed),
    step(Waiting, Ready, Cause::Updated),
    step(Waiting, Waiting, Cause::Updated),
    step(Waiting, Running, Cause::Placed),
    step(Waiting, Running, Cause::WorkerReturned),
    step(Retrying, Running, Cause::WorkerReturned),
    step(Waiting, Cancelled, Cause::CancelRequested),
    step(Waiting, Expired, Cause::DeadlinePassed),
    step(Running, Succeeded, Cause::Succeeded),
    step(Running, Retrying, Cause::RunFailed),
    step(Running, Retrying, Cause::StartFailed),
    step(Running, Retrying, Cause::TimedOut),
    step(Running, Retrying, Cause::ReplicaExited),
    step(Running, Retrying, Cause::WorkerLost),
    step(Running, Retrying, Cause::Interrupted),
    step(Running, Retrying, Cause::Refused),
    step(Running, Waiting, Cause::WorkerLost),
    step(Running, Waiting, Cause::Interrupted),
    step(Running, Waiting, Cause::Refused),
    step(Running, Waiting, Cause::Preempted),
    step(Running, Failed, Cause::RunFailed),
    step(Running, Failed, Cause::StartFailed),
    step(Running, Failed, Cause::TimedOut),
    step(Running, Failed, Cause::ReplicaExited),
    step(Running, Failed, Cause::OutcomeUnknown),
    step(Running, Failed, Cause::WorkerLost),
    step(Running, Cancelled, Cause::CancelRequested),
    step(Retrying, Waiting, Cause::BackoffEnded),
    step(Retrying, Cancelled, Cause::CancelRequested),
    step(Ready, Failed, Cause::FinishDeadlinePassed),
    step(Ready, Cancelled, Cause::FinishDeadlinePassed),
    step(Waiting, Failed, Cause::FinishDeadlinePassed),
    step(Waiting, Cancelled, Cause::FinishDeadlinePassed),
    step(Running, Failed, Cause::FinishDeadlinePassed),
    step(Running, Cancelled, Cause::FinishDeadlinePassed),
    step(Retrying, Failed, Cause::FinishDeadlinePassed),
    step(Retrying, Cancelled, Cause::FinishDeadlinePassed),
];

/// Returns whether a job may change from `from` to `to` with this cause.
pub fn is_legal(from: Option<JobStatus>, to: JobStatus, cause: Cause) -> bool {
    TRANSITIONS.contains(&Transition { from, to, cause })
}

/// Returns the transitions as a Mermaid state diagram, for the docs.
pub fn diagram() -> String {
    let mut text = String::from("stateDiagram-v2\n");
    for Transition { from, to, cause } in TRANSITIONS {
        let from = from.map_or("[*]", JobStatus::as_str);
        text.push_str(&format!("    {from} --> {to}: {cause}\n"));
    }
    for end in [Succeeded, Failed, Cancelled, Expired] {
        text.push_str(&format!("    {end} --> [*]\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_transition_leaves_a_final_status() {
        assert!(TRANSITIONS.iter().all(|t| t.from.is_none_or(|from| !from.is_final())));
    }

    #[test]
    fn every_status_can_be_reached_and_every_live_one_can_end() {
        let reach = |start: BTreeSet<JobStatus>| {
            let mut seen = start;
            loop {
                let more: Vec<_> = TRANSITIONS
                    .iter()
                    .filter(|t| t.from.is_some_and(|f| seen.contains(&f)) && !seen.contains(&t.to))
                    .map(|t| t.to)
                    .collect();
                if more.is_empty() {
                    return seen;
                }
                seen.extend(more);
            }
        };
        assert_eq!(reach(BTreeSet::from([Ready])).len(), JobStatus::ALL.len());
        for &status in JobStatus::ALL.iter().filter(|s| !s.is_final()) {
            assert!(reach(BTreeSet::from([status])).iter().any(|s| s.is_final()), "{status}");
        }
    }

    #[test]
    fn every_cause_is_in_the_table_and_round_trips_through_its_code() {
        for &cause in Cause::ALL {
            assert!(TRANSITIONS.iter().any(|t| t.cause == cause), "{cause}");
            assert_eq!(Cause::from_code(cause.code()), Some(cause));
        }
    }
}
