//! The fuse: one small process that acts when the supervisor of its tasks cannot.
//!
//! - The lease runs out and nobody renews it (the supervisor is stopped, or hangs): every task that
//!   could run elsewhere by now is frozen with all its processes.
//!   It goes on looking until it is told of a new lease: a program that was just being loaded, or a process that
//!   another one let go on, is frozen then.
//! - The supervisor is gone (its end of the socket is closed): every task is killed.
//!
//! It is a child of the supervisor with a session of its own. Whom it guards stands in a table in memory
//! ([`guards`]) that is its standard output, as that is otherwise of no use to it. Its standard input is a
//! socket over which it hears how far the lease goes (8 bytes each time, little endian), and that the
//! supervisor is gone. A task stands in the table before it is started, and its process id after, so at no
//! moment is one unguarded: until then it is recognised by its environment, and by its control group where it has one.
//!
//! If the whole machine sleeps, tasks and fuse wake together and overlap by the fuse's wake-up time. For
//! that remainder tasks have their fence.
//!
//! # Cost
//! It sleeps until the lease ends. Then one signal to each task's process group stops nearly all of it, some
//! microseconds a task; only after that it looks for what left its group ([`tree`] says what that costs).
//! It runs before ordinary processes where it may ([`prompt`]).

pub(crate) mod guards;
mod prompt;

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

use crate::clock::{BootMillis, Moment, boot_millis, now};
use crate::process::cgroup::procs_below;
use crate::process::tree::{self, Root};
use guards::{Guarded, Known};

/// What the fuse writes back when it has frozen its tasks: first [`SINCE`], with a [`Moment`] in two words (little
/// endian), and then this.
pub(crate) const FROZE: u8 = b'F';
pub(crate) const SINCE: u8 = b'@';
/// The variable that names the folders of control groups, a line each: container engines put `:` into their names.
pub(crate) const GROUPS_VARIABLE: &str = "BELFRY_FUSE_GROUPS";
/// Between two looks at tasks that are frozen, while one is being started and otherwise.
const LOOK_AT_LAUNCHES: BootMillis = 100;
const LOOK_AGAIN: BootMillis = 1_000;
/// How long it watches what it has killed die.
const DYING_MAX: Duration = Duration::from_secs(10);

/// Why a fuse could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum FuseError {
    /// An operation on its socket or timer failed.
    #[error("the fuse could not {action}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

fn failed<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> FuseError {
    move |source| FuseError::System { action, source: source.into() }
}

/// Runs a fuse; its standard input is the socket to its supervisor, its standard output the table of its
/// tasks. Returns when the supervisor is gone and the tasks are dead.
///
/// # Errors
/// [`FuseError`] if the operating system refuses what it needs.
pub fn run_fuse() -> Result<(), FuseError> {
    let socket = io::stdin().as_fd().try_clone_to_owned().map_err(failed("open its socket"))?;
    let known = Known::new(io::stdout()).map_err(failed("open the table of its tasks"))?;
    // Fails only for a group leader, which then has a session apart from its supervisor's already.
    rustix::process::setsid().ok();
    std::env::set_current_dir("/").map_err(failed("leave its folder"))?;
    prompt::be_prompt();
    let bases = std::env::var_os(GROUPS_VARIABLE).unwrap_or_default();
    let bases = bases.as_bytes().split(|byte| *byte == b'\n').filter(|base| !base.is_empty());
    let bases = bases.map(|base| PathBuf::from(OsStr::from_bytes(base))).collect();
    Fuse::new(UnixStream::from(socket), known, bases)?.run()
}

struct Fuse {
    socket: UnixStream,
    known: Known,
    timer: OwnedFd,
    until: Option<BootMillis>,
    /// Whether tasks were frozen since that was heard.
    has_fired: bool,
    /// Where control groups are.
    bases: Vec<PathBuf>,
    /// Bytes of a message that is not whole yet.
    partial: Vec<u8>,
    /// What the supervisor has not taken yet of the last notice.
    unsent: Vec<u8>,
}

impl Fuse {
    fn new(socket: UnixStream, known: Known, bases: Vec<PathBuf>) -> Result<Self, FuseError> {
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)
            .map_err(failed("create its timer"))?;
        // A fuse that waited for its supervisor to read would freeze nothing meanwhile.
        socket.set_nonblocking(true).map_err(failed("set up its socket"))?;
        let (partial, unsent) = (Vec::new(), Vec::new());
        Ok(Self { socket, known, timer, until: None, has_fired: false, bases, partial, unsent })
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
            if heard && !self.hear() {
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

    /// Reads what came; false if the supervisor is gone.
    fn hear(&mut self) -> bool {
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
            self.until = Some(until);
            self.has_fired = false;
            self.arm(until);
        }
        self.partial = rest.to_vec();
        true
    }

    fn arm(&self, until: BootMillis) {
        let it_value = Timespec {
            tv_sec: i64::try_from(until / 1_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(until % 1_000).unwrap_or(0) * 1_000_000,
        };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        // The arguments are right by construction.
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval, it_value }).ok();
    }

    fn expire(&mut self) {
        let now = now();
        if self.until.is_none_or(|until| now.boot < until) {
            return;
        }
        let roots = self.roots(|guarded| !guarded.exempt);
        let is_first = !std::mem::replace(&mut self.has_fired, true);
        if is_first {
            signal_groups(&roots, Signal::STOP);
        }
        // A look is not worth its cost where there is nobody to look for.
        let frozen = if roots.is_empty() { 0 } else { tree::freeze(&roots) };
        if is_first || frozen > 0 {
            self.tell(now);
        }
        self.arm(boot_millis() + look_again(&roots));
    }

    /// Tells the supervisor that its tasks are frozen since `at`; where it reads nothing, of several times the first.
    fn tell(&mut self, at: Moment) {
        if self.unsent.is_empty() {
            let words = [at.boot, at.asleep].map(u64::to_le_bytes).concat();
            self.unsent = [&[SINCE], words.as_slice(), &[FROZE]].concat();
        }
        self.send();
    }

    /// Writes what is left of a notice, as far as the supervisor takes it.
    fn send(&mut self) {
        while !self.unsent.is_empty() {
            match self.socket.write(&self.unsent) {
                Ok(len) => drop(self.unsent.drain(..len)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // That it is gone is heard when it is read.
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
            // Whoever gets the number of a main process that is gone is not ours.
            for root in roots.iter_mut().filter(|root| root.pid.is_some_and(tree::is_gone)) {
                root.is_reaped = true;
            }
            tree::kill(&roots);
        }
    }

    fn roots(&self, wanted: impl Fn(&Guarded) -> bool) -> Vec<Root> {
        let roots = self.known.all().filter(|guarded| wanted(guarded));
        roots
            .map(|Guarded { execution, pid, is_reaped, group, .. }| {
                let procs = (group != 0).then(|| procs_below(&self.bases, group)).flatten();
                Root { pid, is_reaped, procs, ..Root::of(execution) }
            })
            .collect()
    }
}

/// How long after a look the next one follows.
fn look_again(roots: &[Root]) -> BootMillis {
    if roots.iter().any(|root| root.pid.is_none()) { LOOK_AT_LAUNCHES } else { LOOK_AGAIN }
}

/// Reaches at once whatever is still in the group that its task leads.
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

    /// How long a test waits for tasks to be frozen, in milliseconds.
    const FROZEN_MAX: BootMillis = 60_000;

    /// Tasks that want all of the processor, dead when this is dropped.
    struct Busy(Vec<Child>);

    impl Busy {
        fn start(count: usize) -> Self {
            let burn = || Command::new("sh").args(["-c", "while :; do :; done"]).process_group(0).spawn();
            Self((0..count).map(|_| burn().unwrap()).collect())
        }

        fn pids(&self) -> impl Iterator<Item = i32> {
            self.0.iter().map(|child| i32::try_from(child.id()).unwrap())
        }

        fn all_stand_still(&self) -> bool {
            self.pids().all(|pid| {
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
                stat.rsplit_once(") ").unwrap().1.starts_with('T')
            })
        }
    }

    impl Busy {
        fn until_all_stand_still(&self) {
            let deadline = boot_millis() + FROZEN_MAX;
            while !self.all_stand_still() {
                assert!(boot_millis() < deadline, "they run on without a lease");
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
        Guarded { execution, exempt: false, pid, is_reaped: false, group: 0 }
    }

    /// A program that was still being loaded at the end of the lease, and a process that somebody lets go on.
    #[test]
    fn a_task_that_begins_to_run_after_the_end_of_its_lease_is_frozen_too() {
        let (mut supervisor, theirs) = UnixStream::pair().unwrap();
        let mut guards = Guards::new().unwrap();
        let known = Known::new(guards.file().unwrap()).unwrap();
        let fuse = std::thread::spawn(move || Fuse::new(theirs, known, Vec::new())?.run());
        assert!(guards.guard(one(ExecutionId::from_bits(1), None)));
        supervisor.write_all(&boot_millis().to_le_bytes()).unwrap();
        let mut told = [0; 18];
        supervisor.read_exact(&mut told).unwrap();
        assert_eq!((told[0], told[17]), (SINCE, FROZE));
        // It comes to run only now.
        let tasks = Busy::start(1);
        let pid = tasks.pids().next();
        assert!(guards.guard(one(ExecutionId::from_bits(1), pid)));
        tasks.until_all_stand_still();
        tree::signal_process(pid.unwrap(), Signal::CONT);
        tasks.until_all_stand_still();
        drop(supervisor);
        fuse.join().unwrap().unwrap();
    }

    /// Whoever reads nothing is told nothing, and is guarded all the same.
    #[test]
    fn tasks_are_frozen_while_the_supervisor_reads_nothing() {
        let (mut supervisor, mut theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        while theirs.write(&[0; 1]).is_ok() {}
        theirs.set_nonblocking(false).unwrap();
        let mut guards = Guards::new().unwrap();
        let known = Known::new(guards.file().unwrap()).unwrap();
        let fuse = std::thread::spawn(move || Fuse::new(theirs, known, Vec::new())?.run());
        let tasks = Busy::start(1);
        let pid = tasks.pids().next();
        assert!(guards.guard(one(ExecutionId::from_bits(1), pid)));
        supervisor.write_all(&boot_millis().to_le_bytes()).unwrap();
        tasks.until_all_stand_still();
        tree::signal_process(pid.unwrap(), Signal::CONT);
        tasks.until_all_stand_still();
        // Once it reads, it is told of the first time, whole.
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

    /// D4. With dozens of tasks that want the processor on every core.
    #[test]
    fn on_a_busy_machine_tasks_stand_still_after_the_end_of_their_lease() {
        let tasks = Busy::start(64);
        let (mut supervisor, theirs) = UnixStream::pair().unwrap();
        let mut guards = Guards::new().unwrap();
        let known = Known::new(guards.file().unwrap()).unwrap();
        let fuse = std::thread::spawn(move || {
            prompt::be_prompt();
            Fuse::new(theirs, known, Vec::new())?.run()
        });
        let until = boot_millis() + 300;
        for (number, pid) in (1..).zip(tasks.pids()) {
            let execution = ExecutionId::from_bits(number);
            assert!(guards.guard(one(execution, Some(pid))));
        }
        supervisor.write_all(&until.to_le_bytes()).unwrap();
        tasks.until_all_stand_still();
        // How soon is measured and not asserted: it is as much the machine's doing as ours.
        println!("{} ms after the end of the lease", boot_millis() - until);
        drop(supervisor);
        fuse.join().unwrap().unwrap();
    }

    #[test]
    fn messages_that_come_in_pieces_are_put_together() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let known = Known::new(Guards::new().unwrap().file().unwrap()).unwrap();
        let mut fuse = Fuse::new(theirs, known, Vec::new()).unwrap();
        let until = boot_millis() + 3_600_000;
        for piece in [until - 1, until].map(BootMillis::to_le_bytes).concat().chunks(7) {
            ours.write_all(piece).unwrap();
            assert!(fuse.hear());
        }
        assert_eq!(fuse.until, Some(until));
        drop(ours);
        assert!(!fuse.hear());
    }
}
