//! Journal records, and the recovery of a supervisor from its journal.
//!
//! The core decides what is recorded ([`Entry`]) and what must wait for it; the shell owns the file. Entries
//! collect in a batch while the previous batch is being written, so that one sync covers many ends. The
//! effects of an entry, such as a launch, follow with
//! [`Event::JournalWritten`](crate::Event::JournalWritten).
//!
//! # Invariants
//! - At most one batch is being written, and batches are written in order.
//! - A record is written for each launch before the launch, and for each outcome before its report.
//! - A restored supervisor reports an execution that was started and has no recorded outcome as interrupted.
//!   It never starts that execution again.

use std::collections::VecDeque;

use model::{ExecutionId, Fence, JobId};
use mutation::{Mutation, is_on};

use crate::execution::{Ended, Execution, Phase};
use crate::{Action, ClockReading, Payloads, Report, Supervisor};

/// One record of the journal.
#[derive(Debug)]
pub enum Entry<P: Payloads> {
    /// The execution is about to be launched.
    Started {
        /// Id of the execution.
        execution: ExecutionId,
        /// Fence of the execution.
        fence: Fence,
    },
    /// The execution succeeded; its outputs are not stored yet.
    OutputsPending {
        /// Id of the execution.
        execution: ExecutionId,
        /// Fence of the execution.
        fence: Fence,
        /// Data for storing the outputs.
        assignment: P::Assignment,
        /// End of the execution.
        end: P::End,
    },
    /// The execution has ended or was refused; the report is repeated until it is acknowledged.
    Outcome {
        /// Id of the execution.
        execution: ExecutionId,
        /// Fence of the execution.
        fence: Fence,
        /// The report to send.
        report: Report<P>,
    },
    /// The end was acknowledged, or a discarding stop arrived before the assignment: the execution is never started.
    Forgotten {
        /// Id of the execution.
        execution: ExecutionId,
    },
}

/// Entries that are written together.
#[derive(Debug)]
pub struct Batch<P: Payloads> {
    /// The entries, in order.
    pub entries: Vec<Entry<P>>,
    /// Whether an effect waits for the entries to be durable.
    pub sync: bool,
}

/// State of an unacknowledged execution in a journal.
#[derive(Debug)]
pub enum Held<P: Payloads> {
    /// It was launched, or was about to be.
    Started {
        /// Fence of the execution.
        fence: Fence,
    },
    /// It succeeded; its outputs are not stored yet.
    OutputsPending {
        /// Fence of the execution.
        fence: Fence,
        /// Id of the job, if it is known.
        job: Option<JobId>,
        /// Data for storing the outputs.
        assignment: P::Assignment,
        /// End of the execution.
        end: P::End,
    },
    /// It has ended or was refused.
    Ended {
        /// Fence of the execution.
        fence: Fence,
        /// The report to send.
        report: Report<P>,
    },
}

/// State that a journal represents.
#[derive(Debug)]
pub struct State<P: Payloads> {
    /// The unacknowledged executions, in the order of their ids.
    pub held: Vec<(ExecutionId, Held<P>)>,
    /// The acknowledged executions, oldest first.
    pub forgotten: VecDeque<ExecutionId>,
}

impl<P: Payloads> Default for State<P> {
    fn default() -> Self {
        Self { held: Vec::new(), forgotten: VecDeque::new() }
    }
}

/// What happens once a batch is durable.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Effect {
    Launch(ExecutionId),
    Store(ExecutionId),
    Ended(ExecutionId),
}

/// Entries that are not durable yet.
#[derive(Debug)]
pub(crate) struct Pipeline<P: Payloads> {
    next: Batch<P>,
    effects: Vec<Effect>,
    /// Effects of the batch that is being written; `None` if none is being written.
    in_flight: Option<Vec<Effect>>,
}

impl<P: Payloads> Default for Pipeline<P> {
    fn default() -> Self {
        Self { next: Batch::default(), effects: Vec::new(), in_flight: None }
    }
}

impl<P: Payloads> Default for Batch<P> {
    fn default() -> Self {
        Self { entries: Vec::new(), sync: false }
    }
}

impl<P: Payloads> Pipeline<P> {
    /// Adds an entry that has no effect to wait for.
    pub(crate) fn note(&mut self, entry: Entry<P>) {
        self.next.entries.push(entry);
    }

    /// Adds an entry; `effect` takes place once it is durable.
    pub(crate) fn record(&mut self, entry: Entry<P>, effect: Effect) {
        self.next.entries.push(entry);
        self.next.sync = true;
        self.effects.push(effect);
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_none() && self.next.entries.is_empty()
    }
}

impl<P: Payloads> Supervisor<P> {
    /// Starts to write the next batch, unless one is being written. Must be called after all available events were
    /// handled.
    pub fn flush(&mut self) {
        if self.journal.in_flight.is_some() || self.journal.next.entries.is_empty() {
            return;
        }
        self.journal.in_flight = Some(std::mem::take(&mut self.journal.effects));
        self.actions.push_back(Action::WriteJournal(std::mem::take(&mut self.journal.next)));
    }

    pub(crate) fn journal_written(&mut self, now: ClockReading) {
        for effect in self.journal.in_flight.take().unwrap_or_default() {
            match effect {
                Effect::Launch(execution) => self.ready.push_back(execution),
                Effect::Store(execution) => self.to_store.push_back(execution),
                Effect::Ended(execution) => self.end_committed(now.boot, execution),
            }
        }
    }

    /// Returns the current state for the compaction of the journal.
    pub fn journal_state(&self) -> State<P> {
        let held = self.executions.iter().filter_map(|(id, Execution { fence, job, phase, .. })| {
            let held = match phase {
                Phase::Waiting(_) => return None,
                Phase::Running(_) if is_on(Mutation::SupervisorCompactsRunningExecutionsAway) => return None,
                Phase::Starting(_) | Phase::Launching(_) | Phase::Running(_) => {
                    Held::Started { fence: *fence }
                }
                Phase::Storing(storing) => {
                    let (assignment, end) = (**storing).clone();
                    Held::OutputsPending { fence: *fence, job: *job, assignment, end }
                }
                Phase::Ended(ended) => Held::Ended { fence: *fence, report: ended.report.clone() },
            };
            Some((*id, held))
        });
        State { held: held.collect(), forgotten: self.forgotten.ids() }
    }

    /// Restores the executions from the journal.
    pub(crate) fn restore(&mut self, held: Vec<(ExecutionId, Held<P>)>) {
        for (execution, held) in held {
            match held {
                Held::Started { .. } if is_on(Mutation::SupervisorForgetsStartedExecutions) => {}
                Held::Started { fence } => {
                    self.record_end(execution, fence, Report::Ended(Box::new(P::interrupted())));
                }
                Held::OutputsPending { fence, job, assignment, end } => {
                    self.to_store.push_back(execution);
                    let phase = Phase::Storing(Box::new((assignment, end)));
                    self.insert(execution, Execution { job, ..Execution::new(fence, phase) });
                }
                Held::Ended { fence, report } => {
                    let phase = Phase::Ended(Ended { report, is_durable: true, has_folder: false });
                    self.insert(execution, Execution::new(fence, phase));
                }
            }
        }
    }
}
