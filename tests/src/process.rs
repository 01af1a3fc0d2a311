//! Processes by pid: inspection and signals.

use std::fmt;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::{PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

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

    /// Stops the process as [`pause`](Self::pause) does, and keeps hold of it: the result never concerns another process
    /// that has the same pid later. Returns `None` if the process has ended.
    pub fn pause_held(self) -> Option<Paused> {
        let pid = rustix::process::Pid::from_raw(self.0)?;
        let paused = Paused { pid: self, process: pidfd_open(pid, PidfdFlags::empty()).ok()? };
        paused.send(Signal::STOP);
        Some(paused)
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

/// A process that a test has stopped.
#[derive(Debug)]
pub struct Paused {
    pid: Pid,
    process: OwnedFd,
}

impl Paused {
    /// Returns the pid that the process has, or had.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends SIGCONT. Does nothing if the process has ended.
    pub fn resume(&self) {
        self.send(Signal::CONT);
    }

    /// Sends SIGKILL. Does nothing if the process has ended.
    pub fn kill(&self) {
        self.send(Signal::KILL);
    }

    fn send(&self, signal: Signal) {
        // The only other error is "no such process": the process has ended, as intended.
        let _ = pidfd_send_signal(&self.process, signal);
    }
}

/// Set in a test that runs in a PID namespace of its own.
const OWN_PIDS: &str = "BELFRY_TEST_OWN_PIDS";
/// The pid that the kernel assigned last in the namespace; it assigns the next free one after it.
const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";

/// The kernel's choice of the next pid, in the PID namespace of a test.
#[derive(Debug)]
pub struct NextPid(());

impl NextPid {
    /// # Errors
    /// Returns the reason if the process may not choose pids. Outside of a [namespace](run_with_own_pids) it may not:
    /// other programs of the machine expect that pids are not reused at once.
    pub fn open() -> Result<Self, String> {
        if std::env::var_os(OWN_PIDS).is_none() {
            return Err("pids are reused only in a PID namespace of the test".to_owned());
        }
        let this = Self(());
        match this.go_back(0) {
            Ok(()) => Ok(this),
            Err(error) => {
                Err(format!("reused pids require the permission to write {LAST_PID} (root): {error}"))
            }
        }
    }

    /// Lets the kernel assign the last `count` pids once more, as far as their processes have ended.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn go_back(&self, count: u32) -> std::io::Result<()> {
        let last = fs::read_to_string(LAST_PID)?;
        let last: u32 = last.trim().parse().map_err(std::io::Error::other)?;
        fs::write(LAST_PID, last.saturating_sub(count).max(1).to_string())
    }
}

/// Runs the test `name` of this program again, in a PID namespace of its own, and returns `true`. Returns `false` if this
/// is that run.
///
/// # Errors
/// Returns the reason if the process may not create namespaces.
///
/// # Panics
/// If the test fails.
pub fn run_with_own_pids(name: &str) -> Result<bool, String> {
    if std::env::var_os(OWN_PIDS).is_some() {
        return Ok(false);
    }
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
        command
    };
    if !unshare().arg("true").output().is_ok_and(|output| output.status.success()) {
        return Err("a PID namespace requires root".to_owned());
    }
    let this = std::env::current_exe().expect("a program knows its own path");
    // The shell is the first process of the namespace. It reaps the processes whose parents were killed.
    let status = unshare()
        .args(["sh", "-c", "\"$@\"; exit $?", "sh"])
        .arg(this)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(OWN_PIDS, "1")
        .status();
    assert!(status.is_ok_and(|status| status.success()), "{name} failed in its PID namespace: see above");
    Ok(true)
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
