//! Reasons for stopping an execution, which its task can read.

/// Why an execution is stopped. The task finds the word in the file `$BELFRY_STOP_REASON` when it gets SIGTERM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// The job was cancelled.
    Cancelled,
    /// The completion deadline of the job passed.
    FinishDeadlinePassed,
    /// The worker is drained; the job runs again elsewhere.
    Drained,
    /// The job is preempted by a job of a higher priority class; it runs again later.
    Preempted,
    /// The execution is no longer the current one of its job.
    Superseded,
    /// The execution exceeded its timeout.
    TimedOut,
    /// The startup or liveness check of the execution failed.
    Unhealthy,
    /// The service no longer needs the replica: it was scaled down, updated or deleted, or the worker is drained.
    Replaced,
}

crate::status::words! { StopReason, "a reason for a stop", {
    Cancelled = "cancelled";
    FinishDeadlinePassed = "finish_deadline_passed";
    Drained = "drained";
    Preempted = "preempted";
    Superseded = "superseded";
    TimedOut = "timed_out";
    Unhealthy = "unhealthy";
    Replaced = "replaced";
} }
