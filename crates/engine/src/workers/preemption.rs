//! Preemption: selects the jobs that are stopped so that a job of a higher priority class can run.
//!
//! The victims are all on one worker: on the worker where they cost least, by this order:
//!
//! 1. The highest class among the victims is as low as possible.
//! 2. The least work is lost: the run time since the last checkpoint, or since the start.
//! 3. The fewest jobs are stopped.
//!
//! # Invariants
//! - Every victim is of a lower class than the job.
//! - The job fits on the worker after the victims have ended. If it fits without one of them, that one is no victim.
//!
//! # Cost
//! O(1) for a worker where the lower classes use too little; O(n log n) in the jobs of a worker otherwise, for at most
//! [`WORKERS_COMPARED_MAX`] workers.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::spec::PriorityClass;
use model::{Duration, JobId, Timestamp, WorkerId};

use mutation::{Mutation, is_on};

use super::placement::has_capacity;
use super::{Holder, Worker};
use crate::profile::Shape;

/// Maximum number of workers with victims that are compared with each other.
const WORKERS_COMPARED_MAX: usize = 64;

/// A running job as preemption needs it.
#[derive(Debug, Clone)]
pub(crate) struct RunningJob {
    pub(crate) id: JobId,
    pub(crate) shape: Arc<Shape>,
    /// Whether its execution is already being stopped.
    pub(crate) is_stopping: bool,
    /// Whether the job may be stopped and started again.
    pub(crate) is_preemptible: bool,
    /// Run time since its last checkpoint, or since its start.
    pub(crate) unsaved: Duration,
}

/// The jobs that a job preempts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Preemption {
    pub(crate) worker: WorkerId,
    /// Empty if the job fits as soon as executions that are already being stopped have ended.
    pub(crate) victims: Vec<JobId>,
}

/// Returns the cheapest preemption after which a shape fits on a worker, or `None` if there is none.
///
/// `running` returns the jobs that run on a worker.
pub(crate) fn cheapest<'a>(
    shape: &Shape,
    workers: impl Iterator<Item = &'a Worker>,
    running: impl Fn(&Worker) -> Vec<RunningJob>,
) -> Option<Preemption> {
    let possible = workers.filter(|worker| {
        worker.declined_until.is_none() && may_fit(shape, worker) && has_capacity(shape, worker, None)
    });
    let found = possible.filter_map(|worker| {
        let victims = victims_on(shape, worker, running(worker))?;
        Some((cost(&victims), worker.record.id, victims))
    });
    let (_, worker, victims) =
        found.take(WORKERS_COMPARED_MAX).min_by(|(a, x, _), (b, y, _)| (a, x).cmp(&(b, y)))?;
    Some(Preemption { worker, victims: victims.iter().map(|victim| victim.id).collect() })
}

/// Returns whether a shape fits on a worker, after all executions that are being stopped have ended.
pub(crate) fn fits_after_stops(
    shape: &Shape,
    worker: &Worker,
    own: Option<Holder>,
    running: &[RunningJob],
) -> bool {
    let stopping: Vec<_> = running.iter().filter(|job| job.is_stopping).collect();
    has_capacity(shape, worker, own) && Room::on(worker, shape, own).after(&stopping).fits(shape)
}

/// Returns when a shape fits on a worker: the time of the end after which there is enough free capacity. `ends` are the
/// ends of the running jobs, in order; `None` is an unknown time.
pub(crate) fn fits_after_ends<'a>(
    shape: &Shape,
    worker: &Worker,
    ends: impl Iterator<Item = (Option<Timestamp>, &'a Arc<Shape>)>,
) -> Option<Timestamp> {
    let mut room = Room::on(worker, shape, None);
    for (end, ended) in ends {
        let end = end?;
        room.add(ended);
        if room.fits(shape) {
            return Some(end);
        }
    }
    None
}

/// Returns whether a shape fits on a worker after these executions have ended.
pub(crate) fn fits_without<'a>(
    shape: &Shape,
    worker: &Worker,
    ended: impl Iterator<Item = &'a Arc<Shape>>,
) -> bool {
    let mut room = Room::on(worker, shape, None);
    ended.for_each(|shape| room.add(shape));
    room.fits(shape)
}

/// Compares sets of victims: the first one is cheaper.
fn cost(victims: &[RunningJob]) -> (Option<PriorityClass>, u64, usize) {
    let highest = victims.iter().map(|victim| victim.shape.class).max();
    let unsaved = victims.iter().map(|victim| victim.unsaved.as_millis()).sum();
    (highest, unsaved, victims.len())
}

/// Whether a shape could fit if all jobs of lower classes ended. Does not look at the jobs.
fn may_fit(shape: &Shape, worker: &Worker) -> bool {
    let capacity = &worker.record.capacity;
    let is_lower = |class| class < shape.class || is_on(Mutation::EnginePreemptsEqualClasses);
    let lower = worker.used_by_class.iter().filter(|(class, _)| is_lower(**class)).map(|(_, used)| used);
    let (mut cpu, mut memory, mut jobs) = (0u64, 0u64, 0u64);
    for used in lower {
        cpu += used.cpu;
        memory += used.memory;
        jobs += used.jobs;
    }
    let rest = |used: u64, lower: u64| used.saturating_sub(lower);
    rest(worker.used.cpu.0.into(), cpu) + u64::from(shape.cpu.0) <= capacity.cpu.0.into()
        && rest(worker.used.memory.0, memory) + shape.memory.0 <= capacity.memory.0
        && rest(worker.jobs.len() as u64, jobs) < u64::from(capacity.slots)
}

/// Returns the cheapest victims on one worker, or `None` if no set of victims suffices.
fn victims_on(shape: &Shape, worker: &Worker, running: Vec<RunningJob>) -> Option<Vec<RunningJob>> {
    let stopping: Vec<_> = running.iter().filter(|job| job.is_stopping).collect();
    let mut room = Room::on(worker, shape, None).after(&stopping);
    let is_lower = |class| class < shape.class || is_on(Mutation::EnginePreemptsEqualClasses);
    let is_victim = |job: &RunningJob| job.is_preemptible && !job.is_stopping && is_lower(job.shape.class);
    let mut candidates: Vec<_> = running.into_iter().filter(is_victim).collect();
    candidates.sort_by_key(|job| (job.shape.class, job.unsaved, job.id));
    let mut victims = Vec::new();
    for candidate in candidates {
        if room.fits(shape) {
            break;
        }
        room.add(&candidate.shape);
        victims.push(candidate);
    }
    if !room.fits(shape) {
        return None;
    }
    // The most expensive victims first: keep those that need not stop.
    let mut kept = Vec::new();
    for victim in victims.into_iter().rev() {
        let without = room.without(&victim.shape);
        if without.fits(shape) {
            room = without;
        } else {
            kept.push(victim);
        }
    }
    Some(kept)
}

/// Free capacity of a worker; negative while more is in use or reserved than the worker has.
#[derive(Debug, Clone)]
struct Room {
    cpu: i128,
    memory: i128,
    slots: i128,
    custom: BTreeMap<String, i128>,
}

impl Room {
    /// Returns the free capacity for a shape, without what is reserved against its class.
    fn on(worker: &Worker, shape: &Shape, own: Option<Holder>) -> Self {
        let (capacity, used) = (&worker.record.capacity, &worker.used);
        let amount =
            |all: &BTreeMap<String, u64>, name: &str| i128::from(all.get(name).copied().unwrap_or(0));
        let custom = shape.custom.keys();
        let mut room = Self {
            cpu: i128::from(capacity.cpu.0) - i128::from(used.cpu.0),
            memory: i128::from(capacity.memory.0) - i128::from(used.memory.0),
            slots: i128::from(capacity.slots) - i128::from(worker.jobs.len() as u64),
            custom: custom
                .map(|name| {
                    (name.clone(), i128::from(worker.custom_capacity(name)) - amount(&used.custom, name))
                })
                .collect(),
        };
        for reserved in worker.reserved_against(shape.class, own) {
            room = room.without(&reserved.shape);
        }
        room
    }

    fn add(&mut self, ended: &Shape) {
        self.change(ended, 1);
    }

    fn without(&self, started: &Shape) -> Self {
        let mut room = self.clone();
        room.change(started, -1);
        room
    }

    fn after(mut self, ended: &[&RunningJob]) -> Self {
        ended.iter().for_each(|job| self.add(&job.shape));
        self
    }

    fn change(&mut self, of: &Shape, sign: i128) {
        self.cpu += sign * i128::from(of.cpu.0);
        self.memory += sign * i128::from(of.memory.0);
        self.slots += sign;
        for (name, free) in &mut self.custom {
            *free += sign * i128::from(of.custom.get(name).copied().unwrap_or(0));
        }
    }

    fn fits(&self, shape: &Shape) -> bool {
        i128::from(shape.cpu.0) <= self.cpu
            && i128::from(shape.memory.0) <= self.memory
            && self.slots >= 1
            && shape
                .custom
                .iter()
                .all(|(name, &needed)| self.custom.get(name).is_some_and(|&free| i128::from(needed) <= free))
    }
}
