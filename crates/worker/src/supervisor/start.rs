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
use super::launcher::{Launch, Launched, Prepared, Process, Streams};
use super::logs::ExecutionLog;
use super::poller::Alarm;
use crate::fuse::guards::Guarded;
use crate::link::Start;

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
            self.take_start(id, assignment, start.staged, start.failure);
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
        assignment: v1::Assignment,
        staged: bool,
        failure: Option<v1::StartFailed>,
    ) {
        let fence = Fence(assignment.fence);
        if self.executions.contains_key(&id) {
            return self.announce(id);
        }
        if self.forgotten_set.contains(&id) {
            return self.tell_over_before(id, fence);
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
        let order = Box::new(Order { assignment, spec, staged });
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
            let boot_id = self.boot_id.clone();
            self.record(
                Body::Started(Started { execution_id: id.to_string(), fence, boot_id }),
                Effect::Spawn(id),
            );
        }
    }

    /// Whether something can be started now.
    pub(super) fn can_start(&self) -> bool {
        !self.ready.is_empty() && self.launcher.has_room() && !self.ending && self.has_lease()
    }

    /// Starts a few of the tasks whose start is durable.
    pub(super) fn start_some(&mut self) {
        self.admit_waiting();
        if !self.can_start() {
            return;
        }
        let mut orders = Vec::new();
        while orders.len() < STARTS_A_TURN
            && let Some(id) = self.ready.pop_front()
        {
            let Some(execution) = self.executions.get_mut(&id) else { continue };
            match std::mem::replace(&mut execution.phase, nothing()) {
                Phase::Starting(order) => {
                    let exempt = order.is_exempt();
                    execution.phase = Phase::Launching { exempt, stop: None };
                    crashpoint::reach(Point::StartAfterJournal);
                    orders.push((id, order));
                }
                other => execution.phase = other,
            }
        }
        for (id, order) in orders {
            match self.prepare(id, &order) {
                Ok(prepared) => self.launcher.launch(Launch { id, order, prepared }),
                Err(failure) => self.not_started(id, &order, failure),
            }
        }
    }

    /// Takes note of the tasks that were started, or could not be.
    pub(super) fn take_launched(&mut self) {
        for Launched { launch: Launch { id, order, prepared }, result } in self.launcher.launched() {
            match result {
                Ok(process) => self.started(id, *order, prepared, process),
                Err(failure) => {
                    self.folders.take_back(prepared.folder);
                    prepared.group.into_iter().for_each(|group| self.cgroups.remove(group));
                    self.not_started(id, &order, failure);
                }
            }
        }
        if self.launcher.is_idle() {
            self.early_exits.clear();
        }
    }

    fn not_started(&mut self, id: ExecutionId, order: &Order, failure: v1::StartFailed) {
        self.guards.release(id);
        self.decline(id, Fence(order.assignment.fence), report::Body::StartFailed(failure));
    }

    /// Makes what the process needs.
    fn prepare(&mut self, id: ExecutionId, order: &Order) -> Result<Prepared, v1::StartFailed> {
        // The fuse knows it before it runs.
        if !self.guards.guard(Guarded { execution: id, exempt: order.is_exempt(), pid: None }) {
            return Err(start_failed("no_resources", "the fuse guards as many executions as it can"));
        }
        let limits = &order.spec.resources.limits;
        let group = self
            .cgroups
            .create(&id.to_string(), limits)
            .map_err(|error| start_failed("limit_unenforceable", describe(&error)))?;
        match self.make_folder(id, order) {
            Ok((folder, streams)) => Ok(Prepared { folder, group, streams }),
            Err(error) => {
                group.into_iter().for_each(|group| self.cgroups.remove(group));
                Err(start_failed("no_resources", format!("could not make the execution's files: {error}")))
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
        let Process { pid, started, started_unix_millis } = process;
        let Prepared { folder, group, streams: Streams { stdout, stderr, .. } } = prepared;
        // It has a place since before its start.
        let _has_room =
            self.guards.guard(Guarded { execution: id, exempt: order.is_exempt(), pid: Some(pid) });
        self.pids.insert(pid, id);
        let fence = Fence(order.assignment.fence);
        self.logs.insert(id, ExecutionLog::new(&self.layout.logs(), id, fence, self.bounds));
        let pipes =
            [self.watch_pipe(id, Stream::Stdout, stdout.0), self.watch_pipe(id, Stream::Stderr, stderr.0)];
        let timeout_at = order.spec.timeout.map(|timeout| started + timeout.as_millis());
        if let Some(at) = timeout_at {
            self.poller.alarm(at, Alarm::Task(id));
        }
        let given = order.staged && order.assignment.checkpoint_version > 0;
        let task = Task {
            checkpoint: Followed::from_start(&folder.path, given),
            order,
            pid,
            folder: Some(folder),
            door: None,
            started,
            started_unix_millis,
            pipes,
            group,
            timeout_at,
            kill_at: None,
            ending: None,
            frozen_since: None,
            exit: None,
            exited: started,
        };
        let Some(execution) = self.executions.get_mut(&id) else { return };
        let before = std::mem::replace(&mut execution.phase, Phase::Running(Box::new(task)));
        self.announce(id);
        self.open_door(id);
        self.follow_checkpoints();
        let stop = if let Phase::Launching { stop, .. } = before { stop } else { None };
        self.catch_up(id, pid, stop);
    }

    /// Does what came up while a task was being started.
    fn catch_up(&mut self, id: ExecutionId, pid: i32, stop: Option<u64>) {
        if let Some(exit) = self.early_exits.remove(&pid) {
            self.pids.remove(&pid);
            self.note_exit(id, exit);
            return self.after_exits(vec![id]);
        }
        if let Some(grace_ms) = stop {
            self.end_task(id, Ending::Stopped, grace_ms);
        }
        if self.ending {
            self.end_task(id, Ending::Shutdown, 0);
        }
        self.check_lease();
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
