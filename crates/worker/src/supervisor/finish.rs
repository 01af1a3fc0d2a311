//! Ended children, and their remaining processes and files.
//!
//! A job ends when its main process ends. Remaining processes of the task are killed. The core is notified only when
//! none is alive, so that the next execution never runs beside them. Most tasks leave no process behind. Then two
//! checks suffice: the control group is empty, and the supervisor has no unknown child.

use std::collections::HashSet;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;

use model::ExecutionId;
use model::limits::OUTPUT_BYTES_MAX;
use proto::logframe::Stream;
use proto::v1;
use proto::v1::finished::How;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::process::Signal;
use shim::ShimReport;
use supervisor::{EndReason, Event, StartFailure};

use super::Supervisor;
use super::convert::start_failed;
use super::exits::{Claim, Orphan, claim};
use super::folders::OUTPUT_FILE;
use super::logs::ExecutionLog;
use super::poller::{Alarm, Token};
use super::start::Launching;
use super::task::is_success;
use crate::clock::{BootMillis, boot_millis};
use crate::fuse::guards::Guarded;
use crate::mask::Mask;
use crate::process::cgroup::Group;
use crate::process::spawn::{Exit, reap_any};
use crate::process::tree;

/// Interval between checks of dying processes, in milliseconds.
const REMAINING_RETRY: BootMillis = 3;
/// Time in milliseconds after which processes that do not exit (in the kernel, on a dead disk) no longer delay the
/// end.
const REMAINING_MAX: BootMillis = 30_000;
/// Maximum number of reads from a pipe in one turn, and at the end of the task, where it covers all bytes in a pipe.
const READS_A_TURN: usize = 4;
const READS_AT_END: usize = 64;

impl Supervisor {
    /// Reaps all ended children.
    pub(super) fn reap(&mut self) {
        let mut exited = Vec::new();
        while let Some(exit) = reap_any() {
            if let Some(id) = self.pids.remove(&exit.pid) {
                exited.push(id);
                self.note_exit(id, exit);
                self.handle_event(Event::Exited { execution: id });
            } else if self.fuse_was_reaped(exit.pid) {
                // A new fuse was started.
            } else if self.orphans.remove(&exit.pid).is_none() && !self.launcher.is_idle() {
                // May be a task whose launch has not been processed yet.
                self.early_exits.note(exit, boot_millis());
            }
        }
        self.after_exits(exited);
    }

    /// Finishes the tasks whose main process has ended, once no process of them is left.
    pub(super) fn after_exits(&mut self, exited: Vec<ExecutionId>) {
        if exited.is_empty() {
            return;
        }
        let suspects = self.with_remaining_processes(&exited);
        self.kill_tasks(&suspects);
        for id in exited {
            if suspects.contains(&id) { self.check_remaining_processes(id) } else { self.finish(id) }
        }
    }

    pub(super) fn note_exit(&mut self, id: ExecutionId, exit: Exit) {
        if let Some(task) = self.tasks.get_mut(&id) {
            task.exit = Some(exit);
            task.exited = boot_millis();
        }
        self.queue_watch(id);
    }

    /// Returns the tasks among `exited` that have left processes behind.
    fn with_remaining_processes(&mut self, exited: &[ExecutionId]) -> Vec<ExecutionId> {
        let Some(children) = tree::children(!self.cgroups.has_plain_groups()) else { return exited.to_vec() };
        let is_known = |pid: &i32| self.pids.contains_key(pid) || self.is_fuse(*pid);
        let mut unknown: Vec<_> = children.into_iter().filter(|pid| !is_known(pid)).collect();
        if !unknown.is_empty() {
            // Treating these as unknown would cost a scan of all processes at nearly each end.
            let launching: HashSet<_> = self.launching.values().filter_map(Launching::pid).collect();
            unknown.retain(|pid| !launching.contains(pid));
        }
        if unknown.iter().any(|pid| !self.orphans.contains_key(pid)) {
            self.attribute(&unknown);
        }
        self.claim_orphans(&unknown);
        exited
            .iter()
            .copied()
            .filter(|id| {
                let is_its = |pid| self.orphans.get(pid).is_some_and(|stray| stray.owner == Some(*id));
                // A sibling that the main process has created is a child of the thread that started the task.
                let is_left = |group: &Group| !group.is_empty();
                let task = self.tasks.get(id);
                let group = task.and_then(|task| task.group.as_ref());
                let is_foreign = task.is_some_and(|task| task.order.is_foreign());
                is_foreign || group.is_some_and(is_left) || unknown.iter().any(is_its)
            })
            .collect()
    }

    /// Identifies the tasks of unknown children by their marks.
    fn attribute(&mut self, unknown: &[i32]) {
        let launching = self.launching.keys().filter_map(|id| self.launching_root(*id));
        let tasks: Vec<_> = self.tasks.iter().map(|(id, task)| task.root(*id)).chain(launching).collect();
        let owners: std::collections::HashMap<_, _> = tree::members(&tasks)
            .into_iter()
            .zip(&tasks)
            .flat_map(|(members, root)| members.into_iter().map(|p| (p.pid, root.execution)))
            .collect();
        for pid in unknown {
            // A child that has ended will be reaped soon.
            let Some(started) = tree::started(*pid) else { continue };
            self.orphans.insert(*pid, Orphan { started, owner: owners.get(pid).copied() });
        }
    }

    /// Assigns orphans without marks to a task by their start time.
    fn claim_orphans(&mut self, unknown: &[i32]) {
        if !self.owns_orphans {
            return;
        }
        for pid in unknown {
            let Some(stray) = self.orphans.get(pid).copied().filter(|stray| stray.owner.is_none()) else {
                continue;
            };
            if tree::is_dead(*pid) {
                continue;
            }
            // A task that is being launched may have started at any time.
            let launching = self.launching.keys().map(|id| (*id, 0));
            let tasks = self.tasks.iter().map(|(id, task)| (*id, task.started)).chain(launching);
            match claim(stray.started, tasks, |id| self.tasks.get(&id).is_some_and(|task| !task.is_alive())) {
                Claim::OwnedBy(id) => {
                    tracing::debug!(pid, execution_id = %id, "an orphaned process belongs to the task that ran last when it started");
                    self.orphans.insert(*pid, Orphan { owner: Some(id), ..stray });
                }
                Claim::Undecided => {}
                Claim::Unowned => tree::signal_process(*pid, Signal::KILL),
            }
        }
    }

    /// Finishes a task once none of its processes is alive.
    pub(super) fn check_remaining_processes(&mut self, id: ExecutionId) {
        let Some(task) = self.tasks.get(&id).filter(|task| task.exit.is_some()) else { return };
        let (exited, exempt, is_foreign) = (task.exited, task.order.is_exempt(), task.order.is_foreign());
        let (pid, group) = (Some(task.pid), task.group.as_ref().map_or(0, |group| group.number));
        // The id of the main process may belong to another process now.
        let _has_room =
            self.guards.guard(Guarded { execution: id, exempt, pid, is_reaped: true, is_foreign, group });
        let Some(root) = self.root(id) else { return };
        let alive = tree::members(std::slice::from_ref(&root)).concat();
        if alive.is_empty() {
            return self.finish(id);
        }
        let now = boot_millis();
        if now > exited + REMAINING_MAX {
            tracing::error!(
                execution_id = %id, processes = alive.len(),
                "processes of an ended task do not exit; finishing the task without them"
            );
            return self.finish(id);
        }
        tree::kill(&[root]);
        self.poller.alarm(now + REMAINING_RETRY, Alarm::RemainingProcesses(id));
    }

    /// Finishes a task whose processes have all ended.
    fn finish(&mut self, id: ExecutionId) {
        self.guards.release(id);
        self.poller.cancel(Alarm::RemainingProcesses(id));
        self.drain_pipes(id);
        self.close_task_socket(id);
        let (checkpoint, refusal) = self.last_checkpoint(id);
        let log_bytes = self.finish_log(id);
        let Some(verdict) = self.core.end_reason(id) else { return };
        let Some(mut task) = self.tasks.remove(&id) else { return };
        let Some(exit) = task.exit else { return };
        self.ports.release(&task.ports);
        let mut finished = task.finished(&exit, verdict);
        let report = task.control.as_ref().and_then(shim::read_report);
        let mut not_started = report
            .filter(|_| verdict == EndReason::ByItself)
            .and_then(|report| add_report(&mut finished, report));
        if let Some(group) = task.group.take() {
            self.cgroups.take_back(group);
        }
        let spec = &task.order.spec;
        let has_outputs = !spec.outputs.is_empty();
        let has_files = has_outputs || !spec.inputs.is_empty();
        finished.files = has_files.then(|| v1::Files { inputs: task.order.inputs, outputs: Vec::new() });
        finished.checkpoint = checkpoint;
        add_detail(&mut finished.detail, refusal.unwrap_or_default());
        finished.log_bytes = log_bytes;
        take_output(&task.folder.path, &mut finished);
        if let Some((mask, _)) = task.mask.as_deref() {
            hide_secrets(mask, &mut finished, not_started.as_mut());
        }
        // The folder, which has the name of the execution, is kept until the agent has stored the outputs in it.
        let stores = has_outputs && is_success(&finished);
        let outputs = stores.then_some(task.order.assignment);
        let end = not_started.map_or(Ok(finished), Err);
        self.handle_event(Event::AllProcessesExited { execution: id, end, outputs });
        if !stores {
            self.folders.take_back(task.folder);
        }
    }

    // Logs.

    /// Reads a limited part of the output of a task.
    pub(super) fn read_pipe(&mut self, token: Token) {
        let Some((id, stream)) = self.pipes.get(&token).copied() else { return };
        let index = usize::from(stream == Stream::Stderr);
        if !self.read_some(id, index, READS_A_TURN) {
            self.close_pipe(id, index);
        }
        self.log_changed(id);
    }

    /// Returns `false` at the end of the pipe.
    fn read_some(&mut self, id: ExecutionId, index: usize, reads: usize) -> bool {
        let mut buffer = std::mem::take(&mut self.read_buffer);
        let mut open = true;
        for _ in 0..reads {
            let Some(pipe) = self.tasks.get(&id).and_then(|task| task.pipes[index].as_ref()) else { break };
            match rustix::io::read(pipe.1.as_fd(), &mut buffer[..]) {
                Ok(0) => open = false,
                Ok(len) => {
                    let stream = if index == 0 { Stream::Stdout } else { Stream::Stderr };
                    self.take_written(id, stream, &buffer[..len]);
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

    /// Appends output of a task to its log, after its mask.
    fn take_written(&mut self, id: ExecutionId, stream: Stream, data: &[u8]) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let masked = task
            .mask
            .as_deref_mut()
            .map(|(mask, held)| mask.next_part(&mut held[usize::from(stream == Stream::Stderr)], data));
        let data = masked.as_deref().unwrap_or(data);
        self.append_output(id, stream, data);
    }

    fn append_output(&mut self, id: ExecutionId, stream: Stream, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        if let Some(log) = self.logs.get_mut(&id) {
            log.append(stream, data);
        }
        if let Some(task) = self.tasks.get_mut(&id) {
            task.last_output.append(stream, data);
        }
    }

    /// Appends what the mask of a task has held back of a stream that has ended.
    fn take_held_back(&mut self, id: ExecutionId, index: usize) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let Some((mask, held)) = task.mask.as_deref_mut() else { return };
        let rest = mask.last_part(&mut held[index]);
        let stream = if index == 0 { Stream::Stdout } else { Stream::Stderr };
        self.append_output(id, stream, &rest);
    }

    fn close_pipe(&mut self, id: ExecutionId, index: usize) {
        if let Some((token, pipe)) = self.tasks.get_mut(&id).and_then(|task| task.pipes[index].take()) {
            self.pipes.remove(&token);
            // A dying process may still hold the other end; its output is discarded.
            self.poller.unwatch(&pipe);
        }
        self.take_held_back(id, index);
    }

    /// Reads the remaining output of an ended task, and closes its pipes.
    fn drain_pipes(&mut self, id: ExecutionId) {
        for index in 0..2 {
            self.read_some(id, index, READS_AT_END);
            self.close_pipe(id, index);
        }
    }

    /// Ends a log; returns the number of framed bytes that the task produced.
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

    /// Marks a log as possibly having bytes to send.
    pub(super) fn log_changed(&mut self, id: ExecutionId) {
        if self.logs.get(&id).is_some_and(ExecutionLog::has_chunk) && self.unsent_set.insert(id) {
            self.unsent.push_back(id);
        }
    }
}

/// Hides secrets in the texts of a report and in the output of the job.
fn hide_secrets(mask: &Mask, finished: &mut v1::Finished, not_started: Option<&mut StartFailure>) {
    finished.detail = mask.text(&finished.detail);
    if let Some(output) = mask.json(&finished.output) {
        finished.output = output.into();
    }
    if let Some(failure) = not_started {
        failure.detail = mask.text(&failure.detail);
    }
}

/// Adds the report of a shim to that of the end. Returns the reason if nothing of the job was run.
fn add_report(finished: &mut v1::Finished, report: ShimReport) -> Option<StartFailure> {
    match report {
        ShimReport::StartFailed { code, detail } => return Some(start_failed(&code, detail)),
        // The exit code is that of the shim.
        ShimReport::Failed { code, detail } => {
            (finished.error, finished.detail, finished.exit_code) = (code, detail, None);
        }
        ShimReport::OutOfMemory => {
            finished.exit_code = None;
            finished.set_how(How::OutOfMemory);
            finished.detail = "used more memory than its limit".into();
        }
    }
    None
}

fn add_detail(detail: &mut String, more: String) {
    if detail.is_empty() {
        *detail = more;
    } else if !more.is_empty() {
        *detail = format!("{detail}; {more}");
    }
}

/// Reads the task's `$BELFRY_OUTPUT`; an invalid output fails an execution that succeeded otherwise.
fn take_output(folder: &Path, finished: &mut v1::Finished) {
    match read_output(&folder.join(OUTPUT_FILE)) {
        Ok(output) => finished.output = output.into(),
        Err((error, detail)) if is_success(finished) => {
            finished.error = error.to_owned();
            let more = std::mem::replace(&mut finished.detail, detail);
            add_detail(&mut finished.detail, more);
        }
        // It has failed already; that reason is more specific.
        Err(_) => {}
    }
}

/// Reads a task's output file: a JSON object as text, or empty.
fn read_output(path: &Path) -> Result<Vec<u8>, (&'static str, String)> {
    let invalid = |what: String| ("output_invalid", format!("invalid $BELFRY_OUTPUT: {what}"));
    // The task controls the file: it may be a link to a file that only the supervisor can read, or a pipe.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(CWD, path, flags, Mode::empty()) {
        Ok(file) => file,
        Err(rustix::io::Errno::NOENT) => return Ok(Vec::new()),
        Err(error) => return Err(invalid(format!("cannot read the file: {error}"))),
    };
    let is_file =
        fstat(&file).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
    if !is_file {
        return Err(invalid("not a regular file".into()));
    }
    let mut bytes = Vec::new();
    let limit = OUTPUT_BYTES_MAX as u64 + 1;
    std::fs::File::from(file)
        .take(limit)
        .read_to_end(&mut bytes)
        .map_err(|e| invalid(format!("cannot read the file: {e}")))?;
    if bytes.len() > OUTPUT_BYTES_MAX {
        return Err(("output_too_large", format!("$BELFRY_OUTPUT is larger than {OUTPUT_BYTES_MAX} bytes")));
    }
    if bytes.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    match serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&bytes) {
        Ok(_) => Ok(bytes),
        Err(error) => Err(invalid(format!("not a JSON object: {error}"))),
    }
}
