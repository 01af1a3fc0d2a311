//! Cost of a job: CPU time by thread.
//!
//! Linux reports the CPU time of each thread in nanoseconds (`/proc/PID/task/TID/schedstat`). Unlike a rate, CPU time
//! hardly changes when other processes use the machine.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::Context as _;
use harness::Pid;

/// CPU time of a process by thread name; threads with the same name are added up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Costs(BTreeMap<String, Duration>);

impl Costs {
    /// Returns the CPU time of the live threads since their start.
    pub(crate) fn of(process: Pid) -> anyhow::Result<Self> {
        let mut costs = BTreeMap::new();
        for thread in fs::read_dir(format!("/proc/{}/task", process.0))? {
            let thread = thread?.path();
            // A thread may end while it is inspected.
            let (Ok(name), Ok(times)) =
                (fs::read_to_string(thread.join("comm")), fs::read_to_string(thread.join("schedstat")))
            else {
                continue;
            };
            let nanos = times.split(' ').next().context("the first field is the CPU time")?.parse()?;
            *costs.entry(name.trim().to_owned()).or_default() += Duration::from_nanos(nanos);
        }
        Ok(Self(costs))
    }

    /// Adds a prefix to each name.
    pub(crate) fn prefixed(self, prefix: &str) -> Self {
        Self(self.0.into_iter().map(|(name, time)| (format!("{prefix}{name}"), time)).collect())
    }

    /// Adds the times of another process.
    pub(crate) fn and(mut self, other: Self) -> Self {
        for (name, time) in other.0 {
            *self.0.entry(name).or_default() += time;
        }
        self
    }

    /// Returns the CPU time since `earlier`, highest first.
    pub(crate) fn since(&self, earlier: &Self) -> Vec<(String, Duration)> {
        let before = |name: &str| earlier.0.get(name).copied().unwrap_or_default();
        let mut costs: Vec<_> =
            self.0.iter().map(|(name, &time)| (name.clone(), time.saturating_sub(before(name)))).collect();
        costs.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        costs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_reported_by_thread_name() {
        let this = Pid(std::process::id().cast_signed());
        let before = Costs::of(this).unwrap();
        let (done, wait) = std::sync::mpsc::channel();
        let (told, end) = std::sync::mpsc::channel::<()>();
        let worker = std::thread::Builder::new().name("works".into());
        let worker = worker.spawn(move || {
            let numbers = (0..5_000_000_u64).fold(0, |sum, n| std::hint::black_box(sum + n));
            done.send(numbers).unwrap();
            end.recv().unwrap_err();
        });
        wait.recv().unwrap();
        let costs = Costs::of(this).unwrap().since(&before);
        drop(told);
        worker.unwrap().join().unwrap();
        let (_, time) = costs.iter().find(|(name, _)| name == "works").unwrap();
        assert!(*time > Duration::from_micros(100), "{costs:?}");
    }
}
