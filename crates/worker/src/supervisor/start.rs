//! Passes assignments to the core, and prepares launches; [`super::launcher`] starts the programs.
//!
//! ```text
//! take_starts ─> core (journal, lease) ─> launch_some ─> prepare ─> launcher thread ─> take_launched ─> started
//! ```
//!
//! A launch needs its ports, a control group, an entry in the fuse's table, a folder and pipes. They are created
//! before the process, so that a task never runs unguarded, and are released if it does not start. A launch whose
//! lease has expired waits in `held_back` with its resources.
//!
//! Programs are loaded on threads, because an unresponsive file system can block a load for minutes.
//! `trouble` reports that to the server, and `kill_launches` ends such a load.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crashpoint::Point;
use model::spec::{Limits, ProcessRun, Run, Volume};
use model::{ExecutionId, Fence, JobSpec};
use proto::logframe::Stream;
use proto::v1;
use rustix::fs::{MemfdFlags, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use shim::{ForwardedPort, MountedVolume, SandboxPaths, ShimOrder};
use supervisor::{Assigned, EarlyExit, Event, LaunchFailure, StartFailure};

use super::Supervisor;
use super::checkpoint::CheckpointFile;
use super::convert::start_failed;
use super::error_line::LastOutput;
use super::folders::{Folder, SCRIPT_FILE};
use super::launcher::{
    Launch, LaunchState, Launched, NotStarted, Prepared, Process, Streams, arguments, environment,
};
use super::logs::{Bounds, ExecutionLog};
use super::ports::PortNumbers;
use super::task::{StartRequest, Task};
use super::volumes::VolumePaths;
use crate::clock::{BootMillis, ClockReading, boot_millis, now};
use crate::disk::DiskSpace;
use crate::fuse::guards::Guarded;
use crate::link::Start;
use crate::mask::HeldBack;
use crate::process::cgroup::Group;
use crate::process::tree::{self, Root};

/// Maximum number of tasks that are launched in one turn of the loop.
const STARTS_A_TURN: usize = 16;
/// Name of the mount with the files of secrets in a container. No volume has a name with a dot.
const SECRETS_MOUNT: &str = ".secrets";
/// Time in milliseconds after which a warning about a program that is still loading is logged.
const SLOW: BootMillis = 10_000;

/// An execution that a thread is launching, or whose launch waits for a lease.
#[derive(Debug)]
pub(super) struct Launching {
    /// `cgroup.procs` of its control group, to find its processes before the main process is known.
    procs: Option<PathBuf>,
    launch_state: Arc<LaunchState>,
    /// Whether the warning about a slow launch was logged.
    is_warned: bool,
}

impl Launching {
    /// Id of the main process, once it was created.
    pub(super) fn pid(&self) -> Option<i32> {
        self.launch_state.pid()
    }

    /// Returns when the launching thread began, if it has; logs a warning if that was long ago.
    pub(super) fn observe(&mut self, id: ExecutionId, now: BootMillis) -> Option<ClockReading> {
        let began = self.launch_state.began()?;
        if began.boot + SLOW <= now && !std::mem::replace(&mut self.is_warned, true) {
            let pid = self.launch_state.pid();
            tracing::warn!(execution_id = %id, pid, "slow start of a program: check that its file system responds");
        }
        Some(began)
    }
}

impl Supervisor {
    // Assignments.

    /// Passes assignments to the core.
    pub(super) fn take_starts(&mut self, starts: Vec<Start>) {
        // The remaining space is for the ends of running tasks.
        let disk_full = DiskSpace::at(&self.layout.dir).is_some_and(DiskSpace::is_full);
        for start in starts {
            let Some(assignment) = start.assignment else { continue };
            let Ok(execution) = assignment.execution_id.parse::<ExecutionId>() else {
                tracing::error!(
                    execution_id = assignment.execution_id,
                    "assignment ignored: malformed execution id"
                );
                continue;
            };
            let (fence, job) = (Fence(assignment.fence), assignment.job_id.parse().ok());
            let order = match start.failure {
                Some(v1::StartFailed { code, detail }) => Err(StartFailure { code, detail }),
                None => StartRequest::new(assignment, start.staged, start.inputs, start.secrets),
            };
            let terms = order.as_ref().map(StartRequest::terms).unwrap_or_default();
            let assigned = Assigned { execution, fence, job, policy: terms, order, disk_full };
            self.handle_event(Event::Assigned(Box::new(assigned)));
        }
    }

    // Launches.

    /// Returns whether a task can be launched now.
    pub(super) fn can_launch(&self) -> bool {
        self.launcher.has_room() && self.core.can_launch(boot_millis())
    }

    /// Launches a few of the tasks whose start is durable.
    pub(super) fn launch_some(&mut self) {
        for _ in 0..STARTS_A_TURN {
            if !self.launcher.has_room() {
                return;
            }
            match self.core.next_launch(boot_millis()) {
                None => return,
                Some((id, supervisor::Launch::First(order))) => {
                    crashpoint::reach(Point::StartAfterJournal);
                    self.launch(id, order);
                }
                Some((id, supervisor::Launch::Retry)) => {
                    self.held_back.remove(&id).into_iter().for_each(|launch| self.launcher.launch(launch));
                }
            }
        }
    }

    fn launch(&mut self, id: ExecutionId, mut order: Box<StartRequest>) {
        let written = self.write_secret_files(id, &mut order);
        match written.and_then(|()| self.prepare(id, &order)) {
            Ok(prepared) => {
                let launch_state = Arc::<LaunchState>::default();
                let procs = prepared.group.as_ref().and_then(Group::procs_path);
                self.launching.insert(
                    id,
                    Launching { procs, launch_state: Arc::clone(&launch_state), is_warned: false },
                );
                self.launcher.launch(Launch { id, order, prepared, launch_state });
            }
            Err(failure) => {
                self.guards.release(id);
                self.handle_event(Event::LaunchFailed { execution: id, failure });
            }
        }
    }

    /// Processes the results of launches.
    pub(super) fn take_launched(&mut self) {
        for Launched { mut launch, result } in self.launcher.launched() {
            let execution = launch.id;
            match result {
                Ok(process) => self.started(execution, *launch.order, launch.prepared, process),
                Err(NotStarted::NoLease) => {
                    // The thread has begun, and its process has ended; the next launch needs a new state.
                    launch.launch_state = Arc::default();
                    if let Some(launching) = self.launching.get_mut(&execution) {
                        launching.launch_state = Arc::clone(&launch.launch_state);
                    }
                    self.held_back.insert(execution, launch);
                    self.handle_event(Event::LaunchHeldBack { execution });
                }
                Err(NotStarted::Forbidden) => {
                    self.release_launch(launch);
                    self.handle_event(Event::LaunchCancelled { execution });
                }
                Err(NotStarted::Failed(failure)) => {
                    self.release_launch(launch);
                    let failure = LaunchFailure::Failed(failure);
                    self.handle_event(Event::LaunchFailed { execution, failure });
                }
            }
        }
        if self.launcher.is_idle() {
            self.early_exits.clear();
        }
    }

    /// Releases the resources of a process that is not started.
    fn release_launch(&mut self, launch: Launch) {
        let Launch { id, prepared, .. } = launch;
        self.launching.remove(&id);
        self.ports.release(&prepared.ports);
        self.guards.release(id);
        self.folders.take_back(prepared.folder);
        prepared.group.into_iter().for_each(|group| self.cgroups.take_back(group));
    }

    /// Drops a launch that waits for a lease.
    pub(super) fn drop_launch(&mut self, id: ExecutionId) {
        if let Some(launch) = self.held_back.remove(&id) {
            self.release_launch(launch);
        }
    }

    /// Forbids launches that have not begun, and kills the processes of those that have.
    pub(super) fn kill_launches(&mut self, ids: &[ExecutionId]) {
        // All of them first: a thread whose process is killed takes the next launch.
        let has_begun =
            |id: &&ExecutionId| self.launching.get(id).is_some_and(|it| !it.launch_state.forbid());
        let begun: Vec<_> = ids.iter().filter(has_begun).collect();
        let roots: Vec<_> = begun.into_iter().filter_map(|id| self.launching_root(*id)).collect();
        if !roots.is_empty() {
            tree::kill(&roots);
        }
    }

    /// Returns the known processes of an execution that is being launched.
    pub(super) fn launching_root(&self, id: ExecutionId) -> Option<Root> {
        let launching = self.launching.get(&id)?;
        let pid = launching.launch_state.pid();
        let is_reaped = pid.is_some_and(|pid| self.early_exits.contains(pid));
        Some(Root { pid, is_reaped, procs: launching.procs.clone(), ..Root::of(id) })
    }

    /// Reason why no task can be started, if every thread has been loading a program for long.
    pub(super) fn trouble(&self) -> Option<String> {
        let stuck = self.core.slow_launches(now());
        (stuck >= self.launcher.threads()).then(|| {
            format!("cannot start tasks: {stuck} programs are still loading, check whether their file system responds")
        })
    }

    /// Prepares the resources of the process.
    fn prepare(&mut self, id: ExecutionId, order: &StartRequest) -> Result<Prepared, LaunchFailure> {
        let volumes = self.volumes_of(order).map_err(LaunchFailure::Failed)?;
        let ports = self.ports.allocate(id, &order.spec.ports).map_err(LaunchFailure::Failed)?;
        match self.prepare_process(id, order, &ports, &volumes) {
            Ok((group, folder, streams)) => Ok(Prepared { folder, group, streams, ports, volumes }),
            Err(failure) => {
                self.ports.release(&ports);
                Err(failure)
            }
        }
    }

    /// Writes the files with secrets, if the job has any. They are removed with the order.
    fn write_secret_files(&mut self, id: ExecutionId, order: &mut StartRequest) -> Result<(), LaunchFailure> {
        let files: Vec<_> = order
            .spec
            .secrets
            .iter()
            .filter_map(|reference| Some((reference.file.as_deref()?, order.secret(reference)?)))
            .collect();
        if files.is_empty() {
            return Ok(());
        }
        // The shim of a container, which reads them for it, is a process of the worker's user.
        let owner = self.user.as_ref().filter(|_| !order.is_foreign()).map(|user| (user.uid, user.gid));
        let written = self.secret_folder.write(id, &files, owner);
        order.secret_files = Some(written.map_err(|error| {
            let detail = format!("cannot create the files of secrets: {error}");
            LaunchFailure::Failed(start_failed("no_resources", detail))
        })?);
        Ok(())
    }

    /// Returns the paths of the job's volumes. The launching thread checks them, because their file systems may not
    /// respond.
    fn volumes_of(&self, order: &StartRequest) -> Result<VolumePaths, StartFailure> {
        let path_of = |volume: &Volume| match self.config.volumes.get(&volume.name) {
            Some(path) => Ok((volume.clone(), path.clone())),
            // The worker was restarted with other volumes after the job was placed.
            None => {
                let detail = format!("the worker has no volume `{}`", volume.name);
                Err(start_failed("volume_missing", detail))
            }
        };
        order.spec.volumes.iter().map(path_of).collect()
    }

    fn prepare_process(
        &mut self,
        id: ExecutionId,
        order: &StartRequest,
        ports: &PortNumbers,
        volumes: &VolumePaths,
    ) -> Result<(Option<Group>, Folder, Streams), LaunchFailure> {
        let failed = |code, detail: String| LaunchFailure::Failed(start_failed(code, detail));
        // The limits of a container are those that its shim passes to the engine.
        let limits = if order.is_foreign() { Limits::default() } else { order.spec.resources.limits.clone() };
        // The limit of the job is one of its own processes.
        let limits = Limits { pids: limits.pids.map(|pids| pids + order.own_processes()), ..limits };
        let group =
            self.cgroups.create(&limits).map_err(|error| failed("limit_unenforceable", describe(&error)))?;
        // The execution is guarded by the fuse before its process exists.
        let number = group.as_ref().map_or(0, |group| group.number);
        if !self.guards.guard(guarded(id, order, None, number)) {
            group.into_iter().for_each(|group| self.cgroups.take_back(group));
            return Err(failed(
                "no_resources",
                "the worker's fuse has reached its limit of executions".into(),
            ));
        }
        match self.make_folder(id, order, ports, volumes) {
            Ok((folder, streams)) => Ok((group, folder, streams)),
            Err(error) => {
                group.into_iter().for_each(|group| self.cgroups.take_back(group));
                Err(match error.kind() {
                    // Not a failure of the job: another worker may have space.
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => LaunchFailure::DiskFull,
                    _ => failed("no_resources", format!("cannot create the files of the execution: {error}")),
                })
            }
        }
    }

    fn make_folder(
        &mut self,
        id: ExecutionId,
        order: &StartRequest,
        ports: &PortNumbers,
        volumes: &VolumePaths,
    ) -> io::Result<(Folder, Streams)> {
        // The shim of a container changes the owner of its folder, so it gets none of the pool.
        let named = order.staged || !order.spec.outputs.is_empty() || order.is_foreign();
        let folder = if named {
            self.folders.named(id, order.staged, order.is_foreign())?
        } else {
            self.folders.take_spare()?
        };
        let streams = match &order.spec.run {
            Run::Process(process) => self.write_script_of(process, &folder.path).and_then(|()| {
                if order.has_shim() {
                    control_streams(&self.shim_order(id, order, &folder, ports, volumes))
                } else {
                    streams_of(process)
                }
            }),
            _ => control_streams(&self.shim_order(id, order, &folder, ports, volumes)),
        };
        match streams {
            Ok(streams) => Ok((folder, streams)),
            Err(error) => {
                self.folders.take_back(folder);
                Err(error)
            }
        }
    }

    /// Returns the order for the shim of an execution.
    fn shim_order(
        &self,
        id: ExecutionId,
        order: &StartRequest,
        folder: &Folder,
        port_numbers: &PortNumbers,
        volume_paths: &VolumePaths,
    ) -> ShimOrder {
        let ports =
            port_numbers.iter().map(|(name, number)| ForwardedPort { name: name.clone(), number: *number });
        let volumes = volume_paths.iter().map(|(volume, path)| MountedVolume {
            name: volume.name.clone(),
            variable: volume.variable(),
            path: path.clone(),
            read_only: false,
        });
        // A sandbox and a container see the files of secrets as they see a volume, but cannot change them: a container
        // often runs as root, whom modes of files do not stop.
        let secret_files = order.secret_files.iter().map(|files| MountedVolume {
            name: SECRETS_MOUNT.to_owned(),
            variable: JobSpec::SECRETS_VARIABLE.to_owned(),
            path: files.path().to_owned(),
            read_only: true,
        });
        let process = order.spec.run.as_process();
        let variables = || order.secret_variables().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut run = order.spec.run.clone();
        if let Run::Container(container) = &mut run {
            container.env.extend(variables());
        }
        ShimOrder {
            execution: id,
            job_name: order.spec.name.clone(),
            worker: self.worker.to_string(),
            run,
            secrets: if matches!(order.spec.run, Run::Http(_)) {
                variables().collect()
            } else {
                BTreeMap::new()
            },
            limits: order.spec.resources.limits.clone(),
            ports: ports.collect(),
            volumes: volumes.chain(secret_files).collect(),
            command: process.map(|process| arguments(process, &folder.path)).unwrap_or_default(),
            environment: match process {
                Some(_) => environment(id, order, folder, (port_numbers, volume_paths)),
                None => Vec::new(),
            },
            sandbox: SandboxPaths {
                readable: self.config.sandbox_paths.clone(),
                hidden: [&self.layout.dir].into_iter().chain(&self.config.hidden_paths).cloned().collect(),
                links: self.layout.link().into_iter().collect(),
            },
            engine: self.config.container_engine.clone(),
        }
    }

    /// Writes the script of a process into its folder, if it has one.
    fn write_script_of(&self, process: &ProcessRun, folder: &Path) -> io::Result<()> {
        let Some(script) = &process.script else { return Ok(()) };
        let path = folder.join(SCRIPT_FILE);
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
        if let Some(user) = &self.user {
            fchown(&file, Some(user.uid), Some(user.gid))?;
        }
        file.write_all(script.as_bytes())
    }

    fn started(&mut self, id: ExecutionId, order: StartRequest, prepared: Prepared, process: Process) {
        crashpoint::reach(Point::StartAfterExec);
        let Process { pid, started, started_unix_millis, group_errno: outside } = process;
        let Prepared { folder, mut group, streams: Streams { stdin, stdout, stderr }, ports, volumes } =
            prepared;
        let control = stdin.filter(|_| order.has_shim());
        // The table already has a record, so the update cannot fail.
        let number = group.as_ref().map_or(0, |group| group.number);
        let _has_room = self.guards.guard(guarded(id, &order, Some(pid), number));
        if let Some(errno) = outside {
            let error = io::Error::from_raw_os_error(errno);
            tracing::warn!(execution_id = %id, %error, "cannot join the control group; the task runs without one");
            group.take().into_iter().for_each(|group| self.cgroups.record_join_failure(group));
        } else if group.is_some() {
            self.cgroups.record_join();
        }
        self.pids.insert(pid, id);
        self.launching.remove(&id);
        let fence = Fence(order.assignment.fence);
        let bounds = Bounds::of(order.spec.log_policy());
        self.logs.insert(id, ExecutionLog::new(&self.layout.logs(), id, fence, bounds));
        let pipes =
            [self.watch_pipe(id, Stream::Stdout, stdout.0), self.watch_pipe(id, Stream::Stderr, stderr.0)];
        let given = order.staged && order.assignment.checkpoint_version > 0;
        let task = Task {
            last_output: LastOutput::default(),
            mask: order.mask().map(|mask| Box::new((mask, <[HeldBack; 2]>::default()))),
            checkpoint: CheckpointFile::from_start(&folder.path, given),
            order,
            pid,
            control,
            folder,
            ports,
            volumes,
            health: None,
            check_failure: None,
            task_socket: None,
            started: started.boot,
            started_unix_millis,
            early_peak_memory: 0,
            usage: Box::default(),
            pipes,
            group,
            exit: None,
            exited: started.boot,
        };
        self.tasks.insert(id, task);
        self.watch_task_socket(id);
        self.schedule_checkpoint_check();
        self.schedule_measurement();
        let early = self.early_exits.take(pid, started.boot);
        let exit = early.as_ref().map(|exit| match exit.signal {
            Some(libc::SIGKILL) => EarlyExit::Killed,
            _ => EarlyExit::ByItself,
        });
        if let Some(exit) = early {
            self.pids.remove(&pid);
            self.note_exit(id, exit);
        }
        self.handle_event(Event::Launched { execution: id, at: started, exit });
        self.queue_watch(id);
        if exit.is_some() {
            self.after_exits(vec![id]);
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
                tracing::error!(execution_id = %id, %error, "cannot read the output of a task: it is lost");
                None
            }
        }
    }
}

/// Returns the record of an execution for the fuse.
fn guarded(id: ExecutionId, order: &StartRequest, pid: Option<i32>, group: u32) -> Guarded {
    let (exempt, is_foreign) = (order.is_exempt(), order.is_foreign());
    Guarded { execution: id, exempt, pid, is_reaped: false, is_foreign, group }
}

/// Returns the streams of a process without a shim.
fn streams_of(process: &ProcessRun) -> io::Result<Streams> {
    let stdin = process.stdin.as_deref().map(in_memory).transpose()?;
    Ok(Streams { stdin, stdout: output_pipe()?, stderr: output_pipe()? })
}

fn in_memory(text: &str) -> io::Result<OwnedFd> {
    let mut file = File::from(rustix::fs::memfd_create("stdin", MemfdFlags::CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file.into())
}

/// Returns the streams of a shim, with its order in the standard input.
fn control_streams(order: &ShimOrder) -> io::Result<Streams> {
    Ok(Streams { stdin: Some(shim::control_file(order)?), stdout: output_pipe()?, stderr: output_pipe()? })
}

/// Creates a pipe whose read end does not block.
fn output_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::fs::fcntl_setfl(&reader, OFlags::NONBLOCK)?;
    Ok((reader, writer))
}

/// Formats an error with all its causes.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
