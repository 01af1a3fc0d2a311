//! The fuse: one small process that freezes or kills tasks when their supervisor cannot.
//!
//! - The lease expires without renewal, because the supervisor is stopped or hangs. The fuse freezes every task that
//!   may be retried elsewhere, with all its processes. It repeats the check until it receives a new lease. It thereby
//!   also freezes programs that were still being loaded, and processes that another process has continued.
//! - The supervisor exits, which closes its side of the socket: the fuse kills every task.
//!
//! A core without I/O decides when the fuse acts ([`supervisor::Fuse`]); this module is its shell.
//!
//! The fuse is a child of the supervisor with its own session. The guarded executions are listed in a table in shared
//! memory ([`guards`]), passed as the standard output, which the fuse does not need otherwise. Its standard input is
//! a socket. Over it the fuse receives the end of the lease (8 bytes per message, little endian), and detects that
//! the supervisor has exited.
//!
//! An execution is in the table before its task is started, and gets its process id after that, so it is guarded all
//! the time. Until the process id is known, its processes are identified by their environment and their control
//! group, if any.
//!
//! If the whole machine is suspended, tasks and fuse resume together, and tasks run until the fuse has been
//! scheduled. The fence protects other systems during this overlap.
//!
//! # Cost
//! The fuse sleeps until the lease expires. It then stops nearly all processes with one signal per process group,
//! some microseconds per task. Only after that it searches for processes that left their group (for the cost see
//! [`tree`]). It runs with a higher priority than ordinary processes if permitted ([`priority`]).

pub(crate) mod guards;
mod priority;

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Signal;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use supervisor::Fuse;

use crate::clock::{BootMillis, ClockReading, boot_millis, now};
use crate::process::cgroup::procs_below;
use crate::process::tree::{self, Root};
use guards::{GuardTableReader, Guarded};

/// Last byte of the notice to the supervisor that tasks were frozen. The notice consists of [`SINCE`], a [`ClockReading`]
/// as two words (little endian), and this byte.
pub(crate) const FROZE: u8 = b'F';
pub(crate) const SINCE: u8 = b'@';
/// Environment variable with the folders of control groups, one per line: container engines use `:` in their names.
pub(crate) const GROUPS_VARIABLE: &str = "BELFRY_FUSE_GROUPS";
/// Maximum time that the fuse waits for killed processes to exit.
const DYING_MAX: Duration = Duration::from_secs(10);

/// Why a fuse could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum FuseError {
    /// An operation on its socket or timer failed.
    #[error("the fuse process cannot {action}")]
    System {
        /// Operation that failed.
        action: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}

fn failed<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> FuseError {
    move |source| FuseError::System { action, source: source.into() }
}

/// Runs a fuse. Its standard input is the socket to its supervisor, its standard output the table of guarded
/// executions. Returns when the supervisor has exited and the tasks are dead.
///
/// # Errors
/// [`FuseError`] if a required system call fails.
pub fn run_fuse() -> Result<(), FuseError> {
    let socket = io::stdin().as_fd().try_clone_to_owned().map_err(failed("open its socket"))?;
    let known = GuardTableReader::new(io::stdout()).map_err(failed("open the table of its tasks"))?;
    // Fails only for a process group leader, which already has a session apart from its supervisor's.
    rustix::process::setsid().ok();
    std::env::set_current_dir("/").map_err(failed("leave its folder"))?;
    priority::raise_priority();
    let bases = std::env::var_os(GROUPS_VARIABLE).unwrap_or_default();
    let bases = bases.as_bytes().split(|byte| *byte == b'\n').filter(|base| !base.is_empty());
    let bases = bases.map(|base| PathBuf::from(OsStr::from_bytes(base))).collect();
    FuseProcess::new(UnixStream::from(socket), known, bases)?.run()
}

struct FuseProcess {
    core: Fuse,
    socket: UnixStream,
    guard_table: GuardTableReader,
    timer: OwnedFd,
    /// Folders of control groups.
    bases: Vec<PathBuf>,
    /// Bytes of an incomplete message.
    partial: Vec<u8>,
    /// Bytes of the last notice that the supervisor has not read yet.
    unsent: Vec<u8>,
}

impl FuseProcess {
    fn new(socket: UnixStream, known: GuardTableReader, bases: Vec<PathBuf>) -> Result<Self, FuseError> {
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)
            .map_err(failed("create its timer"))?;
        // If the fuse blocked until its supervisor reads, it would freeze no task meanwhile.
        socket.set_nonblocking(true).map_err(failed("set up its socket"))?;
        let (partial, unsent) = (Vec::new(), Vec::new());
        Ok(Self { core: Fuse::default(), socket, guard_table: known, timer, bases, partial, unsent })
    }

    fn run(mut self) -> Result<(), FuseError> {
        loop {
            let writing = if self.unsent.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            let socket = PollFd::new(&self.socket, PollFlags::IN | writing);
            let mut fds = [socket, PollFd::new(&self.timer, PollFlags::IN)];
            match poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => continue,
                result => result.map_err(failed("wait"))?,
            };
            let (heard, expired) = (!fds[0].revents().is_empty(), !fds[1].revents().is_empty());
            if heard && !self.receive() {
                self.kill_all();
                return Ok(());
            }
            self.send();
            if expired {
                rustix::io::read(&self.timer, &mut [0; 8]).ok();
                self.expire();
            }
        }
    }

    /// Reads available messages; returns `false` if the supervisor has exited.
    fn receive(&mut self) -> bool {
        let mut buffer = [0; 256];
        match self.socket.read(&mut buffer) {
            Ok(0) => return false,
            Ok(len) => self.partial.extend_from_slice(&buffer[..len]),
            Err(error) => {
                return matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock);
            }
        }
        let bytes = std::mem::take(&mut self.partial);
        let (messages, rest) = bytes.as_chunks::<{ size_of::<BootMillis>() }>();
        if let Some(until) = messages.last().map(|message| BootMillis::from_le_bytes(*message)) {
            let alarm = self.core.lease_renewed(until);
            self.arm(alarm);
        }
        self.partial = rest.to_vec();
        true
    }

    fn arm(&self, at: BootMillis) {
        let it_value = Timespec {
            tv_sec: i64::try_from(at / 1_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(at % 1_000).unwrap_or(0) * 1_000_000,
        };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Cannot fail, because the arguments are valid by construction.
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval, it_value }).ok();
    }

    fn expire(&mut self) {
        let now = now();
        let Some(check) = self.core.alarm_fired(now.boot) else { return };
        let roots = self.roots(|guarded| !guarded.exempt);
        if check.is_first {
            signal_groups(&roots, Signal::STOP);
        }
        // A search is not worth its cost if there are no tasks to search for.
        let frozen = if roots.is_empty() { 0 } else { tree::freeze(&roots) };
        if check.must_report(frozen) {
            self.notify(now);
        }
        let is_launching = roots.iter().any(|root| root.pid.is_none());
        self.arm(check.next_alarm(boot_millis(), is_launching));
    }

    /// Sends the supervisor a notice that its tasks are frozen since `at`. While a notice is unsent, later ones are
    /// dropped.
    fn notify(&mut self, at: ClockReading) {
        if self.unsent.is_empty() {
            let words = [at.boot, at.suspended].map(u64::to_le_bytes).concat();
            self.unsent = [&[SINCE], words.as_slice(), &[FROZE]].concat();
        }
        self.send();
    }

    /// Writes the unsent rest of a notice, as far as the socket accepts it.
    fn send(&mut self) {
        while !self.unsent.is_empty() {
            match self.socket.write(&self.unsent) {
                Ok(len) => drop(self.unsent.drain(..len)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A closed connection is detected by the next read.
                Err(_) => return,
            }
        }
    }

    fn kill_all(&self) {
        let mut roots = self.roots(|_| true);
        if roots.is_empty() {
            return;
        }
        signal_groups(&roots, Signal::KILL);
        tree::kill(&roots);
        let deadline = Instant::now() + DYING_MAX;
        while Instant::now() < deadline && tree::members(&roots).iter().any(|m| !m.is_empty()) {
            std::thread::sleep(Duration::from_millis(10));
            // A new process with the id of an exited main process is not a task of this worker.
            for root in roots.iter_mut().filter(|root| root.pid.is_some_and(tree::is_gone)) {
                root.is_reaped = true;
            }
            tree::kill(&roots);
        }
    }

    fn roots(&self, wanted: impl Fn(&Guarded) -> bool) -> Vec<Root> {
        let roots = self.guard_table.all().filter(|guarded| wanted(guarded));
        roots
            .map(|Guarded { execution, pid, is_reaped, is_foreign, group, .. }| {
                let procs = (group != 0).then(|| procs_below(&self.bases, group)).flatten();
                Root { pid, is_reaped, procs, is_foreign, ..Root::of(execution) }
            })
            .collect()
    }
}

/// Sends a signal to the process groups of the main processes, which reaches most processes at once.
fn signal_groups(roots: &[Root], signal: Signal) {
    let pids = roots.iter().filter(|root| !root.is_reaped).filter_map(|root| root.pid);
    pids.for_each(|pid| tree::signal_group(pid, signal));
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    use model::ExecutionId;

    use super::guards::Guards;
    use super::*;

    /// Maximum time that a test waits for tasks to be frozen, in milliseconds.
    const FROZEN_MAX: BootMillis = 60_000;

    /// Tasks that use all of the CPU; killed on drop.
    struct Busy(Vec<Child>);

    impl Busy {
        fn start(count: usize) -> Self {
            let burn = || Command::new("sh").args(["-c", "while :; do :; done"]).process_group(0).spawn();
            Self((0..count).map(|_| burn().unwrap()).collect())
        }

        fn pids(&self) -> impl Iterator<Item = i32> {
            self.0.iter().map(|child| i32::try_from(child.id()).unwrap())
        }

        fn all_stopped(&self) -> bool {
            self.pids().all(|pid| {
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
                stat.rsplit_once(") ").unwrap().1.starts_with('T')
            })
        }
    }

    impl Busy {
        fn wait_until_all_stopped(&self) {
            let deadline = boot_millis() + FROZEN_MAX;
            while !self.all_stopped() {
                assert!(boot_millis() < deadline, "tasks still run without a lease");
                std::thread::yield_now();
            }
        }
    }

    impl Drop for Busy {
        fn drop(&mut self) {
            for child in &mut self.0 {
                child.kill().unwrap();
                child.wait().unwrap();
            }
        }
    }

    fn one(execution: ExecutionId, pid: Option<i32>) -> Guarded {
        Guarded { execution, exempt: false, pid, is_reaped: false, is_foreign: false, group: 0 }
    }

    /// A program that was still being loaded when the lease expired, and a process that another process continues.
    #[test]
    fn a_task_that_starts_to_run_after_the_lease_expired_is_frozen() {
        let (mut supervisor, theirs) = UnixStream::pair().unwrap();
        let mut guards = Guards::new().unwrap();
        let known = GuardTableReader::new(guards.file().unwrap()).unwrap();
        let fuse = std::thread::spawn(move || FuseProcess::new(theirs, known, Vec::new())?.run());
        assert!(guards.guard(one(ExecutionId::from_bits(1), None)));
        supervisor.write_all(&boot_millis().to_le_bytes()).unwrap();
        let mut told = [0; 18];
        supervisor.read_exact(&mut told).unwrap();
        assert_eq!((told[0], told[17]), (SINCE, FROZE));
        // The task starts to run only now.
        let tasks = Busy::start(1);
        let pid = tasks.pids().next();
        assert!(guards.guard(one(ExecutionId::from_bits(1), pid)));
        tasks.wait_until_all_stopped();
        tree::signal_process(pid.unwrap(), Signal::CONT);
        tasks.wait_until_all_stopped();
        drop(supervisor);
        fuse.join().unwrap().unwrap();
    }

    /// If the supervisor reads nothing, it gets no notice, and its tasks are frozen all the same.
    #[test]
    fn tasks_are_frozen_while_the_supervisor_reads_nothing() {
        let (mut supervisor, mut theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        while theirs.write(&[0; 1]).is_ok() {}
        theirs.set_nonblocking(false).unwrap();
        let mut guards = Guards::new().unwrap();
        let known = GuardTableReader::new(guards.file().unwrap()).unwrap();
        let fuse = std::thread::spawn(move || FuseProcess::new(theirs, known, Vec::new())?.run());
        let tasks = Busy::start(1);
        let pid = tasks.pids().next();
        assert!(guards.guard(one(ExecutionId::from_bits(1), pid)));
        supervisor.write_all(&boot_millis().to_le_bytes()).unwrap();
        tasks.wait_until_all_stopped();
        tree::signal_process(pid.unwrap(), Signal::CONT);
        tasks.wait_until_all_stopped();
        // Once the supervisor reads, it receives the first notice completely.
        let (mut told, mut buffer) = (Vec::new(), [0; 1 << 10]);
        while told.len() < 18 {
            let len = supervisor.read(&mut buffer).unwrap();
            told.extend_from_slice(&buffer[..len]);
            let filled = told.iter().take_while(|byte| **byte == 0).count();
            told.drain(..filled);
        }
        assert_eq!((told[0], told[17]), (SINCE, FROZE), "{told:?}");
        drop(supervisor);
        fuse.join().unwrap().unwrap();
    }

    /// D4. With dozens of tasks that use the CPU on every core.
    #[test]
    fn tasks_on_a_busy_machine_are_frozen_after_the_lease_expired() {
        let tasks = Busy::start(64);
        let (mut supervisor, theirs) = UnixStream::pair().unwrap();
        let mut guards = Guards::new().unwrap();
        let known = GuardTableReader::new(guards.file().unwrap()).unwrap();
        let fuse = std::thread::spawn(move || {
            priority::raise_priority();
            FuseProcess::new(theirs, known, Vec::new())?.run()
        });
        let until = boot_millis() + 300;
        for (number, pid) in (1..).zip(tasks.pids()) {
            let execution = ExecutionId::from_bits(number);
            assert!(guards.guard(one(execution, Some(pid))));
        }
        supervisor.write_all(&until.to_le_bytes()).unwrap();
        tasks.wait_until_all_stopped();
        // The delay is printed and not asserted: it depends on the machine.
        println!("{} ms after the end of the lease", boot_millis() - until);
        drop(supervisor);
        fuse.join().unwrap().unwrap();
    }

    #[test]
    fn partial_messages_are_reassembled() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let known = GuardTableReader::new(Guards::new().unwrap().file().unwrap()).unwrap();
        let mut fuse = FuseProcess::new(theirs, known, Vec::new()).unwrap();
        let until = boot_millis() + 3_600_000;
        for piece in [until - 1, until].map(BootMillis::to_le_bytes).concat().chunks(7) {
            ours.write_all(piece).unwrap();
            assert!(fuse.receive());
        }
        assert_eq!(fuse.core.lease_until(), Some(until));
        drop(ours);
        assert!(!fuse.receive());
    }
}
