//! An execution on this worker, and its phases.

use model::{Fence, JobId, StopReason};

use crate::countdown::Countdown;
use crate::launch::Launching;
use crate::report::Report;
use crate::{BootMillis, ClockReading, ExecutionPolicy, Payloads};

/// An execution that the worker holds.
#[derive(Debug)]
pub(crate) struct Execution<P: Payloads> {
    pub(crate) fence: Fence,
    pub(crate) job: Option<JobId>,
    pub(crate) policy: ExecutionPolicy,
    pub(crate) phase: Phase<P>,
    /// Whether its report is queued.
    pub(crate) is_reporting: bool,
    /// Whether no report about it is to be sent.
    pub(crate) discard: bool,
}

/// Phase of an execution; see the diagram in [`crate`].
#[derive(Debug)]
pub(crate) enum Phase<P: Payloads> {
    /// Not in the journal yet; waits for a lease.
    Waiting(Box<P::StartRequest>),
    /// Its start is in the journal, or is being written.
    Starting(Box<P::StartRequest>),
    /// The shell prepares and launches it; the program may be running already.
    Launching(Box<Launching>),
    /// Its main process runs, or remaining processes are being killed.
    Running(Box<Task>),
    /// It succeeded, and its outputs are being stored.
    Storing(Box<(P::Assignment, P::End)>),
    /// It has ended; the report is kept until it is acknowledged.
    Ended(Ended<P>),
}

/// Data of the last phase.
#[derive(Debug)]
pub(crate) struct Ended<P: Payloads> {
    pub(crate) report: Report<P>,
    /// Whether the report is durable; it is sent only after that.
    pub(crate) is_durable: bool,
    /// Whether the folder is to be removed once the report is durable.
    pub(crate) has_folder: bool,
}

/// A running execution whose program was loaded.
#[derive(Debug)]
pub(crate) struct Task {
    /// Time at which its launch began.
    pub(crate) started: BootMillis,
    /// Remaining timeout; `None` if the job has none.
    pub(crate) timeout: Option<Countdown>,
    /// Time at which it is killed after a SIGTERM; `None` without one.
    pub(crate) kill_at: Option<BootMillis>,
    pub(crate) is_killed: bool,
    /// Reason for its end so far.
    pub(crate) verdict: EndReason,
    pub(crate) frozen_since: Option<ClockReading>,
    /// End of the last time for which it was or may have been frozen.
    pub(crate) thawed_at: Option<BootMillis>,
    /// Whether its main process has exited.
    pub(crate) has_exited: bool,
}

/// Reason for the end of an execution. The first reason is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// Its main process exited by itself.
    ByItself,
    /// The server requested a stop.
    Stopped(StopReason),
    /// It reached its timeout.
    TimedOut,
    /// A startup or liveness check failed too often.
    Unhealthy,
    /// It was frozen longer than the orphan limit.
    Orphaned,
    /// The supervisor was shut down.
    ShutDown,
}

impl EndReason {
    /// Returns this reason, or `other` if there is none yet.
    pub(crate) fn or(self, other: Self) -> Self {
        if self == Self::ByItself { other } else { self }
    }
}

impl<P: Payloads> Execution<P> {
    pub(crate) fn new(fence: Fence, phase: Phase<P>) -> Self {
        Self {
            fence,
            job: None,
            policy: ExecutionPolicy::default(),
            phase,
            is_reporting: false,
            discard: false,
        }
    }
}

impl<P: Payloads> Phase<P> {
    /// Returns whether the execution occupies a slot of the worker.
    pub(crate) fn is_active(&self) -> bool {
        !matches!(self, Self::Ended(_))
    }

    /// Returns the current report, if there is one.
    pub(crate) fn report(&self) -> Option<Report<P>> {
        match self {
            // While the outputs are stored, the process has exited, but the execution has not ended.
            Self::Running(_) | Self::Storing(_) => Some(Report::Started),
            Self::Ended(ended) if ended.is_durable => Some(ended.report.clone()),
            _ => None,
        }
    }
}

impl Task {
    /// Records that the task was frozen at `at`, by the supervisor or by the fuse. The earliest time counts.
    pub(crate) fn mark_frozen(&mut self, at: ClockReading) {
        self.frozen_since = Some(self.frozen_since.filter(|since| since.boot <= at.boot).unwrap_or(at));
        if let Some(timeout) = &mut self.timeout {
            timeout.mark_frozen(at);
        }
    }

    /// Records that the task was thawed at `now`.
    pub(crate) fn mark_thawed(&mut self, now: ClockReading) {
        self.frozen_since = None;
        self.thawed_at = Some(now.boot);
        if let Some(timeout) = &mut self.timeout {
            timeout.mark_thawed(now);
        }
    }
}
