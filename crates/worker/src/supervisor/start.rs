//! From an assignment over the journal to a running process.
//!
//! An execution that is held, or that was forgotten not long ago, is not started again: its report is
//! repeated. A new one waits for a lease, then for its start to be durable. What it needs is made here;
//! [`super::launcher`] starts it.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt, fchown};
use std::path::Path;
use std::sync::Arc;

use crashpoint::Point;
use model::spec::{JobSpec, Run};
use model::{ExecutionId, Fence};
use proto::logframe::Stream;
use proto::v1::{self, report};
use rustix::fs::{MemfdFlags, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};

use super::Effect;
use super::Supervisor;
use super::checkpoint::Followed;
use super::execution::{
    Ending, Execution, Order, Phase, Task, interrupted, refused, report_of, start_failed,
};
use super::folders::{Folder, SCRIPT_FILE};
use super::journal::{Body, Started};
use super::launcher::{Launch, Launched, NotStarted, Prepared, Process, Streams};
use super::launching::Launching;
use super::logs::ExecutionLog;
use super::poller::Alarm;
use crate::clock::{BootMillis, boot_millis};
use crate::disk::Room;
use crate::fuse::guards::Guarded;
use crate::link::Start;
use crate::process::cgroup::Group;

/// How many tasks are started before others have their turn.
const STARTS_A_TURN: usize = 16;
impl Supervisor {
    /// Takes executions to start.
    pub(super) fn take_starts(&mut self, starts: Vec<Start>) {
        for start in starts {
            let Some(assignment) = start.assignment else { continue };
            let Ok(id) = assignment.execution_id.parse::<ExecutionId>() else {
                tracing::error!(execution_id = assignment.execution_id, "an assignment has no proper id");
                continue;
            };
            self.take_start(id, Start { assignment: None, ..start }, assignment);
        }
    }

    /// Whoever still asks for an execution that is forgotten here has forgotten its end.
    pub(super) fn tell_over_before(&mut self, id: ExecutionId, fence: Fence) {
        let body = refused("known", "this execution was here before and its end was acknowledged");
        self.stray_reports.push(report_of(id, fence, body));
    }

    fn take_start(
        &mut self,
        id: ExecutionId,
        Start { staged, failure, inputs, .. }: Start,
        assignment: v1::Assignment,
    ) {
        let fence = Fence(assignment.fence);
        if self.executions.contains_key(&id) {
            return self.announce(id);
        }
        if self.forgotten.contains(id) {
            return self.tell_over_before(id, fence);
        }
        // What is left is for running tasks to end.
        if Room::at(&self.layout.dir).is_some_and(Room::is_full) {
            return self.decline(id, fence, no_room_on_disk());
        }
        if let Some(failure) = failure {
            return self.decline(id, fence, report::Body::StartFailed(failure));
        }
        let spec = match serde_json::from_slice::<JobSpec>(&assignment.spec) {
            Ok(spec) => spec,
            Err(error) => {
                let detail = format!("this worker does not understand the job's spec: {error}");
                let failure = start_failed("spec_not_understood", detail);
                return self.decline(id, fence, report::Body::StartFailed(failure));
            }
        };
        let slots = self.agent.as_ref().map_or(u32::MAX, |agent| agent.slots) as usize;
        if self.executions.values().filter(|e| e.is_active()).count() >= slots {
            return self.decline(
                id,
                fence,
                refused("no_room", format!("all {slots} slots of this worker are taken")),
            );
        }
        let order = Box::new(Order { assignment, spec, staged, inputs });
        self.executions.insert(id, Execution::new(fence, Phase::Waiting(order)));
        self.waiting.push_back(id);
    }

    /// Ends an execution that was not started, so that it never will be.
    pub(super) fn decline(&mut self, id: ExecutionId, fence: Fence, body: report::Body) {
        let report = report_of(id, fence, body);
        self.record(Body::Outcome(report.clone()), Effect::Ended(id));
        let phase = Phase::Ended { report: Box::new(report), durable: false };
        let discard = self.executions.get(&id).is_some_and(|execution| execution.discard);
        self.executions.insert(id, Execution { discard, ..Execution::new(fence, phase) });
    }

    /// Writes down what waits, if there is a lease to start it under.
    pub(super) fn admit_waiting(&mut self) {
        if self.waiting.is_empty() || self.ending || !self.has_lease() {
            return;
        }
        for id in std::mem::take(&mut self.waiting) {
            let Some(execution) = self.executions.get_mut(&id) else { continue };
            let fence = execution.fence.0;
            execution.phase = match std::mem::replace(&mut execution.phase, nothing()) {
                Phase::Waiting(order) => Phase::Starting(order),
                other => {
                    execution.phase = other;
                    continue;
                }
            };
            crashpoint::reach(Point::StartBeforeJournal);
            let (boot_id, folder_id) = (self.boot_id.clone(), self.folder_id.clone());
            let started = Started { execution_id: id.to_string(), fence, boot_id, folder_id };
            self.record(Body::Started(started), Effect::Spawn(id));
        }
    }

    /// Whether something can be started now.
    pub(super) fn can_start(&self) -> bool {
        let waits = !self.ready.is_empty() || !self.held_back.is_empty();
        waits && self.launcher.has_room() && !self.ending && self.has_lease()
    }

    /// Starts a few of the tasks whose start is durable.
    pub(super) fn start_some(&mut self) {
        self.admit_waiting();
        if !self.can_start() {
            return;
        }
        for launch in std::mem::take(&mut self.held_back) {
            self.launch(launch);
        }
        let mut orders = Vec::new();
        while orders.len() < STARTS_A_TURN
            && let Some(id) = self.ready.pop_front()
        {
            let Some(execution) = self.executions.get_mut(&id) else { continue };
            match std::mem::replace(&mut execution.phase, nothing()) {
                Phase::Starting(order) => {
                    let timeout = order.spec.timeout.map(|timeout| timeout.as_millis());
                    let launching = Launching::new(order.is_exempt(), timeout);
                    execution.phase = Phase::Launching(Box::new(launching));
                    crashpoint::reach(Point::StartAfterJournal);
                    orders.push((id, order));
                }
                other => execution.phase = other,
            }
        }
        for (id, order) in orders {
            match self.prepare(id, &order) {
                Ok(prepared) => {
                    let Some(launching) = self.launching_mut(id) else { continue };
                    launching.procs = prepared.group.as_ref().and_then(Group::procs_path);
                    let birth = Arc::clone(&launching.birth);
                    self.launch(Launch { id, order, prepared, birth });
                }
                Err(why) => self.not_started(id, &order, *why),
            }
        }
    }

    fn launch(&mut self, launch: Launch) {
        self.watch_launch(launch.id);
        self.launcher.launch(launch);
    }

    /// Takes note of the tasks that were started, or could not be.
    pub(super) fn take_launched(&mut self) {
        for Launched { launch, result } in self.launcher.launched() {
            self.poller.cancel(Alarm::Launch(launch.id));
            match result {
                Ok(process) => self.started(launch.id, *launch.order, launch.prepared, process),
                Err(NotStarted::NoLease) => self.hold_back(launch),
                Err(NotStarted::Forbidden) => self.give_up(launch),
                Err(NotStarted::Failed(failure)) => {
                    self.clear_away(launch.prepared);
                    self.not_started(launch.id, &launch.order, report::Body::StartFailed(failure));
                }
            }
        }
        if self.launcher.is_idle() {
            self.early_exits.clear();
        }
    }

    /// The lease was over before a task could be started: it waits for the next one, unless it was stopped meanwhile.
    fn hold_back(&mut self, launch: Launch) {
        let is_wanted = self.launching_mut(launch.id).is_some_and(|launching| launching.is_wanted());
        if is_wanted && !self.ending {
            self.held_back.push_back(launch);
        } else {
            self.give_up(launch);
        }
    }

    /// A launch that was held back is not to take place any more.
    pub(super) fn give_up_held_back(&mut self, id: ExecutionId) {
        if let Some(at) = self.held_back.iter().position(|launch| launch.id == id)
            && let Some(launch) = self.held_back.remove(at)
        {
            self.give_up(launch);
        }
    }

    fn give_up(&mut self, launch: Launch) {
        self.clear_away(launch.prepared);
        self.guards.release(launch.id);
        let fence = Fence(launch.order.assignment.fence);
        self.decline(launch.id, fence, refused("stopped", "it was stopped before it started"));
    }

    /// Takes back what was made for a process that is not started.
    pub(super) fn clear_away(&mut self, prepared: Prepared) {
        self.folders.take_back(prepared.folder);
        prepared.group.into_iter().for_each(|group| self.cgroups.take_back(group));
    }

    fn not_started(&mut self, id: ExecutionId, order: &Order, why: report::Body) {
        self.guards.release(id);
        self.decline(id, Fence(order.assignment.fence), why);
    }

    /// Makes what the process needs; otherwise what is to be reported.
    fn prepare(&mut self, id: ExecutionId, order: &Order) -> Result<Prepared, Box<report::Body>> {
        let failed = |code, detail: String| Box::new(report::Body::StartFailed(start_failed(code, detail)));
        let limits = &order.spec.resources.limits;
        let group =
            self.cgroups.create(limits).map_err(|error| failed("limit_unenforceable", describe(&error)))?;
        // The fuse knows it before it runs.
        let number = group.as_ref().map_or(0, |group| group.number);
        if !self.guards.guard(guarded(id, order, None, number)) {
            group.into_iter().for_each(|group| self.cgroups.take_back(group));
            return Err(failed("no_resources", "the fuse guards as many executions as it can".into()));
        }
        match self.make_folder(id, order) {
            Ok((folder, streams)) => Ok(Prepared { folder, group, streams }),
            Err(error) => {
                group.into_iter().for_each(|group| self.cgroups.take_back(group));
                Err(match error.kind() {
                    // No fault of the job: another worker may have room.
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Box::new(no_room_on_disk()),
                    _ => failed("no_resources", format!("could not make the execution's files: {error}")),
                })
            }
        }
    }

    fn make_folder(&mut self, id: ExecutionId, order: &Order) -> io::Result<(Folder, Streams)> {
        let named = order.staged || !order.spec.outputs.is_empty();
        let folder = if named { self.folders.named(id, order.staged)? } else { self.folders.lend()? };
        match self.fill_folder(order, &folder.path) {
            Ok(streams) => Ok((folder, streams)),
            Err(error) => {
                self.folders.take_back(folder);
                Err(error)
            }
        }
    }

    fn fill_folder(&self, order: &Order, folder: &Path) -> io::Result<Streams> {
        let Run::Process(process) = &order.spec.run else { return Err(io::ErrorKind::Unsupported.into()) };
        if let Some(script) = &process.script {
            self.write_script(&folder.join(SCRIPT_FILE), script)?;
        }
        let stdin = process.stdin.as_deref().map(in_memory).transpose()?;
        Ok(Streams { stdin, stdout: output_pipe()?, stderr: output_pipe()? })
    }

    fn write_script(&self, path: &Path, script: &str) -> io::Result<()> {
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
        if let Some(user) = &self.user {
            fchown(&file, Some(user.uid), Some(user.gid))?;
        }
        file.write_all(script.as_bytes())
    }

    fn started(&mut self, id: ExecutionId, order: Order, prepared: Prepared, process: Process) {
        crashpoint::reach(Point::StartAfterExec);
        let Process { pid, started, started_unix_millis, outside } = process;
        let Prepared { folder, mut group, streams: Streams { stdout, stderr, .. } } = prepared;
        // It has a place since before its start.
        let number = group.as_ref().map_or(0, |group| group.number);
        let _has_room = self.guards.guard(guarded(id, &order, Some(pid), number));
        if let Some(errno) = outside {
            let error = io::Error::from_raw_os_error(errno);
            tracing::warn!(execution_id = %id, %error, "a task could not join its control group and runs without one");
            group.take().into_iter().for_each(|group| self.cgroups.was_not_joined(group));
        } else if group.is_some() {
            self.cgroups.was_joined();
        }
        self.pids.insert(pid, id);
        let launching = self.launching_mut(id).map(std::mem::take).unwrap_or_default();
        let fence = Fence(order.assignment.fence);
        self.logs.insert(id, ExecutionLog::new(&self.layout.logs(), id, fence, self.bounds));
        let pipes =
            [self.watch_pipe(id, Stream::Stdout, stdout.0), self.watch_pipe(id, Stream::Stderr, stderr.0)];
        let mut timeout = launching.timeout.map(|limit| launching.pauses.countdown(started, limit));
        if let Some(at) = timeout.as_mut().and_then(|timeout| timeout.due(started)) {
            self.poller.alarm(at, Alarm::Task(id));
        }
        let given = order.staged && order.assignment.checkpoint_version > 0;
        let task = Task {
            checkpoint: Followed::from_start(&folder.path, given),
            order,
            pid,
            folder: Some(folder),
            door: None,
            started: started.boot,
            started_unix_millis,
            seen_memory: 0,
            pipes,
            group,
            timeout,
            kill_at: None,
            ending: None,
            frozen_since: None,
            exit: None,
            exited: started.boot,
        };
        let Some(execution) = self.executions.get_mut(&id) else { return };
        execution.phase = Phase::Running(Box::new(task));
        self.announce(id);
        self.open_door(id);
        self.follow_checkpoints();
        self.catch_up(id, pid, started.boot, &launching);
    }

    /// Does what came up while a task was being started.
    fn catch_up(&mut self, id: ExecutionId, pid: i32, started: BootMillis, launching: &Launching) {
        if let Some(exit) = self.early_exits.take(pid, started) {
            self.pids.remove(&pid);
            // Otherwise it ended by itself before it was killed.
            if exit.signal == Some(libc::SIGKILL)
                && let Some(task) = self.task_mut(id)
            {
                task.ending = launching.ending;
            }
            self.note_exit(id, exit);
            return self.after_exits(vec![id]);
        }
        // First: what is frozen is killed without a grace.
        self.check_lease();
        if let Some(ending) = launching.ending {
            self.end_task(id, ending, 0);
        } else if let Some(kill_at) = launching.kill_at {
            self.end_task(id, Ending::Stopped, kill_at.saturating_sub(boot_millis()));
        }
        if self.ending {
            self.end_task(id, Ending::Shutdown, 0);
        }
    }

    fn watch_pipe(&mut self, id: ExecutionId, stream: Stream, pipe: OwnedFd) -> Option<(u64, OwnedFd)> {
        let token = self.next_token;
        self.next_token += 1;
        match self.poller.watch(&pipe, token) {
            Ok(()) => {
                self.pipes.insert(token, (id, stream));
                Some((token, pipe))
            }
            Err(error) => {
                tracing::error!(execution_id = %id, %error, "cannot watch a task's output, it is lost");
                None
            }
        }
    }
}

fn no_room_on_disk() -> report::Body {
    refused("disk_full", "the disk of this worker's folder is full")
}

/// What the fuse is to know of an execution.
fn guarded(id: ExecutionId, order: &Order, pid: Option<i32>, group: u32) -> Guarded {
    Guarded { execution: id, exempt: order.is_exempt(), pid, is_reaped: false, group }
}

/// Stands in a phase's place while it changes.
fn nothing() -> Phase {
    Phase::Ended {
        report: Box::new(report_of(ExecutionId::from_bits(0), Fence(0), interrupted(""))),
        durable: false,
    }
}

fn in_memory(text: &str) -> io::Result<OwnedFd> {
    let mut file = File::from(rustix::fs::memfd_create("stdin", MemfdFlags::CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file.into())
}

/// A pipe whose reading end never waits.
fn output_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::fs::fcntl_setfl(&reader, OFlags::NONBLOCK)?;
    Ok((reader, writer))
}

/// An error with all its causes.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
