//! From the end of a process to an outcome in the journal.
//!
//! A job ends when its main process ends. Whatever that leaves running is killed, and the end is reported
//! only when nothing of it is alive, so that the next execution never meets it. Ordinary ends leave
//! nothing: then it suffices that no child of ours is unknown.

use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;

use crashpoint::Point;
use model::ExecutionId;
use model::limits::OUTPUT_BYTES_MAX;
use proto::logframe::Stream;
use proto::v1::{self, report};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};

use super::execution::{Phase, Task, is_success, report_of};
use super::folders::OUTPUT_FILE;
use super::journal::{Body, Forgotten, Ran, remember_forgotten};
use super::logs::ExecutionLog;
use super::poller::{Alarm, Token};
use super::{Effect, Supervisor};
use crate::clock::{BootMillis, boot_millis};
use crate::link::Stored;
use crate::process::spawn::{Exit, reap_any};
use crate::process::tree::{self, Root};

/// Between two looks at what is dying.
const REMAINS_RETRY: BootMillis = 3;
/// After this time remains that do not die (in the kernel, on a dead disk) no longer hold up the end.
const REMAINS_MAX: BootMillis = 30_000;
/// The most that is read from a pipe before others have their turn; and at the end, all that a pipe holds.
const READS_A_TURN: usize = 4;
const READS_AT_END: usize = 64;

impl Supervisor {
    /// Reaps what has ended.
    pub(super) fn reap(&mut self) {
        let mut exited = Vec::new();
        while let Some(exit) = reap_any() {
            if let Some(id) = self.pids.remove(&exit.pid) {
                exited.push(id);
                self.note_exit(id, exit);
            } else if self.fuse.as_ref().is_some_and(|fuse| fuse.pid() == exit.pid) {
                tracing::error!("the fuse has ended, it is started again");
                // Reaped already, so there is nothing left to kill.
                self.fuse.take().into_iter().for_each(|fuse| self.poller.unwatch(fuse.socket()));
                self.start_fuse();
            } else if self.strays.remove(&exit.pid).is_none() && !self.launcher.is_idle() {
                // Perhaps a task that we are yet to hear of.
                self.early_exits.insert(exit.pid, exit);
            }
        }
        self.after_exits(exited);
    }

    /// Ends the tasks whose main process has ended, once nothing of them is left.
    pub(super) fn after_exits(&mut self, exited: Vec<ExecutionId>) {
        if exited.is_empty() {
            return;
        }
        let suspects = self.with_remains(&exited);
        self.kill_tasks(&suspects);
        for id in exited {
            if suspects.contains(&id) { self.check_remains(id) } else { self.finish(id) }
        }
    }

    pub(super) fn note_exit(&mut self, id: ExecutionId, exit: Exit) {
        if let Some(task) = self.task_mut(id) {
            task.exit = Some(exit);
            task.exited = boot_millis();
        }
    }

    /// Which of `exited` have left processes behind.
    fn with_remains(&mut self, exited: &[ExecutionId]) -> Vec<ExecutionId> {
        let Some(children) = tree::children() else { return exited.to_vec() };
        let fuse = self.fuse.as_ref().map(super::FuseLink::pid);
        let unknown: Vec<_> =
            children.into_iter().filter(|pid| !self.pids.contains_key(pid) && Some(*pid) != fuse).collect();
        if unknown.iter().any(|pid| !self.strays.contains_key(pid)) {
            self.attribute(&unknown);
        }
        exited
            .iter()
            .copied()
            .filter(|id| unknown.iter().any(|pid| self.strays.get(pid) == Some(&Some(*id))))
            .collect()
    }

    /// Finds out whose our unknown children are.
    fn attribute(&mut self, unknown: &[i32]) {
        let launching = self.launching().map(|(id, _)| Root { execution: id, pid: None, procs: None });
        let tasks: Vec<_> = self.running().map(|(id, task)| task.root(id)).chain(launching).collect();
        let owners: std::collections::HashMap<_, _> = tree::members(&tasks)
            .into_iter()
            .zip(&tasks)
            .flat_map(|(members, root)| members.into_iter().map(|p| (p.pid, root.execution)))
            .collect();
        for pid in unknown {
            self.strays.insert(*pid, owners.get(pid).copied());
        }
    }

    /// Ends a task once nothing of it is alive any more.
    pub(super) fn check_remains(&mut self, id: ExecutionId) {
        let Some(task) = self.task(id).filter(|task| task.exit.is_some()) else { return };
        let (root, exited) = (task.root(id), task.exited);
        let alive = tree::members(std::slice::from_ref(&root)).concat();
        if alive.is_empty() {
            return self.finish(id);
        }
        let now = boot_millis();
        if now > exited + REMAINS_MAX {
            tracing::error!(execution_id = %id, processes = alive.len(), "what a task left behind does not die");
            return self.finish(id);
        }
        tree::kill(&[root]);
        self.poller.alarm(now + REMAINS_RETRY, Alarm::Remains(id));
    }

    /// A task and all of its processes have ended.
    fn finish(&mut self, id: ExecutionId) {
        self.guards.release(id);
        self.drain_pipes(id);
        self.close_door(id);
        let Some(execution) = self.executions.get_mut(&id) else { return };
        let Phase::Running(task) = &mut execution.phase else { return };
        let Some(exit) = task.exit else { return };
        let mut finished = task.finished(&exit);
        if let Some(group) = task.group.take() {
            self.cgroups.remove(group);
        }
        let assignment = std::mem::take(&mut task.order.assignment);
        let has_outputs = !task.order.spec.outputs.is_empty();
        let folder = task.folder.take();
        finished.checkpoint = folder.as_ref().and_then(|folder| task.checkpoint.last(id, &folder.path));
        finished.log_bytes = self.finish_log(id);
        if let Some(folder) = &folder {
            take_output(&folder.path, &mut finished);
        }
        if has_outputs && is_success(&finished) {
            // Its folder, which has its name, stays until the agent has stored what is in it.
            return self.store(id, assignment, finished);
        }
        self.conclude(id, report::Body::Finished(finished));
        folder.into_iter().for_each(|folder| self.folders.take_back(folder));
    }

    // Output files.

    /// Has the agent store output files; the journal knows that the process is over.
    fn store(&mut self, id: ExecutionId, assignment: v1::Assignment, finished: v1::Finished) {
        let ran = Ran { assignment: Some(assignment.clone()), finished: Some(finished.clone()) };
        self.record(Body::Ran(ran), Effect::Store(id));
        if let Some(execution) = self.executions.get_mut(&id) {
            execution.phase =
                Phase::Storing { assignment: Box::new(assignment), finished: Box::new(finished) };
        }
    }

    /// The agent has stored the outputs, or cannot.
    pub(super) fn stored(&mut self, stored: Stored) {
        let Ok(id) = stored.execution_id.parse::<ExecutionId>() else { return };
        let Some(Phase::Storing { finished, .. }) = self.executions.get(&id).map(|e| &e.phase) else {
            return;
        };
        let mut finished = (**finished).clone();
        if !stored.error.is_empty() {
            finished.error = stored.error;
            finished.detail = stored.detail;
        }
        self.conclude(id, report::Body::Finished(finished));
    }

    // The end.

    /// Writes down how an execution ended.
    pub(super) fn conclude(&mut self, id: ExecutionId, body: report::Body) {
        crashpoint::reach(Point::FinishBeforeJournal);
        let Some(execution) = self.executions.get_mut(&id) else { return };
        if matches!(execution.phase, Phase::Storing { .. }) {
            self.folders.remove_named(id);
        }
        let report = report_of(id, execution.fence, body);
        execution.phase = Phase::Ended { report: Box::new(report.clone()), durable: false };
        self.record(Body::Outcome(report), Effect::Ended(id));
    }

    /// Its end is in the journal.
    pub(super) fn ended_durably(&mut self, id: ExecutionId) {
        crashpoint::reach(Point::FinishAfterJournal);
        let Some(execution) = self.executions.get_mut(&id) else { return };
        if let Phase::Ended { durable, .. } = &mut execution.phase {
            *durable = true;
        }
        if execution.discard { self.forget(id) } else { self.announce(id) }
    }

    /// Its report is to be sent, as far as there is one.
    pub(super) fn announce(&mut self, id: ExecutionId) {
        let Some(execution) = self.executions.get_mut(&id) else { return };
        if !std::mem::replace(&mut execution.dirty, true) {
            self.dirty.push_back(id);
        }
    }

    /// The server has taken note of the end: nothing is kept of it but its id.
    pub(super) fn forget(&mut self, id: ExecutionId) {
        if let Some(execution) = self.executions.remove(&id) {
            crashpoint::reach(Point::FinishAfterAck);
            self.note(Body::Forgotten(Forgotten { execution_id: id.to_string() }));
            self.remember(id);
            if execution.discard {
                self.drop_log(id);
            }
        }
    }

    /// Makes sure that it is not started again.
    pub(super) fn remember(&mut self, id: ExecutionId) {
        self.forgotten_set.insert(id);
        if let Some(oldest) = remember_forgotten(&mut self.forgotten, id) {
            self.forgotten_set.remove(&oldest);
        }
    }

    // Logs.

    /// Reads what a task wrote, some of it at a time.
    pub(super) fn read_pipe(&mut self, token: Token) {
        let Some((id, stream)) = self.pipes.get(&token).copied() else { return };
        let index = usize::from(stream == Stream::Stderr);
        if !self.read_some(id, index, READS_A_TURN) {
            self.close_pipe(id, index);
        }
        self.log_changed(id);
    }

    /// False at the end of the pipe.
    fn read_some(&mut self, id: ExecutionId, index: usize, reads: usize) -> bool {
        let mut buffer = std::mem::take(&mut self.read_buffer);
        let mut open = true;
        for _ in 0..reads {
            let Some(pipe) = self.task(id).and_then(|task| task.pipes[index].as_ref()) else { break };
            match rustix::io::read(pipe.1.as_fd(), &mut buffer[..]) {
                Ok(0) => open = false,
                Ok(len) => {
                    let stream = if index == 0 { Stream::Stdout } else { Stream::Stderr };
                    if let Some(log) = self.logs.get_mut(&id) {
                        log.append(stream, &buffer[..len]);
                    }
                    if len == buffer.len() {
                        continue;
                    }
                }
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(_) => open = false,
            }
            break;
        }
        self.read_buffer = buffer;
        open
    }

    fn close_pipe(&mut self, id: ExecutionId, index: usize) {
        if let Some((token, pipe)) = self.task_mut(id).and_then(|task| task.pipes[index].take()) {
            self.pipes.remove(&token);
            // A process that is not quite dead may hold the other end; its bytes are nobody's now.
            self.poller.unwatch(&pipe);
        }
    }

    /// Reads what is left in the pipes of a task that has ended, and closes them.
    fn drain_pipes(&mut self, id: ExecutionId) {
        for index in 0..2 {
            self.read_some(id, index, READS_AT_END);
            self.close_pipe(id, index);
        }
    }

    /// Ends a log; returns how many bytes of frames there were.
    fn finish_log(&mut self, id: ExecutionId) -> u64 {
        let Some(log) = self.logs.get_mut(&id) else { return 0 };
        log.finish();
        let produced = log.produced();
        if log.is_complete() {
            self.drop_log(id);
        } else {
            self.log_changed(id);
        }
        produced
    }

    pub(super) fn drop_log(&mut self, id: ExecutionId) {
        if let Some(log) = self.logs.remove(&id) {
            self.log_window_used = self.log_window_used.saturating_sub(log.cost());
            log.remove();
        }
    }

    pub(super) fn adopt_log(&mut self, id: ExecutionId, log: ExecutionLog) {
        self.logs.insert(id, log);
        self.log_changed(id);
    }

    /// Something of this log may be sent.
    pub(super) fn log_changed(&mut self, id: ExecutionId) {
        if self.logs.get(&id).is_some_and(ExecutionLog::has_chunk) && self.unsent_set.insert(id) {
            self.unsent.push_back(id);
        }
    }
}

impl Task {
    /// Whether its main process still runs.
    pub(super) fn is_alive(&self) -> bool {
        self.exit.is_none()
    }
}

/// Takes what the task wrote to `$BELFRY_OUTPUT`; a bad one fails an execution that went well.
fn take_output(folder: &Path, finished: &mut v1::Finished) {
    match read_output(&folder.join(OUTPUT_FILE)) {
        Ok(output) => finished.output = output.into(),
        Err((error, detail)) if is_success(finished) => {
            finished.error = error.to_owned();
            finished.detail = detail;
        }
        // It failed already; why is more telling.
        Err(_) => {}
    }
}

/// What is in a task's output file: a JSON object as text, or nothing.
fn read_output(path: &Path) -> Result<Vec<u8>, (&'static str, String)> {
    let invalid = |what: String| ("output_invalid", format!("what it wrote to $BELFRY_OUTPUT is {what}"));
    // The file is the task's: it may be a link to where we can read and it cannot, or a pipe.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(CWD, path, flags, Mode::empty()) {
        Ok(file) => file,
        Err(rustix::io::Errno::NOENT) => return Ok(Vec::new()),
        Err(error) => return Err(invalid(format!("unreadable: {error}"))),
    };
    let is_file =
        fstat(&file).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
    if !is_file {
        return Err(invalid("no file".into()));
    }
    let mut bytes = Vec::new();
    let limit = OUTPUT_BYTES_MAX as u64 + 1;
    std::fs::File::from(file)
        .take(limit)
        .read_to_end(&mut bytes)
        .map_err(|e| invalid(format!("unreadable: {e}")))?;
    if bytes.len() > OUTPUT_BYTES_MAX {
        return Err((
            "output_too_large",
            format!("it wrote more than {OUTPUT_BYTES_MAX} bytes to $BELFRY_OUTPUT"),
        ));
    }
    if bytes.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    match serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&bytes) {
        Ok(_) => Ok(bytes),
        Err(error) => Err(invalid(format!("no JSON object: {error}"))),
    }
}
