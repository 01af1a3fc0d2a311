//! Causes and legal transitions of runs and steps.
//!
//! The engine checks each transition against these tables, and the docs show them. A run never leaves a final status:
//! a retry by a user starts another run, which takes over the successful steps. A step leaves a final status only
//! when the policy of the workflow retries its run.

use super::{RunStatus, StepStatus};
use crate::lifecycle::causes;

causes! {
    /// Cause of a transition of a run.
    RunCause {
        Started = 0, "started", "The run was started.";
        Queued = 1, "queued", "The run waits, because the workflow has reached its limit of concurrent runs.";
        SlotAvailable = 2, "slot_available", "The workflow was below its limit of concurrent runs again.";
        Succeeded = 3, "succeeded", "No step failed.";
        StepFailed = 4, "step_failed", "A step failed.";
        FailFast = 5, "fail_fast", "A step failed, and the workflow stops at the first failure.";
        TimedOut = 6, "timed_out", "The run exceeded its timeout.";
        CancelRequested = 7, "cancel_requested", "The run was cancelled.";
        PauseRequested = 8, "pause_requested", "The run was paused.";
        ResumeRequested = 9, "resume_requested", "The run was resumed.";
        OutputFailed = 10, "output_failed", "An output of the run could not be computed.";
        ParentStopped = 11, "parent_stopped", "The step that called the run was stopped.";
        Expired = 12, "expired", "The run could not start before the start deadline of its schedule.";
        BackoffEnded = 13, "backoff_ended", "The retry delay ended.";
    }
}

causes! {
    /// Cause of a transition of a step.
    StepCause {
        UpstreamEnded = 0, "upstream_ended", "The join rule and the condition of the step were satisfied.";
        JoinRule = 1, "join_rule", "The join rule of the step was not satisfied.";
        Condition = 2, "condition", "The condition of the step is false.";
        ConditionFailed = 3, "condition_failed", "The condition of the step could not be evaluated.";
        BadReference = 4, "bad_reference", "The step could not start, because a value that it refers to is missing or invalid.";
        JobSucceeded = 5, "job_succeeded", "The job of the step succeeded.";
        JobFailed = 6, "job_failed", "The job of the step failed and has no retries left.";
        JobCancelled = 7, "job_cancelled", "The job of the step was cancelled.";
        JobExpired = 8, "job_expired", "The job of the step could not start before its start deadline.";
        RunSucceeded = 9, "run_succeeded", "The called run succeeded.";
        RunFailed = 10, "run_failed", "The called run failed.";
        RunCancelled = 11, "run_cancelled", "The called run was cancelled.";
        ElementsSucceeded = 12, "elements_succeeded", "Enough elements of the step succeeded.";
        ElementsFailed = 13, "elements_failed", "Too many elements of the step failed.";
        Approved = 14, "approved", "The step was approved.";
        Rejected = 15, "rejected", "The step was rejected.";
        TimeReached = 16, "time_reached", "The scheduled time was reached.";
        EventReceived = 17, "event_received", "The event was received.";
        TimedOut = 18, "timed_out", "The step exceeded its timeout.";
        Marked = 19, "marked", "A user set the status of the step.";
        Stopped = 20, "stopped", "The run was stopped.";
        CarriedOver = 21, "carried_over", "The result was taken over from an earlier run.";
        JobMissing = 22, "job_missing", "The job of the step was not in the store.";
        ListUnfinished = 23, "list_unfinished", "A step that adds elements to this step did not succeed.";
        RunRetried = 24, "run_retried", "The run is being retried.";
        NotFailed = 25, "not_failed", "The run did not fail, so `on_failure` steps do not run.";
        NotAfterCancel = 26, "not_after_cancel", "The run was cancelled, so `on_failure` steps do not run.";
        SkippedByCancel = 27, "skipped_by_cancel", "A user cancelled the run without its `on_failure` and `finally` steps.";
        BadOutput = 28, "bad_output", "The output of the step does not match its declared outputs.";
    }
}

/// A legal transition of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunTransition {
    /// Status before the transition; `None` at the creation of the run.
    pub from: Option<RunStatus>,
    /// Status after the transition.
    pub to: RunStatus,
    /// Cause of the transition.
    pub cause: RunCause,
}

const fn run(from: RunStatus, to: RunStatus, cause: RunCause) -> RunTransition {
    RunTransition { from: Some(from), to, cause }
}

/// All legal transitions of a run.
pub const RUN_TRANSITIONS: &[RunTransition] = {
    use RunStatus::{Cancelled, Failed, Paused, Retrying, Running, Stopping, Succeeded, Waiting};
    &[
        RunTransition { from: None, to: Running, cause: RunCause::Started },
        RunTransition { from: None, to: Waiting, cause: RunCause::Queued },
        run(Waiting, Running, RunCause::SlotAvailable),
        run(Waiting, Cancelled, RunCause::CancelRequested),
        run(Waiting, Failed, RunCause::Expired),
        run(Running, Paused, RunCause::PauseRequested),
        run(Paused, Running, RunCause::ResumeRequested),
        run(Running, Stopping, RunCause::FailFast),
        run(Running, Stopping, RunCause::TimedOut),
        run(Running, Stopping, RunCause::CancelRequested),
        run(Running, Stopping, RunCause::ParentStopped),
        run(Paused, Stopping, RunCause::FailFast),
        run(Paused, Stopping, RunCause::TimedOut),
        run(Paused, Stopping, RunCause::CancelRequested),
        run(Paused, Stopping, RunCause::ParentStopped),
        run(Running, Retrying, RunCause::StepFailed),
        run(Stopping, Retrying, RunCause::FailFast),
        run(Stopping, Retrying, RunCause::TimedOut),
        run(Retrying, Running, RunCause::BackoffEnded),
        run(Retrying, Paused, RunCause::PauseRequested),
        run(Paused, Retrying, RunCause::ResumeRequested),
        run(Retrying, Stopping, RunCause::CancelRequested),
        run(Retrying, Stopping, RunCause::ParentStopped),
        run(Running, Succeeded, RunCause::Succeeded),
        run(Running, Failed, RunCause::StepFailed),
        run(Running, Failed, RunCause::OutputFailed),
        run(Stopping, Failed, RunCause::FailFast),
        run(Stopping, Failed, RunCause::TimedOut),
        run(Stopping, Cancelled, RunCause::CancelRequested),
        run(Stopping, Cancelled, RunCause::ParentStopped),
    ]
};

/// Returns whether a run may change from `from` to `to` with this cause.
pub fn is_legal_for_run(from: Option<RunStatus>, to: RunStatus, cause: RunCause) -> bool {
    RUN_TRANSITIONS.contains(&RunTransition { from, to, cause })
}

/// All legal transitions of a step: statuses before, status after, and causes.
pub const STEP_TRANSITIONS: &[(&[StepStatus], StepStatus, &[StepCause])] = {
    use StepCause as C;
    use StepStatus::{Cancelled, Failed, Pending, Running, Skipped, Succeeded, UpstreamFailed, Waiting};
    &[
        (&[Pending], Running, &[C::UpstreamEnded]),
        (&[Pending], Waiting, &[C::UpstreamEnded]),
        (
            &[Pending],
            Skipped,
            &[
                C::JoinRule,
                C::Condition,
                C::NotFailed,
                C::NotAfterCancel,
                C::SkippedByCancel,
                C::Marked,
                C::CarriedOver,
            ],
        ),
        (&[Pending], UpstreamFailed, &[C::JoinRule]),
        (&[Pending], Failed, &[C::ConditionFailed, C::BadReference, C::BadOutput, C::Marked]),
        (
            &[Pending],
            Succeeded,
            &[C::Marked, C::CarriedOver, C::TimeReached, C::EventReceived, C::ElementsSucceeded],
        ),
        (&[Pending], Cancelled, &[C::Stopped]),
        (&[Running], Succeeded, &[C::JobSucceeded, C::RunSucceeded, C::ElementsSucceeded, C::Marked]),
        (
            &[Running],
            Failed,
            &[
                C::JobFailed,
                C::JobExpired,
                C::RunFailed,
                C::ElementsFailed,
                C::ListUnfinished,
                C::TimedOut,
                C::Marked,
                C::JobMissing,
                C::BadOutput,
            ],
        ),
        (&[Running], Skipped, &[C::Marked]),
        (&[Running], Cancelled, &[C::JobCancelled, C::RunCancelled, C::Stopped]),
        (&[Waiting], Succeeded, &[C::Approved, C::TimeReached, C::EventReceived, C::TimedOut, C::Marked]),
        (&[Waiting], Failed, &[C::Rejected, C::TimedOut, C::BadOutput, C::Marked]),
        (&[Waiting], Skipped, &[C::TimedOut, C::Marked]),
        (&[Waiting], Cancelled, &[C::Stopped]),
        (&[Succeeded, Failed, UpstreamFailed, Skipped, Cancelled], Pending, &[C::RunRetried]),
    ]
};

/// Returns whether a step may change from `from` to `to` with this cause.
pub fn is_legal_for_step(from: StepStatus, to: StepStatus, cause: StepCause) -> bool {
    STEP_TRANSITIONS
        .iter()
        .any(|(before, after, causes)| before.contains(&from) && *after == to && causes.contains(&cause))
}

/// Returns the transitions of runs and of steps as Mermaid state diagrams, for the docs.
pub fn diagrams() -> (String, String) {
    let mut run = String::from("stateDiagram-v2\n");
    for RunTransition { from, to, cause } in RUN_TRANSITIONS {
        let from = from.map_or("[*]", RunStatus::as_str);
        run.push_str(&format!("    {from} --> {to}: {cause}\n"));
    }
    let mut step = String::from("stateDiagram-v2\n    [*] --> pending\n");
    for (before, to, causes) in STEP_TRANSITIONS {
        let causes = causes.iter().map(|cause| cause.as_str()).collect::<Vec<_>>().join(", ");
        for from in *before {
            step.push_str(&format!("    {from} --> {to}: {causes}\n"));
        }
    }
    (run, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Transition = (&'static [StepStatus], StepStatus, &'static [StepCause]);

    /// Returns the transitions of steps within one attempt of their run.
    fn within_a_try() -> impl Iterator<Item = &'static Transition> {
        STEP_TRANSITIONS.iter().filter(|(_, _, causes)| *causes != [StepCause::RunRetried])
    }

    #[test]
    fn no_transition_leaves_a_final_status() {
        assert!(RUN_TRANSITIONS.iter().all(|t| t.from.is_none_or(|from| !from.is_final())));
        assert!(within_a_try().all(|(before, ..)| before.iter().all(|from| !from.is_final())));
    }

    #[test]
    fn every_live_status_can_be_reached_and_can_end() {
        for &status in RunStatus::ALL {
            assert!(RUN_TRANSITIONS.iter().any(|t| t.to == status), "{status} is never reached");
            let leaves = RUN_TRANSITIONS.iter().any(|t| t.from == Some(status));
            assert_eq!(leaves, !status.is_final(), "{status}");
        }
        for &status in StepStatus::ALL {
            let reached = STEP_TRANSITIONS.iter().any(|(_, to, _)| *to == status);
            assert!(reached || status == StepStatus::Pending, "{status} is never reached");
            let leaves = within_a_try().any(|(before, ..)| before.contains(&status));
            assert_eq!(leaves, !status.is_final(), "{status}");
        }
    }

    #[test]
    fn every_cause_is_in_a_table_and_round_trips_through_its_code() {
        for &cause in RunCause::ALL {
            assert!(RUN_TRANSITIONS.iter().any(|t| t.cause == cause), "{cause}");
            assert_eq!(RunCause::from_code(cause.code()), Some(cause));
        }
        for &cause in StepCause::ALL {
            assert!(STEP_TRANSITIONS.iter().any(|(_, _, causes)| causes.contains(&cause)), "{cause}");
            assert_eq!(StepCause::from_code(cause.code()), Some(cause));
        }
    }
}
