//! Health of the worker's machine: CPU use, available memory and disk space, as sent in heartbeats.
//!
//! A worker is unhealthy, and gets no new executions, while its disk is almost full or its memory is almost exhausted. Memory
//! counts as exhausted if little is available, or if tasks wait for it: then the kernel reclaims pages that are in use again
//! soon (`/proc/pressure/memory`). CPU pressure makes no worker unhealthy: CPU can be shared, memory cannot.

use std::fs;
use std::path::{Path, PathBuf};

use proto::v1::Health;

use crate::clock::{BootMillis, boot_millis};
use crate::config::meminfo;
use crate::disk::DiskSpace;

/// Ticks of `/proc/stat` per second; the same on all supported platforms.
const TICKS_A_SECOND: u64 = 100;
/// Minimum duration of a CPU measurement in milliseconds; below it, single ticks would dominate the result.
const CPU_SPAN_MIN: BootMillis = 500;

/// Share of the memory that must be available, in percent: below the first value the memory is almost exhausted, and it stays so
/// until the second one is available.
const MEMORY_LOW_PERCENT: u64 = 2;
const MEMORY_ENOUGH_PERCENT: u64 = 4;
/// Share of the last 10 seconds in which all tasks waited for memory, in percent: from the first value on the memory is almost
/// exhausted, and it stays so until the share is below the second one.
const PRESSURE_HIGH_PERCENT: f64 = 20.0;
const PRESSURE_LOW_PERCENT: f64 = 5.0;

/// Measures the health of the machine. CPU use is the average since the last sample, and 0 before the first one.
#[derive(Debug)]
pub(super) struct Probe {
    dir: PathBuf,
    cpu: CpuUse,
    memory: MemoryState,
}

/// Whether the memory is almost exhausted.
#[derive(Debug, Default)]
struct MemoryState {
    is_exhausted: bool,
}

impl MemoryState {
    /// Updates the state. `stalled_percent` is the share of time in which all tasks waited for memory, if the kernel tells it.
    fn update(&mut self, available: u64, total: u64, stalled_percent: Option<f64>) -> bool {
        let (free, stalled) = match self.is_exhausted {
            false => (MEMORY_LOW_PERCENT, PRESSURE_HIGH_PERCENT),
            true => (MEMORY_ENOUGH_PERCENT, PRESSURE_LOW_PERCENT),
        };
        // A machine whose memory is unknown has no problem.
        let is_low = total > 0 && available < total / 100 * free;
        self.is_exhausted = is_low || stalled_percent.is_some_and(|percent| percent >= stalled);
        self.is_exhausted
    }
}

#[derive(Debug)]
struct CpuUse {
    /// Start of the current measurement, and the busy ticks at that time.
    since: (BootMillis, u64),
    /// CPU use in the last measurement, in thousandths of a core.
    millis: u32,
}

impl CpuUse {
    fn until(&mut self, now: (BootMillis, u64)) -> u32 {
        if now.0.saturating_sub(self.since.0) >= CPU_SPAN_MIN {
            self.millis = cpu_millis(std::mem::replace(&mut self.since, now), now);
        }
        self.millis
    }
}

impl Probe {
    pub(super) fn new(dir: &Path) -> Self {
        let cpu = CpuUse { since: (boot_millis(), busy_ticks()), millis: 0 };
        Self { dir: dir.to_owned(), cpu, memory: MemoryState::default() }
    }

    pub(super) fn sample(&mut self, running: u32) -> Health {
        let room = DiskSpace::at(&self.dir);
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let available = meminfo(&memory, "MemAvailable");
        let stalled =
            fs::read_to_string("/proc/pressure/memory").ok().and_then(|text| stalled_percent(&text));
        let is_exhausted = self.memory.update(available, meminfo(&memory, "MemTotal"), stalled);
        Health {
            cpu_used_millis: self.cpu.until((boot_millis(), busy_ticks())),
            memory_available_bytes: available,
            disk_available_bytes: room.map_or(0, |room| room.available),
            running,
            problem: problem(room, is_exhausted).unwrap_or_default().to_owned(),
        }
    }
}

/// Returns the CPU use between two samples, in thousandths of a core.
fn cpu_millis(before: (BootMillis, u64), now: (BootMillis, u64)) -> u32 {
    let elapsed = now.0.saturating_sub(before.0).max(1);
    let busy_millis = now.1.saturating_sub(before.1) * 1_000 / TICKS_A_SECOND;
    u32::try_from(busy_millis * 1_000 / elapsed).unwrap_or(u32::MAX)
}

fn busy_ticks() -> u64 {
    fs::read_to_string("/proc/stat").map_or(0, |text| busy(&text))
}

/// Returns the ticks of all cores that were neither idle nor waiting for I/O.
fn busy(stat: &str) -> u64 {
    let Some(line) = stat.lines().next().and_then(|line| line.strip_prefix("cpu ")) else { return 0 };
    let ticks = line.split_ascii_whitespace().take(8).filter_map(|field| field.parse::<u64>().ok());
    ticks.enumerate().filter(|(field, _)| !matches!(field, 3 | 4)).map(|(_, ticks)| ticks).sum()
}

/// A disk that cannot be measured counts as full.
fn problem(room: Option<DiskSpace>, is_memory_exhausted: bool) -> Option<&'static str> {
    let disk = room.is_none_or(DiskSpace::is_almost_full).then_some("disk almost full");
    disk.or_else(|| is_memory_exhausted.then_some("memory almost exhausted"))
}

/// Returns the share of the last 10 seconds in which all tasks waited, in percent, from a file of `/proc/pressure`.
fn stalled_percent(pressure: &str) -> Option<f64> {
    let line = pressure.lines().find_map(|line| line.strip_prefix("full avg10="))?;
    line.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_is_the_share_of_cores_that_was_busy() {
        assert_eq!(busy("cpu  10 1 5 1000 100 2 3 4 50 60\ncpu0 1 2 3\n"), 25);
        assert_eq!(cpu_millis((0, 0), (2_000, 300)), 1_500);
        assert_eq!(cpu_millis((5, 7), (5, 7)), 0);
    }

    #[test]
    fn cpu_is_not_measured_over_less_than_half_a_second() {
        let mut cpu = CpuUse { since: (1_000, 0), millis: 0 };
        assert_eq!(cpu.until((1_001, 1)), 0, "a tick in a millisecond would be ten cores");
        assert_eq!(cpu.until((2_000, 50)), 500);
        assert_eq!(cpu.until((2_010, 52)), 500);
        assert_eq!(cpu.until((4_000, 50)), 0);
    }

    #[test]
    fn memory_is_exhausted_until_clearly_more_is_available() {
        let mut memory = MemoryState::default();
        let states = [50, 20, 19, 39, 41, 30].map(|available| memory.update(available, 1_000, None));
        assert_eq!(states, [false, false, true, true, false, false]);
        assert!(!memory.update(0, 0, None), "unknown");
    }

    #[test]
    fn tasks_that_wait_for_memory_exhaust_it_until_they_hardly_do() {
        let mut memory = MemoryState::default();
        let states =
            [0.0, 19.9, 20.0, 10.0, 5.0, 4.9, 10.0].map(|stalled| memory.update(500, 1_000, Some(stalled)));
        assert_eq!(states, [false, false, true, true, true, false, false]);
        let pressure = "some avg10=9.50 avg60=1.00 avg300=0.00 total=1\nfull avg10=7.25 avg60=0.10 avg300=0.00 total=1\n";
        assert_eq!(stalled_percent(pressure), Some(7.25));
        assert_eq!(stalled_percent(""), None);
    }

    #[test]
    fn this_machine_can_be_measured() {
        let health = Probe::new(Path::new("/")).sample(3);
        assert!(health.memory_available_bytes > 0 && health.disk_available_bytes > 0 && health.running == 3);
    }
}
