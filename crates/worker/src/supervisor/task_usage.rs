//! What was measured of one task: its current use, and the statistics for the report of its end.

use std::collections::BTreeMap;

use proto::v1;
use supervisor::BootMillis;

use crate::process::usage::{CpuTime, Measurement};

/// Minimum time over which CPU use is measured, in milliseconds; below it, single ticks would dominate the result.
const CPU_SPAN_MIN: BootMillis = 1_000;
/// Ratio between the bounds of a bucket of a histogram.
const BUCKET_RATIO: f64 = 1.05;

/// What was measured of one task.
#[derive(Debug, Default)]
pub(super) struct TaskUsage {
    /// The last measurement, and its time.
    last: Option<(BootMillis, Measurement)>,
    measurements: u32,
    memory_sum: u128,
    memory: Histogram,
    memory_max: u64,
    cpu: Histogram,
    cpu_max: u32,
}

impl TaskUsage {
    /// Adds a measurement of a task that was started at `started`; returns the current use, or `None` if the task has just
    /// started.
    pub(super) fn add(
        &mut self,
        started: BootMillis,
        at: BootMillis,
        now: Measurement,
    ) -> Option<v1::ExecutionUsage> {
        let at_start = Measurement { cpu: CpuTime::default(), read_bytes: 0, written_bytes: 0, ..now };
        let (then, before) = self.last.unwrap_or((started, at_start));
        let millis = at.saturating_sub(then);
        if millis < CPU_SPAN_MIN {
            self.memory_max = self.memory_max.max(now.memory_bytes).max(now.peak_memory_bytes);
            return None;
        }
        let per_second = |amount: u64| amount.saturating_mul(1_000) / millis;
        // Microseconds in a second are thousandths of a core times 1,000.
        let cpu = per_second(now.cpu.since(before.cpu)) / 1_000;
        let cpu_millis = u32::try_from(cpu).unwrap_or(u32::MAX);
        self.cpu.add(cpu);
        self.cpu_max = self.cpu_max.max(cpu_millis);
        self.measurements += 1;
        self.memory_sum += u128::from(now.memory_bytes);
        self.memory.add(now.memory_bytes);
        self.memory_max = self.memory_max.max(now.memory_bytes).max(now.peak_memory_bytes);
        self.last = Some((at, now));
        Some(v1::ExecutionUsage {
            cpu_millis,
            memory_bytes: now.memory_bytes,
            read_bytes_per_second: per_second(now.read_bytes.saturating_sub(before.read_bytes)),
            written_bytes_per_second: per_second(now.written_bytes.saturating_sub(before.written_bytes)),
            processes: now.processes,
            ..v1::ExecutionUsage::default()
        })
    }

    /// CPU time until the last measurement, in milliseconds.
    pub(super) fn cpu_millis(&self) -> u64 {
        self.last.map_or(0, |(_, last)| last.cpu.since(CpuTime::default()) / 1_000)
    }

    /// Peak memory that was measured, in bytes.
    pub(super) fn peak_memory(&self) -> u64 {
        self.memory_max
    }

    /// Returns the statistics for the report of the end; `None` if nothing was measured.
    pub(super) fn summary(&self) -> Option<v1::MeasuredUsage> {
        let (_, last) = self.last?;
        let mean = self.memory_sum / u128::from(self.measurements.max(1));
        Some(v1::MeasuredUsage {
            measurements: self.measurements,
            cpu_p95_millis: u32::try_from(self.cpu.p95()).unwrap_or(u32::MAX).min(self.cpu_max),
            cpu_max_millis: self.cpu_max,
            memory_mean_bytes: u64::try_from(mean).unwrap_or(u64::MAX),
            memory_p95_bytes: self.memory.p95().min(self.memory_max),
            read_bytes: last.read_bytes,
            written_bytes: last.written_bytes,
        })
    }
}

/// Counts of values in buckets whose bounds grow by 5 %.
#[derive(Debug, Default)]
struct Histogram {
    buckets: BTreeMap<u16, u32>,
    count: u32,
}

impl Histogram {
    fn add(&mut self, value: u64) {
        // Zero and one are in the first bucket; casts of floats saturate.
        let bucket = (value.max(1) as f64).log(BUCKET_RATIO).ceil() as u16;
        *self.buckets.entry(bucket).or_default() += 1;
        self.count += 1;
    }

    /// Returns the upper bound of the bucket with the 95th percentile; 0 without values.
    fn p95(&self) -> u64 {
        let rank = (u64::from(self.count) * 95).div_ceil(100);
        let mut seen = 0;
        let bucket = self.buckets.iter().find(|(_, count)| {
            seen += u64::from(**count);
            seen >= rank
        });
        bucket.map_or(0, |(bucket, _)| BUCKET_RATIO.powi(i32::from(*bucket)) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurement(cpu_micros: u64, memory_bytes: u64) -> Measurement {
        Measurement {
            cpu: CpuTime::new(cpu_micros, None),
            memory_bytes,
            peak_memory_bytes: memory_bytes,
            read_bytes: cpu_micros,
            written_bytes: 2 * cpu_micros,
            processes: 1,
        }
    }

    #[test]
    fn cpu_and_io_are_rates_since_the_last_measurement() {
        let mut usage = TaskUsage::default();
        let first = usage.add(1_000, 5_000, measurement(2_000_000, 100)).unwrap();
        assert_eq!((first.cpu_millis, first.read_bytes_per_second), (500, 500_000), "since the start");
        let second = usage.add(1_000, 9_000, measurement(10_000_000, 300)).unwrap();
        assert_eq!((second.cpu_millis, second.written_bytes_per_second), (2_000, 4_000_000));
        let third = usage.add(1_000, 14_000, measurement(4_000_000, 200)).unwrap();
        assert_eq!(third.cpu_millis, 0, "a process has ended unseen");
        let summary = usage.summary().unwrap();
        assert_eq!((summary.measurements, summary.cpu_max_millis), (3, 2_000));
        assert_eq!((summary.memory_mean_bytes, summary.read_bytes), (200, 4_000_000));
        assert_eq!(usage.peak_memory(), 300);
    }

    #[test]
    fn a_percentile_is_at_most_five_percent_too_high() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.p95(), 0);
        (1..=1_000_u64).for_each(|value| histogram.add(value * 1_000_000));
        let p95 = histogram.p95();
        assert!((950_000_000..=997_500_000).contains(&p95), "{p95}");
        (0..30_000).for_each(|_| histogram.add(0));
        assert_eq!(histogram.p95(), 1);
    }

    #[test]
    fn a_task_that_has_just_started_is_not_measured_yet() {
        let mut usage = TaskUsage::default();
        assert_eq!(usage.add(1_000, 1_900, measurement(900_000, 700)), None);
        assert_eq!((usage.summary(), usage.peak_memory()), (None, 700));
        assert_eq!(usage.add(1_000, 6_000, measurement(5_000_000, 100)).unwrap().cpu_millis, 1_000);
    }

    #[test]
    fn an_unmeasured_task_has_no_summary() {
        assert_eq!(TaskUsage::default().summary(), None);
    }
}
