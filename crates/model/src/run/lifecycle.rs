//! The tables of legal transitions of runs and steps.
//!
//! As with jobs: the engine checks every step by them, and the docs draw them. No run leaves a final
//! status; to try an ended run again is to start another one that takes over what the first achieved. Steps
//! leave theirs only while their run goes on: when its workflow's policy tries it again.

use super::{RunStatus, StepStatus};
use crate::lifecycle::causes;

causes! {
    /// Why a run changed its status.
    RunCause {
        Started = 0, "started", "It was started.";
        Queued = 1, "queued", "It was started, and as many runs of its workflow go on as may.";
        Turn = 2, "turn", "Its turn came.";
        Succeeded = 3, "succeeded", "No step of it failed.";
        StepFailed = 4, "step_failed", "A step of it failed.";
        FailFast = 5, "fail_fast", "A step of it failed, and its workflow stops at the first failure.";
        TimedOut = 6, "timed_out", "It took longer than its timeout.";
        CancelRequested = 7, "cancel_requested", "Somebody cancelled it.";
        PauseRequested = 8, "pause_requested", "Somebody paused it.";
        ResumeRequested = 9, "resume_requested", "Somebody let it go on.";
        OutputFailed = 10, "output_failed", "An output of it refers to something that is not there.";
        ParentStopped = 11, "parent_stopped", "The step that called it was stopped.";
        Expired = 12, "expired", "Its turn did not come before its schedule's starting deadline.";
        BackoffOver = 13, "backoff_over", "The wait before its next try is over.";
    }
}

causes! {
    /// Why a step changed its status.
    StepCause {
        NeedsOver = 0, "needs_over", "Its join rule and its condition let it through.";
        Rule = 1, "rule", "Its join rule does not let it through.";
        Condition = 2, "condition", "Its condition does not hold.";
        ConditionFailed = 3, "condition_failed", "Its condition could not be evaluated.";
        BadReference = 4, "bad_reference", "It refers to something that is not there.";
        JobSucceeded = 5, "job_succeeded", "Its job ended well.";
        JobFailed = 6, "job_failed", "Its job failed, with no retries left.";
        JobCancelled = 7, "job_cancelled", "Its job was cancelled.";
        JobExpired = 8, "job_expired", "Its job could not start before its starting deadline.";
        RunSucceeded = 9, "run_succeeded", "The run that it called ended well.";
        RunFailed = 10, "run_failed", "The run that it called failed.";
        RunCancelled = 11, "run_cancelled", "The run that it called was cancelled.";
        ItemsOver = 12, "items_over", "As many of its elements ended well as must.";
        ItemsFailed = 13, "items_failed", "More of its elements failed than may.";
        Approved = 14, "approved", "Somebody approved it.";
        Rejected = 15, "rejected", "Somebody rejected it.";
        TimeCame = 16, "time_came", "Its time came.";
        EventCame = 17, "event_came", "Its event came.";
        TimedOut = 18, "timed_out", "It took longer than its timeout.";
        Marked = 19, "marked", "Somebody decided what becomes of it.";
        Stopped = 20, "stopped", "Its run was stopped.";
        Carried = 21, "carried", "An earlier run had done it.";
        JobMissing = 22, "job_missing", "Its job was not in the store.";
        ListUnfinished = 23, "list_unfinished", "A step that adds its elements did not succeed.";
        RunRetried = 24, "run_retried", "Its run is tried again.";
        NotFailed = 25, "not_failed", "Its run did not fail.";
        NotAfterCancel = 26, "not_after_cancel", "Its run was cancelled.";
        LeftOut = 27, "left_out", "Somebody asked to leave it out.";
        BadOutput = 28, "bad_output", "Its output is not what the step promises.";
    }
}

/// One legal step of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunTransition {
    /// The status before; `None` for a run that is created.
    pub from: Option<RunStatus>,
    /// The status after.
    pub to: RunStatus,
    /// What happened.
    pub cause: RunCause,
}

const fn run(from: RunStatus, to: RunStatus, cause: RunCause) -> RunTransition {
    RunTransition { from: Some(from), to, cause }
}

/// Every legal step of a run.
pub const RUN_TRANSITIONS: &[RunTransition] = {
    use RunStatus::{Cancelled, Failed, Paused, Retrying, Running, Stopping, Succeeded, Waiting};
    &[
        RunTransition { from: None, to: Running, cause: RunCause::Started },
        RunTransition { from: None, to: Waiting, cause: RunCause::Queued },
        run(Waiting, Running, RunCause::Turn),
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
        run(Retrying, Running, RunCause::BackoffOver),
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

/// Whether a run may go from `from` to `to` because of `cause`.
pub fn is_legal_for_run(from: Option<RunStatus>, to: RunStatus, cause: RunCause) -> bool {
    RUN_TRANSITIONS.contains(&RunTransition { from, to, cause })
}

/// Every legal step of a step, by the status after it: from which, and because of what.
pub const STEP_TRANSITIONS: &[(&[StepStatus], StepStatus, &[StepCause])] = {
    use StepCause as C;
    use StepStatus::{Cancelled, Failed, Pending, Running, Skipped, Succeeded, UpstreamFailed, Waiting};
    &[
        (&[Pending], Running, &[C::NeedsOver]),
        (&[Pending], Waiting, &[C::NeedsOver]),
        (
            &[Pending],
            Skipped,
            &[C::Rule, C::Condition, C::NotFailed, C::NotAfterCancel, C::LeftOut, C::Marked, C::Carried],
        ),
        (&[Pending], UpstreamFailed, &[C::Rule]),
        (&[Pending], Failed, &[C::ConditionFailed, C::BadReference, C::BadOutput, C::Marked]),
        (&[Pending], Succeeded, &[C::Marked, C::Carried, C::TimeCame, C::EventCame, C::ItemsOver]),
        (&[Pending], Cancelled, &[C::Stopped]),
        (&[Running], Succeeded, &[C::JobSucceeded, C::RunSucceeded, C::ItemsOver, C::Marked]),
        (
            &[Running],
            Failed,
            &[
                C::JobFailed,
                C::JobExpired,
                C::RunFailed,
                C::ItemsFailed,
                C::ListUnfinished,
                C::TimedOut,
                C::Marked,
                C::JobMissing,
                C::BadOutput,
            ],
        ),
        (&[Running], Skipped, &[C::Marked]),
        (&[Running], Cancelled, &[C::JobCancelled, C::RunCancelled, C::Stopped]),
        (&[Waiting], Succeeded, &[C::Approved, C::TimeCame, C::EventCame, C::TimedOut, C::Marked]),
        (&[Waiting], Failed, &[C::Rejected, C::TimedOut, C::BadOutput, C::Marked]),
        (&[Waiting], Skipped, &[C::TimedOut, C::Marked]),
        (&[Waiting], Cancelled, &[C::Stopped]),
        (&[Succeeded, Failed, UpstreamFailed, Skipped, Cancelled], Pending, &[C::RunRetried]),
    ]
};

/// Whether a step may go from `from` to `to` because of `cause`.
pub fn is_legal_for_step(from: StepStatus, to: StepStatus, cause: StepCause) -> bool {
    STEP_TRANSITIONS
        .iter()
        .any(|(before, after, causes)| before.contains(&from) && *after == to && causes.contains(&cause))
}

/// The lives of a run and of a step as Mermaid state diagrams, for the docs.
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

    /// Transitions of steps within one try of their run.
    fn within_a_try() -> impl Iterator<Item = &'static Transition> {
        STEP_TRANSITIONS.iter().filter(|(_, _, causes)| *causes != [StepCause::RunRetried])
    }

    #[test]
    fn nothing_leaves_a_final_status() {
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
    fn every_cause_stands_in_a_table_and_survives_its_code() {
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
