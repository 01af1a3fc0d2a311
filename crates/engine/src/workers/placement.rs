//! Placement: selects a worker for a job. Filters, then scores.
//!
//! One function, [`check_eligibility`], finds every reason why a worker is not eligible. The dispatcher stops at the
//! first reason; `belfry why` collects all of them. So the explanation always matches the decision.
//!
//! # Callers
//! `jobs::dispatch` and [`Workers::best`](super::Workers::best) use [`is_eligible`] and [`score`];
//! `jobs::reservation` uses [`best_of`] and [`soonest_available`]; `jobs::explain` uses [`ineligibility_reasons`];
//! [`preemption`](super::preemption) uses [`has_capacity`].
//!
//! # Cost
//! O(constraints + resources) for one worker; the functions over several workers visit each of them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use model::service::ReplicaOrigin;
use model::spec::{Constraint, Operator, Placement, SandboxLevel};
use model::why::FailedFilter;
use model::worker::{Admission, WorkerStatus};
use model::{Bytes, Millicores, WorkerId};
use mutation::{Mutation, is_on};

use super::{Holder, Purpose, Worker};
use crate::profile::{Shape, port_of};

/// Label that every worker has implicitly: its id.
pub(crate) const WORKER_LABEL: &str = "belfry.worker";

/// Returns all reasons why a shape cannot be placed on a worker.
///
/// A reservation excludes the jobs of its class and of lower classes, except the jobs of its holder `own`.
pub(crate) fn ineligibility_reasons(
    shape: &Shape,
    worker: &Worker,
    own: Option<Holder>,
) -> Vec<FailedFilter> {
    let mut found = Vec::new();
    let _ = check_eligibility(shape, worker, own, |misfit| {
        found.push(misfit());
        ControlFlow::Continue(())
    });
    found
}

/// Returns whether a worker is eligible for a shape.
pub(crate) fn is_eligible(shape: &Shape, worker: &Worker, own: Option<Holder>) -> bool {
    check_eligibility(shape, worker, own, |_| ControlFlow::Break(())).is_continue()
}

/// Returns the worker that can run a shape soonest: among the workers that lack only free capacity, the one
/// with the lowest utilization. Excludes workers with a reservation, except for jobs that waited long.
pub(crate) fn soonest_available<'a>(
    shape: &Shape,
    workers: impl Iterator<Item = &'a Worker>,
) -> Option<WorkerId> {
    let is_excluded = |worker: &Worker| worker.reserved.iter().any(|kept| !kept.is_for_long_waiting());
    let lacks_only_capacity =
        workers.filter(|worker| !is_excluded(worker) && has_capacity(shape, worker, None));
    let best = lacks_only_capacity.min_by_key(|worker| utilization(shape, worker));
    best.map(|worker| worker.record.id)
}

/// Returns whether a worker is eligible for a shape, or would be if its running jobs had ended and nothing were reserved.
pub(crate) fn has_capacity(shape: &Shape, worker: &Worker, own: Option<Holder>) -> bool {
    let lacks_only_free_capacity = |failed: &FailedFilter| match failed {
        FailedFilter::Cpu { needed, capacity, .. } => needed <= capacity,
        FailedFilter::Memory { needed, capacity, .. } => needed <= capacity,
        FailedFilter::Custom { needed, capacity, .. } => needed <= capacity,
        FailedFilter::Slots { slots } => *slots > 0,
        FailedFilter::PortInUse { .. } => true,
        FailedFilter::Declined | FailedFilter::Reserved { .. } | FailedFilter::ReservedForJob { .. } => true,
        _ => false,
    };
    let each = |failed: &dyn Fn() -> FailedFilter| {
        if lacks_only_free_capacity(&failed()) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    check_eligibility(shape, worker, own, each).is_continue()
}

/// Returns whether a worker is eligible for a shape if nothing were reserved on it.
pub(crate) fn has_free_capacity(shape: &Shape, worker: &Worker) -> bool {
    check_worker(shape, worker, &mut |_| ControlFlow::Break(())).is_continue()
}

/// Returns how much of the scarcest resource is missing on a worker for a shape, in millionths of its capacity.
pub(crate) fn missing(shape: &Shape, worker: &Worker) -> u64 {
    utilization(shape, worker).saturating_sub(1_000_000)
}

/// Calls `found` for each reason why a worker is not eligible, until it breaks.
fn check_eligibility(
    shape: &Shape,
    worker: &Worker,
    own: Option<Holder>,
    mut found: impl FnMut(&dyn Fn() -> FailedFilter) -> ControlFlow<()>,
) -> ControlFlow<()> {
    check_worker(shape, worker, &mut found)?;
    if worker.reserved.is_empty() {
        ControlFlow::Continue(())
    } else {
        check_reservations(shape, worker, own, found)
    }
}

fn check_worker(
    shape: &Shape,
    worker: &Worker,
    found: &mut impl FnMut(&dyn Fn() -> FailedFilter) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let record = &worker.record;
    if record.status == WorkerStatus::Lost {
        found(&|| FailedFilter::Lost)?;
    } else if worker.session.is_none() {
        found(&|| FailedFilter::Disconnected)?;
    }
    match record.admission {
        Admission::Open => {}
        Admission::Cordoned => found(&|| FailedFilter::Cordoned)?,
        Admission::Draining => found(&|| FailedFilter::Draining)?,
    }
    if let Some(problem) = &worker.health.problem {
        found(&|| FailedFilter::Unhealthy { problem: problem.clone() })?;
    }
    if worker.declined_until.is_some() {
        found(&|| FailedFilter::Declined)?;
    }
    let can = &record.capabilities;
    if !can.runtimes.iter().any(|runtime| runtime == shape.runtime) {
        found(&|| FailedFilter::Runtime { runtime: shape.runtime.to_owned() })?;
    }
    for (limit, needed, there) in [
        ("memory", shape.memory_limit, can.memory_limit),
        ("cpu", shape.cpu_limit, can.cpu_limit),
        ("pids", shape.pids_limit, can.pids_limit),
    ] {
        if needed && !there {
            found(&|| FailedFilter::Limit { limit: limit.to_owned() })?;
        }
    }
    if shape.health_checks && !can.health_checks {
        found(&|| FailedFilter::HealthChecks)?;
    }
    if shape.sandbox != SandboxLevel::None && !can.sandbox_levels.contains(&shape.sandbox) {
        found(&|| FailedFilter::Sandbox { level: shape.sandbox })?;
    }
    for volume in shape.volumes.iter().filter(|volume| !can.volumes.contains(volume)) {
        found(&|| FailedFilter::Volume { volume: volume.clone() })?;
    }
    for constraint in shape.constraints.iter().filter(|c| !satisfies(c, worker)) {
        let value = record.labels.get(&constraint.label);
        found(&|| FailedFilter::Constraint { label: constraint.label.clone(), value: value.cloned() })?;
    }
    check_resources(shape, worker, found)
}

/// Returns whether a worker satisfies all constraints.
pub(crate) fn satisfies_all(constraints: &[Constraint], worker: &Worker) -> bool {
    constraints.iter().all(|constraint| satisfies(constraint, worker))
}

/// Returns the constraint that binds a job to a worker; without one, no worker satisfies it.
pub(crate) fn pin_to(worker: Option<String>) -> Constraint {
    let values = worker.into_iter().collect();
    Constraint { label: WORKER_LABEL.to_owned(), operator: Operator::In, values }
}

/// Returns whether a worker satisfies a constraint, by its labels or by its id.
fn satisfies(constraint: &Constraint, worker: &Worker) -> bool {
    if constraint.label != WORKER_LABEL {
        return constraint.holds(&worker.record.labels);
    }
    let labels = BTreeMap::from([(WORKER_LABEL.to_owned(), worker.record.id.to_string())]);
    constraint.holds(&labels)
}

/// Checks the free capacity that reservations of schedules leave. The free capacity without reservations is
/// checked by [`check_resources`].
fn check_reservations(
    shape: &Shape,
    worker: &Worker,
    own: Option<Holder>,
    mut found: impl FnMut(&dyn Fn() -> FailedFilter) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let others = || worker.reserved_against(shape.class, own);
    let Some(first) = others().next() else { return ControlFlow::Continue(()) };
    let (capacity, used) = (&worker.record.capacity, &worker.used);
    let cpu: u64 = others().map(|kept| u64::from(kept.shape.cpu.0)).sum();
    let memory: u64 = others().map(|kept| kept.shape.memory.0).sum();
    let custom =
        |resource: &str| -> u64 { others().filter_map(|kept| kept.shape.custom.get(resource)).sum() };
    let free = |capacity: u64, used: u64, kept: u64| capacity.saturating_sub(used).saturating_sub(kept);
    let slots = u64::from(capacity.slots);
    let fits = u64::from(shape.cpu.0) <= free(capacity.cpu.0.into(), used.cpu.0.into(), cpu)
        && shape.memory.0 <= free(capacity.memory.0, used.memory.0, memory)
        && shape.custom.iter().all(|(resource, &needed)| {
            let there = worker.custom_capacity(resource);
            needed <= free(there, used.custom.get(resource).copied().unwrap_or(0), custom(resource))
        })
        && 1 <= free(slots, worker.jobs.len() as u64, others().count() as u64);
    if !fits {
        found(&|| match &first.purpose {
            Purpose::Firing { name, scheduled_for, .. } => {
                FailedFilter::Reserved { schedule: name.as_ref().to_owned(), until: *scheduled_for }
            }
            Purpose::Preemption { job } | Purpose::LongWaiting { job, .. } => {
                FailedFilter::ReservedForJob { job: *job }
            }
        })?;
    }
    ControlFlow::Continue(())
}

fn check_resources(
    shape: &Shape,
    worker: &Worker,
    found: &mut impl FnMut(&dyn Fn() -> FailedFilter) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let capacity = &worker.record.capacity;
    let used = &worker.used;
    let free = Millicores(capacity.cpu.0.saturating_sub(used.cpu.0));
    if shape.cpu > free {
        found(&|| FailedFilter::Cpu { needed: shape.cpu, free, capacity: capacity.cpu })?;
    }
    let free = Bytes(capacity.memory.0.saturating_sub(used.memory.0));
    if shape.memory > free {
        found(&|| FailedFilter::Memory { needed: shape.memory, free, capacity: capacity.memory })?;
    }
    for (resource, &needed) in &shape.custom {
        let capacity = worker.custom_capacity(resource);
        let free = capacity.saturating_sub(used.custom.get(resource).copied().unwrap_or(0));
        if needed > free {
            found(&|| match port_of(resource) {
                Some(port) => FailedFilter::PortInUse { port },
                None => FailedFilter::Custom { resource: resource.clone(), needed, free, capacity },
            })?;
        }
    }
    let limit = shape.spread.as_deref().and_then(|group| Some((group, group.max_per_worker?)));
    if let Some((group, max)) = limit {
        let running = worker.jobs_of_group(group);
        if running >= max {
            found(&|| FailedFilter::Spread { running, max_per_worker: max })?;
        }
    }
    let over = usize::from(is_on(Mutation::EngineOverfillsWorkers));
    if worker.jobs.len() >= usize::try_from(capacity.slots).unwrap_or(usize::MAX) + over {
        found(&|| FailedFilter::Slots { slots: capacity.slots })?;
    }
    ControlFlow::Continue(())
}

/// Returns the utilization of a worker's scarcest resource with `shape` added, in millionths.
fn utilization(shape: &Shape, worker: &Worker) -> u64 {
    let part = |used: u64, needed: u64, capacity: u64| {
        let used = u128::from(used) + u128::from(needed);
        u64::try_from(used * 1_000_000 / u128::from(capacity.max(1))).unwrap_or(u64::MAX)
    };
    let capacity = &worker.record.capacity;
    let cpu = part(worker.used.cpu.0.into(), shape.cpu.0.into(), capacity.cpu.0.into());
    let memory = part(worker.used.memory.0, shape.memory.0, capacity.memory.0);
    cpu.max(memory)
}

/// Returns the score of an eligible worker for a shape; the lowest score is best.
pub(crate) fn score(shape: &Shape, worker: &Worker) -> u64 {
    let fullness = utilization(shape, worker);
    match shape.placement {
        Placement::Pack => u64::MAX - fullness,
        Placement::Spread => fullness,
    }
}

/// Returns the best eligible worker for a job that is kept apart from others: a replica of a service, or a job with
/// [`JobSpread`](model::spec::JobSpread).
///
/// This is the worker whose value of the label has the fewest of the others; then the one with the fewest of them, so that
/// the loss of a worker costs as few as possible; then as [`best_of`]. For a replica, those of its revision count first:
/// the older ones will be stopped, so that an update ends with a distribution like that of a new service.
pub(crate) fn best_apart<'a>(
    shape: &Shape,
    replica: Option<&ReplicaOrigin>,
    workers: impl Iterator<Item = &'a Worker> + Clone,
    avoid: Option<WorkerId>,
) -> Option<WorkerId> {
    let group = shape.spread.as_deref();
    let others = |worker: &Worker| match (replica, group) {
        (Some(replica), _) => worker.replicas_of(replica.service, replica.revision),
        (None, Some(group)) => (0, worker.jobs_of_group(group)),
        (None, None) => (0, 0),
    };
    let by_value = group.and_then(|group| group.over.as_deref()).map(|label| {
        let mut sums: BTreeMap<Option<&str>, (u32, u32)> = BTreeMap::new();
        for worker in workers.clone() {
            let (sum, (of_revision, all)) =
                (sums.entry(label_of(worker, label)).or_default(), others(worker));
            *sum = (sum.0 + of_revision, sum.1 + all);
        }
        (label, sums)
    });
    let fitting = workers.filter(|worker| is_eligible(shape, worker, None));
    let best = fitting.min_by_key(|worker| {
        let near = by_value.as_ref().and_then(|(label, sums)| sums.get(&label_of(worker, label)).copied());
        let is_avoided = Some(worker.record.id) == avoid;
        (near, others(worker), is_avoided, score(shape, worker))
    });
    best.map(|worker| worker.record.id)
}

fn label_of<'a>(worker: &'a Worker, label: &str) -> Option<&'a str> {
    worker.record.labels.get(label).map(String::as_str)
}

/// Returns the best eligible worker for a shape, by lowest score and then lowest id. Prefers a worker other
/// than `avoid`. The reservation of the holder `own` is free capacity.
pub(crate) fn best_of<'a>(
    shape: &Shape,
    workers: impl Iterator<Item = &'a Worker>,
    avoid: Option<WorkerId>,
    own: Option<Holder>,
) -> Option<WorkerId> {
    let fitting = workers.filter(|worker| is_eligible(shape, worker, own));
    let best = fitting.min_by_key(|worker| (Some(worker.record.id) == avoid, score(shape, worker)));
    best.map(|worker| worker.record.id)
}
