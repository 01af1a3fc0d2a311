//! Carries out the actions of the core, in their order.

use crashpoint::Point;
use model::ExecutionId;
use model::spec::StopSignal;
use rustix::process::Signal;
use supervisor::{Action, Batch, Entry, Event};

use super::convert::{self, WorkerPayloads};
use super::fuse_link::FuseLink;
use super::{JOURNAL_COMPACT, Supervisor};
use crate::clock::{boot_millis, now};
use crate::process::tree;

impl Supervisor {
    /// Carries out all pending actions of the core.
    pub(super) fn act(&mut self) {
        while let Some(action) = self.core.next_action() {
            match action {
                Action::WriteJournal(batch) => self.write_journal(batch),
                Action::PublishLease(until) => {
                    if self.fuse.as_ref().is_some_and(FuseLink::is_stopped) {
                        tracing::error!("the fuse process was stopped; replacing it");
                        self.replace_fuse();
                    } else if let Some(fuse) = &mut self.fuse {
                        fuse.publish_lease(until);
                    }
                    // Before any task is thawed: if the supervisor is stopped in between, only the fuse could freeze
                    // the tasks again.
                    self.flush_fuse();
                    self.launcher.publish_lease(until);
                }
                Action::ObserveLaunch(id) => self.observe_launch(id),
                Action::KillLaunches(ids) => self.kill_launches(&ids),
                Action::DropLaunch(id) => self.drop_launch(id),
                Action::Terminate(id, reason) => {
                    if let Some(task) = self.tasks.get(&id) {
                        task.folder.write_stop_reason(reason);
                        tree::signal_group(task.pid, signal(task.order.spec.stop_signal));
                    }
                }
                Action::Kill(ids) => self.kill_tasks(&ids),
                Action::Freeze(ids) => {
                    tracing::warn!(executions = ids.len(), "lease expired: executions frozen");
                    tree::freeze(&self.roots(&ids));
                }
                Action::Thaw(ids) => {
                    tracing::info!(executions = ids.len(), "lease valid again: executions thawed");
                    tree::thaw(&self.roots(&ids));
                }
                Action::RemoveFolder(id) => self.folders.remove_named(id),
                Action::DropLog(id) => self.drop_log(id),
            }
        }
    }

    /// Kills these tasks with all their processes. Their ends are processed when they are reaped.
    pub(super) fn kill_tasks(&self, ids: &[ExecutionId]) {
        for id in ids {
            if let Some(group) = self.tasks.get(id).and_then(|task| task.group.as_ref()) {
                group.kill();
            }
        }
        let roots = self.roots(ids);
        if !roots.is_empty() {
            tree::kill(&roots);
        }
    }

    // The journal.

    fn write_journal(&mut self, batch: Batch<WorkerPayloads>) {
        let Batch { entries, sync } = batch;
        entries.iter().for_each(reach_before);
        let records = entries.into_iter().map(|entry| convert::record(entry, &self.start_location).into());
        let records = records.collect();
        self.writer.append(records, sync);
    }

    pub(super) fn journal_written(&mut self) {
        let Some(len) = self.writer.poll() else { return };
        if !std::mem::take(&mut self.is_compacting) {
            crashpoint::reach(Point::FinishAfterJournal);
            self.handle_event(Event::JournalWritten);
        }
        if len > self.compact_at {
            self.compact_at = (len * 2).max(JOURNAL_COMPACT);
            self.is_compacting = true;
            self.writer.compact(convert::journal_state(
                self.worker,
                self.core.journal_state(),
                &self.start_location,
            ));
        }
    }

    // Launches.

    fn observe_launch(&mut self, id: ExecutionId) {
        let Some(launching) = self.launching.get_mut(&id) else { return };
        let began = launching.observe(id, boot_millis());
        self.core.handle(now(), Event::LaunchObserved { execution: id, began });
    }
}

fn signal(stop_signal: StopSignal) -> Signal {
    match stop_signal {
        StopSignal::Term => Signal::TERM,
        StopSignal::Int => Signal::INT,
        StopSignal::Quit => Signal::QUIT,
        StopSignal::Hup => Signal::HUP,
        StopSignal::Usr1 => Signal::USR1,
        StopSignal::Usr2 => Signal::USR2,
        StopSignal::Winch => Signal::WINCH,
    }
}

fn reach_before(entry: &Entry<WorkerPayloads>) {
    match entry {
        Entry::Started { .. } => crashpoint::reach(Point::StartBeforeJournal),
        Entry::Outcome { .. } => crashpoint::reach(Point::FinishBeforeJournal),
        Entry::Forgotten { .. } => crashpoint::reach(Point::FinishAfterAck),
        Entry::OutputsPending { .. } => {}
    }
}
