//! Workers: their sessions, leases and reserved resources as state. [`jobs`](crate::jobs) has the transitions.
//!
//! - [`index`]: all workers, with indexes of eligible workers for frequent shapes.
//! - [`placement`]: filters and scores workers for a job.
//!
//! # Invariants
//! - `used` is the sum over `jobs`; a lost worker has only jobs whose outcome is unknown.
//! - A worker that is not lost has a lease timer armed.

mod index;
pub(crate) mod placement;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::record::WorkerRecord;
use model::worker::Health;
use model::{Bytes, Duration, ExecutionId, JobId, Millicores, ScheduleId, Timestamp, api};

pub(crate) use index::Workers;

use crate::input::Session;
use crate::output::WorkerView;
use crate::profile::Shape;

/// State of a worker.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) record: Arc<WorkerRecord>,
    /// Current session; `None` while the worker is disconnected.
    pub(crate) session: Option<Session>,
    /// When its tasks have certainly stopped unless another heartbeat arrives; steady time.
    pub(crate) lease_until: Timestamp,
    /// Part of its current silence that does not count, because the engine itself was delayed.
    pub(crate) extended_by: Duration,
    pub(crate) heard_at: Option<Timestamp>,
    pub(crate) health: Health,
    pub(crate) used: Used,
    /// Jobs with an execution on the worker.
    pub(crate) jobs: BTreeSet<JobId>,
    /// Jobs that returned to their queues when its lease ended; the worker may still hold their executions.
    pub(crate) unknown: BTreeSet<JobId>,
    /// Executions that were reported as started but are missing in the journal sent with the current session.
    pub(crate) unconfirmed: Vec<(JobId, ExecutionId)>,
    /// Reservations for schedules.
    pub(crate) reserved: Vec<WorkerReservation>,
    /// No execution is placed before this time, because the worker refused one; steady time.
    pub(crate) declined_until: Option<Timestamp>,
}

/// Resources on a worker that only a job of the schedule may use.
#[derive(Debug, Clone)]
pub(crate) struct WorkerReservation {
    pub(crate) schedule: ScheduleId,
    pub(crate) name: Arc<str>,
    pub(crate) scheduled_for: Timestamp,
    pub(crate) shape: Arc<Shape>,
}

impl WorkerReservation {
    pub(crate) fn view(&self) -> api::Reservation {
        api::Reservation {
            schedule_id: self.schedule,
            schedule: self.name.as_ref().to_owned(),
            scheduled_for: self.scheduled_for,
            cpu: self.shape.cpu,
            memory: self.shape.memory,
        }
    }
}

/// Reserved resources.
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
            extended_by: Duration::ZERO,
            heard_at: None,
            health: Health::default(),
            used: Used::default(),
            jobs: BTreeSet::new(),
            unknown: BTreeSet::new(),
            unconfirmed: Vec::new(),
            reserved: Vec::new(),
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
            reservations: self.reserved.iter().map(WorkerReservation::view).collect(),
            health: self.heard_at.map(|_| self.health.clone()),
            last_heartbeat_at: self.heard_at.or(self.record.last_heartbeat_at),
        }
    }
}
