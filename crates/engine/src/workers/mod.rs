//! Workers: their sessions, leases and reserved resources as state. [`jobs`](crate::jobs) has the transitions.
//!
//! - [`index`]: all workers, with indexes of eligible workers for frequent shapes.
//! - [`placement`]: filters and scores workers for a job.
//! - [`preemption`]: selects the jobs that a job of a higher class preempts.
//!
//! # Invariants
//! - `used` is the sum over `jobs`; a lost worker has only jobs whose outcome is unknown.
//! - A worker that is not lost has a lease timer armed.

mod index;
pub(crate) mod placement;
pub(crate) mod preemption;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::record::WorkerRecord;
use model::service::ReplicaOrigin;
use model::spec::PriorityClass;
use model::worker::Health;
use model::{Bytes, Duration, ExecutionId, JobId, Millicores, ScheduleId, ServiceId, Timestamp, api};

pub(crate) use index::Workers;

use crate::input::Session;
use crate::output::WorkerView;
use crate::profile::{Group, Shape, port_of};

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
    /// The part of `used` that each priority class has.
    pub(crate) used_by_class: BTreeMap<PriorityClass, ClassUse>,
    /// Jobs with an execution on the worker.
    pub(crate) jobs: BTreeSet<JobId>,
    /// Number of replicas with an execution on the worker, for each service and revision.
    pub(crate) replicas: BTreeMap<(ServiceId, u64), u32>,
    /// Jobs that returned to their queues when its lease ended; the worker may still hold their executions.
    pub(crate) unknown: BTreeSet<JobId>,
    /// Executions that were reported as started but are missing in the journal sent with the current session.
    pub(crate) unconfirmed: Vec<(JobId, ExecutionId)>,
    /// Reservations for schedules and for waiting jobs.
    pub(crate) reserved: Vec<WorkerReservation>,
    /// No execution is placed before this time, because the worker refused one; steady time.
    pub(crate) declined_until: Option<Timestamp>,
}

/// Free capacity of a worker that is kept for one holder. Jobs of a higher class may still use it.
#[derive(Debug, Clone)]
pub(crate) struct WorkerReservation {
    pub(crate) purpose: Purpose,
    pub(crate) shape: Arc<Shape>,
}

/// What a reservation is for.
#[derive(Debug, Clone)]
pub(crate) enum Purpose {
    /// The job of the next firing of a schedule.
    Firing { schedule: ScheduleId, name: Arc<str>, scheduled_for: Timestamp },
    /// A waiting job that preempts others.
    Preemption { job: JobId },
    /// A job that waited long. Executions that certainly end by `until` may use the capacity before it.
    LongWaiting { job: JobId, until: Option<Timestamp> },
}

/// Who may use a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Holder {
    Schedule(ScheduleId),
    Job(JobId),
}

impl WorkerReservation {
    pub(crate) fn holder(&self) -> Holder {
        match self.purpose {
            Purpose::Firing { schedule, .. } => Holder::Schedule(schedule),
            Purpose::Preemption { job } | Purpose::LongWaiting { job, .. } => Holder::Job(job),
        }
    }

    /// Whether the capacity is free for short executions until a known time.
    pub(crate) fn begins_later(&self) -> bool {
        matches!(self.purpose, Purpose::LongWaiting { until: Some(_), .. })
    }

    pub(crate) fn is_for_long_waiting(&self) -> bool {
        matches!(self.purpose, Purpose::LongWaiting { .. })
    }

    pub(crate) fn view(&self) -> api::Reservation {
        let (mut schedule_id, mut schedule, mut scheduled_for, mut job) = (None, None, None, None);
        match &self.purpose {
            Purpose::Firing { schedule: id, name, scheduled_for: time } => {
                (schedule_id, schedule, scheduled_for) =
                    (Some(*id), Some(name.as_ref().to_owned()), Some(*time));
            }
            Purpose::Preemption { job: id } | Purpose::LongWaiting { job: id, .. } => job = Some(*id),
        }
        let Shape { cpu, memory, .. } = *self.shape;
        api::Reservation { schedule_id, schedule, scheduled_for, job, cpu, memory }
    }
}

/// Reserved resources.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) cpu: Millicores,
    pub(crate) memory: Bytes,
    pub(crate) custom: BTreeMap<String, u64>,
    /// Number of jobs of each group that is distributed over workers.
    pub(crate) groups: BTreeMap<u128, u32>,
}

impl Used {
    /// Adds the resources of a job.
    pub(crate) fn add(&mut self, shape: &Shape) {
        self.cpu.0 = self.cpu.0.saturating_add(shape.cpu.0);
        self.memory.0 = self.memory.0.saturating_add(shape.memory.0);
        for (resource, amount) in &shape.custom {
            *self.custom.entry(resource.clone()).or_default() += amount;
        }
        if let Some(group) = &shape.spread {
            *self.groups.entry(group.key).or_default() += 1;
        }
    }

    /// Removes the resources of a job.
    fn remove(&mut self, shape: &Shape) {
        self.cpu.0 = self.cpu.0.saturating_sub(shape.cpu.0);
        self.memory.0 = self.memory.0.saturating_sub(shape.memory.0);
        for (resource, amount) in &shape.custom {
            if let Some(used) = self.custom.get_mut(resource) {
                *used = used.saturating_sub(*amount);
            }
        }
        self.custom.retain(|_, used| *used > 0);
        if let Some(count) = shape.spread.as_ref().and_then(|group| self.groups.get_mut(&group.key)) {
            *count = count.saturating_sub(1);
            self.groups.retain(|_, count| *count > 0);
        }
    }
}

/// Resources and slots that the jobs of one priority class use on a worker.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClassUse {
    pub(crate) cpu: u64,
    pub(crate) memory: u64,
    pub(crate) jobs: u64,
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
            used_by_class: BTreeMap::new(),
            jobs: BTreeSet::new(),
            replicas: BTreeMap::new(),
            unknown: BTreeSet::new(),
            unconfirmed: Vec::new(),
            reserved: Vec::new(),
            declined_until: None,
        }
    }

    /// Returns the reservations that exclude a job of a class, except those of the holder `own`.
    pub(crate) fn reserved_against(
        &self,
        class: PriorityClass,
        own: Option<Holder>,
    ) -> impl Iterator<Item = &WorkerReservation> {
        self.reserved.iter().filter(move |kept| kept.shape.class >= class && Some(kept.holder()) != own)
    }

    /// Returns how much the worker has of a custom resource. It has one of each port.
    pub(crate) fn custom_capacity(&self, resource: &str) -> u64 {
        match port_of(resource) {
            Some(_) => 1,
            None => self.record.capacity.custom.get(resource).copied().unwrap_or(0),
        }
    }

    /// Returns the number of its jobs that belong to a group.
    pub(crate) fn jobs_of_group(&self, group: &Group) -> u32 {
        self.used.groups.get(&group.key).copied().unwrap_or(0)
    }

    /// Returns the number of replicas of a revision of a service, and of the service.
    pub(crate) fn replicas_of(&self, service: ServiceId, revision: u64) -> (u32, u32) {
        let of_revision = self.replicas.get(&(service, revision)).copied().unwrap_or(0);
        (of_revision, self.replicas.range((service, 0)..=(service, u64::MAX)).map(|(_, count)| count).sum())
    }

    /// Counts a replica that started to run here.
    pub(crate) fn add_replica(&mut self, replica: &ReplicaOrigin) {
        *self.replicas.entry((replica.service, replica.revision)).or_default() += 1;
    }

    /// Counts a replica that no longer runs here.
    pub(crate) fn remove_replica(&mut self, replica: &ReplicaOrigin) {
        let of = (replica.service, replica.revision);
        if let Some(count) = self.replicas.get_mut(&of) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.replicas.remove(&of);
            }
        }
    }

    pub(crate) fn is_reserved(&self) -> bool {
        !self.reserved.is_empty()
    }

    /// Allocates resources to a job. Returns whether they were not allocated yet.
    pub(crate) fn reserve(&mut self, job: JobId, shape: &Shape) -> bool {
        let is_new = self.jobs.insert(job);
        if is_new {
            self.used.add(shape);
            let used = self.used_by_class.entry(shape.class).or_default();
            used.cpu += u64::from(shape.cpu.0);
            used.memory = used.memory.saturating_add(shape.memory.0);
            used.jobs += 1;
        }
        is_new
    }

    /// Frees the resources of a job. Returns whether it had any.
    pub(crate) fn release(&mut self, job: JobId, shape: &Shape) -> bool {
        let had_any = self.jobs.remove(&job);
        if had_any {
            self.used.remove(shape);
            let used = self.used_by_class.entry(shape.class).or_default();
            used.cpu = used.cpu.saturating_sub(shape.cpu.0.into());
            used.memory = used.memory.saturating_sub(shape.memory.0);
            used.jobs = used.jobs.saturating_sub(1);
        }
        had_any
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
