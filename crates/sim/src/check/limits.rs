//! Limits of queues, keys, rates and machines, as they were in force when work was assigned.

use std::collections::{BTreeMap, BTreeSet};

use model::queue::QueueSettings;
use model::spec::JobSpec;
use model::{ExecutionId, Timestamp, WorkerId};

use super::facts::Facts;
use super::{Findings, Invariant};
use crate::history::{Commit, ExecutionRow, Row};

/// A rate, as a bucket that fills with starts and leaks.
#[derive(Debug, Clone, Copy)]
struct Leak {
    per_second: f64,
    burst: f64,
    level: f64,
    at: Timestamp,
}

#[derive(Debug, Default)]
struct State<'a> {
    live: BTreeMap<ExecutionId, (&'a JobSpec, WorkerId)>,
    queues: BTreeMap<&'a str, &'a QueueSettings>,
    leaks: BTreeMap<&'a str, Leak>,
}

pub(super) fn check(facts: &Facts<'_>, findings: &mut Findings) {
    let mut state = State::default();
    for (index, commit) in &facts.commits {
        state.take(facts, *index, commit, findings);
    }
}

impl<'a> State<'a> {
    fn take(&mut self, facts: &Facts<'a>, index: usize, commit: &'a Commit, findings: &mut Findings) {
        let before: BTreeMap<&str, &QueueSettings> = self.queues.clone();
        let mut assigned = Vec::new();
        for row in &commit.rows {
            match row {
                Row::Queue { name, settings } => self.set(name, settings, commit.decided_at),
                Row::Execution(row) if row.status.is_final() => {
                    self.live.remove(&row.execution);
                }
                Row::Execution(row) => {
                    let spec = facts.jobs.get(&row.job).and_then(|job| job.spec);
                    if let (true, Some(spec)) = (row.new, spec) {
                        assigned.push((&**row, spec));
                        self.live.insert(row.execution, (spec, row.worker));
                    }
                }
                _ => {}
            }
        }
        self.queue_limits(index, &assigned, &before, findings);
        self.key_limits(index, &assigned, findings);
        if facts.exact() {
            self.rates(index, commit, &assigned, findings);
        }
        self.machines(facts, index, &assigned, findings);
    }

    fn set(&mut self, name: &'a str, settings: &'a QueueSettings, at: Timestamp) {
        self.queues.insert(name, settings);
        match settings.rate_per_second {
            Some(per_second) => {
                let burst = settings.burst.map_or(per_second.max(1.0), f64::from);
                self.leaks.insert(name, Leak { per_second, burst, level: 0.0, at });
            }
            None => {
                self.leaks.remove(name);
            }
        }
    }

    /// I20 for queues. Where a limit was changed in the same commit the wider one counts.
    fn queue_limits(
        &self,
        index: usize,
        assigned: &[(&ExecutionRow, &'a JobSpec)],
        before: &BTreeMap<&str, &QueueSettings>,
        findings: &mut Findings,
    ) {
        let queues: BTreeSet<&str> = assigned.iter().map(|(_, spec)| spec.queue.as_str()).collect();
        for queue in queues {
            let limit = |queues: &BTreeMap<&str, &QueueSettings>| {
                queues.get(queue).and_then(|settings| settings.concurrency)
            };
            let (Some(old), Some(new)) = (limit(before), limit(&self.queues)) else { continue };
            let live = self.live.values().filter(|(spec, _)| spec.queue == queue).count();
            if live > old.max(new) as usize {
                let message = format!("{live} executions run with a limit of {}", old.max(new));
                findings.add(Invariant::I20, format!("queue {queue}"), message, [index]);
            }
        }
    }

    /// I20 for concurrency keys.
    fn key_limits(&self, index: usize, assigned: &[(&ExecutionRow, &'a JobSpec)], findings: &mut Findings) {
        let mut limits: BTreeMap<(&str, &str), u32> = BTreeMap::new();
        for (_, spec) in assigned {
            if let Some(concurrency) = &spec.concurrency {
                let limit = limits.entry((&spec.namespace, &concurrency.key)).or_default();
                *limit = (*limit).max(concurrency.limit);
            }
        }
        for ((namespace, key), limit) in limits {
            let has_key = |spec: &JobSpec| {
                spec.namespace == namespace && spec.concurrency.as_ref().is_some_and(|c| c.key == key)
            };
            let live = self.live.values().filter(|(spec, _)| has_key(spec)).count();
            if live > limit as usize {
                let message = format!("{live} executions run with a limit of {limit}");
                findings.add(Invariant::I20, format!("key {namespace}/{key}"), message, [index]);
            }
        }
    }

    /// I21.
    fn rates(
        &mut self,
        index: usize,
        commit: &Commit,
        assigned: &[(&ExecutionRow, &JobSpec)],
        findings: &mut Findings,
    ) {
        for (_, spec) in assigned {
            let Some((name, leak)) = self.leaks.get_key_value(spec.queue.as_str()) else { continue };
            let mut leak = *leak;
            let passed = commit.decided_at.as_micros() - leak.at.as_micros();
            leak.level = (leak.level - passed as f64 / 1e6 * leak.per_second).max(0.0) + 1.0;
            leak.at = commit.decided_at;
            if leak.level > leak.burst + 1e-3 {
                let message = format!("{:.2} starts at once with a burst of {}", leak.level, leak.burst);
                findings.add(Invariant::I21, format!("queue {}", spec.queue), message, [index]);
            }
            let name = *name;
            self.leaks.insert(name, leak);
        }
    }

    /// I22.
    fn machines(
        &self,
        facts: &Facts<'_>,
        index: usize,
        assigned: &[(&ExecutionRow, &JobSpec)],
        findings: &mut Findings,
    ) {
        let workers: BTreeSet<WorkerId> = assigned.iter().map(|(row, _)| row.worker).collect();
        for worker in workers {
            let Some(capacity) = facts.capacities.get(&worker) else { continue };
            let there = || self.live.values().filter(|(_, on)| *on == worker).map(|(spec, _)| *spec);
            let cpu: u64 = there().map(|spec| u64::from(spec.resources.cpu_request().0)).sum();
            let memory: u64 = there().map(|spec| spec.resources.memory_request().0).sum();
            let slots = there().count();
            if cpu > u64::from(capacity.cpu.0)
                || memory > capacity.memory.0
                || slots > capacity.slots as usize
            {
                let message = format!(
                    "{slots} executions with {cpu} millicores and {memory} bytes are on a machine of {capacity:?}"
                );
                findings.add(Invariant::I22, worker, message, [index]);
            }
        }
    }
}
