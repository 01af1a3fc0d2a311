//! Event loop of the supervisor: waits for files to become ready, and for times of `CLOCK_BOOTTIME`.
//!
//! [`Poller::wait`] returns the tokens of ready files; pipes of tasks have tokens from [`token::FIRST_PIPE`]
//! on. [`Poller::due`] returns the alarms whose time has come.
//!
//! The handler of an alarm checks whether its reason still holds. Alarms of an execution are cancelled at its
//! end. One timer file is armed for the earliest alarm, because timeouts of `epoll` do not count suspended
//! time.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use model::ExecutionId;
use rustix::event::{Timespec as EpollTimeout, epoll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::clock::{BootMillis, boot_millis};

/// Identifies a watched file.
pub(super) type Token = u64;

/// Tokens of the files that exist once; those of pipes follow.
pub(super) mod token {
    use super::Token;

    pub(in super::super) const SIGNALS: Token = 0;
    pub(in super::super) const TIMER: Token = 1;
    pub(in super::super) const JOURNAL: Token = 2;
    pub(in super::super) const LISTENER: Token = 3;
    pub(in super::super) const AGENT: Token = 4;
    pub(in super::super) const FUSE: Token = 5;
    pub(in super::super) const LAUNCHER: Token = 6;
    pub(in super::super) const USAGE: Token = 7;
    pub(in super::super) const FIRST_PIPE: Token = 16;
}

/// Reason of an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Alarm {
    /// The core has a timer that expires.
    Core,
    /// Remaining processes of a task may have exited.
    RemainingProcesses(ExecutionId),
    /// The fuse is to be started again after a delay.
    Fuse,
    /// The agent may accept connections of tasks again.
    Calls,
    /// Tasks may have written checkpoints.
    Checkpoints,
    /// Running tasks are to be measured.
    Usage,
    /// The supervisor may have been idle long enough to exit.
    Idle,
    /// The shutdown has reached its time limit.
    Shutdown,
}

/// Waits for files and alarms.
#[derive(Debug)]
pub(super) struct Poller {
    epoll: OwnedFd,
    timer: OwnedFd,
    alarms: BTreeSet<(BootMillis, Alarm)>,
    /// Times of each alarm.
    instants: HashMap<Alarm, Vec<BootMillis>>,
    /// Time for which the timer file is armed.
    armed: Option<BootMillis>,
}

impl Poller {
    pub(super) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let poller = Self { epoll, timer, alarms: BTreeSet::new(), instants: HashMap::new(), armed: None };
        poller.watch(&poller.timer, token::TIMER)?;
        Ok(poller)
    }

    /// Reports when `file` is readable.
    pub(super) fn watch(&self, file: impl AsFd, token: Token) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, file, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?)
    }

    /// Enables or disables reports when `file` is writable.
    pub(super) fn watch_writing(&self, file: impl AsFd, token: Token, writing: bool) -> io::Result<()> {
        let flags =
            if writing { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
        Ok(epoll::modify(&self.epoll, file, epoll::EventData::new_u64(token), flags)?)
    }

    /// Stops watching `file`, which other processes may still have open.
    pub(super) fn unwatch(&self, file: impl AsFd) {
        // Fails only if it was not watched.
        epoll::delete(&self.epoll, file).ok();
    }

    /// Sets `alarm` to `at`; an alarm may have several times.
    pub(super) fn alarm(&mut self, at: BootMillis, alarm: Alarm) {
        if self.alarms.insert((at, alarm)) {
            self.instants.entry(alarm).or_default().push(at);
        }
    }

    /// Cancels all times of `alarm`.
    pub(super) fn cancel(&mut self, alarm: Alarm) {
        for at in self.instants.remove(&alarm).unwrap_or_default() {
            self.alarms.remove(&(at, alarm));
        }
    }

    /// Removes and returns the alarms whose time has come.
    pub(super) fn due(&mut self) -> Vec<Alarm> {
        let now = boot_millis();
        let mut due = Vec::new();
        while let Some((at, alarm)) = self.alarms.first().copied()
            && at <= now
        {
            self.alarms.pop_first();
            if let Some(instants) = self.instants.get_mut(&alarm) {
                instants.retain(|instant| *instant != at);
                if instants.is_empty() {
                    self.instants.remove(&alarm);
                }
            }
            due.push(alarm);
        }
        due
    }

    /// Waits until a file is ready or an alarm expires; writes the tokens of the ready files to `ready`.
    ///
    /// With `block` false it returns at once.
    pub(super) fn wait(&mut self, block: bool, ready: &mut Vec<Token>) -> io::Result<()> {
        self.arm()?;
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 256];
        let timeout = (!block).then_some(EpollTimeout { tv_sec: 0, tv_nsec: 0 });
        ready.clear();
        let count = match epoll::wait(&self.epoll, &mut events[..], timeout.as_ref()) {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        for event in &events[..count] {
            match event.data.u64() {
                token::TIMER => {
                    rustix::io::read(&self.timer, &mut [0; 8]).ok();
                    self.armed = None;
                }
                token => ready.push(token),
            }
        }
        Ok(())
    }

    fn arm(&mut self) -> io::Result<()> {
        let next = self.alarms.first().map(|(at, _)| *at);
        if next == self.armed {
            return Ok(());
        }
        // All zeros disarm the timer; a past time expires at once.
        let at = next.map_or(0, |at| at.max(1));
        let it_value = Timespec {
            tv_sec: i64::try_from(at / 1_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(at % 1_000).unwrap_or(0) * 1_000_000,
        };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval, it_value })?;
        self.armed = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarms_fire_in_order_and_not_early() {
        let mut poller = Poller::new().unwrap();
        let now = boot_millis();
        poller.alarm(now + 3_600_000, Alarm::Shutdown);
        poller.alarm(now + 20, Alarm::Idle);
        poller.alarm(now, Alarm::Core);
        assert_eq!(poller.due(), [Alarm::Core]);
        let mut ready = Vec::new();
        while poller.alarms.len() == 2 {
            poller.wait(true, &mut ready).unwrap();
            let due = poller.due();
            assert!(due.is_empty() || (due == [Alarm::Idle] && boot_millis() >= now + 20));
        }
    }

    #[test]
    fn cancelled_alarms_are_removed_completely() {
        let mut poller = Poller::new().unwrap();
        let now = boot_millis();
        let task = |bits| Alarm::RemainingProcesses(ExecutionId::from_bits(bits));
        for bits in 0..1_000 {
            poller.alarm(now + 3_600_000, task(bits));
            poller.alarm(now, task(bits));
            poller.alarm(now, task(bits));
        }
        assert_eq!(poller.due().len(), 1_000);
        (0..1_000).for_each(|bits| poller.cancel(task(bits)));
        assert!(poller.alarms.is_empty() && poller.instants.is_empty());
        poller.alarm(now, task(7));
        assert_eq!(poller.due(), [task(7)]);
        assert!(poller.instants.is_empty());
    }

    #[test]
    fn a_file_is_reported_by_its_token_when_it_can_be_read() {
        let mut poller = Poller::new().unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        poller.watch(&reader, 77).unwrap();
        let mut ready = Vec::new();
        poller.wait(false, &mut ready).unwrap();
        assert!(ready.is_empty());
        rustix::io::write(&writer, b"x").unwrap();
        poller.wait(true, &mut ready).unwrap();
        assert_eq!(ready, [77]);
    }
}
