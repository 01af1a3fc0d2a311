//! The fuse: one small process that acts when the supervisor of its tasks cannot.
//!
//! - The lease runs out and nobody renews it (the supervisor is stopped, or hangs): every task that
//!   could run elsewhere by now is frozen with all its processes.
//! - The supervisor is gone (its end of the socket is closed): every task is killed.
//!
//! It is a child of the supervisor with a session of its own. Whom it guards stands in a table in memory
//! ([`guards`]) that is its standard output, as that is otherwise of no use to it. Its standard input is a
//! socket over which it hears how far the lease goes (8 bytes each time, little endian), and that the
//! supervisor is gone. A task stands in the table before it is started, and its process id after, so at no
//! moment is one unguarded: until then it is recognised by its environment.
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

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Signal;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::clock::{BootMillis, boot_millis};
use crate::process::tree::{self, Root};
use guards::{Guarded, Known};

/// What the fuse writes back when it has frozen its tasks.
pub(crate) const FROZE: u8 = b'F';
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
    Fuse::new(UnixStream::from(socket), known)?.run()
}

struct Fuse {
    socket: UnixStream,
    known: Known,
    timer: OwnedFd,
    until: Option<BootMillis>,
    /// Bytes of a message that is not whole yet.
    partial: Vec<u8>,
}

impl Fuse {
    fn new(socket: UnixStream, known: Known) -> Result<Self, FuseError> {
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)
            .map_err(failed("create its timer"))?;
        Ok(Self { socket, known, timer, until: None, partial: Vec::new() })
    }

    fn run(mut self) -> Result<(), FuseError> {
        loop {
            let mut fds = [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(&self.timer, PollFlags::IN)];
            match poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => continue,
                result => result.map_err(failed("wait"))?,
            };
            let (heard, expired) = (!fds[0].revents().is_empty(), !fds[1].revents().is_empty());
            if heard && !self.hear() {
                self.kill_all();
                return Ok(());
            }
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
            Err(error) => return error.kind() == io::ErrorKind::Interrupted,
        }
        let bytes = std::mem::take(&mut self.partial);
        let (messages, rest) = bytes.as_chunks::<{ size_of::<BootMillis>() }>();
        if let Some(until) = messages.last().map(|message| BootMillis::from_le_bytes(*message)) {
            self.until = Some(until);
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
        if self.until.is_none_or(|until| boot_millis() < until) {
            return;
        }
        let roots = self.roots(|guarded| !guarded.exempt);
        signal_groups(&roots, Signal::STOP);
        tree::freeze(&roots);
        self.until = None;
        // A supervisor that does not read has nothing to learn from it either.
        self.socket.write_all(&[FROZE]).ok();
    }

    fn kill_all(&self) {
        let roots = self.roots(|_| true);
        if roots.is_empty() {
            return;
        }
        signal_groups(&roots, Signal::KILL);
        tree::kill(&roots);
        let deadline = Instant::now() + DYING_MAX;
        while Instant::now() < deadline && tree::members(&roots).iter().any(|m| !m.is_empty()) {
            std::thread::sleep(Duration::from_millis(10));
            tree::kill(&roots);
        }
    }

    fn roots(&self, wanted: impl Fn(&Guarded) -> bool) -> Vec<Root> {
        let roots = self.known.all().filter(|guarded| wanted(guarded));
        roots.map(|Guarded { execution, pid, .. }| Root { execution, pid, procs: None }).collect()
    }
}

/// Reaches at once whatever is still in the group that its task leads.
fn signal_groups(roots: &[Root], signal: Signal) {
    roots.iter().filter_map(|root| root.pid).for_each(|pid| tree::signal_group(pid, signal));
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    use model::ExecutionId;

    use super::guards::Guards;
    use super::*;

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

    impl Drop for Busy {
        fn drop(&mut self) {
            for child in &mut self.0 {
                child.kill().unwrap();
                child.wait().unwrap();
            }
        }
    }

    /// D4. With dozens of tasks that want the processor on every core.
    #[test]
    fn on_a_busy_machine_tasks_stand_still_soon_after_the_end_of_their_lease() {
        const LATE_MAX: BootMillis = 200;
        let tasks = Busy::start(64);
        let (mut supervisor, theirs) = UnixStream::pair().unwrap();
        let mut guards = Guards::new().unwrap();
        let known = Known::new(guards.file().unwrap()).unwrap();
        let fuse = std::thread::spawn(move || {
            prompt::be_prompt();
            Fuse::new(theirs, known)?.run()
        });
        let until = boot_millis() + 300;
        for (number, pid) in (1..).zip(tasks.pids()) {
            let execution = ExecutionId::from_bits(number);
            assert!(guards.guard(Guarded { execution, exempt: false, pid: Some(pid) }));
        }
        supervisor.write_all(&until.to_le_bytes()).unwrap();
        while !tasks.all_stand_still() {
            assert!(boot_millis() < until + 10_000, "they run on without a lease");
        }
        let late = boot_millis() - until;
        println!("{late} ms after the end of the lease");
        drop(supervisor);
        fuse.join().unwrap().unwrap();
        assert!(late <= LATE_MAX, "they stood still {late} ms after the end of their lease");
    }

    #[test]
    fn messages_that_come_in_pieces_are_put_together() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let known = Known::new(Guards::new().unwrap().file().unwrap()).unwrap();
        let mut fuse = Fuse::new(theirs, known).unwrap();
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
