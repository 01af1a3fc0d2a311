//! What is written down before which action, and what a journal says to the next supervisor.
//!
//! Entries collect in a batch while the batch before is being written, so many ends share one sync. What waits for an
//! entry to be durable follows with [`Event::JournalWritten`](crate::Event::JournalWritten).

use std::collections::VecDeque;

use model::{ExecutionId, Fence, JobId};
use mutation::{Mutation, is_on};

use crate::execution::{Ended, Execution, Phase};
use crate::{Action, Moment, Payloads, Report, Supervisor};

/// One line of the journal.
#[derive(Debug)]
pub enum Entry<P: Payloads> {
    /// The execution is about to be launched.
    Started {
        /// Which one.
        execution: ExecutionId,
        /// Its fence.
        fence: Fence,
    },
    /// It has run well; its output files are still to be stored.
    Ran {
        /// Which one.
        execution: ExecutionId,
        /// Its fence.
        fence: Fence,
        /// What is needed to store them.
        assignment: P::Assignment,
        /// How it ended.
        end: P::End,
    },
    /// It is over, or was refused; the report is repeated until it is acknowledged.
    Outcome {
        /// Which one.
        execution: ExecutionId,
        /// Its fence.
        fence: Fence,
        /// What is reported.
        report: Report<P>,
    },
    /// Its end was acknowledged, or it was stopped before it came: it is never started.
    Forgotten {
        /// Which one.
        execution: ExecutionId,
    },
}

/// Entries that are written together.
#[derive(Debug)]
pub struct Batch<P: Payloads> {
    /// The entries, in order.
    pub entries: Vec<Entry<P>>,
    /// Whether something waits for them to be durable.
    pub sync: bool,
}

/// What a journal says of an execution that is not forgotten.
#[derive(Debug)]
pub enum Held<P: Payloads> {
    /// It was launched, or was about to be.
    Started {
        /// Its fence.
        fence: Fence,
    },
    /// It ran well; its output files are to be stored.
    Ran {
        /// Its fence.
        fence: Fence,
        /// Its job.
        job: Option<JobId>,
        /// What is needed to store them.
        assignment: P::Assignment,
        /// How it ended.
        end: P::End,
    },
    /// It is over.
    Ended {
        /// Its fence.
        fence: Fence,
        /// What is reported.
        report: Report<P>,
    },
}

/// What a journal says.
#[derive(Debug)]
pub struct State<P: Payloads> {
    /// The executions that are not forgotten, in the order of their ids.
    pub held: Vec<(ExecutionId, Held<P>)>,
    /// Those that are, the newest last.
    pub forgotten: VecDeque<ExecutionId>,
}

impl<P: Payloads> Default for State<P> {
    fn default() -> Self {
        Self { held: Vec::new(), forgotten: VecDeque::new() }
    }
}

/// What follows once a batch is durable.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Effect {
    Launch(ExecutionId),
    Store(ExecutionId),
    Ended(ExecutionId),
}

/// Entries on their way to the journal.
#[derive(Debug)]
pub(crate) struct Pipeline<P: Payloads> {
    next: Batch<P>,
    effects: Vec<Effect>,
    /// What follows from the batch that is being written.
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
    /// Adds an entry that nothing waits for.
    pub(crate) fn note(&mut self, entry: Entry<P>) {
        self.next.entries.push(entry);
    }

    /// Adds an entry; `effect` follows once it is durable.
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
    /// Has the next batch written, unless one is being written: to be called when all events at hand are handled.
    pub fn flush(&mut self) {
        if self.journal.in_flight.is_some() || self.journal.next.entries.is_empty() {
            return;
        }
        self.journal.in_flight = Some(std::mem::take(&mut self.journal.effects));
        self.actions.push_back(Action::WriteJournal(std::mem::take(&mut self.journal.next)));
    }

    pub(crate) fn journal_written(&mut self, now: Moment) {
        for effect in self.journal.in_flight.take().unwrap_or_default() {
            match effect {
                Effect::Launch(execution) => self.ready.push_back(execution),
                Effect::Store(execution) => self.to_store.push_back(execution),
                Effect::Ended(execution) => self.ended_durably(now.boot, execution),
            }
        }
    }

    /// Returns what the journal would say if it had no history, for compaction.
    pub fn journal_state(&self) -> State<P> {
        let held = self.executions.iter().filter_map(|(id, Execution { fence, job, phase, .. })| {
            let held = match phase {
                Phase::Waiting(_) => return None,
                Phase::Starting(_) | Phase::Launching(_) | Phase::Running(_) => {
                    Held::Started { fence: *fence }
                }
                Phase::Storing(storing) => {
                    let (assignment, end) = (**storing).clone();
                    Held::Ran { fence: *fence, job: *job, assignment, end }
                }
                Phase::Ended(ended) => Held::Ended { fence: *fence, report: ended.report.clone() },
            };
            Some((*id, held))
        });
        State { held: held.collect(), forgotten: self.forgotten.ids() }
    }

    /// Continues with what the journal says.
    pub(crate) fn restore(&mut self, held: Vec<(ExecutionId, Held<P>)>) {
        for (execution, held) in held {
            match held {
                Held::Started { .. } if is_on(Mutation::SupervisorForgetsWhatItStarted) => {}
                Held::Started { fence } => {
                    self.conclude(execution, fence, Report::Ended(Box::new(P::interrupted())));
                }
                Held::Ran { fence, job, assignment, end } => {
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
