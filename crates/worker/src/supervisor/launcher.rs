//! Threads that start tasks.
//!
//! A thread that starts a program waits until the program is loaded: at least half a millisecond, and forever if its
//! disk is unreachable. The supervisor's loop must not wait, so a few threads do this. They live as long as the
//! process, because a task is killed when the thread that started it exits.
//!
//! Launches wait in a queue, and a launching thread may run while the loop is stopped, or be stopped itself. So the
//! child process checks the lease itself; see [`spawn`](crate::process::spawn).
//!
//! A task may have ended, and may even be reaped, before the loop receives the result of its launch; see
//! `Supervisor::started`.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::thread;

use model::spec::{ProcessRun, Run, Volume};
use model::{ExecutionId, JobSpec};
use proto::v1;
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::Rlimit;
use supervisor::StartFailure;

use super::convert::start_failed;
use super::folders::{Folder, OUTPUT_FILE, SCRIPT_FILE, STOP_REASON_FILE};
use super::ports::PortNumbers;
use super::task::StartRequest;
use super::volumes::{self, VolumePaths};
use crate::clock::{BootMillis, ClockReading, now, unix_millis};
use crate::layout::CHECKPOINT_FILE;
use crate::process::cgroup::Group;
use crate::process::spawn::{Program, SpawnError, Spawner, Started, Step, dev_null};
use crate::process::tree::EXECUTION_VARIABLE;
use crate::process::user::TaskUser;

/// Maximum number of concurrent launches; limits the launches that are delayed when the lease expires.
const LAUNCHES_MAX: usize = 64;
/// Default search path for programs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const SHELL: &str = "/bin/sh";

/// A task to start.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) id: ExecutionId,
    pub(super) order: Box<StartRequest>,
    pub(super) prepared: Prepared,
    pub(super) launch_state: Arc<LaunchState>,
}

/// Progress of a launch, shared between the loop and the launching thread.
#[derive(Debug, Default)]
pub(super) struct LaunchState {
    /// Time at which the thread began.
    began: OnceLock<ClockReading>,
    /// Process id of the main process; 0 while there is none.
    pid: AtomicI32,
    /// One of [`QUEUED`], [`BEGUN`], [`FORBIDDEN`].
    state: AtomicU8,
}

/// No thread has begun the launch.
const QUEUED: u8 = 0;
/// A thread has begun to create the process.
const BEGUN: u8 = 1;
/// No thread may begin the launch.
const FORBIDDEN: u8 = 2;

impl LaunchState {
    pub(super) fn began(&self) -> Option<ClockReading> {
        self.began.get().copied()
    }

    pub(super) fn pid(&self) -> Option<i32> {
        Some(self.pid.load(Ordering::SeqCst)).filter(|pid| *pid != 0)
    }

    /// Forbids the creation of the process; returns `false` if a thread has already begun.
    pub(super) fn forbid(&self) -> bool {
        self.claim(FORBIDDEN)
    }

    fn begin(&self, at: ClockReading) -> bool {
        let begins = self.claim(BEGUN);
        if begins {
            self.began.set(at).ok();
        }
        begins
    }

    /// Sets the state if it is still [`QUEUED`]; the first claim wins.
    fn claim(&self, claim: u8) -> bool {
        match self.state.compare_exchange(QUEUED, claim, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => true,
            Err(state) => state == claim,
        }
    }
}

/// Resources that were prepared for a process to start.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) folder: Folder,
    pub(super) group: Option<Group>,
    pub(super) streams: Streams,
    pub(super) ports: PortNumbers,
    pub(super) volumes: VolumePaths,
}

/// Standard input of a process, and its output pipes as (read end, write end).
#[derive(Debug)]
pub(super) struct Streams {
    pub(super) stdin: Option<OwnedFd>,
    pub(super) stdout: (OwnedFd, OwnedFd),
    pub(super) stderr: (OwnedFd, OwnedFd),
}

/// Result of a launch.
#[derive(Debug)]
pub(super) struct Launched {
    pub(super) launch: Launch,
    pub(super) result: Result<Process, NotStarted>,
}

/// Why a task was not started. No instruction of the program was executed.
#[derive(Debug)]
pub(super) enum NotStarted {
    /// The lease had expired. The launch may be repeated.
    NoLease,
    /// The supervisor forbade the launch.
    Forbidden,
    Failed(StartFailure),
}

impl From<StartFailure> for NotStarted {
    fn from(failed: StartFailure) -> Self {
        Self::Failed(failed)
    }
}

/// The main process of a task.
#[derive(Debug, Clone, Copy)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) started: ClockReading,
    pub(super) started_unix_millis: i64,
    /// Error number if the process could not join its control group; `None` if it has joined it.
    pub(super) group_errno: Option<i32>,
}

/// The loop's handle of the launching threads.
#[derive(Debug)]
pub(super) struct Launcher {
    work: mpsc::Sender<Launch>,
    done: mpsc::Receiver<Launched>,
    wake: Arc<OwnedFd>,
    in_progress: usize,
    threads: usize,
    /// End of the lease; the threads read it.
    lease_until: Arc<AtomicU64>,
}

impl Launcher {
    /// Starts the threads: one per core, and at least two, so that one that hangs does not block the others.
    ///
    /// `files` is the limit of open files for tasks; `user` is the user that they run as; `program` is the absolute path of
    /// this program.
    pub(super) fn start(user: Option<TaskUser>, files: Rlimit, program: &Path) -> io::Result<Self> {
        let program: Arc<Path> = program.into();
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (work, inbox) = mpsc::channel();
        let (outbox, done) = mpsc::channel();
        let inbox = Arc::new(Mutex::new(inbox));
        let threads = thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 8));
        let lease_until = Arc::new(AtomicU64::new(0));
        for _ in 0..threads {
            let mut thread = Thread {
                spawner: Spawner::new(files)?,
                user_in_sandbox: user.clone().map(|user| TaskUser { groups: vec![user.gid], ..user }),
                user: user.clone(),
                dev_null: dev_null()?,
                lease_until: Arc::clone(&lease_until),
                program: Arc::clone(&program),
            };
            let (inbox, outbox, bell) = (Arc::clone(&inbox), outbox.clone(), Arc::clone(&wake));
            thread::Builder::new().name("launcher".into()).spawn(move || {
                loop {
                    let next = inbox.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(launch) = next else { return };
                    let result = thread.start(&launch);
                    if outbox.send(Launched { launch, result }).is_err() {
                        return;
                    }
                    // Fails only after 2^64 unread launches.
                    rustix::io::write(&*bell, &1u64.to_ne_bytes()).ok();
                }
            })?;
        }
        Ok(Self { work, done, wake, in_progress: 0, threads, lease_until })
    }

    /// Sets the end of the lease; no program is started after it.
    pub(super) fn publish_lease(&self, until: BootMillis) {
        self.lease_until.store(until, Ordering::SeqCst);
    }

    /// Becomes readable when [`Self::launched`] has results.
    pub(super) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    pub(super) fn has_room(&self) -> bool {
        self.in_progress < LAUNCHES_MAX
    }

    /// Number of programs that can be loaded at the same time.
    pub(super) fn threads(&self) -> usize {
        self.threads
    }

    pub(super) fn is_idle(&self) -> bool {
        self.in_progress == 0
    }

    pub(super) fn launch(&mut self, launch: Launch) {
        self.in_progress += 1;
        // The threads run until the process exits, so the channel is open.
        self.work.send(launch).ok();
    }

    /// Returns the results since the last call.
    pub(super) fn launched(&mut self) -> Vec<Launched> {
        rustix::io::read(&*self.wake, &mut [0; 8]).ok();
        let launched: Vec<_> = self.done.try_iter().collect();
        self.in_progress -= launched.len();
        launched
    }
}

struct Thread {
    spawner: Spawner,
    user: Option<TaskUser>,
    /// The user without further groups, which would give it rights on files and sockets outside.
    user_in_sandbox: Option<TaskUser>,
    dev_null: OwnedFd,
    lease_until: Arc<AtomicU64>,
    /// Path of this program, which is also the shims.
    program: Arc<Path>,
}

impl Thread {
    fn start(&mut self, launch: &Launch) -> Result<Process, NotStarted> {
        let Launch { id, order, prepared, launch_state } = launch;
        let (folder, streams) = (&prepared.folder, &prepared.streams);
        let argv = match &order.spec.run {
            Run::Process(process) if !order.has_shim() => arguments(process, &folder.path),
            run => {
                [&self.program.display().to_string(), shim::COMMAND, run.runtime()].map(str::to_owned).into()
            }
        };
        // Only the user of the worker may use the container engine.
        let user = if order.is_sandboxed() { &self.user_in_sandbox } else { &self.user };
        let user = user.as_ref().filter(|_| !order.is_foreign());
        let search = order.spec.run.as_process().and_then(|process| process.env.get("PATH"));
        // A working directory may exist only in the sandbox, whose shim enters it.
        let directory = if order.is_sandboxed() { &folder.path } else { working_directory(order, folder) };
        // A shim gets the variables of the job in its order: it is outside of the sandbox.
        let env = match &order.spec.run {
            Run::Process(_) if order.has_shim() => vec![format!("{EXECUTION_VARIABLE}={id}")],
            _ => environment(*id, order, folder, (&prepared.ports, &prepared.volumes)),
        };
        let program = Program {
            argv: c_strings(&argv)?,
            env: c_strings(&env)?,
            search: search.map_or(PATH, String::as_str),
            directory: c_strings(&[directory.display().to_string()])?.pop().unwrap_or_default(),
            stdin: streams.stdin.as_ref().unwrap_or(&self.dev_null).as_fd(),
            stdout: streams.stdout.1.as_fd(),
            stderr: streams.stderr.1.as_fd(),
            user,
            groups: prepared.group.as_ref().map(Group::procs).unwrap_or_default(),
            clone_into: prepared.group.as_ref().and_then(Group::folder),
            groups_optional: prepared.group.as_ref().is_some_and(Group::is_plain),
            pid: &launch_state.pid,
            lease_until: &self.lease_until,
        };
        let (started, started_unix_millis) = (now(), unix_millis());
        if !launch_state.begin(started) {
            return Err(NotStarted::Forbidden);
        }
        volumes::check(&prepared.volumes)?;
        match self.spawner.spawn(&program) {
            Ok(Started { pid, group_errno: outside }) => {
                Ok(Process { pid, started, started_unix_millis, group_errno: outside })
            }
            Err(SpawnError { step: Step::Lease, .. }) => Err(NotStarted::NoLease),
            Err(error) => {
                let user = user.map(|user| user.name.as_str());
                Err(explain(error, argv.first().map_or("", String::as_str), directory, user).into())
            }
        }
    }
}

/// Returns the program and the arguments of a process.
pub(super) fn arguments(process: &ProcessRun, folder: &Path) -> Vec<String> {
    if process.script.is_none() {
        return process.command.clone();
    }
    let mut argv =
        if process.interpreter.is_empty() { vec![SHELL.to_owned()] } else { process.interpreter.clone() };
    argv.push(folder.join(SCRIPT_FILE).display().to_string());
    argv
}

/// Returns the working directory of a task [default: the folder of its execution].
pub(super) fn working_directory<'a>(order: &'a StartRequest, folder: &'a Folder) -> &'a Path {
    let process = order.spec.run.as_process();
    process.and_then(|process| process.working_directory.as_deref()).map_or(&folder.path, Path::new)
}

/// Environment of a task: defaults, the variables of the job, and the `BELFRY_` variables.
pub(super) fn environment(
    id: ExecutionId,
    order: &StartRequest,
    folder: &Folder,
    (ports, volumes): (&PortNumbers, &[(Volume, PathBuf)]),
) -> Vec<String> {
    let no_variables = BTreeMap::new();
    let own = order.spec.run.as_process().map_or(&no_variables, |process| &process.env);
    let door = folder.task_socket.as_ref();
    let secret_files = order.secret_files.as_ref().map(|files| files.path().display().to_string());
    let folder = folder.path.display();
    let defaults = [
        ("PATH", PATH.to_owned()),
        ("HOME", folder.to_string()),
        ("TMPDIR", folder.to_string()),
        ("LANG", "C.UTF-8".to_owned()),
    ];
    let mut env: Vec<_> = defaults
        .into_iter()
        .filter(|(name, _)| {
            !own.contains_key(*name) && !order.secret_variables().any(|(its, _)| its == *name)
        })
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    env.extend(own.iter().map(|(name, value)| format!("{name}={value}")));
    // The shims of other runtimes get them in their order, so that they are not in the environment of the shim.
    if order.spec.run.as_process().is_some() {
        env.extend(order.secret_variables().map(|(name, value)| format!("{name}={value}")));
    }
    env.extend(secret_files.map(|path| format!("{}={path}", JobSpec::SECRETS_VARIABLE)));
    let assignment = &order.assignment;
    env.extend([
        format!("{EXECUTION_VARIABLE}={id}"),
        format!("BELFRY_JOB_ID={}", assignment.job_id),
        format!("BELFRY_JOB_NAME={}", order.spec.name),
        format!("BELFRY_NAMESPACE={}", order.spec.namespace),
        format!("BELFRY_ATTEMPT={}", assignment.number),
        format!("BELFRY_FENCE={}", assignment.fence),
        format!("BELFRY_OUTPUT={folder}/{OUTPUT_FILE}"),
        format!("BELFRY_CHECKPOINT={folder}/{CHECKPOINT_FILE}"),
        format!("BELFRY_STOP_REASON={folder}/{STOP_REASON_FILE}"),
    ]);
    env.extend(door.map(|door| format!("BELFRY_SOCKET={}", door.path().display())));
    env.extend(assignment.origin.iter().flat_map(of_schedule));
    env.extend(assignment.step.as_deref().into_iter().flat_map(of_step));
    env.extend(assignment.replica.iter().flat_map(of_replica));
    env.extend(order.spec.ports.iter().filter_map(|port| {
        let number = ports.get(&port.name)?;
        Some(format!("{}={number}", port.variable()))
    }));
    env.extend(volumes::variables(volumes));
    env
}

/// Variables for a task that is a replica of a service.
fn of_replica(replica: &v1::ReplicaOrigin) -> [String; 3] {
    [
        format!("BELFRY_SERVICE={}", replica.service),
        format!("BELFRY_SERVICE_REVISION={}", replica.revision),
        format!("BELFRY_REPLICA={}", replica.replica),
    ]
}

/// Variables for a task of a schedule: its scheduled time and interval.
fn of_schedule(origin: &v1::Origin) -> impl Iterator<Item = String> {
    let at = |micros: i64| model::Timestamp::from_micros(micros);
    let start = origin.interval_start_unix_us.map(|micros| format!("BELFRY_INTERVAL_START={}", at(micros)));
    [
        format!("BELFRY_SCHEDULE={}", origin.schedule),
        format!("BELFRY_SCHEDULED_FOR={}", at(origin.scheduled_for_unix_us)),
        format!("BELFRY_INTERVAL_END={}", at(origin.interval_end_unix_us)),
        format!("BELFRY_FIRING_CAUSE={}", origin.cause),
    ]
    .into_iter()
    .chain(start)
}

/// Variables for a task of a workflow step.
fn of_step(step: &v1::StepOrigin) -> impl Iterator<Item = String> {
    let item = step.element.iter().flat_map(|item| {
        [
            format!("BELFRY_INDEX={}", item.index),
            format!("BELFRY_TOTAL={}", item.total),
            format!("BELFRY_ITEM={}", item.value),
        ]
    });
    [
        format!("BELFRY_RUN={}", step.run_id),
        format!("BELFRY_WORKFLOW={}", step.workflow),
        format!("BELFRY_STEP={}", step.step),
    ]
    .into_iter()
    .chain(item)
}

fn c_strings(strings: &[String]) -> Result<Vec<CString>, StartFailure> {
    strings.iter().map(|s| CString::new(s.as_str())).collect::<Result<_, _>>().map_err(|_| {
        start_failed("spec_not_understood", "an argument or environment variable contains a NUL byte")
    })
}

/// Explains why a program did not start, and what the user can check.
fn explain(error: SpawnError, program: &str, directory: &Path, user: Option<&str>) -> StartFailure {
    let system = io::Error::from_raw_os_error(error.errno);
    let who = user.map_or_else(String::new, |user| format!(" (tasks run as `{user}`)"));
    let (code, detail) = match (error.step, error.errno) {
        (Step::Exec, libc::ENOENT | libc::ENOTDIR) if !program.contains('/') => {
            ("command_not_found", format!("`{program}` was not found in the PATH"))
        }
        (Step::Exec, libc::ENOENT | libc::ENOTDIR) if directory.join(program).symlink_metadata().is_ok() => (
            "interpreter_not_found",
            format!(
                "the interpreter of `{program}` was not found: check its `#!` line or its dynamic loader"
            ),
        ),
        (Step::Exec, libc::ENOENT | libc::ENOTDIR) => {
            ("command_not_found", format!("`{program}` does not exist"))
        }
        (Step::Exec, libc::EACCES | libc::EPERM) => {
            ("permission_denied", format!("no permission to execute `{program}`{who}"))
        }
        (Step::Exec, libc::ENOEXEC) => (
            "not_executable",
            format!("`{program}` is not an executable: a script needs a first line such as `#!/bin/sh`"),
        ),
        (Step::Exec, libc::E2BIG) => {
            ("arguments_too_long", "the arguments and environment variables together are too long".to_owned())
        }
        (Step::Exec, _) => ("start_failed", format!("`{program}` could not be executed: {system}")),
        (Step::Directory, _) => (
            "working_directory",
            format!("cannot enter the working directory `{}`: {system}{who}", directory.display()),
        ),
        (Step::User, _) => ("user", format!("cannot switch to the task user: {system}{who}")),
        (Step::Group, _) => {
            ("limit_unenforceable", format!("cannot add the task to its control group: {system}"))
        }
        (Step::Clone, _) => ("no_resources", format!("cannot create a process: {system}")),
        _ => ("start_failed", error.to_string()),
    };
    start_failed(code, detail)
}

#[cfg(test)]
mod tests {
    use model::JobSpec;

    use super::*;

    fn why(step: Step, errno: i32, program: &str) -> String {
        let failed = explain(SpawnError { step, errno }, program, Path::new("/"), Some("nobody"));
        format!("{}: {}", failed.code, failed.detail)
    }

    fn pipe() -> (OwnedFd, OwnedFd) {
        let (reader, writer) = io::pipe().unwrap();
        (reader.into(), writer.into())
    }

    fn next(launcher: &mut Launcher) -> Launched {
        loop {
            if let Some(launched) = launcher.launched().pop() {
                return launched;
            }
            thread::yield_now();
        }
    }

    /// A launch may wait in the queue, and its thread may run while the loop is stopped.
    #[test]
    fn no_program_is_started_after_the_lease_expired() {
        let dir = tempfile::tempdir().unwrap();
        let mut launcher = Launcher::start(
            None,
            rustix::process::getrlimit(rustix::process::Resource::Nofile),
            Path::new("/"),
        )
        .unwrap();
        let spec = JobSpec::command(["touch", "ran"]);
        let order = Box::new(StartRequest {
            assignment: v1::Assignment::default(),
            spec,
            staged: false,
            inputs: Vec::new(),
            secrets: Vec::new(),
            secret_files: None,
        });
        let folder = Folder::of_test(dir.path().to_str().unwrap());
        let streams = Streams { stdin: None, stdout: pipe(), stderr: pipe() };
        let prepared =
            Prepared { folder, group: None, streams, ports: PortNumbers::new(), volumes: Vec::new() };
        launcher.publish_lease(crate::clock::boot_millis());
        launcher.launch(Launch {
            id: ExecutionId::from_bits(1),
            order,
            prepared,
            launch_state: Arc::default(),
        });
        let Launched { launch, result } = next(&mut launcher);
        assert!(matches!(result, Err(NotStarted::NoLease)), "{result:?}");
        assert!(!dir.path().join("ran").exists());
        assert_eq!(launch.launch_state.pid(), None, "no process is left");
        launcher.publish_lease(crate::clock::boot_millis() + 60_000);
        launcher.launch(launch);
        let Launched { result: Ok(process), .. } = next(&mut launcher) else { panic!("it was not started") };
        rustix::process::waitpid(
            rustix::process::Pid::from_raw(process.pid),
            rustix::process::WaitOptions::empty(),
        )
        .unwrap();
        assert!(dir.path().join("ran").exists());
    }

    #[test]
    fn a_start_failure_names_what_to_check() {
        assert_eq!(
            why(Step::Exec, libc::ENOENT, "foo"),
            "command_not_found: `foo` was not found in the PATH"
        );
        assert_eq!(why(Step::Exec, libc::ENOENT, "/no/foo"), "command_not_found: `/no/foo` does not exist");
        assert!(why(Step::Exec, libc::ENOENT, "/bin/sh").starts_with("interpreter_not_found"));
        assert!(why(Step::Exec, libc::EACCES, "/x").contains("tasks run as `nobody`"));
        assert!(
            why(Step::Directory, libc::ENOENT, "x")
                .starts_with("working_directory: cannot enter the working directory `/`")
        );
    }

    #[test]
    fn a_job_can_replace_default_environment_variables_without_duplicates() {
        let mut spec = JobSpec::command(["true"]);
        let Run::Process(process) = &mut spec.run else { unreachable!() };
        process.env.insert("PATH".into(), "/opt/bin".into());
        process.env.insert("A".into(), "b=c".into());
        let assignment = v1::Assignment::default();
        let order = StartRequest {
            assignment,
            spec,
            staged: false,
            inputs: Vec::new(),
            secrets: Vec::new(),
            secret_files: None,
        };
        let env = environment(
            ExecutionId::from_bits(1),
            &order,
            &Folder::of_test("/x"),
            (&PortNumbers::new(), &[]),
        );
        let mut names: Vec<_> = env.iter().filter_map(|var| var.split('=').next()).collect();
        assert!(env.contains(&"PATH=/opt/bin".to_owned()) && env.contains(&"A=b=c".to_owned()));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), env.len());
    }
}
