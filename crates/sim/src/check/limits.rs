//! Checks of limits of queues, keys, rates, namespaces and machines that were in force when work was assigned.
//!
//! [`State`] follows the commits in order. It counts the live executions of each queue, key and machine, and
//! compares them with the limits after every commit that assigns something (I20, I21, I22). It shares no code
//! with the engine: a rate limit is a leaky bucket here and a token bucket there.
//!
//! A limit that is lowered stops nothing that runs, so only a commit that assigns more can be a violation. If
//! a limit changes in that commit, the higher value counts. An execution that a lost worker brings back
//! counts again from its return.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use foldhash::fast::FixedState;
use indexmap::IndexMap;
use model::namespace::Quota;
use model::queue::QueueSettings;
use model::spec::{Delivery, JobSpec};
use model::worker::Capacity;
use model::{ExecutionId, ExecutionStatus, JobId, JobStatus, Timestamp, WorkerId};

use super::facts::Facts;
use super::{Findings, Invariant};
use crate::history::{Commit, ExecutionRow, Row};

/// A rate limit as a leaky bucket: starts fill it, time empties it.
#[derive(Debug, Clone, Copy)]
struct Leak {
    per_second: f64,
    burst: f64,
    level: f64,
    at: Timestamp,
}

/// Resources that the executions of a machine or a namespace use.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    millicores: u64,
    bytes: u64,
    slots: u32,
}

impl Held {
    fn add(&mut self, spec: &JobSpec) {
        self.millicores += u64::from(spec.resources.cpu_request().0);
        self.bytes += spec.resources.memory_request().0;
        self.slots += 1;
    }
}

/// Live executions, and their counts for each limited object.
#[derive(Debug, Default)]
struct Live {
    executions: IndexMap<ExecutionId, (Arc<JobSpec>, WorkerId), FixedState>,
    queues: IndexMap<String, usize, FixedState>,
    /// By namespace and key.
    keys: BTreeMap<(String, String), usize>,
    machines: BTreeMap<WorkerId, Held>,
    /// Executions with a fixed port, by worker and port.
    ports: BTreeMap<(WorkerId, u16), usize>,
    namespaces: BTreeMap<String, Held>,
}

impl Live {
    fn begins(&mut self, execution: ExecutionId, spec: &Arc<JobSpec>, worker: WorkerId) {
        self.ends(execution);
        match self.queues.get_mut(&spec.queue) {
            Some(live) => *live += 1,
            None => {
                self.queues.insert(spec.queue.clone(), 1);
            }
        }
        if let Some(key) = key_of(spec) {
            *self.keys.entry(key).or_default() += 1;
        }
        self.machines.entry(worker).or_default().add(spec);
        for port in fixed_ports(spec) {
            *self.ports.entry((worker, port)).or_default() += 1;
        }
        self.namespaces.entry(spec.namespace.clone()).or_default().add(spec);
        self.executions.insert(execution, (Arc::clone(spec), worker));
    }

    fn ends(&mut self, execution: ExecutionId) {
        let Some((spec, worker)) = self.executions.swap_remove(&execution) else { return };
        if let Some(live) = self.queues.get_mut(&spec.queue) {
            *live -= 1;
        }
        if let Some(Entry::Occupied(mut live)) = key_of(&spec).map(|key| self.keys.entry(key)) {
            *live.get_mut() -= 1;
            // A history may have as many keys as jobs, so zero counts are removed.
            if *live.get() == 0 {
                live.remove();
            }
        }
        for port in fixed_ports(&spec) {
            self.ports.entry((worker, port)).and_modify(|live| *live -= 1);
        }
        let machine = self.machines.get_mut(&worker);
        for held in machine.into_iter().chain(self.namespaces.get_mut(&spec.namespace)) {
            held.millicores -= u64::from(spec.resources.cpu_request().0);
            held.bytes -= spec.resources.memory_request().0;
            held.slots -= 1;
        }
    }
}

/// Whether this commit leaves the job running.
fn is_running(commit: &Commit, job: JobId) -> bool {
    let of_job = |row: &Row| match row {
        Row::Job(row) if row.job == job => Some(row.status == JobStatus::Running),
        _ => None,
    };
    commit.rows.iter().rev().find_map(of_job).unwrap_or(false)
}

fn fixed_ports(spec: &JobSpec) -> impl Iterator<Item = u16> {
    spec.ports.iter().filter_map(|port| port.port)
}

fn key_of(spec: &JobSpec) -> Option<(String, String)> {
    spec.concurrency.as_ref().map(|concurrency| (spec.namespace.clone(), concurrency.key.clone()))
}

/// Limits in force and live executions, from commit to commit.
#[derive(Debug, Default)]
pub(super) struct State {
    live: Live,
    queues: BTreeMap<String, QueueSettings>,
    quotas: BTreeMap<String, Quota>,
    leaks: BTreeMap<String, Leak>,
    capacities: BTreeMap<WorkerId, Capacity>,
    /// Executions of lost workers, which may return with them.
    unknown: BTreeSet<ExecutionId>,
}

type Assigned<'a> = [(&'a ExecutionRow, &'a JobSpec)];

impl State {
    pub(super) fn take(&mut self, facts: &Facts<'_>, index: usize, commit: &Commit, findings: &mut Findings) {
        let mut before = BTreeMap::new();
        let mut changed = BTreeSet::new();
        let (mut assigned, mut returned) = (Vec::new(), Vec::new());
        for row in &commit.rows {
            match row {
                Row::Queue { name, settings } => {
                    before.extend(self.queues.get(name).map(|known| (name.as_str(), known.concurrency)));
                    self.set(name, settings, commit.decided_at);
                }
                Row::Namespace { namespace, settings } => {
                    changed.insert(namespace.as_str());
                    self.quotas.insert(namespace.clone(), settings.quota.clone());
                }
                Row::Worker { worker, capacity, .. } => {
                    self.capacities.insert(*worker, capacity.clone());
                }
                Row::Execution(row) if row.status.is_final() => {
                    self.unknown.remove(&row.execution);
                    self.live.ends(row.execution);
                }
                Row::Execution(row) => {
                    let Some(spec) = facts.jobs.get(&row.job).and_then(|job| job.spec) else { continue };
                    let waits_for_result =
                        || spec.delivery == Delivery::AtMostOnce || is_running(commit, row.job);
                    if row.status == ExecutionStatus::Unknown {
                        // The job is back in its queue, unless it may run only once, or was lost too often.
                        if !waits_for_result() {
                            self.live.ends(row.execution);
                            self.unknown.insert(row.execution);
                        }
                        continue;
                    }
                    // A lost worker may bring back an execution that had ended here, whatever runs now.
                    let is_back = self.unknown.remove(&row.execution);
                    if row.new {
                        assigned.push((&**row, &**spec));
                    } else if is_back && !facts.is_over(row, index) {
                        returned.push((&**row, &**spec));
                    } else {
                        continue;
                    }
                    self.live.begins(row.execution, spec, row.worker);
                }
                _ => {}
            }
        }
        if facts.exact() {
            self.rates(index, commit, &assigned, findings);
        }
        assigned.append(&mut returned);
        if assigned.is_empty() {
            return;
        }
        self.queue_limits(index, &assigned, &before, findings);
        self.key_limits(index, &assigned, findings);
        self.namespace_quotas(index, &assigned, &changed, findings);
        self.machines(index, &assigned, findings);
    }

    /// I20 for quotas of namespaces, except those that changed in the same commit.
    fn namespace_quotas(
        &self,
        index: usize,
        assigned: &Assigned<'_>,
        changed: &BTreeSet<&str>,
        findings: &mut Findings,
    ) {
        let namespaces: BTreeSet<&str> = assigned.iter().map(|(_, spec)| spec.namespace.as_str()).collect();
        for namespace in namespaces.into_iter().filter(|namespace| !changed.contains(namespace)) {
            let Some(quota) = self.quotas.get(namespace) else { continue };
            let Held { millicores, bytes, slots } =
                self.live.namespaces.get(namespace).copied().unwrap_or_default();
            let fits = quota.cpu.is_none_or(|cpu| millicores <= cpu.0.into())
                && quota.memory.is_none_or(|memory| bytes <= memory.0)
                && quota.running.is_none_or(|running| slots <= running);
            if !fits {
                let message =
                    format!("{slots} executions, {millicores} millicores and {bytes} bytes exceed {quota:?}");
                findings.add(Invariant::I20, format!("namespace {namespace}"), message, [index]);
            }
        }
    }

    fn set(&mut self, name: &str, settings: &QueueSettings, at: Timestamp) {
        self.queues.insert(name.to_owned(), settings.clone());
        match settings.rate_per_second {
            Some(per_second) => {
                let burst = settings.burst.map_or(per_second.max(1.0), f64::from);
                self.leaks.insert(name.to_owned(), Leak { per_second, burst, level: 0.0, at });
            }
            None => {
                self.leaks.remove(name);
            }
        }
    }

    /// I20 for queues. If a limit changed in the same commit, the higher one counts.
    fn queue_limits(
        &self,
        index: usize,
        assigned: &Assigned<'_>,
        before: &BTreeMap<&str, Option<u32>>,
        findings: &mut Findings,
    ) {
        let queues: BTreeSet<&str> = assigned.iter().map(|(_, spec)| spec.queue.as_str()).collect();
        for queue in queues {
            let Some(new) = self.queues.get(queue).and_then(|settings| settings.concurrency) else {
                continue;
            };
            let Some(old) = before.get(queue).copied().unwrap_or(Some(new)) else { continue };
            let live = self.live.queues.get(queue).copied().unwrap_or(0);
            if live > old.max(new) as usize {
                let message = format!("{live} executions exceed the limit of {}", old.max(new));
                findings.add(Invariant::I20, format!("queue {queue}"), message, [index]);
            }
        }
    }

    /// I20 for concurrency keys.
    fn key_limits(&self, index: usize, assigned: &Assigned<'_>, findings: &mut Findings) {
        let mut limits: BTreeMap<(String, String), u32> = BTreeMap::new();
        for (_, spec) in assigned {
            if let (Some(key), Some(concurrency)) = (key_of(spec), &spec.concurrency) {
                let limit = limits.entry(key).or_default();
                *limit = (*limit).max(concurrency.limit);
            }
        }
        for (of, limit) in limits {
            let live = self.live.keys.get(&of).copied().unwrap_or(0);
            if live > limit as usize {
                let (namespace, key) = of;
                let message = format!("{live} executions exceed the limit of {limit}");
                findings.add(Invariant::I20, format!("key {namespace}/{key}"), message, [index]);
            }
        }
    }

    /// I21: starts stay within the rate limit.
    fn rates(&mut self, index: usize, commit: &Commit, assigned: &Assigned<'_>, findings: &mut Findings) {
        for (_, spec) in assigned {
            let Some(leak) = self.leaks.get_mut(&spec.queue) else { continue };
            let passed = commit.decided_at.as_micros() - leak.at.as_micros();
            leak.level = (leak.level - passed as f64 / 1e6 * leak.per_second).max(0.0) + 1.0;
            leak.at = commit.decided_at;
            if leak.level > leak.burst + 1e-3 {
                let message = format!("{:.2} starts exceed the burst of {}", leak.level, leak.burst);
                findings.add(Invariant::I21, format!("queue {}", spec.queue), message, [index]);
            }
        }
    }

    /// I22: the executions of a machine fit into its capacity, and none shares a fixed port.
    fn machines(&self, index: usize, assigned: &Assigned<'_>, findings: &mut Findings) {
        let workers: BTreeSet<WorkerId> = assigned.iter().map(|(row, _)| row.worker).collect();
        for worker in workers {
            let Some(capacity) = self.capacities.get(&worker) else { continue };
            let Held { millicores, bytes, slots } =
                self.live.machines.get(&worker).copied().unwrap_or_default();
            let fits = millicores <= u64::from(capacity.cpu.0) && bytes <= capacity.memory.0;
            if !fits || slots > capacity.slots {
                let message = format!(
                    "{slots} executions, {millicores} millicores and {bytes} bytes exceed {capacity:?}"
                );
                findings.add(Invariant::I22, worker, message, [index]);
            }
        }
        for (row, spec) in assigned {
            for port in fixed_ports(spec) {
                let live = self.live.ports.get(&(row.worker, port)).copied().unwrap_or(0);
                if live > 1 {
                    let message = format!("{live} executions have the port {port}");
                    findings.add(Invariant::I22, row.worker, message, [index]);
                }
            }
        }
    }
}
