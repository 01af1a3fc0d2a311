//! From the exit of a main process to an acknowledged outcome.

use model::{ExecutionId, Fence};

use crate::agenda::Alarm;
use crate::execution::{EndReason, Ended, Execution, Phase};
use crate::journal::{Effect, Entry};
use crate::{Action, BootMillis, Payloads, Report, StartFailure, Supervisor};

impl<P: Payloads> Supervisor<P> {
    /// Returns the reason for the end of a running execution; `None` for any other execution.
    pub fn end_reason(&self, execution: ExecutionId) -> Option<EndReason> {
        match &self.executions.get(&execution)?.phase {
            Phase::Running(task) => Some(task.verdict),
            _ => None,
        }
    }

    pub(crate) fn exited(&mut self, execution: ExecutionId) {
        if let Some(task) = self.task_mut(execution) {
            task.has_exited = true;
            self.agenda.set(Alarm::Execution(execution), None);
        }
    }

    pub(crate) fn all_processes_exited(
        &mut self,
        execution: ExecutionId,
        end: Result<P::End, StartFailure>,
        outputs: Option<P::Assignment>,
    ) {
        let Some(held) = self.executions.get(&execution) else { return };
        let fence = held.fence;
        if !matches!(held.phase, Phase::Running(_)) {
            return;
        }
        let end = match end {
            Ok(end) => end,
            Err(failure) => return self.record_end(execution, fence, Report::StartFailed(failure)),
        };
        let Some(assignment) = outputs else {
            return self.record_end(execution, fence, Report::Ended(Box::new(end)));
        };
        // The journal records the success, so the next supervisor stores the outputs and does not run the execution
        // again.
        let ran =
            Entry::OutputsPending { execution, fence, assignment: assignment.clone(), end: end.clone() };
        self.journal.record(ran, Effect::Store(execution));
        self.set_phase(execution, Phase::Storing(Box::new((assignment, end))));
    }

    pub(crate) fn outputs_stored(&mut self, execution: ExecutionId, stored: P::Stored) {
        let Some(held) = self.executions.get(&execution) else { return };
        let Phase::Storing(storing) = &held.phase else { return };
        let mut end = storing.1.clone();
        P::add_outputs(&mut end, stored);
        self.record_end(execution, held.fence, Report::Ended(Box::new(end)));
    }

    /// Removes and returns the next execution whose outputs the agent is to store.
    pub fn next_to_store(&mut self) -> Option<(ExecutionId, P::Assignment)> {
        while let Some(execution) = self.to_store.pop_front() {
            if let Some(Phase::Storing(storing)) = self.executions.get(&execution).map(|held| &held.phase) {
                return Some((execution, storing.0.clone()));
            }
        }
        None
    }

    /// Records the end of an execution in the journal, also of one that never started here. It is reported once it is
    /// durable.
    pub(crate) fn record_end(&mut self, execution: ExecutionId, fence: Fence, report: Report<P>) {
        let outcome = Entry::Outcome { execution, fence, report: report.clone() };
        self.journal.record(outcome, Effect::Ended(execution));
        self.agenda.set(Alarm::Execution(execution), None);
        let before = self.executions.get(&execution).map(|held| &held.phase);
        // Until the end is durable, the next supervisor would still have to store the outputs in the folder.
        let has_folder = matches!(before, Some(Phase::Storing(_)));
        let is_new = before.is_none();
        let ended = Phase::Ended(Ended { report, is_durable: false, has_folder });
        if is_new {
            self.insert(execution, Execution::new(fence, ended));
        } else {
            self.set_phase(execution, ended);
        }
    }

    /// Processes the end of an execution that is durable in the journal.
    pub(crate) fn end_committed(&mut self, now: BootMillis, execution: ExecutionId) {
        let Some(held) = self.executions.get_mut(&execution) else { return };
        let Phase::Ended(ended) = &mut held.phase else { return };
        ended.is_durable = true;
        if std::mem::take(&mut ended.has_folder) {
            self.actions.push_back(Action::RemoveFolder(execution));
        }
        if held.discard { self.drop_acknowledged(now, execution) } else { self.queue_report(execution) }
    }

    pub(crate) fn end_acknowledged(&mut self, now: BootMillis, execution: ExecutionId, fence: Fence) {
        let Some(held) = self.executions.get(&execution) else { return };
        if held.fence == fence && matches!(&held.phase, Phase::Ended(ended) if ended.is_durable) {
            self.drop_acknowledged(now, execution);
        }
    }

    /// Drops an execution whose end the server has recorded; only its id is kept.
    pub(crate) fn drop_acknowledged(&mut self, now: BootMillis, execution: ExecutionId) {
        let Some(held) = self.executions.remove(&execution) else { return };
        self.active -= usize::from(held.phase.is_active());
        self.journal.note(Entry::Forgotten { execution });
        self.forgotten.insert_acknowledged(execution, now);
        if held.discard {
            self.actions.push_back(Action::DropLog(execution));
        }
    }
}
