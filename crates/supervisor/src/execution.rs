//! Where an execution stands on this worker.

use model::{Fence, JobId};

use crate::countdown::Countdown;
use crate::launch::Launching;
use crate::report::Report;
use crate::{BootMillis, Moment, Payloads, Terms};

/// An execution that is held.
#[derive(Debug)]
pub(crate) struct Execution<P: Payloads> {
    pub(crate) fence: Fence,
    pub(crate) job: Option<JobId>,
    pub(crate) terms: Terms,
    pub(crate) phase: Phase<P>,
    /// Whether its report waits to be sent.
    pub(crate) is_reporting: bool,
    /// Whether the server wants no report of it.
    pub(crate) discard: bool,
}

/// Where an execution stands.
#[derive(Debug)]
pub(crate) enum Phase<P: Payloads> {
    /// Nothing is written down; it waits for a lease.
    Waiting(Box<P::Order>),
    /// Its start is in the journal, or on the way there.
    Starting(Box<P::Order>),
    /// The shell prepares and launches it; it may run already.
    Launching(Box<Launching>),
    /// Its main process runs, or what that left behind is being killed.
    Running(Box<Task>),
    /// It ran well, and its output files are being stored.
    Storing(Box<(P::Assignment, P::End)>),
    /// It is over.
    Ended(Ended<P>),
}

/// The last phase.
#[derive(Debug)]
pub(crate) struct Ended<P: Payloads> {
    pub(crate) report: Report<P>,
    /// Whether the report is durable; it is sent only then.
    pub(crate) is_durable: bool,
    /// Whether its folder is to be removed once the report is durable.
    pub(crate) has_folder: bool,
}

/// An execution whose program is loaded.
#[derive(Debug)]
pub(crate) struct Task {
    /// When its launch began.
    pub(crate) started: BootMillis,
    /// What is left of its timeout.
    pub(crate) timeout: Option<Countdown>,
    /// When it is killed, once it was asked to end.
    pub(crate) kill_at: Option<BootMillis>,
    pub(crate) is_killed: bool,
    /// Why it is ended, if it is.
    pub(crate) verdict: Verdict,
    pub(crate) frozen_since: Option<Moment>,
    /// Whether its main process has ended.
    pub(crate) has_exited: bool,
}

/// Why an execution ended. The first reason stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Its main process ended by itself.
    ByItself,
    /// The server asked it to end.
    Stopped,
    /// It reached its timeout.
    TimedOut,
    /// It was frozen for too long.
    Orphaned,
    /// The supervisor was told to end.
    ShutDown,
}

impl Verdict {
    /// Sets the reason, unless there is one.
    pub(crate) fn or(self, other: Self) -> Self {
        if self == Self::ByItself { other } else { self }
    }
}

impl<P: Payloads> Execution<P> {
    pub(crate) fn new(fence: Fence, phase: Phase<P>) -> Self {
        Self { fence, job: None, terms: Terms::default(), phase, is_reporting: false, discard: false }
    }
}

impl<P: Payloads> Phase<P> {
    /// Whether it takes one of the worker's slots.
    pub(crate) fn is_active(&self) -> bool {
        !matches!(self, Self::Ended(_))
    }

    /// What is to be reported now, if anything.
    pub(crate) fn report(&self) -> Option<Report<P>> {
        match self {
            // Its process has ended while its output files are stored, but the execution has not.
            Self::Running(_) | Self::Storing(_) => Some(Report::Started),
            Self::Ended(ended) if ended.is_durable => Some(ended.report.clone()),
            _ => None,
        }
    }
}

impl Task {
    /// It was frozen at `at`, by the supervisor or by the fuse. Of several times the earliest counts.
    pub(crate) fn halt(&mut self, at: Moment) {
        self.frozen_since = Some(self.frozen_since.filter(|since| since.boot <= at.boot).unwrap_or(at));
        if let Some(timeout) = &mut self.timeout {
            timeout.halt(at);
        }
    }

    /// It continues at `now`.
    pub(crate) fn resume(&mut self, now: Moment) {
        self.frozen_since = None;
        if let Some(timeout) = &mut self.timeout {
            timeout.resume(now);
        }
    }
}
