//! Starts one program as a task.
//!
//! The child shares our memory and we wait until it has `exec`ed (`CLONE_VM | CLONE_VFORK`, as
//! `posix_spawn` does it): nothing is copied, and an error comes back through a plain field. Between
//! the two the child allocates nothing and takes no lock. It makes only raw system calls where the
//! C library would also change *our* threads, as its `setresuid` does.
//!
//! Nor are our open files, some for each task that runs: the child first shares the table, and
//! then takes a copy of its low numbers only (`CLOSE_RANGE_UNSHARE`), among which its streams are put
//! beforehand. Kernels before 5.11 copy all of it and close it again.
//!
//! A task has: a session of its own; no open files but its three streams; default signal handling;
//! the task user's ids and groups, checked after they were set; no way to gain privileges; no core
//! dumps; umask 077; and it dies with the thread that started it. That thread must therefore live as
//! long as the supervisor.
//!
//! The child looks at the lease itself, as the last thing before it executes the program. A look of ours would be too
//! early: whoever stops the supervisor's process (`kill -STOP`, a debugger) may stop it between that look and the birth
//! of the child, and the program would run when the supervisor continues, beside the job's next execution. The child is
//! a process of its own and is not stopped with us; from its look on, the fuse freezes it in time.

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

/// Everything that a task starts with.
#[derive(Debug)]
pub(crate) struct Program<'a> {
    /// The program, its own name first.
    pub(crate) argv: Vec<CString>,
    /// `NAME=value`, all of it.
    pub(crate) env: Vec<CString>,
    /// Where to look for a program without a `/`; as in `PATH`.
    pub(crate) search: &'a str,
    /// Where it starts.
    pub(crate) directory: CString,
    pub(crate) stdin: BorrowedFd<'a>,
    pub(crate) stdout: BorrowedFd<'a>,
    pub(crate) stderr: BorrowedFd<'a>,
    /// Who it runs as; `None` is whoever we are.
    pub(crate) user: Option<&'a TaskUser>,
    /// `cgroup.procs` files to join first.
    pub(crate) groups: Vec<BorrowedFd<'a>>,
    /// The folder of a v2 group to be born in, and which of `groups` that is.
    pub(crate) born_in: Option<(BorrowedFd<'a>, usize)>,
    /// Whether it also starts if it cannot join them.
    pub(crate) without_groups: bool,
    /// Where its process id stands from its birth, before it is loaded; 0 where there is no process (any more).
    pub(crate) pid: &'a AtomicI32,
    /// Until when it may be started, in milliseconds of `CLOCK_BOOTTIME`.
    pub(crate) lease_until: &'a AtomicU64,
}

/// A program that was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Started {
    pub(crate) pid: pid_t,
    /// Why it is not in its groups, if it is not: what the system said.
    pub(crate) outside: Option<i32>,
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
    /// The lease is over; it may be started again under the next one.
    Lease,
    Exec,
}

/// Why a program was not started. Nothing of it ran.
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
    /// The child's stack until it has `exec`ed.
    stack: Box<[u128]>,
    parent: pid_t,
    /// How many files a task may have open.
    files: libc::rlimit,
    low: Option<LowStreams>,
    /// Whether children can be born in a group, as far as is known.
    clones_into: bool,
}

/// Low numbers for the streams of the next child.
#[derive(Debug)]
struct LowStreams {
    places: [OwnedFd; 3],
    nothing: OwnedFd,
}

impl LowStreams {
    /// `None` where a child cannot take a part of the table.
    fn new() -> io::Result<Option<Self>> {
        if !can_take_low_files() {
            return Ok(None);
        }
        let nothing = dev_null()?;
        let place = || nothing.try_clone();
        Ok(Some(Self { places: [place()?, place()?, place()?], nothing }))
    }

    fn put(&mut self, streams: [BorrowedFd<'_>; 3]) -> io::Result<()> {
        for (place, stream) in self.places.iter_mut().zip(streams) {
            rustix::io::dup3(stream, place, rustix::io::DupFlags::CLOEXEC)?;
        }
        Ok(())
    }

    /// So that the pipes have no writer but the child.
    fn clear(&mut self) {
        for place in &mut self.places {
            // It replaces one number by another; nothing can be missing for that.
            rustix::io::dup3(&self.nothing, place, rustix::io::DupFlags::CLOEXEC).ok();
        }
    }

    fn numbers(&self) -> [RawFd; 3] {
        self.places.each_ref().map(AsRawFd::as_raw_fd)
    }
}

const STACK_BYTES: usize = 128 << 10;
/// An unused argument of a variadic call, which reads a whole word.
const ZERO: c_ulong = 0;
const LAST_FILE: c_ulong = u32::MAX as c_ulong;

/// What the child reads, and where it leaves its error. Lives in the parent's frame, which is
/// suspended meanwhile.
struct Plan {
    /// Programs to try in turn.
    candidates: *const *const c_char,
    argv: *const *const c_char,
    env: *const *const c_char,
    directory: *const c_char,
    streams: [RawFd; 3],
    groups: *const RawFd,
    groups_len: usize,
    without_groups: bool,
    /// Why it is outside of a group; 0 while it is not.
    outside: i32,
    user: *const TaskUser,
    parent: pid_t,
    lease_until: *const AtomicU64,
    files: libc::rlimit,
    /// The table of files is the parent's until the child has taken the numbers below this one.
    shared_files_from: Option<RawFd>,
    failed: Option<Step>,
    errno: i32,
}

impl Spawner {
    /// A spawner for one thread, whose tasks may have so many `files` open. The fewer files are open
    /// now, the less each start costs.
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

    /// Starts `program`; it runs when this returns.
    ///
    /// # Errors
    /// [`SpawnError`], and then nothing of it ran.
    pub(crate) fn spawn(&mut self, program: &Program<'_>) -> Result<Started, SpawnError> {
        let candidates = candidates(&program.argv, program.search);
        let (candidates, argv, env) =
            (pointers(&candidates), pointers(&program.argv), pointers(&program.env));
        let groups: Vec<RawFd> = program.groups.iter().map(AsRawFd::as_raw_fd).collect();
        let born_in = program.born_in.filter(|_| self.clones_into);
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
        let mut plan = Plan {
            candidates: candidates.as_ptr(),
            argv: argv.as_ptr(),
            env: env.as_ptr(),
            directory: program.directory.as_ptr(),
            streams: low.unwrap_or(streams.map(|stream| stream.as_raw_fd())),
            groups: groups.as_ptr(),
            groups_len: groups.len(),
            without_groups: program.without_groups,
            outside: 0,
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
        // The child wrote these behind the compiler's back.
        // SAFETY: `plan` is ours alone again: the child has exec'ed or ended.
        let (failed, errno, outside) = unsafe {
            (
                ptr::read_volatile(&raw const plan.failed),
                plan.errno,
                ptr::read_volatile(&raw const plan.outside),
            )
        };
        match failed {
            None => Ok(Started { pid, outside: Some(outside).filter(|errno| *errno != 0) }),
            Some(step) => {
                // It is left to whoever reaps all children: a wait for a number could meet another one that has it by now.
                program.pid.store(0, Ordering::SeqCst);
                Err(SpawnError { step, errno })
            }
        }
    }

    fn clone_child(
        &mut self,
        plan: &mut Plan,
        born: &AtomicI32,
        group: Option<RawFd>,
    ) -> Result<pid_t, SpawnError> {
        let top = self.stack.as_mut_ptr_range().end.cast::<c_void>();
        // SAFETY: `all` and `before` are valid for the calls. Signals stay blocked while the child runs in
        // our memory, so that no handler runs there. The stack is ours and large enough for `child`,
        // `plan` outlives the child's use of it because of CLONE_VFORK, and the kernel writes `born` before the
        // child runs.
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
                // An older kernel, or a filter of system calls: it will not be otherwise the next time.
                if group.is_some() && matches!(errno, libc::ENOSYS | libc::EINVAL | libc::E2BIG) {
                    self.clones_into = false;
                }
                SpawnError { step: Step::Clone, errno }
            })
        }
    }
}

/// Whether the kernel has all of `close_range`: asked about numbers that nothing can have.
fn can_take_low_files() -> bool {
    // SAFETY: no memory is passed; no such file is open.
    unsafe { libc::syscall(libc::SYS_close_range, LAST_FILE, LAST_FILE, libc::CLOSE_RANGE_CLOEXEC) == 0 }
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect()
}

/// The paths to try for the program, as `execvp` would.
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

/// Runs in the new process, in our memory, on its own stack.
extern "C" fn child(plan: *mut c_void) -> c_int {
    // SAFETY: the parent passed its plan and is suspended.
    let plan = unsafe { &mut *plan.cast::<Plan>() };
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

/// Makes the process what a task is.
///
/// # Safety
/// To be called in a fresh vfork child only: every call is async-signal-safe, and none changes the
/// memory that is shared with the parent but through `plan`.
unsafe fn prepare(plan: &mut Plan) -> Result<(), Step> {
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        ok(libc::setsid(), Step::Session)?;
        for fd in std::slice::from_raw_parts(plan.groups, plan.groups_len) {
            // "0" means the writing process.
            let joined = ok(libc::write(*fd, c"0".as_ptr().cast(), 1) as i64, Step::Group);
            match joined {
                Err(_) if plan.without_groups => plan.outside = errno(),
                joined => joined?,
            }
        }
        if let Some(first) = plan.shared_files_from {
            // Before anything is changed in a table that is not ours.
            let unshare = libc::CLOSE_RANGE_UNSHARE;
            ok(libc::syscall(libc::SYS_close_range, first as c_ulong, LAST_FILE, unshare), Step::Streams)?;
        }
        for (target, fd) in plan.streams.iter().enumerate() {
            // Never equal: our own streams are open, so a pipe's number is above 2.
            ok(libc::dup2(*fd, target as c_int), Step::Streams)?;
        }
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        ok(libc::setrlimit(libc::RLIMIT_CORE, &raw const none), Step::Limits)?;
        ok(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const plan.files), Step::Limits)?;
        libc::umask(0o077);
        // Whatever was opened without CLOEXEC by a library stays here. Old kernels lack the call.
        libc::syscall(libc::SYS_close_range, 3 as c_ulong, LAST_FILE, libc::CLOSE_RANGE_CLOEXEC);
        if let Some(user) = plan.user.as_ref() {
            become_user(plan, user)?;
        }
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as c_ulong, ZERO, ZERO, ZERO);
        ok(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1 as c_ulong, ZERO, ZERO, ZERO), Step::User)?;
        ok(libc::chdir(plan.directory), Step::Directory)?;
        // After the change of user, which clears it; and the parent may have died just before.
        ok(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as c_ulong), Step::Parent)?;
        if libc::getppid() != plan.parent {
            plan.errno = libc::ESRCH;
            return Err(Step::Parent);
        }
        // The last step: the later it is, the shorter a program can run beside the job's next execution.
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

/// Gives up root, and makes sure that it is gone.
///
/// # Safety
/// As [`prepare`].
unsafe fn become_user(plan: &mut Plan, user: &TaskUser) -> Result<(), Step> {
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

/// Tries the candidates in turn; returns only if all failed, with the most telling error.
///
/// # Safety
/// As [`prepare`].
unsafe fn exec(plan: &mut Plan) {
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        // The supervisor hears signals through a file and has no handlers that could run here, in shared
        // memory. A signal that kills now kills the child alone.
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

/// Where nothing is to be read from.
pub(crate) fn dev_null() -> io::Result<OwnedFd> {
    Ok(std::fs::File::open("/dev/null")?.into())
}

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit {
    pub(crate) pid: pid_t,
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) cpu_millis: u64,
    pub(crate) peak_memory_bytes: u64,
}

/// Reaps one child that has ended, any; `None` where none has.
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

/// The most memory that this process ever held, in bytes. Children that share it until they `exec` count it as theirs.
pub(crate) fn own_peak_memory() -> u64 {
    // SAFETY: plain data that the kernel fills.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage.ru_maxrss.unsigned_abs() * 1024
    }
}

/// The most memory that a process has held so far, in bytes.
pub(crate) fn peak_memory(pid: pid_t) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// The name of a signal, such as `SIGKILL`.
pub(crate) fn signal_name(signal: i32) -> &'static str {
    nix::sys::signal::Signal::try_from(signal).map_or("an unknown signal", nix::sys::signal::Signal::as_str)
}
