//! Processes by pid: inspection and signals.

use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Signal, kill_process};

/// The pid of a process that a site started, or of a descendant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(pub i32);

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Pid {
    /// Sends SIGKILL. Does nothing if the process has ended.
    pub fn kill(self) {
        self.send(Signal::KILL);
    }

    /// Sends SIGTERM. Does nothing if the process has ended.
    pub fn terminate(self) {
        self.send(Signal::TERM);
    }

    /// Sends SIGSTOP: the process stops running until [`resume`](Self::resume).
    pub fn pause(self) {
        self.send(Signal::STOP);
    }

    /// Sends SIGCONT.
    pub fn resume(self) {
        self.send(Signal::CONT);
    }

    fn send(self, signal: Signal) {
        let pid = rustix::process::Pid::from_raw(self.0).filter(|_| self.0 > 1).expect("a pid above 1");
        // The only other error is "no such process": the process has ended, as intended.
        let _ = kill_process(pid, signal);
    }

    /// Whether the process is alive; a zombie is not.
    pub fn is_alive(self) -> bool {
        self.stat().is_some_and(|(state, _)| state != 'Z' && state != 'X')
    }

    /// Whether the process is stopped by SIGSTOP.
    pub fn is_paused(self) -> bool {
        self.stat().is_some_and(|(state, _)| state == 'T')
    }

    /// Returns the state letter and the parent.
    fn stat(self) -> Option<(char, Self)> {
        let stat = fs::read_to_string(format!("/proc/{self}/stat")).ok()?;
        // The command name is in parentheses, and may contain spaces and parentheses.
        let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
        Some((fields.next()?.chars().next()?, Self(fields.next()?.parse().ok()?)))
    }

    /// Returns the command line arguments.
    pub fn arguments(self) -> Vec<String> {
        let bytes = fs::read(format!("/proc/{self}/cmdline")).unwrap_or_default();
        bytes
            .split(|b| *b == 0)
            .filter(|a| !a.is_empty())
            .map(|a| String::from_utf8_lossy(a).into_owned())
            .collect()
    }

    /// Returns the CPU time so far, user and system.
    pub fn cpu_time(self) -> Option<Duration> {
        let stat = fs::read_to_string(format!("/proc/{self}/stat")).ok()?;
        // The command name is in parentheses, and may contain spaces.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
        let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
        let per_second = rustix::param::clock_ticks_per_second();
        Some(Duration::from_millis(ticks * 1_000 / per_second))
    }

    /// Returns the resident memory in bytes.
    pub fn memory(self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{self}/status")).ok()?;
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
    }
}

fn all() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok().map(Pid))
}

/// Returns every live process with `path` in its arguments.
pub fn with_argument(path: &Path) -> Vec<Pid> {
    let path = path.to_string_lossy();
    all().filter(|p| p.is_alive() && p.arguments().iter().any(|a| a.contains(&*path))).collect()
}

/// Returns every live descendant of `ancestor`.
pub fn descendants(ancestor: Pid) -> Vec<Pid> {
    let parents: Vec<(Pid, Pid)> = all().filter_map(|p| Some((p, p.stat()?.1))).collect();
    let mut found = vec![ancestor];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(parents.iter().filter(|(_, p)| *p == parent).map(|(child, _)| *child));
        next += 1;
    }
    found.into_iter().skip(1).filter(|p| p.is_alive()).collect()
}
