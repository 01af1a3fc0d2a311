//! Health of the worker's machine: CPU use, available memory and disk space, as sent in heartbeats.

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

/// Measures the health of the machine. CPU use is the average since the last sample, and 0 before the first one.
#[derive(Debug)]
pub(super) struct Probe {
    dir: PathBuf,
    cpu: CpuUse,
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
        Self { dir: dir.to_owned(), cpu }
    }

    pub(super) fn sample(&mut self, running: u32) -> Health {
        let room = DiskSpace::at(&self.dir);
        Health {
            cpu_used_millis: self.cpu.until((boot_millis(), busy_ticks())),
            memory_available_bytes: fs::read_to_string("/proc/meminfo")
                .map_or(0, |text| meminfo(&text, "MemAvailable")),
            disk_available_bytes: room.map_or(0, |room| room.available),
            running,
            problem: problem(room).unwrap_or_default().to_owned(),
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
fn problem(room: Option<DiskSpace>) -> Option<&'static str> {
    room.is_none_or(DiskSpace::is_almost_full).then_some("disk almost full")
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
    fn this_machine_can_be_measured() {
        let health = Probe::new(Path::new("/")).sample(3);
        assert!(health.memory_available_bytes > 0 && health.disk_available_bytes > 0 && health.running == 3);
    }
}
