//! Invariants of jobs, queues and workers, and the comparison with a rebuilt engine.
//!
//! - [`Jobs::check_jobs`]: after a flush, exactly one thing ends the current state of each live job. This is a timer, a
//!   place in a queue, an execution, or the end of upstream jobs. Queues and workers count what their jobs say.
//! - [`Jobs::job_difference`]: an engine that is rebuilt from the rows has the same jobs, keys, workers and queues. What a
//!   new engine decides again, such as the numbers of shapes, is left out.
//!
//! Tests and the simulator call both after each step. The product calls neither.

use std::collections::{BTreeMap, BTreeSet};

use model::namespace::NamespaceUsage;
use model::queue::QueueSettings;
use model::record::{ExecutionRecord, JobState, WorkerRecord};
use model::spec::{PriorityClass, UpstreamJob};
use model::worker::WorkerStatus;
use model::{JobId, JobStatus, Timestamp};

use super::{Deadlines, Job};
use crate::context::Context;
use crate::difference::{Difference, count_difference, first};
use crate::jobs::IdempotencyEntry;
use crate::jobs::Jobs;
use crate::output::{NamespaceView, QueueView};
use crate::profile::Profile;
use crate::timer::Timer;
use crate::workers::{ClassUse, Holder, Used, Worker};

impl Jobs {
    /// Checks the invariants of jobs, queues and workers.
    pub(crate) fn check_jobs(&self, cx: &Context) -> Result<(), String> {
        for (&id, job) in &self.all {
            self.check_job(cx, id, job)?;
        }
        let upstream: usize = self.all.values().map(|job| job.state.upstream.len()).sum();
        if self.downstream.len() != upstream {
            return Err(format!("{upstream} upstream jobs, but {} downstream jobs", self.downstream.len()));
        }
        self.check_workers()?;
        self.check_reservations()?;
        self.check_queues()
    }

    /// A job with a reservation waits, and exactly its worker has the reservation. A victim has a lower class.
    fn check_reservations(&self) -> Result<(), String> {
        let on_workers = self.workers.iter().flat_map(|(&id, worker)| {
            worker.reserved.iter().filter_map(move |kept| match kept.holder() {
                Holder::Job(job) => Some((job, id)),
                Holder::Schedule(_) => None,
            })
        });
        let on_workers: BTreeSet<_> = on_workers.collect();
        let known: BTreeSet<_> =
            self.job_reservations.iter().map(|(&job, kept)| (job, kept.worker)).collect();
        if on_workers != known {
            return Err(format!("workers have the reservations {on_workers:?}, expected {known:?}"));
        }
        for id in self.job_reservations.keys() {
            let status = self.all.get(id).map(|job| job.state.status);
            if status != Some(JobStatus::Waiting) {
                return Err(format!("{id} has a reservation and is {status:?}"));
            }
        }
        for (id, job) in &self.all {
            // An update can change the class of a job that preempts others; its reservation ends then.
            let by = job.live.as_ref().and_then(|live| live.record.preempted_by);
            let by = by.filter(|by| self.job_reservations.contains_key(by)).and_then(|by| self.all.get(&by));
            if let Some(by) = by.filter(|by| by.profile.shape.class <= job.profile.shape.class) {
                let (class, of) = (by.profile.shape.class, job.profile.shape.class);
                return Err(format!("{id} of the class {of} is preempted by a job of the class {class}"));
            }
        }
        Ok(())
    }

    /// Exactly one thing ends the current state of each live job: a timer, a queue, or an execution.
    fn check_job(&self, cx: &Context, id: JobId, job: &Job) -> Result<(), String> {
        self.check_deadlines(cx, id, job)?;
        let status = job.state.status;
        let timer = usize::from(cx.wall_timers.is_armed(job.state.due_at, Timer::JobReady(id)));
        let places = self.queues.places_of(job.queued(id)) + usize::from(self.reconciliation.holds(id));
        let unknown = job.live.as_ref().is_some_and(|live| live.is_unknown());
        let live = usize::from(job.live.is_some() && (status == JobStatus::Running || !unknown));
        if !job.state.upstream.is_empty() {
            let of_time = usize::from(job.state.due_at > cx.now);
            if status != JobStatus::Ready || places + live > 0 || timer < of_time {
                return Err(format!(
                    "{id} is {status}, with {timer} timers and {places} places, and waits for others"
                ));
            }
            return self.check_upstream(id, job);
        }
        let expected = match status {
            JobStatus::Ready | JobStatus::Retrying => (1, 0, 0),
            JobStatus::Waiting => (0, 1, 0),
            JobStatus::Running => (0, 0, 1),
            _ => return Err(format!("{id} is {status} and still live after a flush")),
        };
        if (timer, places, live) != expected {
            return Err(format!("{id} is {status} with {timer} timers, {places} places, {live} executions"));
        }
        let Some(live) = &job.live else { return Ok(()) };
        let record = &live.record;
        let worker = self.workers.get(&record.worker).ok_or(format!("the worker of {id} does not exist"))?;
        let is_lost = worker.record.status == WorkerStatus::Lost;
        let has = if status == JobStatus::Running { &worker.jobs } else { &worker.unknown };
        if !has.contains(&id) || is_lost != unknown {
            return Err(format!("{id} was assigned to {}, which does not have it", record.worker));
        }
        if self.executions.get(&record.id) != Some(&id) || record.fence != job.state.fence {
            return Err(format!("the execution of {id} is not its current one"));
        }
        let timers = (
            cx.steady_timers.is_armed(live.remind_at, Timer::Remind(record.id)),
            cx.steady_timers.is_armed(live.result_wait_until, Timer::ResultWait(record.id)),
        );
        match (status, unknown) {
            (JobStatus::Running, false) if timers != (true, false) => {
                Err(format!("no timer reminds the worker of {id}"))
            }
            (JobStatus::Running, true) if !timers.1 => {
                Err(format!("no timer ends the wait for the result of {id}"))
            }
            _ => Ok(()),
        }
    }

    /// The end of its upstream jobs ends the current state of a job.
    fn check_upstream(&self, id: JobId, job: &Job) -> Result<(), String> {
        let is_known = |upstream: &UpstreamJob| self.downstream.contains(upstream.job, id);
        match job.state.upstream.iter().find(|upstream| !is_known(upstream)) {
            Some(upstream) => Err(format!("{id} waits for {}, whose end would not release it", upstream.job)),
            None => Ok(()),
        }
    }

    fn check_workers(&self) -> Result<(), String> {
        let mut held = BTreeSet::new();
        for (id, worker) in self.workers.iter() {
            let mut used = Used::default();
            let mut by_class: BTreeMap<PriorityClass, ClassUse> = BTreeMap::new();
            for job_id in &worker.jobs {
                held.insert(*job_id);
                let job = self.all.get(job_id).ok_or(format!("{id} has {job_id}, which is not live"))?;
                let of_class = by_class.entry(job.profile.shape.class).or_default();
                of_class.cpu += u64::from(job.profile.shape.cpu.0);
                of_class.memory += job.profile.shape.memory.0;
                of_class.jobs += 1;
                used.add(&job.profile.shape);
            }
            if used != worker.used {
                return Err(format!("{id} has {:?} reserved, expected {used:?}", worker.used));
            }
            let some =
                |(class, used): (&PriorityClass, &ClassUse)| (used.jobs > 0).then_some((*class, *used));
            if by_class != worker.used_by_class.iter().filter_map(some).collect() {
                return Err(format!("{id} counts {:?}, expected {by_class:?}", worker.used_by_class));
            }
            held.extend(&worker.unknown);
        }
        if held.len() != self.executions.len() {
            return Err(format!("{} jobs on workers, but {} executions", held.len(), self.executions.len()));
        }
        Ok(())
    }

    fn check_queues(&self) -> Result<(), String> {
        let mut running: BTreeMap<&str, u32> = BTreeMap::new();
        let mut waiting: BTreeMap<&str, u64> = BTreeMap::new();
        for (_, job) in self.all.iter().filter(|(id, _)| !self.reconciliation.holds(**id)) {
            match job.state.status {
                JobStatus::Running => *running.entry(&job.profile.queue).or_default() += 1,
                JobStatus::Waiting => *waiting.entry(&job.profile.queue).or_default() += 1,
                _ => {}
            }
        }
        self.check_quotas()?;
        for view in self.queues.view() {
            let name = view.name.as_str();
            let expected = (waiting.get(name).copied().unwrap_or(0), running.get(name).copied().unwrap_or(0));
            if (view.waiting, self.queues.running_in(name)) != expected {
                return Err(format!(
                    "queue {name} counts {}/{} jobs, expected {expected:?}",
                    view.waiting, view.running
                ));
            }
        }
        Ok(())
    }

    fn check_quotas(&self) -> Result<(), String> {
        let mut expected: BTreeMap<&str, NamespaceUsage> = BTreeMap::new();
        for job in self.all.values().filter(|job| !job.state.status.is_final()) {
            let usage = expected.entry(&job.profile.namespace).or_default();
            usage.jobs += 1;
            if job.state.status == JobStatus::Running {
                let shape = &job.profile.shape;
                usage.running += 1;
                usage.cpu.0 += shape.cpu.0;
                usage.memory.0 += shape.memory.0;
                for (name, amount) in &shape.custom {
                    *usage.custom.entry(name.clone()).or_default() += amount;
                }
            }
        }
        for view in self.queues.quotas().view() {
            let usage = expected.remove(view.name.as_str()).unwrap_or_default();
            if usage != view.usage {
                return Err(format!("namespace {} counts {:?}, expected {usage:?}", view.name, view.usage));
            }
        }
        match expected.first_key_value() {
            Some((name, usage)) => Err(format!("namespace {name} is not counted, but uses {usage:?}")),
            None => Ok(()),
        }
    }

    /// Returns the first job, execution, key, worker or queue that differs from a rebuilt engine.
    pub(crate) fn job_difference(&self, other: &Self) -> Option<Difference> {
        first(self.all.iter().map(|(id, job)| (id, of_job(job))), |id| other.all.get(id).map(of_job))
            .or_else(|| first(&self.executions, |id| other.executions.get(id)))
            .or_else(|| {
                let here = self.keys.iter().map(|(key, known)| (key, of_key(known)));
                first(here, |key| other.keys.get(key).map(of_key))
            })
            .or_else(|| {
                let here = self.workers.iter().map(|(id, worker)| (id, of_worker(worker)));
                first(here, |id| other.workers.get(id).map(of_worker))
            })
            .or_else(|| self.queue_difference(other))
            .or_else(|| self.quota_difference(other))
            .or_else(|| {
                count_difference(
                    "jobs, executions, keys, workers, queues, namespaces",
                    self.object_counts(),
                    other.object_counts(),
                )
            })
    }

    fn object_counts(&self) -> [usize; 6] {
        let (queues, namespaces) = (self.queues.view().len(), self.queues.quotas().view().len());
        [self.all.len(), self.executions.len(), self.keys.len(), self.workers.len(), queues, namespaces]
    }

    fn quota_difference(&self, other: &Self) -> Option<Difference> {
        let (here, there) = (self.queues.quotas().view(), other.queues.quotas().view());
        let of = |view: &NamespaceView| format!("{view:?}");
        first(here.iter().map(|view| (view.name.as_str(), of(view))), |name| {
            there.iter().find(|view| view.name == name).map(of)
        })
    }

    fn queue_difference(&self, other: &Self) -> Option<Difference> {
        let (here, there) = (self.queues.view(), other.queues.view());
        first(here.iter().map(|view| (view.name.as_str(), of_queue(view))), |name| {
            there.iter().find(|view| view.name == name).map(of_queue)
        })
    }
}

/// State of a job, without the number of its shape, which differs between engines.
#[derive(Debug)]
struct JobSnapshot<'a> {
    state: &'a JobState,
    deadlines: Option<&'a Deadlines>,
    profile: &'a Profile,
    live: Option<&'a ExecutionRecord>,
}

impl PartialEq for JobSnapshot<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.state == other.state
            && self.deadlines == other.deadlines
            && of_profile(self.profile) == of_profile(other.profile)
            && self.live == other.live
    }
}

/// Returns a profile without the number of its shape.
fn of_profile(profile: &Profile) -> impl PartialEq {
    let Profile {
        namespace,
        queue,
        priority,
        shape,
        shape_id: _,
        retry,
        grace,
        timeout,
        delivery,
        retention,
    } = profile;
    (namespace, queue, priority, shape, retry, (grace, timeout, delivery, retention))
}

fn of_job(job: &Job) -> JobSnapshot<'_> {
    let live = job.live.as_ref().map(|live| &live.record);
    JobSnapshot { state: &job.state, deadlines: job.deadlines.as_deref(), profile: &job.profile, live }
}

fn of_key(known: &IdempotencyEntry) -> (u128, JobId, Timestamp) {
    (known.body, known.job, known.expires_at)
}

/// A worker that has not reconnected is expected in a rebuilt engine, and ready in a running one.
fn of_worker(worker: &Worker) -> (WorkerRecord, &BTreeSet<JobId>, &Used) {
    let status = match worker.record.status {
        WorkerStatus::Expected => WorkerStatus::Ready,
        known => known,
    };
    (WorkerRecord { status, ..(*worker.record).clone() }, &worker.jobs, &worker.used)
}

/// A rebuilt engine decides again which waiting jobs are parked at a key, so the oldest job may differ.
fn of_queue(view: &QueueView) -> (u64, u64, u64, &QueueSettings) {
    (view.version, view.waiting, view.running, &view.settings)
}
