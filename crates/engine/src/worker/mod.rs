//! Workers: sessions, leases, and what is set aside on them.
//!
//! [`all`] keeps them, and knows where jobs of a shape fit;
//! [`join`] opens a session and settles what both sides believe; [`lease`] keeps it alive and judges
//! a silent worker once its own lease has run out for certain; [`admission`] is the operator's word;
//! [`report`] takes what workers say of executions.
//!
//! # Always true
//! - `used` is the sum over `jobs`; a lost worker has only those whose outcome is unknown.
//! - A worker that is not lost has a lease timer armed.

mod admission;
mod all;
mod join;
mod lease;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::record::WorkerRecord;
use model::worker::Health;
use model::{Bytes, Duration, ExecutionId, JobId, Millicores, Timestamp};

pub(crate) use all::Workers;

use crate::input::Session;
use crate::output::WorkerView;
use crate::profile::Shape;
use crate::schedule::Kept;

/// A known worker.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) record: Arc<WorkerRecord>,
    /// Its connection; none while it is silent.
    pub(crate) session: Option<Session>,
    /// When its tasks have stopped for certain unless it is heard of again; steady time.
    pub(crate) lease_until: Timestamp,
    /// How much of its present silence was forgiven, for the engine was held up itself.
    pub(crate) forgiven: Duration,
    pub(crate) heard_at: Option<Timestamp>,
    pub(crate) health: Health,
    pub(crate) used: Used,
    /// The jobs whose executions it has.
    pub(crate) jobs: BTreeSet<JobId>,
    /// Jobs that went back to their queues when its lease ended, and whose executions it may still have.
    pub(crate) unknown: BTreeSet<JobId>,
    /// Executions that were heard to start, and that the journal of the session did not name.
    pub(crate) missing: Vec<(JobId, ExecutionId)>,
    /// Room that is kept for schedules.
    pub(crate) kept: Vec<Kept>,
    /// Nothing new is placed before, since it declined; steady time.
    pub(crate) declined_until: Option<Timestamp>,
}

/// What is set aside.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) cpu: Millicores,
    pub(crate) memory: Bytes,
    pub(crate) custom: BTreeMap<String, u64>,
}

impl Worker {
    pub(crate) fn new(record: Arc<WorkerRecord>) -> Self {
        Self {
            record,
            session: None,
            lease_until: Timestamp::default(),
            forgiven: Duration::ZERO,
            heard_at: None,
            health: Health::default(),
            used: Used::default(),
            jobs: BTreeSet::new(),
            unknown: BTreeSet::new(),
            missing: Vec::new(),
            kept: Vec::new(),
            declined_until: None,
        }
    }

    pub(crate) fn reserve(&mut self, job: JobId, shape: &Shape) {
        if self.jobs.insert(job) {
            self.used.cpu.0 = self.used.cpu.0.saturating_add(shape.cpu.0);
            self.used.memory.0 = self.used.memory.0.saturating_add(shape.memory.0);
            for (resource, amount) in &shape.custom {
                *self.used.custom.entry(resource.clone()).or_default() += amount;
            }
        }
    }

    pub(crate) fn release(&mut self, job: JobId, shape: &Shape) {
        if self.jobs.remove(&job) {
            self.used.cpu.0 = self.used.cpu.0.saturating_sub(shape.cpu.0);
            self.used.memory.0 = self.used.memory.0.saturating_sub(shape.memory.0);
            for (resource, amount) in &shape.custom {
                if let Some(used) = self.used.custom.get_mut(resource) {
                    *used = used.saturating_sub(*amount);
                }
            }
            self.used.custom.retain(|_, used| *used > 0);
        }
    }

    pub(crate) fn view(&self) -> WorkerView {
        WorkerView {
            id: self.record.id,
            status: self.record.status,
            running: u32::try_from(self.jobs.len()).unwrap_or(u32::MAX),
            cpu_reserved: self.used.cpu,
            memory_reserved: self.used.memory,
            custom_reserved: self.used.custom.clone(),
            reservations: self.kept.iter().map(Kept::view).collect(),
            health: self.heard_at.map(|_| self.health.clone()),
            heard_at: self.heard_at.or(self.record.heard_at),
        }
    }
}
