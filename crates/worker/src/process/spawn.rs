//! Starts a program as a task.
//!
//! The child shares the parent's memory, and the parent waits until the child has called `exec`. The flags are
//! `CLONE_VM` and `CLONE_VFORK`, as in `posix_spawn`. So no memory is copied, and the child returns an error through
//! a plain field. Before `exec` the child allocates no memory and takes no lock. It uses raw system calls where the C
//! library would also change the threads of the *parent*, as `setresuid` does.
//!
//! The table of open files, with several entries per running task, is not copied either. The child first shares it,
//! and then copies only its low descriptors (`CLOSE_RANGE_UNSHARE`). The streams of the child are duplicated to low
//! descriptors beforehand. Kernels before 5.11 copy the whole table, and the copied files are closed.
//!
//! A task has its own session, no open files except its three streams, and default signal handling. It has the ids
//! and groups of the task user, which are verified after they were set. It cannot gain privileges, writes no core
//! dumps, and has umask 077. It is killed when the thread that started it exits, so that thread must live as long as
//! the supervisor.
//!
//! The child itself checks the lease, as the last step before it executes the program. A check in the parent would be
//! too early: `kill -STOP` or a debugger may stop the supervisor between that check and the clone. When the
//! supervisor then continued, the program would run at the same time as the job's next execution. The child is a
//! separate process and is not stopped with the supervisor; after its check, the fuse freezes it in time.

#![expect(unsafe_code, reason = "clone and what a child does before exec have no safe interface")]

use std::ffi::{CString, c_char, c_int, c_ulong, c_void};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use libc::pid_t;
use rustix::process::Rlimit;

use super::clone;
use super::user::TaskUser;

/// Program, environment, streams and limits of a task to start.
#[derive(Debug)]
pub(crate) struct Program<'a> {
    /// Arguments, beginning with the name of the program.
    pub(crate) argv: Vec<CString>,
    /// Complete environment, as `NAME=value`.
    pub(crate) env: Vec<CString>,
    /// Search path for a program without a `/`, in the format of `PATH`.
    pub(crate) search: &'a str,
    /// Working directory.
    pub(crate) directory: CString,
    pub(crate) stdin: BorrowedFd<'a>,
    pub(crate) stdout: BorrowedFd<'a>,
    pub(crate) stderr: BorrowedFd<'a>,
    /// Task user; `None` keeps the user of the supervisor.
    pub(crate) user: Option<&'a TaskUser>,
    /// `cgroup.procs` files of the groups to join before `exec`.
    pub(crate) groups: Vec<BorrowedFd<'a>>,
    /// Folder of the v2 group to clone the child into, and the index of that group in `groups`.
    pub(crate) clone_into: Option<(BorrowedFd<'a>, usize)>,
    /// Whether the program is started even if it cannot join its groups.
    pub(crate) groups_optional: bool,
    /// Process id, set by the kernel when the process is created, before `exec`; 0 while there is no process.
    pub(crate) pid: &'a AtomicI32,
    /// End of the lease, in milliseconds of `CLOCK_BOOTTIME`; no program starts after it.
    pub(crate) lease_until: &'a AtomicU64,
}

/// Result of a successful start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Started {
    pub(crate) pid: pid_t,
    /// Error number if the process could not join its groups; `None` if it has joined them.
    pub(crate) group_errno: Option<i32>,
}

/// The step at which a start failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Step {
    Clone,
    Session,
    Streams,
    Group,
    Limits,
    User,
    Directory,
    Parent,
    /// The lease has expired; the program may be started under the next one.
    Lease,
    Exec,
}

/// Why a program was not started. No instruction of it was executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpawnError {
    pub(crate) step: Step,
    pub(crate) errno: i32,
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.step {
            Step::Clone => "could not create a process",
            Step::Session => "could not open a session",
            Step::Streams => "could not connect the standard streams",
            Step::Group => "could not join the control group",
            Step::Limits => "could not set the resource limits",
            Step::User => "could not become the task user",
            Step::Directory => "could not enter the working directory",
            Step::Parent => "the supervisor has exited",
            Step::Lease => "the lease has expired",
            Step::Exec => "could not execute the program",
        };
        write!(f, "{what}: {}", io::Error::from_raw_os_error(self.errno))
    }
}

impl std::error::Error for SpawnError {}

/// Starts programs from one thread.
#[derive(Debug)]
pub(crate) struct Spawner {
    /// Stack of the child before `exec`.
    stack: Box<[u128]>,
    parent: pid_t,
    /// Limit of open files for tasks (`RLIMIT_NOFILE`).
    files: libc::rlimit,
    low: Option<LowStreams>,
    /// Whether children can be cloned into a group; `true` until the kernel refuses it.
    clones_into: bool,
}

/// Low file descriptors for the streams of the next child.
#[derive(Debug)]
struct LowStreams {
    descriptors: [OwnedFd; 3],
    nothing: OwnedFd,
}

impl LowStreams {
    /// Returns `None` if the kernel cannot copy a part of the table of open files.
    fn new() -> io::Result<Option<Self>> {
        if !can_take_low_files() {
            return Ok(None);
        }
        let nothing = dev_null()?;
        let place = || nothing.try_clone();
        Ok(Some(Self { descriptors: [place()?, place()?, place()?], nothing }))
    }

    fn put(&mut self, streams: [BorrowedFd<'_>; 3]) -> io::Result<()> {
        for (place, stream) in self.descriptors.iter_mut().zip(streams) {
            rustix::io::dup3(stream, place, rustix::io::DupFlags::CLOEXEC)?;
        }
        Ok(())
    }

    /// Replaces the streams by `/dev/null`, so that only the child holds the write ends of the pipes.
    fn clear(&mut self) {
        for place in &mut self.descriptors {
            // `dup3` onto an open descriptor needs no new resource, so it does not fail.
            rustix::io::dup3(&self.nothing, place, rustix::io::DupFlags::CLOEXEC).ok();
        }
    }

    fn numbers(&self) -> [RawFd; 3] {
        self.descriptors.each_ref().map(AsRawFd::as_raw_fd)
    }
}

const STACK_BYTES: usize = 128 << 10;
/// An unused argument of a variadic system call, which reads a full machine word.
const ZERO: c_ulong = 0;
const LAST_FILE: c_ulong = u32::MAX as c_ulong;

/// Input of the child, and its result. It lives in the stack frame of the parent, which is suspended meanwhile.
struct ChildContext {
    /// Paths of the program to try in this order.
    candidates: *const *const c_char,
    argv: *const *const c_char,
    env: *const *const c_char,
    directory: *const c_char,
    streams: [RawFd; 3],
    groups: *const RawFd,
    groups_len: usize,
    groups_optional: bool,
    /// Error number if a group could not be joined; 0 otherwise.
    group_errno: i32,
    user: *const TaskUser,
    parent: pid_t,
    lease_until: *const AtomicU64,
    files: libc::rlimit,
    /// First descriptor that the child does not copy; `None` if the table of open files is not shared with the
    /// parent.
    shared_files_from: Option<RawFd>,
    failed: Option<Step>,
    errno: i32,
}

impl Spawner {
    /// Creates a spawner for one thread. `files` is the limit of open files for its tasks. Each start is cheaper if
    /// the supervisor has few open files at this time.
    pub(crate) fn new(files: Rlimit) -> io::Result<Self> {
        let files = libc::rlimit {
            rlim_cur: files.current.unwrap_or(libc::RLIM_INFINITY),
            rlim_max: files.maximum.unwrap_or(libc::RLIM_INFINITY),
        };
        // SAFETY: no arguments, cannot fail.
        let parent = unsafe { libc::getpid() };
        let stack = vec![0; STACK_BYTES / size_of::<u128>()].into_boxed_slice();
        Ok(Self { stack, parent, files, low: LowStreams::new()?, clones_into: true })
    }

    /// Starts `program`; it is running when this function returns.
    ///
    /// # Errors
    /// [`SpawnError`]; no instruction of the program was executed then.
    pub(crate) fn spawn(&mut self, program: &Program<'_>) -> Result<Started, SpawnError> {
        let candidates = candidates(&program.argv, program.search);
        let (candidates, argv, env) =
            (pointers(&candidates), pointers(&program.argv), pointers(&program.env));
        let groups: Vec<RawFd> = program.groups.iter().map(AsRawFd::as_raw_fd).collect();
        let born_in = program.clone_into.filter(|_| self.clones_into);
        let others: Vec<RawFd> = match born_in {
            Some((_, own)) => (0..groups.len()).filter(|index| *index != own).map(|i| groups[i]).collect(),
            None => Vec::new(),
        };
        let streams = [program.stdin, program.stdout, program.stderr];
        let low = match &mut self.low {
            Some(low) => {
                low.put(streams).map_err(|error| SpawnError {
                    step: Step::Streams,
                    errno: error.raw_os_error().unwrap_or(0),
                })?;
                Some(low.numbers())
            }
            None => None,
        };
        let mut plan = ChildContext {
            candidates: candidates.as_ptr(),
            argv: argv.as_ptr(),
            env: env.as_ptr(),
            directory: program.directory.as_ptr(),
            streams: low.unwrap_or(streams.map(|stream| stream.as_raw_fd())),
            groups: groups.as_ptr(),
            groups_len: groups.len(),
            groups_optional: program.groups_optional,
            group_errno: 0,
            user: program.user.map_or(ptr::null(), ptr::from_ref),
            parent: self.parent,
            lease_until: ptr::from_ref(program.lease_until),
            files: self.files,
            shared_files_from: low.map(|low| low.into_iter().fold(0, RawFd::max) + 1),
            failed: None,
            errno: 0,
        };
        let born = born_in.and_then(|(folder, _)| {
            (plan.groups, plan.groups_len) = (others.as_ptr(), others.len());
            self.clone_child(&mut plan, program.pid, Some(folder.as_raw_fd())).ok()
        });
        let pid = born.map_or_else(
            || {
                (plan.groups, plan.groups_len) = (groups.as_ptr(), groups.len());
                self.clone_child(&mut plan, program.pid, None)
            },
            Ok,
        );
        if let Some(low) = &mut self.low {
            low.clear();
        }
        let pid = pid?;
        // The compiler does not see that the child wrote these fields.
        // SAFETY: `plan` is ours alone again: the child has exec'ed or ended.
        let (failed, errno, outside) = unsafe {
            (
                ptr::read_volatile(&raw const plan.failed),
                plan.errno,
                ptr::read_volatile(&raw const plan.group_errno),
            )
        };
        match failed {
            None => Ok(Started { pid, group_errno: Some(outside).filter(|errno| *errno != 0) }),
            Some(step) => {
                // The common reaper collects the child. A wait for this process id could hit a new process with the
                // same id.
                program.pid.store(0, Ordering::SeqCst);
                Err(SpawnError { step, errno })
            }
        }
    }

    fn clone_child(
        &mut self,
        plan: &mut ChildContext,
        born: &AtomicI32,
        group: Option<RawFd>,
    ) -> Result<pid_t, SpawnError> {
        let top = self.stack.as_mut_ptr_range().end.cast::<c_void>();
        // SAFETY: `all` and `before` are valid for the calls. Signals stay blocked while the child runs in our
        // memory, so that no handler runs there. The stack is ours and large enough for `child`. `plan` outlives the
        // child's use of it because of CLONE_VFORK. The kernel writes `born` before the child runs.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            let files = if plan.shared_files_from.is_some() { libc::CLONE_FILES } else { 0 };
            let tell = libc::CLONE_PARENT_SETTID;
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | files | tell | libc::SIGCHLD;
            let argument = ptr::from_mut(plan).cast();
            let result = match group {
                Some(group) => clone::into(group, flags, &mut self.stack, born.as_ptr(), child, argument),
                None => match libc::clone(child, top, flags, argument, born.as_ptr()) {
                    pid if pid < 0 => Err(io::Error::last_os_error()),
                    pid => Ok(pid),
                },
            };
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
            result.map_err(|error| {
                let errno = error.raw_os_error().unwrap_or(0);
                // An older kernel or a system call filter: later calls would fail in the same way.
                if group.is_some() && matches!(errno, libc::ENOSYS | libc::EINVAL | libc::E2BIG) {
                    self.clones_into = false;
                }
                SpawnError { step: Step::Clone, errno }
            })
        }
    }
}

/// Tests with unused descriptors whether the kernel fully supports `close_range`.
fn can_take_low_files() -> bool {
    // SAFETY: no memory is passed; no such file is open.
    unsafe { libc::syscall(libc::SYS_close_range, LAST_FILE, LAST_FILE, libc::CLOSE_RANGE_CLOEXEC) == 0 }
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect()
}

/// Paths of the program to try, in the order of `execvp`.
fn candidates(argv: &[CString], search: &str) -> Vec<CString> {
    let Some(program) = argv.first() else { return Vec::new() };
    if program.as_bytes().contains(&b'/') {
        return vec![program.clone()];
    }
    search
        .split(':')
        .map(|dir| if dir.is_empty() { "." } else { dir })
        .filter_map(|dir| CString::new([dir.as_bytes(), b"/", program.as_bytes()].concat()).ok())
        .collect()
}

/// Runs in the new process, in the memory of the parent, on its own stack.
extern "C" fn child(plan: *mut c_void) -> c_int {
    // SAFETY: the parent passed its plan and is suspended.
    let plan = unsafe { &mut *plan.cast::<ChildContext>() };
    // SAFETY: see `prepare`.
    let failed = unsafe { prepare(plan) }.err().or_else(|| {
        // SAFETY: as above.
        unsafe { exec(plan) };
        Some(Step::Exec)
    });
    if plan.errno == 0 {
        plan.errno = errno();
    }
    plan.failed = failed;
    127
}

fn errno() -> i32 {
    // SAFETY: always points to the thread's errno (the suspended parent's).
    unsafe { *libc::__errno_location() }
}

fn ok(result: impl Into<i64>, step: Step) -> Result<(), Step> {
    if result.into() < 0 { Err(step) } else { Ok(()) }
}

/// Sets session, streams, limits and user of the process, and checks the lease.
///
/// # Safety
/// Must be called only in a new vfork child: every call is async-signal-safe, and no call changes memory shared with
/// the parent, except through `plan`.
unsafe fn prepare(plan: &mut ChildContext) -> Result<(), Step> {
    unsafe {
        // The worker inherits ignored signals from the program that started it, for example from `nohup`.
        for signal in [
            libc::SIGPIPE,
            libc::SIGHUP,
            libc::SIGINT,
            libc::SIGQUIT,
            libc::SIGTERM,
            libc::SIGUSR1,
            libc::SIGUSR2,
            libc::SIGWINCH,
        ] {
            libc::signal(signal, libc::SIG_DFL);
        }
        ok(libc::setsid(), Step::Session)?;
        for fd in std::slice::from_raw_parts(plan.groups, plan.groups_len) {
            // "0" means the writing process.
            let joined = ok(libc::write(*fd, c"0".as_ptr().cast(), 1) as i64, Step::Group);
            match joined {
                Err(_) if plan.groups_optional => plan.group_errno = errno(),
                joined => joined?,
            }
        }
        if let Some(first) = plan.shared_files_from {
            // Before any change to the table of open files, which is still shared with the parent.
            let unshare = libc::CLOSE_RANGE_UNSHARE;
            ok(libc::syscall(libc::SYS_close_range, first as c_ulong, LAST_FILE, unshare), Step::Streams)?;
        }
        for (target, fd) in plan.streams.iter().enumerate() {
            // Never equal: the parent's own streams are open, so a pipe has a descriptor above 2.
            ok(libc::dup2(*fd, target as c_int), Step::Streams)?;
        }
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        ok(libc::setrlimit(libc::RLIMIT_CORE, &raw const none), Step::Limits)?;
        ok(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const plan.files), Step::Limits)?;
        libc::umask(0o077);
        // Closes files that a library opened without CLOEXEC. Old kernels do not have this call.
        libc::syscall(libc::SYS_close_range, 3 as c_ulong, LAST_FILE, libc::CLOSE_RANGE_CLOEXEC);
        if let Some(user) = plan.user.as_ref() {
            become_user(plan, user)?;
        }
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as c_ulong, ZERO, ZERO, ZERO);
        ok(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1 as c_ulong, ZERO, ZERO, ZERO), Step::User)?;
        ok(libc::chdir(plan.directory), Step::Directory)?;
        // After the change of user, which clears this setting. The parent may have exited just before.
        ok(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as c_ulong), Step::Parent)?;
        if libc::getppid() != plan.parent {
            plan.errno = libc::ESRCH;
            return Err(Step::Parent);
        }
        // Last step: the later the check, the shorter a program can run at the same time as the job's next execution.
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        ok(libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now), Step::Lease)?;
        let now_millis = now.tv_sec.cast_unsigned() * 1_000 + now.tv_nsec.cast_unsigned() / 1_000_000;
        if now_millis >= (*plan.lease_until).load(Ordering::SeqCst) {
            plan.errno = libc::ETIME;
            return Err(Step::Lease);
        }
        Ok(())
    }
}

/// Switches from root to the task user, and verifies that root cannot be regained.
///
/// # Safety
/// As [`prepare`].
unsafe fn become_user(plan: &mut ChildContext, user: &TaskUser) -> Result<(), Step> {
    let (uid, gid) = (user.uid, user.gid);
    unsafe {
        ok(libc::syscall(libc::SYS_setgroups, user.groups.len(), user.groups.as_ptr()), Step::User)?;
        ok(libc::syscall(libc::SYS_setresgid, gid, gid, gid), Step::User)?;
        ok(libc::syscall(libc::SYS_setresuid, uid, uid, uid), Step::User)?;
        let (mut real, mut effective, mut saved) = (0, 0, 0);
        ok(libc::getresuid(&raw mut real, &raw mut effective, &raw mut saved), Step::User)?;
        let dropped = [real, effective, saved] == [uid; 3] && libc::syscall(libc::SYS_setresuid, 0, 0, 0) < 0;
        if !dropped {
            plan.errno = libc::EPERM;
            return Err(Step::User);
        }
        Ok(())
    }
}

/// Executes the first usable candidate; returns only if all failed, with the most specific error.
///
/// # Safety
/// As [`prepare`].
unsafe fn exec(plan: &mut ChildContext) {
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        // The supervisor receives signals through a file and has no handlers that could run here in shared memory. A
        // fatal signal now kills only the child.
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
        let mut denied = false;
        let mut next = plan.candidates;
        while !(*next).is_null() {
            libc::execve(*next, plan.argv, plan.env);
            match errno() {
                libc::ENOENT | libc::ENOTDIR => {}
                libc::EACCES => denied = true,
                other => {
                    plan.errno = other;
                    return;
                }
            }
            next = next.add(1);
        }
        plan.errno = if denied { libc::EACCES } else { libc::ENOENT };
    }
}

pub(crate) fn dev_null() -> io::Result<OwnedFd> {
    Ok(std::fs::File::open("/dev/null")?.into())
}

/// Result of an ended child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit {
    pub(crate) pid: pid_t,
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) cpu_millis: u64,
    pub(crate) peak_memory_bytes: u64,
}

/// Reaps any one child that has ended; `None` if there is none.
pub(crate) fn reap_any() -> Option<Exit> {
    // SAFETY: both results are plain data that the kernel fills.
    unsafe {
        let mut status = 0;
        let mut usage: libc::rusage = std::mem::zeroed();
        let pid = libc::wait4(-1, &raw mut status, libc::WNOHANG, &raw mut usage);
        if pid <= 0 {
            return None;
        }
        let millis = |t: libc::timeval| (t.tv_sec * 1_000 + t.tv_usec / 1_000).unsigned_abs();
        Some(Exit {
            pid,
            code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
            signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
            cpu_millis: millis(usage.ru_utime) + millis(usage.ru_stime),
            peak_memory_bytes: usage.ru_maxrss.unsigned_abs() * 1024,
        })
    }
}

/// Peak memory of this process, in bytes. The kernel also counts it for children that share its memory until `exec`.
pub(crate) fn own_peak_memory() -> u64 {
    // SAFETY: plain data that the kernel fills.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage.ru_maxrss.unsigned_abs() * 1024
    }
}

/// Peak memory of a process so far, in bytes.
pub(crate) fn peak_memory(pid: pid_t) -> Option<u64> {
    let status = super::tree::read_text(pid, "status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// The name of a signal, such as `SIGKILL`.
pub(crate) fn signal_name(signal: i32) -> &'static str {
    nix::sys::signal::Signal::try_from(signal).map_or("an unknown signal", nix::sys::signal::Signal::as_str)
}
