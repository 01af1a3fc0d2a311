//! The threads that start tasks.
//!
//! Whoever starts a program waits until it is loaded: half a millisecond at best, and for ever if it is on a
//! disk that is gone. The supervisor's loop must not, so a few threads do that. They live as long as
//! the process, as they must: a task dies with the thread that started it.
//!
//! A task may have ended, and may even have been reaped, before the loop hears that it was started; see
//! `Supervisor::catch_up`.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;

use model::ExecutionId;
use model::spec::{ProcessRun, Run};
use proto::v1;
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::Rlimit;

use super::execution::{Order, start_failed};
use super::folders::{Folder, OUTPUT_FILE, SCRIPT_FILE};
use crate::clock::{BootMillis, boot_millis, unix_millis};
use crate::layout::CHECKPOINT_FILE;
use crate::process::cgroup::Group;
use crate::process::spawn::{Program, SpawnError, Spawner, Step, dev_null};
use crate::process::tree::EXECUTION_VARIABLE;
use crate::process::user::TaskUser;

/// How many starts are under way at most; a bound on what is lost in waiting when the lease runs out.
const LAUNCHES_MAX: usize = 64;
/// Where programs are looked for, unless the job says otherwise.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const SHELL: &str = "/bin/sh";

/// A task to start.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) id: ExecutionId,
    pub(super) order: Box<Order>,
    pub(super) prepared: Prepared,
}

/// Everything that was made for a process that is about to start.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) folder: Folder,
    pub(super) group: Option<Group>,
    pub(super) streams: Streams,
}

/// What a process reads from, and the pipes, reading end first, that it writes to.
#[derive(Debug)]
pub(super) struct Streams {
    pub(super) stdin: Option<OwnedFd>,
    pub(super) stdout: (OwnedFd, OwnedFd),
    pub(super) stderr: (OwnedFd, OwnedFd),
}

/// A task that was started, or why it was not.
#[derive(Debug)]
pub(super) struct Launched {
    pub(super) launch: Launch,
    pub(super) result: Result<Process, v1::StartFailed>,
}

/// The main process of a task.
#[derive(Debug, Clone, Copy)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) started: BootMillis,
    pub(super) started_unix_millis: i64,
}

/// The supervisor's end of the threads.
#[derive(Debug)]
pub(super) struct Launcher {
    work: mpsc::Sender<Launch>,
    done: mpsc::Receiver<Launched>,
    wake: Arc<OwnedFd>,
    under_way: usize,
}

impl Launcher {
    /// Starts the threads: one for each core, and at least two, so that one that hangs stops nobody.
    ///
    /// Tasks may have so many `files` open, and run as `user`.
    pub(super) fn start(user: Option<TaskUser>, files: Rlimit) -> io::Result<Self> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (work, inbox) = mpsc::channel();
        let (outbox, done) = mpsc::channel();
        let inbox = Arc::new(Mutex::new(inbox));
        let threads = thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 8));
        for _ in 0..threads {
            let mut thread =
                Thread { spawner: Spawner::new(files)?, user: user.clone(), dev_null: dev_null()? };
            let (inbox, outbox, bell) = (Arc::clone(&inbox), outbox.clone(), Arc::clone(&wake));
            thread::Builder::new().name("launcher".into()).spawn(move || {
                loop {
                    let next = inbox.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(launch) = next else { return };
                    let result = thread.start(&launch);
                    if outbox.send(Launched { launch, result }).is_err() {
                        return;
                    }
                    // Full only if nobody has read it for 2^64 launches.
                    rustix::io::write(&*bell, &1u64.to_ne_bytes()).ok();
                }
            })?;
        }
        Ok(Self { work, done, wake, under_way: 0 })
    }

    /// Becomes readable when there is something in [`Self::launched`].
    pub(super) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    pub(super) fn has_room(&self) -> bool {
        self.under_way < LAUNCHES_MAX
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way == 0
    }

    pub(super) fn launch(&mut self, launch: Launch) {
        self.under_way += 1;
        // The threads end only with the process.
        self.work.send(launch).ok();
    }

    /// What was started, or was not, since the last time.
    pub(super) fn launched(&mut self) -> Vec<Launched> {
        rustix::io::read(&*self.wake, &mut [0; 8]).ok();
        let launched: Vec<_> = self.done.try_iter().collect();
        self.under_way -= launched.len();
        launched
    }
}

struct Thread {
    spawner: Spawner,
    user: Option<TaskUser>,
    dev_null: OwnedFd,
}

impl Thread {
    fn start(&mut self, launch: &Launch) -> Result<Process, v1::StartFailed> {
        let Launch { id, order, prepared } = launch;
        let Run::Process(process) = &order.spec.run else {
            return Err(start_failed("runtime_unknown", "this worker runs processes only"));
        };
        let (folder, streams) = (prepared.folder.path.as_path(), &prepared.streams);
        let argv = arguments(process, folder);
        let directory = process.working_directory.as_deref().map_or(folder, Path::new);
        let program = Program {
            argv: c_strings(&argv)?,
            env: c_strings(&environment(*id, order, process, &prepared.folder))?,
            search: process.env.get("PATH").map_or(PATH, String::as_str),
            directory: c_strings(&[directory.display().to_string()])?.pop().unwrap_or_default(),
            stdin: streams.stdin.as_ref().unwrap_or(&self.dev_null).as_fd(),
            stdout: streams.stdout.1.as_fd(),
            stderr: streams.stderr.1.as_fd(),
            user: self.user.as_ref(),
            groups: prepared.group.as_ref().map(Group::procs).unwrap_or_default(),
        };
        let (started, started_unix_millis) = (boot_millis(), unix_millis());
        match self.spawner.spawn(&program) {
            Ok(pid) => Ok(Process { pid, started, started_unix_millis }),
            Err(error) => {
                let user = self.user.as_ref().map(|user| user.name.as_str());
                Err(explain(error, argv.first().map_or("", String::as_str), directory, user))
            }
        }
    }
}

fn arguments(process: &ProcessRun, folder: &Path) -> Vec<String> {
    if process.script.is_none() {
        return process.command.clone();
    }
    let mut argv =
        if process.interpreter.is_empty() { vec![SHELL.to_owned()] } else { process.interpreter.clone() };
    argv.push(folder.join(SCRIPT_FILE).display().to_string());
    argv
}

/// All that a task finds in its environment: a clean one, what the job adds, and what we tell it.
fn environment(id: ExecutionId, order: &Order, process: &ProcessRun, folder: &Folder) -> Vec<String> {
    let door = folder.door.as_ref();
    let folder = folder.path.display();
    let defaults = [
        ("PATH", PATH.to_owned()),
        ("HOME", folder.to_string()),
        ("TMPDIR", folder.to_string()),
        ("LANG", "C.UTF-8".to_owned()),
    ];
    let mut env: Vec<_> = defaults
        .into_iter()
        .filter(|(name, _)| !process.env.contains_key(*name))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    env.extend(process.env.iter().map(|(name, value)| format!("{name}={value}")));
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
    ]);
    env.extend(door.map(|door| format!("BELFRY_SOCKET={}", door.path().display())));
    env.extend(assignment.origin.iter().flat_map(of_schedule));
    env.extend(assignment.step.as_deref().into_iter().flat_map(of_step));
    env
}

/// What a task of a schedule is told about the instant that it is for.
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

/// What a task of a workflow is told about the step that it is for.
fn of_step(step: &v1::StepOrigin) -> impl Iterator<Item = String> {
    let item = step.item.iter().flat_map(|item| {
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

fn c_strings(strings: &[String]) -> Result<Vec<CString>, v1::StartFailed> {
    strings
        .iter()
        .map(|s| CString::new(s.as_str()))
        .collect::<Result<_, _>>()
        .map_err(|_| start_failed("spec_not_understood", "an argument or variable has a NUL byte"))
}

/// Says why a program did not start, and what to look at.
fn explain(error: SpawnError, program: &str, directory: &Path, user: Option<&str>) -> v1::StartFailed {
    let system = io::Error::from_raw_os_error(error.errno);
    let who = user.map_or_else(String::new, |user| format!(" (tasks run as `{user}`)"));
    let (code, detail) = match (error.step, error.errno) {
        (Step::Exec, libc::ENOENT | libc::ENOTDIR) if !program.contains('/') => {
            ("command_not_found", format!("`{program}` was not found in the PATH"))
        }
        (Step::Exec, libc::ENOENT | libc::ENOTDIR) if directory.join(program).symlink_metadata().is_ok() => (
            "interpreter_not_found",
            format!("`{program}` exists, but not what runs it: its `#!` line or its dynamic loader"),
        ),
        (Step::Exec, libc::ENOENT | libc::ENOTDIR) => {
            ("command_not_found", format!("`{program}` does not exist"))
        }
        (Step::Exec, libc::EACCES | libc::EPERM) => {
            ("permission_denied", format!("`{program}` may not be executed{who}"))
        }
        (Step::Exec, libc::ENOEXEC) => (
            "not_executable",
            format!("`{program}` is no program: a script needs a first line such as `#!/bin/sh`"),
        ),
        (Step::Exec, libc::E2BIG) => {
            ("arguments_too_long", "the arguments and the environment together are too long".to_owned())
        }
        (Step::Exec, _) => ("start_failed", format!("`{program}` could not be executed: {system}")),
        (Step::Directory, _) => (
            "working_directory",
            format!("the working directory `{}` cannot be entered: {system}{who}", directory.display()),
        ),
        (Step::User, _) => ("user", format!("the task could not become its user: {system}{who}")),
        (Step::Group, _) => {
            ("limit_unenforceable", format!("the task could not join its control group: {system}"))
        }
        (Step::Clone, _) => ("no_resources", format!("the system made no new process: {system}")),
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

    #[test]
    fn a_failure_to_start_says_what_to_look_at() {
        assert_eq!(
            why(Step::Exec, libc::ENOENT, "foo"),
            "command_not_found: `foo` was not found in the PATH"
        );
        assert_eq!(why(Step::Exec, libc::ENOENT, "/no/foo"), "command_not_found: `/no/foo` does not exist");
        assert!(why(Step::Exec, libc::ENOENT, "/bin/sh").starts_with("interpreter_not_found"));
        assert!(why(Step::Exec, libc::EACCES, "/x").contains("tasks run as `nobody`"));
        assert!(
            why(Step::Directory, libc::ENOENT, "x")
                .starts_with("working_directory: the working directory `/`")
        );
    }

    #[test]
    fn a_job_may_replace_the_defaults_of_the_environment_and_nothing_is_there_twice() {
        let mut spec = JobSpec::command(["true"]);
        let Run::Process(process) = &mut spec.run else { unreachable!() };
        process.env.insert("PATH".into(), "/opt/bin".into());
        process.env.insert("A".into(), "b=c".into());
        let process = process.clone();
        let order = Order { assignment: v1::Assignment::default(), spec, staged: false };
        let env = environment(ExecutionId::from_bits(1), &order, &process, &Folder::of_test("/x"));
        let mut names: Vec<_> = env.iter().filter_map(|var| var.split('=').next()).collect();
        assert!(env.contains(&"PATH=/opt/bin".to_owned()) && env.contains(&"A=b=c".to_owned()));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), env.len());
    }
}
