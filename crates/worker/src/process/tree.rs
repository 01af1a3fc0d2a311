//! All processes of an execution, to freeze, thaw or kill them together.
//!
//! A task may fork as it likes. What belongs to it is found by several marks, each of which lives
//! through some way of getting lost: its session; its descent; its control group, where it has one;
//! and `BELFRY_EXECUTION_ID` in the environment, which a daemon that forked twice and opened a
//! session of its own still carries. Since a process may fork while it is looked at, freezing and
//! killing look again until they find nobody new.
//!
//! A look reads all of `/proc` (some 20 µs a process), so it is for ends that leave something behind
//! and for emergencies; an ordinary end asks [`children`] only.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::PathBuf;

use model::ExecutionId;
use rustix::process::{Pid, Signal, kill_process};

use crate::clock::BootMillis;

/// The variable that carries the execution's id.
pub(crate) const EXECUTION_VARIABLE: &str = "BELFRY_EXECUTION_ID";
/// Milliseconds in a tick of `/proc/<pid>/stat`, on every platform that we know.
const TICK: u64 = 10;
/// How often freezing and killing look again before they leave the rest to the caller.
const LOOKS_MAX: usize = 64;

/// Whose processes are meant.
#[derive(Debug, Clone)]
pub(crate) struct Root {
    pub(crate) execution: ExecutionId,
    /// The main process, leader of the task's session, where it is known.
    pub(crate) pid: Option<i32>,
    /// Whether the main process was reaped: then only its session still has that number.
    pub(crate) is_reaped: bool,
    /// A `cgroup.procs` file that lists its processes, where it has one.
    pub(crate) procs: Option<PathBuf>,
    /// Processes that are known to be its own in other ways.
    pub(crate) also: Vec<i32>,
}

impl Root {
    /// One of which nothing but the execution is known.
    pub(crate) fn of(execution: ExecutionId) -> Self {
        Self { execution, pid: None, is_reaped: false, procs: None, also: Vec::new() }
    }
}

/// One process as it was seen.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    parent: i32,
    session: i32,
    state: u8,
    /// When it was started, in milliseconds since the machine was; known to the hundredth of a second.
    pub(crate) started: BootMillis,
    execution: Option<ExecutionId>,
}

impl Process {
    /// Whether it has ended and only waits to be reaped.
    fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }

    fn is_stopped(&self) -> bool {
        matches!(self.state, b'T' | b't')
    }

    /// Whether it has stopped by now, or was sent a signal that stops it and that nobody took back.
    fn is_about_to_stop(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let has_stopped = field("State:").is_none_or(|state| state.starts_with(['T', 't', 'Z', 'X']));
        let pending = field("ShdPnd:").and_then(|mask| u64::from_str_radix(mask, 16).ok());
        // Gone, where there is nothing to read.
        has_stopped || pending.is_none_or(|mask| mask & (1 << (libc::SIGSTOP - 1)) != 0)
    }
}

/// Every process of the machine that we may see, at one moment (or nearly).
fn look() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| read_process(entry.ok()?.file_name().to_str()?.parse().ok()?)).collect()
}

fn read_process(pid: i32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may hold anything, also parentheses.
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    // The 22nd field; the session is the 6th.
    let ticks: u64 = fields.nth(15)?.parse().ok()?;
    Some(Process { pid, parent, session, state, started: ticks * TICK, execution: execution_of(pid) })
}

/// Whether a process has ended, and only waits to be reaped if it is there at all.
pub(crate) fn is_dead(pid: i32) -> bool {
    read_process(pid).is_none_or(|process| process.is_dead())
}

/// Whether there is no process with this number.
pub(crate) fn is_gone(pid: i32) -> bool {
    read_process(pid).is_none()
}

/// Whether a process was stopped by a signal.
pub(crate) fn is_stopped(pid: i32) -> bool {
    read_process(pid).is_some_and(|process| process.state == b'T')
}

/// When a process was started; `None` where it is gone.
pub(crate) fn started(pid: i32) -> Option<BootMillis> {
    read_process(pid).map(|process| process.started)
}

fn execution_of(pid: i32) -> Option<ExecutionId> {
    let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
    environ
        .split(|b| *b == 0)
        .find_map(|var| var.strip_prefix(EXECUTION_VARIABLE.as_bytes())?.strip_prefix(b"="))
        .and_then(|id| str::from_utf8(id).ok()?.parse().ok())
}

/// The living processes of each of `roots`, in their order.
pub(crate) fn members(roots: &[Root]) -> Vec<Vec<Process>> {
    let processes = look();
    let owners = owners(&processes, roots);
    let mut members = vec![Vec::new(); roots.len()];
    for process in processes {
        if let (Some(root), false) = (owners.get(&process.pid), process.is_dead()) {
            members[*root].push(process);
        }
    }
    members
}

/// Which root each process belongs to.
fn owners(processes: &[Process], roots: &[Root]) -> HashMap<i32, usize> {
    let mut owners = HashMap::new();
    let mut sessions = HashMap::new();
    for (index, root) in roots.iter().enumerate() {
        if let Some(pid) = root.pid {
            // A number that was given out again has no session of the task any more.
            if !root.is_reaped {
                owners.insert(pid, index);
                sessions.insert(pid, index);
            } else if processes.iter().all(|p| p.pid != pid) {
                sessions.insert(pid, index);
            }
        }
        owners.extend(root.also.iter().map(|pid| (*pid, index)));
        for pid in root.procs.iter().filter_map(|p| fs::read_to_string(p).ok()).flat_map(|text| pids(&text)) {
            owners.insert(pid, index);
        }
    }
    let by_execution: HashMap<_, _> = roots.iter().enumerate().map(|(i, r)| (r.execution, i)).collect();
    // Until nothing new follows: children of members, and members of members' sessions. Our own
    // session never becomes a task's, since every task leads one of its own.
    loop {
        let before = owners.len();
        for p in processes.iter().filter(|p| p.pid != 1) {
            let marked = p.execution.and_then(|execution| by_execution.get(&execution));
            let found = owners
                .get(&p.pid)
                .or(marked)
                .or_else(|| sessions.get(&p.session))
                .or_else(|| owners.get(&p.parent))
                .copied();
            if let Some(root) = found {
                owners.insert(p.pid, root);
                if p.session == p.pid {
                    sessions.entry(p.pid).or_insert(root);
                }
            }
        }
        if owners.len() == before {
            return owners;
        }
    }
}

pub(crate) fn pids(text: &str) -> Vec<i32> {
    text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Sends `signal` to one process; one that is gone already does not matter.
pub(crate) fn signal_process(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        // ESRCH: it ended meanwhile. EPERM: not ours any more, a set-uid program of a root task.
        kill_process(pid, signal).ok();
    }
}

/// Sends `signal` to all of a process group.
pub(crate) fn signal_group(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        rustix::process::kill_process_group(pid, signal).ok();
    }
}

/// Stops every process of `roots`, until a look finds none that runs without having been told to stop. Returns how
/// many were told.
///
/// One that was stopped may be let go on by another that was not yet, so whoever is seen running is told again.
pub(crate) fn freeze(roots: &[Root]) -> usize {
    let mut signalled = HashSet::new();
    for _ in 0..LOOKS_MAX {
        let running: Vec<_> = members(roots)
            .into_iter()
            .flatten()
            .filter(|p| !p.is_stopped() && (signalled.insert(p.pid) || !p.is_about_to_stop()))
            .collect();
        if running.is_empty() {
            break;
        }
        running.iter().for_each(|p| signal_process(p.pid, Signal::STOP));
    }
    signalled.len()
}

/// Lets every process of `roots` go on.
pub(crate) fn thaw(roots: &[Root]) {
    for process in members(roots).into_iter().flatten() {
        signal_process(process.pid, Signal::CONT);
    }
}

/// Kills every process of `roots`, until a look finds none that was not killed.
///
/// They are dead a moment later; [`members`] says when.
pub(crate) fn kill(roots: &[Root]) {
    let mut signalled = HashSet::new();
    for _ in 0..LOOKS_MAX {
        let new: Vec<_> = members(roots).into_iter().flatten().filter(|p| signalled.insert(p.pid)).collect();
        if new.is_empty() {
            return;
        }
        new.iter().for_each(|p| signal_process(p.pid, Signal::KILL));
    }
}

/// The children of our first thread, or of `all_threads`; `None` where this kernel does not list them.
///
/// Orphans of tasks come to the first thread of their subreaper. Tasks themselves are children of the threads that
/// started them, and so is a process that a task makes with `CLONE_PARENT`.
pub(crate) fn children(all_threads: bool) -> Option<Vec<i32>> {
    let own = std::process::id();
    let of = |thread: &str| fs::read_to_string(format!("/proc/{own}/task/{thread}/children")).ok();
    if !all_threads {
        return of(&own.to_string()).map(|text| pids(&text));
    }
    let threads = fs::read_dir(format!("/proc/{own}/task")).ok()?;
    let threads = threads.filter_map(|thread| thread.ok()?.file_name().into_string().ok());
    let children = threads.map(|thread| of(&thread)).collect::<Option<Vec<_>>>()?;
    Some(children.iter().flat_map(|text| pids(text)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32, session: i32) -> Process {
        Process { pid, parent, session, state: b'S', started: 0, execution: None }
    }

    fn root(bits: u128, pid: i32) -> Root {
        Root { pid: Some(pid), ..Root::of(ExecutionId::from_bits(bits)) }
    }

    #[test]
    fn descent_session_and_environment_each_suffice_to_belong() {
        let daemon = Process { execution: Some(ExecutionId::from_bits(1)), ..process(14, 2, 14) };
        let seen = [
            process(10, 2, 10),  // the main process
            process(11, 10, 10), // its child
            process(12, 11, 12), // a grandchild in a session of its own
            process(13, 2, 12),  // an orphan of that session
            daemon,
            process(15, 14, 15), // a child of the daemon
            process(20, 2, 20),  // another task
            process(30, 2, 30),  // nobody's
        ];
        let owners = owners(&seen, &[root(1, 10), root(2, 20)]);
        let of = |root| {
            let mut pids: Vec<_> = owners.iter().filter(|(_, r)| **r == root).map(|(p, _)| *p).collect();
            pids.sort_unstable();
            pids
        };
        assert_eq!(of(0), [10, 11, 12, 13, 14, 15]);
        assert_eq!(of(1), [20]);
    }

    #[test]
    fn the_number_of_a_process_that_was_reaped_belongs_to_whoever_has_it_next() {
        let reaped = Root { is_reaped: true, ..root(1, 10) };
        let left = [process(12, 2, 10)];
        assert_eq!(owners(&left, std::slice::from_ref(&reaped)).get(&12), Some(&0), "its session is its own");
        let stranger = [process(10, 2, 10), process(11, 10, 10)];
        assert!(owners(&stranger, &[reaped]).is_empty());
    }

    #[test]
    fn a_process_that_is_known_in_another_way_belongs_with_its_children() {
        let known = Root { also: vec![40], ..root(1, 10) };
        let seen = [process(10, 2, 10), process(40, 2, 40), process(41, 40, 40)];
        assert_eq!(owners(&seen, &[known]).len(), 3);
    }

    /// A process that lets another one go on while both are being stopped.
    #[test]
    fn what_is_let_go_on_while_it_is_stopped_is_stopped_again() {
        use std::os::unix::process::CommandExt;
        let script = "sleep 600 & while :; do kill -CONT $!; done";
        let mut child =
            std::process::Command::new("sh").args(["-c", script]).process_group(0).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let roots = [Root { pid: Some(pid), ..Root::of(ExecutionId::from_bits(7)) }];
        while members(&roots)[0].len() < 2 {}
        for _ in 0..20 {
            freeze(&roots);
            let deadline = crate::clock::boot_millis() + 5_000;
            while !members(&roots)[0].iter().all(Process::is_stopped) {
                assert!(crate::clock::boot_millis() < deadline, "one runs on");
            }
            thaw(&roots);
        }
        kill(&roots);
        child.wait().unwrap();
    }

    #[test]
    fn this_very_process_is_seen_with_its_parent() {
        let own = i32::try_from(std::process::id()).unwrap();
        let me = read_process(own).unwrap();
        assert_eq!(me.parent, i32::try_from(std::os::unix::process::parent_id()).unwrap());
        assert!(!me.is_dead() && !me.is_stopped() && !me.is_about_to_stop());
        assert!(me.started > 0 && me.started <= crate::clock::boot_millis());
    }
}
