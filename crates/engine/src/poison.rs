//! Rows that cannot be restored.

use model::{BackfillId, ExecutionId, JobId, RunId};

/// A row that contradicts the others and cannot be restored. The driver quarantines it and continues with the
/// rest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Poison {
    /// The row of a job has a final status.
    #[error("job `{job}` is among the live rows, but has ended")]
    EndedJob {
        /// ID of the job.
        job: JobId,
    },
    /// The last entry of a job's history does not match its status.
    #[error("the last entry in the history of job `{job}` does not match its status")]
    History {
        /// ID of the job.
        job: JobId,
    },
    /// The job template of a backfill cannot be parsed.
    #[error("cannot parse the job of backfill `{backfill}`: {reason}")]
    Backfill {
        /// ID of the backfill.
        backfill: BackfillId,
        /// Reason for the failure.
        reason: String,
    },
    /// A run cannot be restored.
    #[error("cannot restore run `{run}`: {reason}")]
    Run {
        /// ID of the run.
        run: RunId,
        /// Reason for the failure.
        reason: String,
    },
    /// A step contradicts its run.
    #[error("cannot restore step {step} of run `{run}`: {reason}")]
    Step {
        /// ID of the run.
        run: RunId,
        /// Number of the step, from 0.
        step: u32,
        /// Reason for the failure.
        reason: String,
    },
    /// The job of an execution is not live, or has a newer execution.
    #[error(
        "execution `{execution}` is among the live rows, but is not the current execution of job `{job}`"
    )]
    StrayExecution {
        /// ID of the execution.
        execution: ExecutionId,
        /// Job that the execution refers to.
        job: JobId,
    },
}
