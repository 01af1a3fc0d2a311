//! Measures the CPU time, memory and I/O of running executions.
//!
//! The processes of an execution are those of its control group, or those that a scan of `/proc` finds. CPU time and memory
//! come from the group where its controllers count them, and from the single processes otherwise.
//!
//! - CPU time of a process includes its ended children. The time of a child that ended after its parent is missing.
//! - Memory of several processes is the resident memory of the largest one, plus the anonymous memory of the others: a sum of
//!   resident memory would count shared pages for each process. Memory of a group is without inactive file pages, which the
//!   kernel frees when it needs memory (the *working set* of Kubernetes).
//!
//! # Cost
//! Three small files for each process, about 30 µs. Executions without a group cost one scan of `/proc` together.

use std::fs;

use model::ExecutionId;

use super::cgroup::GroupPaths;
use super::tree::{self, Root};

/// Milliseconds per tick of `/proc/<pid>/stat`; the same on all supported platforms.
const TICK: u64 = 10;

/// An execution to measure.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) root: Root,
    /// Its control group, if it has one.
    pub(crate) group: Option<GroupPaths>,
}

/// CPU time of an execution, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CpuTime {
    /// Time of its processes since the start of the execution.
    of_processes: u64,
    /// Time of its control group, if it is counted. It is more exact, and includes earlier executions in the group.
    of_group: Option<u64>,
}

impl CpuTime {
    pub(crate) fn new(of_processes: u64, of_group: Option<u64>) -> Self {
        Self { of_processes, of_group }
    }

    /// Returns the CPU time since an earlier measurement; `CpuTime::default()` is that at the start.
    pub(crate) fn since(self, earlier: Self) -> u64 {
        match (self.of_group, earlier.of_group) {
            (Some(now), Some(before)) => now.saturating_sub(before),
            // A sum over processes is smaller than before if one has ended and its parent did not wait for it.
            _ => self.of_processes.saturating_sub(earlier.of_processes),
        }
    }
}

/// What an execution has used until now, and uses now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Measurement {
    pub(crate) cpu: CpuTime,
    pub(crate) memory_bytes: u64,
    /// Peak memory of the main process.
    pub(crate) peak_memory_bytes: u64,
    /// Bytes that were read from disks and written to disks.
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) processes: u32,
}

/// Measures executions; those without a living process are left out.
pub(crate) fn measure(targets: &[Target]) -> Vec<(ExecutionId, Measurement)> {
    let without_group: Vec<Root> =
        targets.iter().filter(|target| target.group.is_none()).map(|target| target.root.clone()).collect();
    let mut scanned =
        if without_group.is_empty() { Vec::new() } else { tree::members(&without_group) }.into_iter();
    let measured = targets.iter().filter_map(|target| {
        let pids = match &target.group {
            Some(group) => tree::pids(&fs::read_to_string(group.procs()?).ok()?),
            None => scanned.next()?.into_iter().map(|process| process.pid).collect(),
        };
        Some((target.root.execution, measure_one(target, &pids)?))
    });
    measured.collect()
}

fn measure_one(target: &Target, pids: &[i32]) -> Option<Measurement> {
    let processes: Vec<_> = pids.iter().filter_map(|pid| ProcessUsage::read(*pid)).collect();
    let main = processes.iter().zip(pids).find(|(_, pid)| Some(**pid) == target.root.pid);
    let of_group = |read: fn(&GroupPaths) -> Option<u64>| target.group.as_ref().and_then(read);
    let sum = |part: fn(&ProcessUsage) -> u64| processes.iter().map(part).sum::<u64>();
    let alive = processes.iter().filter(|process| process.memory.resident > 0).count();
    let cpu = CpuTime::new(sum(|process| process.cpu_micros), of_group(GroupPaths::cpu_micros));
    (!processes.is_empty()).then(|| Measurement {
        cpu,
        memory_bytes: of_group(GroupPaths::memory_bytes).unwrap_or_else(|| memory(&processes)),
        peak_memory_bytes: main.map_or(0, |(process, _)| process.memory.peak),
        read_bytes: sum(|process| process.io.0),
        written_bytes: sum(|process| process.io.1),
        processes: u32::try_from(alive).unwrap_or(u32::MAX),
    })
}

/// Returns the memory of several processes; see the module.
fn memory(processes: &[ProcessUsage]) -> u64 {
    let anonymous: u64 = processes.iter().map(|process| process.memory.anonymous).sum();
    let largest = processes.iter().max_by_key(|process| process.memory.resident);
    anonymous + largest.map_or(0, |process| process.memory.resident - process.memory.anonymous)
}

/// What one process uses.
#[derive(Debug)]
struct ProcessUsage {
    cpu_micros: u64,
    memory: ProcessMemory,
    /// Bytes read and written; 0 if this user may not read them.
    io: (u64, u64),
}

/// Memory of one process in bytes.
#[derive(Debug, PartialEq, Eq, Default)]
struct ProcessMemory {
    resident: u64,
    /// At most `resident`.
    anonymous: u64,
    peak: u64,
}

impl ProcessUsage {
    /// Returns `None` if the process has ended.
    fn read(pid: i32) -> Option<Self> {
        let read = |file| tree::read_text(pid, file);
        Some(Self {
            cpu_micros: cpu_micros(&read("stat")?)?,
            // One that has ended and whose parent has not waited for it has no memory, but its CPU time still counts.
            memory: process_memory(&read("status")?).unwrap_or_default(),
            io: read("io").map_or((0, 0), |text| io_bytes(&text)),
        })
    }
}

/// Returns the CPU time in `/proc/<pid>/stat`, with that of ended children.
fn cpu_micros(stat: &str) -> Option<u64> {
    // The name is in parentheses and may contain any characters, including parentheses.
    let fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    // utime, stime, cutime and cstime are the fields 14 to 17; the state is field 3.
    let ticks = fields.skip(11).take(4).map(|field| field.parse::<u64>().unwrap_or(0));
    Some(ticks.sum::<u64>() * TICK * 1_000)
}

/// Returns the memory in `/proc/<pid>/status`; `None` for a process that has ended, which has no memory.
fn process_memory(status: &str) -> Option<ProcessMemory> {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
    };
    let resident = field("VmRSS:")?;
    Some(ProcessMemory {
        resident,
        anonymous: field("RssAnon:").unwrap_or(resident).min(resident),
        peak: field("VmHWM:").unwrap_or(resident),
    })
}

/// Returns the bytes read from and written to disks in `/proc/<pid>/io`.
fn io_bytes(io: &str) -> (u64, u64) {
    let field = |name: &str| {
        io.lines().find_map(|line| line.strip_prefix(name)).and_then(|n| n.trim().parse().ok()).unwrap_or(0)
    };
    (field("read_bytes:"), field("write_bytes:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(resident: u64, anonymous: u64) -> ProcessUsage {
        let memory = ProcessMemory { resident, anonymous, peak: resident };
        ProcessUsage { cpu_micros: 0, memory, io: (0, 0) }
    }

    #[test]
    fn cpu_time_includes_ended_children() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 1 2 3 4 10 20 30 40 20 0 1 0 99";
        assert_eq!(cpu_micros(stat), Some(1_000_000));
    }

    #[test]
    fn the_time_of_a_group_counts_between_two_measurements_of_it() {
        let (first, second) = (CpuTime::new(10, Some(5_000)), CpuTime::new(30, Some(5_070)));
        assert_eq!(first.since(CpuTime::default()), 10, "the group has time of earlier executions");
        assert_eq!(second.since(first), 70);
        assert_eq!(CpuTime::new(7, None).since(second), 0, "a process has ended unseen");
    }

    #[test]
    fn shared_pages_are_counted_once() {
        assert_eq!(memory(&[of(100, 30), of(80, 25), of(10, 1)]), 100 + 25 + 1);
        assert_eq!(memory(&[]), 0);
    }

    #[test]
    fn memory_of_an_ended_process_is_unknown() {
        let status = "Name:\tx\nVmHWM:\t    2000 kB\nVmRSS:\t    1000 kB\nRssAnon:\t     300 kB\n";
        let expected = ProcessMemory { resident: 1_024_000, anonymous: 307_200, peak: 2_048_000 };
        assert_eq!(process_memory(status), Some(expected));
        assert_eq!(process_memory("Name:\tx\nState:\tZ (zombie)\n"), None);
    }

    #[test]
    fn only_bytes_of_disks_are_counted() {
        let io = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 9\n";
        assert_eq!(io_bytes(io), (4096, 8192));
    }

    #[test]
    fn an_execution_without_a_group_is_measured_by_its_processes() {
        let own = i32::try_from(std::process::id()).unwrap();
        let id = ExecutionId::from_bits(5);
        let target = Target { root: Root { pid: Some(own), ..Root::of(id) }, group: None };
        let measured = measure(&[target]);
        let [(execution, measurement)] = measured.as_slice() else { panic!("{measured:?}") };
        assert_eq!(*execution, id);
        assert!(measurement.memory_bytes > 0 && measurement.processes > 0);
        assert!(measurement.peak_memory_bytes > 0);
        let gone = Root { is_reaped: true, ..Root::of(ExecutionId::from_bits(6)) };
        assert!(measure(&[Target { root: gone, group: None }]).is_empty());
    }
}
