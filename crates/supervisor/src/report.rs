//! Reports to the server, which are repeated until the server acknowledges the end.

use std::collections::VecDeque;

use model::{ExecutionId, Fence, JobId};
use mutation::{Mutation, is_on};

use crate::execution::Phase;
use crate::{Payloads, StartFailure, Supervisor};

/// Report about an execution.
#[derive(Debug)]
pub enum Report<P: Payloads> {
    /// It is running, or its outputs are being stored.
    Started,
    /// It was not started, and never will be under this fence.
    Refused {
        /// Stable reason code.
        reason: String,
        /// One-line explanation for users.
        detail: String,
    },
    /// It could not be started; no instruction of the program was executed.
    StartFailed(StartFailure),
    /// It has ended.
    Ended(Box<P::End>),
}

/// An execution that the worker holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// Id of the execution.
    pub execution: ExecutionId,
    /// Fence of the execution.
    pub fence: Fence,
    /// Id of the job, if it is known.
    pub job: Option<JobId>,
    /// Whether it occupies a slot.
    pub is_active: bool,
}

/// Queued reports.
#[derive(Debug)]
pub(crate) struct Reports<P: Payloads> {
    /// Held executions with a queued report, each once.
    held: VecDeque<ExecutionId>,
    /// Queued reports about executions that are not held.
    others: VecDeque<(ExecutionId, Fence, Report<P>)>,
}

impl<P: Payloads> Default for Reports<P> {
    fn default() -> Self {
        Self { held: VecDeque::new(), others: VecDeque::new() }
    }
}

impl<P: Payloads> Clone for Report<P> {
    fn clone(&self) -> Self {
        match self {
            Self::Started => Self::Started,
            Self::Refused { reason, detail } => {
                Self::Refused { reason: reason.clone(), detail: detail.clone() }
            }
            Self::StartFailed(failure) => Self::StartFailed(failure.clone()),
            Self::Ended(end) => Self::Ended(end.clone()),
        }
    }
}

impl<P: Payloads> Report<P> {
    pub(crate) fn refused(reason: &str, detail: impl Into<String>) -> Self {
        Self::Refused { reason: reason.to_owned(), detail: detail.into() }
    }

    pub(crate) fn disk_full() -> Self {
        Self::refused("disk_full", "the worker's disk is full")
    }

    pub(crate) fn stopped_before_start() -> Self {
        Self::refused("stopped", "the execution was stopped before it started")
    }
}

impl<P: Payloads> Supervisor<P> {
    /// Returns all held executions, in the order of their ids.
    pub fn holdings(&self) -> impl Iterator<Item = Holding> {
        self.executions.iter().map(|(id, held)| Holding {
            execution: *id,
            fence: held.fence,
            job: held.job,
            is_active: held.phase.is_active(),
        })
    }

    /// Queues the reports of all held executions; called at the start of a session.
    pub fn report_all(&mut self) {
        self.reports.held.clear();
        for (id, held) in &mut self.executions {
            held.is_reporting = held.phase.report().is_some();
            if held.is_reporting {
                self.reports.held.push_back(*id);
            }
        }
    }

    /// Returns whether [`Self::next_report`] may return a report.
    pub fn has_reports(&self) -> bool {
        !self.reports.held.is_empty() || !self.reports.others.is_empty()
    }

    /// Removes and returns the next report.
    pub fn next_report(&mut self) -> Option<(ExecutionId, Fence, Report<P>)> {
        if let Some(other) = self.reports.others.pop_front() {
            return Some(other);
        }
        while let Some(execution) = self.reports.held.pop_front() {
            let Some(held) = self.executions.get_mut(&execution) else { continue };
            held.is_reporting = false;
            let fence = held.fence;
            let Some(report) = held.phase.report() else { continue };
            if matches!(held.phase, Phase::Ended(_)) && is_on(Mutation::SupervisorReportsOnce) {
                self.drop_acknowledged(0, execution);
            }
            return Some((execution, fence, report));
        }
        None
    }

    /// Queues the report of a held execution, if there is one.
    pub(crate) fn queue_report(&mut self, execution: ExecutionId) {
        let Some(held) = self.executions.get_mut(&execution) else { return };
        if !std::mem::replace(&mut held.is_reporting, true) {
            self.reports.held.push_back(execution);
        }
    }

    /// Reports an execution whose end was acknowledged before: a server that assigns it again has lost its end.
    pub(crate) fn report_already_run(&mut self, execution: ExecutionId, fence: Fence) {
        let detail = "the worker has already run this execution, and its end was acknowledged";
        self.reports.others.push_back((execution, fence, Report::refused("known", detail)));
    }
}
