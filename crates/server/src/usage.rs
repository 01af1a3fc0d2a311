//! What running executions use, as their workers measure it.
//!
//! Workers send their measurements with heartbeats, to the leader. [`UsageTable`] keeps the newest ones of each execution in
//! memory; after a change of leader it is empty until the next heartbeats. Statistics of ended executions are in the store.
//!
//! # Cost
//! One entry of at most 3 KiB for each running execution that was measured. A batch takes O(executions of the worker).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use model::api::UsageSample;
use model::{ExecutionId, JobId, WorkerId};

/// Number of measurements that are kept for each execution: 5 minutes with the usual interval.
const SAMPLES_MAX: usize = 60;
/// Most executions of one worker that are kept.
const EXECUTIONS_MAX: usize = 10_000;
/// Age from which the measurements of a worker are no longer current: its heartbeats are missing.
const AGE_MAX: Duration = Duration::from_secs(60);

/// Measurement of one execution, as its worker sends it.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    pub(crate) execution: ExecutionId,
    pub(crate) job: JobId,
    pub(crate) sample: UsageSample,
}

/// Newest measurements of all running executions.
#[derive(Debug, Default)]
pub struct UsageTable {
    workers: Mutex<BTreeMap<WorkerId, WorkerUsage>>,
}

#[derive(Debug)]
struct WorkerUsage {
    received: Instant,
    executions: HashMap<ExecutionId, Series>,
}

#[derive(Debug)]
struct Series {
    job: JobId,
    /// At least one, oldest first.
    samples: VecDeque<UsageSample>,
}

/// The newest measurement of an execution.
#[derive(Debug, Clone)]
pub(crate) struct Current {
    pub(crate) worker: WorkerId,
    pub(crate) execution: ExecutionId,
    pub(crate) job: JobId,
    pub(crate) sample: UsageSample,
}

impl UsageTable {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<WorkerId, WorkerUsage>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the measurements of all running executions of a worker.
    pub(crate) fn record(&self, worker: WorkerId, batch: Vec<Measured>) {
        let mut workers = self.lock();
        workers.retain(|_, usage| usage.received.elapsed() < AGE_MAX);
        let mut before = workers.remove(&worker).map(|usage| usage.executions).unwrap_or_default();
        let series = batch.into_iter().take(EXECUTIONS_MAX).map(|Measured { execution, job, sample }| {
            let mut series = before
                .remove(&execution)
                .filter(|series| series.job == job)
                .unwrap_or_else(|| Series { job, samples: VecDeque::new() });
            if series.samples.len() >= SAMPLES_MAX {
                series.samples.pop_front();
            }
            series.samples.push_back(sample);
            (execution, series)
        });
        let executions: HashMap<_, _> = series.collect();
        if !executions.is_empty() {
            workers.insert(worker, WorkerUsage { received: Instant::now(), executions });
        }
    }

    /// Returns the measurements of an execution on this worker, oldest first.
    pub(crate) fn series(&self, worker: WorkerId, execution: ExecutionId) -> Vec<UsageSample> {
        let workers = self.lock();
        let usage = workers.get(&worker).filter(|usage| usage.received.elapsed() < AGE_MAX);
        let series = usage.and_then(|usage| usage.executions.get(&execution));
        series.map(|series| series.samples.iter().copied().collect()).unwrap_or_default()
    }

    /// Returns the newest measurement of an execution on this worker.
    pub(crate) fn newest(&self, worker: WorkerId, execution: ExecutionId) -> Option<UsageSample> {
        let workers = self.lock();
        let usage = workers.get(&worker).filter(|usage| usage.received.elapsed() < AGE_MAX)?;
        usage.executions.get(&execution)?.samples.back().copied()
    }

    /// Returns the newest measurements of all executions, or of those on one worker.
    pub(crate) fn current(&self, worker: Option<WorkerId>) -> Vec<Current> {
        let workers = self.lock();
        let selected = workers.iter().filter(|(id, usage)| {
            worker.is_none_or(|worker| worker == **id) && usage.received.elapsed() < AGE_MAX
        });
        let current = selected.flat_map(|(worker, usage)| {
            usage.executions.iter().filter_map(|(execution, series)| {
                let sample = *series.samples.back()?;
                Some(Current { worker: *worker, execution: *execution, job: series.job, sample })
            })
        });
        current.collect()
    }
}

#[cfg(test)]
mod tests {
    use model::{Bytes, Millicores, Timestamp};

    use super::*;

    fn worker(bits: u128) -> WorkerId {
        WorkerId::from_bits(bits)
    }

    fn measured(execution: u128, cpu: u32) -> Measured {
        let sample = UsageSample {
            at: Timestamp::from_micros(i64::from(cpu)),
            cpu: Millicores(cpu),
            memory: Bytes(7),
            read_bytes_per_second: 0,
            written_bytes_per_second: 0,
            processes: 1,
        };
        Measured { execution: ExecutionId::from_bits(execution), job: JobId::from_bits(execution), sample }
    }

    #[test]
    fn the_newest_measurements_of_each_running_execution_are_kept() {
        let table = UsageTable::default();
        for cpu in 0..100 {
            table.record(worker(1), vec![measured(10, cpu), measured(11, 2 * cpu)]);
        }
        table.record(worker(2), vec![measured(20, 5)]);
        let series = table.series(worker(1), ExecutionId::from_bits(10));
        assert_eq!((series.len(), series[0].cpu, series[59].cpu), (60, Millicores(40), Millicores(99)));
        assert_eq!(table.current(None).len(), 3);
        assert_eq!(table.current(Some(worker(2)))[0].sample.cpu, Millicores(5));
        assert!(table.series(worker(2), ExecutionId::from_bits(10)).is_empty(), "another worker");
        table.record(worker(1), vec![measured(11, 1)]);
        assert!(table.series(worker(1), ExecutionId::from_bits(10)).is_empty(), "it has ended");
        table.record(worker(1), Vec::new());
        assert_eq!(table.current(None).len(), 1);
    }
}
