//! All processes of an execution, to freeze, thaw or kill them together.
//!
//! A task may fork freely. Its processes are found by several marks, which survive different ways of escaping: the
//! session, the parent, the control group if there is one, and `BELFRY_EXECUTION_ID` in the environment. A daemon
//! that forked twice and opened its own session still has the variable. Processes of containers have the id in the
//! path of their control group, which comes before the variable. Because a process may fork during a scan,
//! freezing and killing repeat the scan until it finds no new process.
//!
//! A scan reads all of `/proc` (about 20 µs per process). So it is used only for tasks that leave processes behind,
//! and in emergencies; an ordinary end only reads [`children`].

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::PathBuf;

use model::ExecutionId;
use rustix::process::{Pid, Signal, kill_process};

use crate::clock::BootMillis;

/// Environment variable with the id of the execution.
pub(crate) const EXECUTION_VARIABLE: &str = "BELFRY_EXECUTION_ID";
/// Milliseconds per tick of `/proc/<pid>/stat`; the same on all supported platforms.
const TICK: u64 = 10;
/// Maximum number of scans in one freeze or kill; the caller handles the rest.
const SCANS_MAX: usize = 64;

/// Marks of the processes of one execution.
#[derive(Debug, Clone)]
pub(crate) struct Root {
    pub(crate) execution: ExecutionId,
    /// Main process, the leader of the task's session, if it is known.
    pub(crate) pid: Option<i32>,
    /// Whether the main process was reaped; only its session has that id then.
    pub(crate) is_reaped: bool,
    /// `cgroup.procs` file that lists the processes of the execution, if it has a control group.
    pub(crate) procs: Option<PathBuf>,
    /// Processes that are known to belong to the execution for other reasons.
    pub(crate) extra_pids: Vec<i32>,
    /// Whether another program starts processes of the execution, in control groups with its id in their path.
    pub(crate) is_foreign: bool,
}

impl Root {
    /// Returns a root with no mark except the execution id.
    pub(crate) fn of(execution: ExecutionId) -> Self {
        Self {
            execution,
            pid: None,
            is_reaped: false,
            procs: None,
            extra_pids: Vec::new(),
            is_foreign: false,
        }
    }
}

/// One process, as found by a scan.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    parent: i32,
    session: i32,
    state: u8,
    /// Start time in milliseconds since boot, with a resolution of 10 ms.
    pub(crate) started: BootMillis,
    execution: Option<ExecutionId>,
}

impl Process {
    /// Returns whether the process has ended and is not reaped yet.
    fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }

    fn is_stopped(&self) -> bool {
        matches!(self.state, b'T' | b't')
    }

    /// Returns whether the process has stopped, or has a pending SIGSTOP.
    fn is_about_to_stop(&self) -> bool {
        let status = read_text(self.pid, "status").unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let has_stopped = field("State:").is_none_or(|state| state.starts_with(['T', 't', 'Z', 'X']));
        let pending = field("ShdPnd:").and_then(|mask| u64::from_str_radix(mask, 16).ok());
        // If the file cannot be read, the process has ended.
        has_stopped || pending.is_none_or(|mask| mask & (1 << (libc::SIGSTOP - 1)) != 0)
    }
}

/// Scans all visible processes of the machine; the result is nearly a snapshot. Reads their control groups too if `with_groups`.
fn scan(with_groups: bool) -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let read = |pid| {
        let mut process = read_process(pid)?;
        if with_groups {
            // A process chooses its environment, but not its control group.
            process.execution = execution_of_group(pid).or(process.execution);
        }
        Some(process)
    };
    entries.filter_map(|entry| read(entry.ok()?.file_name().to_str()?.parse().ok()?)).collect()
}

/// Reads a file of a process. The name of the program in it may end within a character, because the kernel cuts it.
pub(super) fn read_text(pid: i32, file: &str) -> Option<String> {
    fs::read(format!("/proc/{pid}/{file}")).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn read_process(pid: i32) -> Option<Process> {
    let stat = read_text(pid, "stat")?;
    // The name is in parentheses and may contain any characters, including parentheses.
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    // The start time is field 22; the session is field 6.
    let ticks: u64 = fields.nth(15)?.parse().ok()?;
    Some(Process { pid, parent, session, state, started: ticks * TICK, execution: execution_of(pid) })
}

/// Returns whether a process has ended; also if it is reaped already.
pub(crate) fn is_dead(pid: i32) -> bool {
    read_process(pid).is_none_or(|process| process.is_dead())
}

/// Returns whether no process with this id exists.
pub(crate) fn is_gone(pid: i32) -> bool {
    read_process(pid).is_none()
}

/// Returns whether a process was stopped by a signal.
pub(crate) fn is_stopped(pid: i32) -> bool {
    read_process(pid).is_some_and(|process| process.state == b'T')
}

/// Start time of a process in milliseconds since boot; `None` if the process does not exist.
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

/// Returns the execution whose id is a part of the path of the control group of a process.
fn execution_of_group(pid: i32) -> Option<ExecutionId> {
    execution_in(&read_text(pid, "cgroup")?)
}

/// A container engine names the group `exe_…`, or `belfry-exe_….slice` under systemd.
fn execution_in(groups: &str) -> Option<ExecutionId> {
    groups.split(['/', '\n']).find_map(|part| {
        let part = part.strip_prefix("belfry-").unwrap_or(part);
        part.strip_suffix(".slice").unwrap_or(part).parse().ok()
    })
}

/// Returns the living processes of each of `roots`, in their order.
pub(crate) fn members(roots: &[Root]) -> Vec<Vec<Process>> {
    let processes = scan(roots.iter().any(|root| root.is_foreign));
    let owners = owners(&processes, roots);
    let mut members = vec![Vec::new(); roots.len()];
    for process in processes {
        if let (Some(root), false) = (owners.get(&process.pid), process.is_dead()) {
            members[*root].push(process);
        }
    }
    members
}

/// Maps each process to the index of the root that it belongs to.
fn owners(processes: &[Process], roots: &[Root]) -> HashMap<i32, usize> {
    let mut owners = HashMap::new();
    let mut sessions = HashMap::new();
    for (index, root) in roots.iter().enumerate() {
        if let Some(pid) = root.pid {
            // An id that was reused is no session of the task any more.
            if !root.is_reaped {
                owners.insert(pid, index);
                sessions.insert(pid, index);
            } else if processes.iter().all(|p| p.pid != pid) {
                sessions.insert(pid, index);
            }
        }
        owners.extend(root.extra_pids.iter().map(|pid| (*pid, index)));
        for pid in root.procs.iter().filter_map(|p| fs::read_to_string(p).ok()).flat_map(|text| pids(&text)) {
            owners.insert(pid, index);
        }
    }
    let by_execution: HashMap<_, _> = roots.iter().enumerate().map(|(i, r)| (r.execution, i)).collect();
    // Repeat until no process is added: children of members, and processes in sessions of members. The supervisor's
    // own session never belongs to a task, because every task leads its own.
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

/// Sends `signal` to one process; ignores a process that has ended.
pub(crate) fn signal_process(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        // ESRCH: it has ended. EPERM: it has another user now, as a set-uid program of a root task.
        kill_process(pid, signal).ok();
    }
}

/// Sends `signal` to all processes of a process group.
pub(crate) fn signal_group(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        rustix::process::kill_process_group(pid, signal).ok();
    }
}

/// Stops all processes of `roots`, until a scan finds no running process without a pending stop. Returns the number
/// of processes that got the signal.
///
/// A process that was stopped may be continued by another one that was not stopped yet. So each process that is seen
/// running gets the signal again.
pub(crate) fn freeze(roots: &[Root]) -> usize {
    let mut signalled = HashSet::new();
    for _ in 0..SCANS_MAX {
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

/// Continues all processes of `roots`.
pub(crate) fn thaw(roots: &[Root]) {
    for process in members(roots).into_iter().flatten() {
        signal_process(process.pid, Signal::CONT);
    }
}

/// Kills all processes of `roots`, until a scan finds no new one.
///
/// They are dead a moment later; use [`members`] to check.
pub(crate) fn kill(roots: &[Root]) {
    let mut signalled = HashSet::new();
    for _ in 0..SCANS_MAX {
        let new: Vec<_> = members(roots).into_iter().flatten().filter(|p| signalled.insert(p.pid)).collect();
        if new.is_empty() {
            return;
        }
        new.iter().for_each(|p| signal_process(p.pid, Signal::KILL));
    }
}

/// Children of the supervisor's first thread, or of `all_threads`; `None` if the kernel does not list children.
///
/// Orphans of tasks become children of the first thread of their subreaper. Tasks themselves are children of the
/// threads that started them, and so is a process that a task creates with `CLONE_PARENT`.
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
    fn parent_session_or_environment_identify_a_process() {
        let daemon = Process { execution: Some(ExecutionId::from_bits(1)), ..process(14, 2, 14) };
        let seen = [
            process(10, 2, 10),  // the main process
            process(11, 10, 10), // its child
            process(12, 11, 12), // a grandchild in a session of its own
            process(13, 2, 12),  // an orphan of that session
            daemon,
            process(15, 14, 15), // a child of the daemon
            process(20, 2, 20),  // another task
            process(30, 2, 30),  // not of a task
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
    fn a_reused_process_id_does_not_belong_to_the_task() {
        let reaped = Root { is_reaped: true, ..root(1, 10) };
        let left = [process(12, 2, 10)];
        assert_eq!(owners(&left, std::slice::from_ref(&reaped)).get(&12), Some(&0), "its session is its own");
        let stranger = [process(10, 2, 10), process(11, 10, 10)];
        assert!(owners(&stranger, &[reaped]).is_empty());
    }

    #[test]
    fn an_extra_process_belongs_to_the_root_with_its_children() {
        let known = Root { extra_pids: vec![40], ..root(1, 10) };
        let seen = [process(10, 2, 10), process(40, 2, 40), process(41, 40, 40)];
        assert_eq!(owners(&seen, &[known]).len(), 3);
    }

    /// A process that continues another one while both are being stopped.
    #[test]
    fn a_process_continued_during_a_freeze_is_stopped_again() {
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
                assert!(crate::clock::boot_millis() < deadline, "one still runs");
            }
            thaw(&roots);
        }
        kill(&roots);
        child.wait().unwrap();
    }

    /// The kernel keeps 15 bytes of the name, which may end within a character.
    #[test]
    fn a_process_with_a_cut_name_is_found_and_killed() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("a数据处理程序");
        fs::copy("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(&program).arg("600").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert!(!is_dead(pid) && !is_gone(pid));
        let roots = [Root { pid: Some(pid), ..Root::of(ExecutionId::from_bits(8)) }];
        assert_eq!(members(&roots)[0].len(), 1);
        kill(&roots);
        child.wait().unwrap();
    }

    #[test]
    fn the_test_process_is_read_with_its_parent() {
        let own = i32::try_from(std::process::id()).unwrap();
        let me = read_process(own).unwrap();
        assert_eq!(me.parent, i32::try_from(std::os::unix::process::parent_id()).unwrap());
        assert!(!me.is_dead() && !me.is_stopped() && !me.is_about_to_stop());
        assert!(me.started > 0 && me.started <= crate::clock::boot_millis());
    }
}
