//! Queues of waiting jobs, and the order in which they are dispatched.
//!
//! A job enters when it becomes ready and leaves when it is placed, cancelled, updated or expired. Only this
//! module defines the order: by priority class, then between queues by weighted fair share, within a queue by
//! priority, then fair share between namespaces, then fair share between runs, then age. It knows no workers;
//! `jobs::dispatch` requests the next job and reports whether it was placed.
//!
//! A job whose concurrency key has reached its limit is *parked*: it is no candidate until another job of its
//! key ends, so it costs no search time.
//!
//! - [`lane`]: order of the jobs of one queue.
//! - [`fair`]: weighted fair shares.
//! - [`key`]: concurrency keys and parked jobs.
//! - [`bucket`]: rate limits.
//! - [`quota`]: quotas of namespaces.
//!
//! # Invariants
//! - A waiting job is in exactly one lane, or is parked at its key.
//! - `running <= limit` when a job is placed, for every queue and every key; and the usage of every namespace is within
//!   its quota.
//!
//! # Cost
//! O(log n) to enter and leave. Choosing the next job visits each queue, and each namespace and shape of the
//! highest priority, but never each job or run.

mod bucket;
mod fair;
mod key;
mod lane;
mod quota;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use model::namespace::NamespaceUsage;
use model::queue::QueueSettings;
use model::record::QueueRecord;
use model::spec::{Concurrency, PriorityClass};
use model::why::Reason;
use model::{JobId, Timestamp};
use mutation::{Mutation, is_on};

use crate::output::QueueView;
use crate::profile::{Profile, Shape};
use bucket::Bucket;
use fair::FairShares;
use key::{Keys, Parked, Unparked};
pub(crate) use lane::Flow;
use lane::Lanes;
pub(crate) use quota::Quotas;

/// A job as its queue needs it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueuedJob<'a> {
    pub(crate) id: JobId,
    pub(crate) profile: &'a Arc<Profile>,
    /// Order among the jobs of the same queue, priority, namespace and flow: oldest first.
    pub(crate) due_at: Timestamp,
    /// The flow with which it shares turns in its queue.
    pub(crate) flow: Flow,
    pub(crate) concurrency: Option<&'a Concurrency>,
}

impl QueuedJob<'_> {
    fn position(&self) -> (Timestamp, JobId) {
        (self.due_at, self.id)
    }
}

/// All queues and all concurrency keys.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    queues: BTreeMap<Arc<str>, Queue>,
    keys: Keys,
    quotas: Quotas,
    reserved: Reserved,
    shares: FairShares,
}

/// What jobs with a reservation will use of the limits, before any other job starts.
#[derive(Debug, Default)]
pub(crate) struct Reserved {
    /// Number of jobs of each queue.
    queues: BTreeMap<Arc<str>, u32>,
    /// Number of jobs of each concurrency key, by namespace and key.
    keys: BTreeMap<(Arc<str>, String), u32>,
    /// Usage of the jobs of each namespace.
    namespaces: BTreeMap<Arc<str>, NamespaceUsage>,
}

impl Reserved {
    pub(crate) fn add(&mut self, job: QueuedJob<'_>) {
        let profile = job.profile;
        *self.queues.entry(Arc::clone(&profile.queue)).or_default() += 1;
        if let Some(concurrency) = job.concurrency {
            let key = (Arc::clone(&profile.namespace), concurrency.key.clone());
            *self.keys.entry(key).or_default() += 1;
        }
        quota::add(self.namespaces.entry(Arc::clone(&profile.namespace)).or_default(), &profile.shape);
    }

    pub(crate) fn subtract(&mut self, job: QueuedJob<'_>) {
        let profile = job.profile;
        if let Some(count) = self.queues.get_mut(&profile.queue) {
            *count = count.saturating_sub(1);
        }
        self.queues.retain(|_, count| *count > 0);
        if let Some(concurrency) = job.concurrency {
            let key = (Arc::clone(&profile.namespace), concurrency.key.clone());
            if let Some(count) = self.keys.get_mut(&key) {
                *count = count.saturating_sub(1);
            }
            self.keys.retain(|_, count| *count > 0);
        }
        if let Some(usage) = self.namespaces.get_mut(&profile.namespace) {
            quota::subtract(usage, &profile.shape);
        }
        self.namespaces.retain(|_, usage| usage.running > 0);
    }

    fn of_key(&self, job: QueuedJob<'_>) -> u32 {
        if self.keys.is_empty() {
            return 0;
        }
        job.concurrency.map_or(0, |concurrency| {
            let key = (Arc::clone(&job.profile.namespace), concurrency.key.clone());
            self.keys.get(&key).copied().unwrap_or(0)
        })
    }
}

#[derive(Debug, Default)]
struct Queue {
    settings: QueueSettings,
    /// Version of the settings; 0 for a queue without settings.
    version: u64,
    lanes: Lanes,
    shares: FairShares,
    bucket: Option<Bucket>,
    /// Number of waiting jobs, in lanes and parked.
    waiting: u64,
    running: u32,
}

/// A limit of a queue that currently blocks all of its jobs.
enum Gate {
    Paused,
    LimitReached { limit: u32 },
    RateLimited { until: Timestamp },
}

impl Queue {
    /// Returns all gates that are closed now; empty if a job may be placed.
    fn closed_gates(&self, now: Timestamp) -> impl Iterator<Item = Gate> {
        let paused = self.settings.paused.then_some(Gate::Paused);
        let over = u32::from(is_on(Mutation::EngineOverfillsQueues));
        let full = self.settings.concurrency.filter(|&limit| self.running >= limit + over);
        let slow = self.bucket.as_ref().and_then(|bucket| bucket.wait(now));
        paused
            .into_iter()
            .chain(full.map(|limit| Gate::LimitReached { limit }))
            .chain(slow.map(|until| Gate::RateLimited { until }))
    }
}

/// The next job to place, if a worker is eligible.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) job: JobId,
    pub(crate) profile: Arc<Profile>,
}

/// Result of [`Queues::next`].
#[derive(Debug, Default)]
pub(crate) struct Next {
    pub(crate) candidate: Option<Candidate>,
    /// Queues blocked by their rate limit, with the time of the next allowed start.
    pub(crate) slow: Vec<(Arc<str>, Timestamp)>,
}

impl Queues {
    pub(crate) fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    pub(crate) fn quotas_mut(&mut self) -> &mut Quotas {
        &mut self.quotas
    }

    fn queue(&mut self, name: &Arc<str>) -> &mut Queue {
        self.queues.entry(Arc::clone(name)).or_default()
    }

    /// Adds a job to its lane, or parks it if its key is at its limit.
    pub(crate) fn push(&mut self, job: QueuedJob<'_>) {
        let place = job.position();
        let parked = job.concurrency.is_some_and(|concurrency| {
            let entry = Parked::of(job, concurrency.limit);
            !self.keys.admit(&job.profile.namespace, &concurrency.key, place, entry)
        });
        let queue = self.queue(&job.profile.queue);
        queue.waiting += 1;
        if !parked {
            queue.lanes.insert(job.profile, job.flow, place);
        }
    }

    /// Removes a job that was not placed.
    pub(crate) fn remove(&mut self, job: QueuedJob<'_>) {
        let place = job.position();
        let queue = self.queue(&job.profile.queue);
        queue.waiting = queue.waiting.saturating_sub(1);
        let was_candidate = queue.lanes.remove(job.profile, job.flow, place);
        self.drop_if_unused(&job.profile.queue);
        if let Some(concurrency) = job.concurrency {
            let namespace = &job.profile.namespace;
            let entry = Parked::of(job, concurrency.limit);
            self.keys.leave(namespace, &concurrency.key, place, &entry, was_candidate);
            self.unpark(namespace, &concurrency.key);
        }
    }

    /// Records that a job was placed.
    pub(crate) fn on_job_placed(&mut self, job: QueuedJob<'_>, now: Timestamp) {
        let profile = &job.profile;
        let queue = self.queue(&profile.queue);
        queue.lanes.serve(profile, job.flow, job.position());
        queue.waiting = queue.waiting.saturating_sub(1);
        queue.running += 1;
        self.quotas.execution_started(&profile.namespace, &profile.shape);
        let queue = self.queue(&profile.queue);
        if let Some(bucket) = queue.bucket.as_mut().filter(|_| !is_on(Mutation::EngineForgetsRates)) {
            bucket.take(now);
        }
        let weight = queue.settings.namespace_weights.get(&*profile.namespace).copied().unwrap_or(1);
        queue.shares.charge(&profile.namespace, weight);
        let weight = queue.settings.weight;
        self.shares.charge(&profile.queue, weight);
        if let Some(concurrency) = job.concurrency {
            let entry = Parked::of(job, concurrency.limit);
            self.keys.count_placed(&profile.namespace, &concurrency.key, &entry);
        }
    }

    /// Records that the execution of a job ended.
    pub(crate) fn on_execution_ended(&mut self, job: QueuedJob<'_>) {
        let queue = self.queue(&job.profile.queue);
        queue.running = queue.running.saturating_sub(1);
        self.drop_if_unused(&job.profile.queue);
        self.quotas.execution_ended(&job.profile.namespace, &job.profile.shape);
        if let Some(concurrency) = job.concurrency {
            self.keys.end(&job.profile.namespace, &concurrency.key);
            self.unpark(&job.profile.namespace, &concurrency.key);
        }
    }

    fn drop_if_unused(&mut self, name: &str) {
        if self.queues.get(name).is_some_and(|q| q.version == 0 && q.waiting == 0 && q.running == 0) {
            self.queues.remove(name);
        }
    }

    /// Counts a restored job that is still running.
    pub(crate) fn restore_running(&mut self, job: QueuedJob<'_>) {
        self.queue(&job.profile.queue).running += 1;
        self.quotas.execution_started(&job.profile.namespace, &job.profile.shape);
        if let Some(concurrency) = job.concurrency {
            self.keys.restore_running(&job.profile.namespace, &concurrency.key);
        }
    }

    /// Parks a candidate whose key is at its limit: jobs of one key may have different limits.
    pub(crate) fn park(&mut self, job: QueuedJob<'_>) {
        let place = job.position();
        self.queue(&job.profile.queue).lanes.remove(job.profile, job.flow, place);
        if let Some(concurrency) = job.concurrency {
            let entry = Parked::of(job, concurrency.limit);
            self.keys.park(&job.profile.namespace, &concurrency.key, place, entry);
        }
    }

    /// Returns whether a job's concurrency key is below its limit.
    pub(crate) fn key_is_open(&self, job: QueuedJob<'_>) -> bool {
        self.key_allows(job, 0)
    }

    /// Returns whether a job's concurrency key is below its limit while `reserved` more jobs of the key run.
    pub(crate) fn key_allows(&self, job: QueuedJob<'_>, reserved: u32) -> bool {
        let over = u32::from(is_on(Mutation::EngineOverfillsKeys));
        let running = |key: &str| self.keys.running(&job.profile.namespace, key).saturating_add(reserved);
        job.concurrency.is_none_or(|c| running(&c.key) < c.limit + over)
    }

    /// Returns whether the limits of a job's queue, of its key and of its namespace allow one more running job.
    pub(crate) fn is_below_limits(&self, job: QueuedJob<'_>) -> bool {
        let queue = self.queues.get(&job.profile.queue);
        let full =
            queue.is_some_and(|queue| queue.settings.concurrency.is_some_and(|limit| queue.running >= limit));
        !full && self.key_is_open(job) && self.quotas.allows(&job.profile.namespace, &job.profile.shape)
    }

    /// Returns whether a waiting job's queue, key and namespace allow it to start now, regardless of other waiting jobs.
    pub(crate) fn allows_start(&self, job: QueuedJob<'_>, now: Timestamp) -> bool {
        let open = |queue: &Queue| queue.closed_gates(now).next().is_none();
        self.queues.get(&job.profile.queue).is_none_or(open)
            && self.key_is_open(job)
            && self.quotas.allows(&job.profile.namespace, &job.profile.shape)
    }

    fn unpark(&mut self, namespace: &Arc<str>, key: &str) {
        while let Some((place, Unparked { profile, flow })) = self.keys.unpark(namespace, key) {
            self.queue(&profile.queue).lanes.insert(&profile, flow, place);
        }
    }

    /// Returns the next job that `wants` accepts among those whose shape is not `blocked`. The limits include the jobs
    /// with a reservation.
    pub(crate) fn next(
        &self,
        now: Timestamp,
        blocked: &BTreeMap<u64, Arc<Shape>>,
        wants: impl Fn(JobId) -> bool,
    ) -> Next {
        let mut next = Next::default();
        next.candidate = self.find(
            |name, queue| match self.closed_gate(name, queue, now) {
                Some(Gate::RateLimited { until }) => {
                    next.slow.push((Arc::clone(name), until));
                    false
                }
                Some(_) => false,
                None => true,
            },
            |profile| {
                !blocked.contains_key(&profile.shape_id)
                    && self.quotas.allows_beside(
                        &profile.namespace,
                        &profile.shape,
                        &self.reserved.namespaces,
                    )
            },
            wants,
        );
        next
    }

    /// Returns the next job that `wants` accepts, also if no worker has free capacity for it. Jobs of the shapes in
    /// `excluded` are passed over.
    pub(crate) fn next_of_shapes(
        &self,
        now: Timestamp,
        excluded: &BTreeMap<u64, Arc<Shape>>,
        wants: impl Fn(JobId) -> bool,
    ) -> Option<Candidate> {
        self.next(now, excluded, wants).candidate
    }

    /// Returns a gate of a queue that is closed now, or will be when the jobs with a reservation have started.
    fn closed_gate(&self, name: &Arc<str>, queue: &Queue, now: Timestamp) -> Option<Gate> {
        if let Some(gate) = queue.closed_gates(now).next() {
            return Some(gate);
        }
        let reserved = self.reserved.queues.get(name).copied().unwrap_or(0);
        let limit =
            queue.settings.concurrency.filter(|&limit| queue.running.saturating_add(reserved) >= limit);
        // A queue with a rate limit allows an unknown number of further starts.
        let limit = limit.or((reserved > 0 && queue.bucket.is_some()).then_some(reserved));
        limit.filter(|_| reserved > 0).map(|limit| Gate::LimitReached { limit })
    }

    /// Returns whether a job may start beside the jobs with a reservation.
    pub(crate) fn allows_start_beside_reserved(&self, job: QueuedJob<'_>, now: Timestamp) -> bool {
        let profile = job.profile;
        let open = |(name, queue): (&Arc<str>, &Queue)| self.closed_gate(name, queue, now).is_none();
        self.queues.get_key_value(&profile.queue).is_none_or(open)
            && self.key_allows_beside_reserved(job)
            && self.quotas.allows_beside(&profile.namespace, &profile.shape, &self.reserved.namespaces)
    }

    /// Returns whether a job's concurrency key allows it to start beside the jobs with a reservation.
    pub(crate) fn key_allows_beside_reserved(&self, job: QueuedJob<'_>) -> bool {
        self.key_allows(job, self.reserved.of_key(job))
    }

    /// Returns whether a job is in a lane: it waits, and is not parked at its key.
    pub(crate) fn is_candidate(&self, job: QueuedJob<'_>) -> bool {
        let queue = self.queues.get(&job.profile.queue);
        queue.is_some_and(|queue| queue.lanes.contains(job.profile, job.flow, job.position()))
    }

    pub(crate) fn reserved_mut(&mut self) -> &mut Reserved {
        &mut self.reserved
    }

    /// Returns the next job of the open queues: the job of the highest class, then of the queue with the smallest share.
    fn find(
        &self,
        mut is_open: impl FnMut(&Arc<str>, &Queue) -> bool,
        chosen: impl Fn(&Profile) -> bool,
        wants: impl Fn(JobId) -> bool,
    ) -> Option<Candidate> {
        let mut best: Option<(Reverse<PriorityClass>, u64, Candidate)> = None;
        for (name, queue) in &self.queues {
            let Some(top) = queue.lanes.top_class() else { continue };
            let share = self.shares.start(name.as_ref());
            let precedes = |class| match &best {
                Some((best, least, _)) => (Reverse(class), share) < (*best, *least),
                None => true,
            };
            if !precedes(top) || !is_open(name, queue) {
                continue;
            }
            let found = queue.lanes.find(&queue.shares, &chosen, &wants);
            if let Some((job, profile)) = found.filter(|(_, profile)| precedes(profile.shape.class)) {
                best = Some((Reverse(profile.shape.class), share, Candidate { job, profile }));
            }
        }
        best.map(|(.., candidate)| candidate)
    }

    /// Sets the settings of a queue. The rate limit of a new queue starts with a full burst.
    pub(crate) fn set(&mut self, now: Timestamp, record: &QueueRecord) {
        let queue = self.queue(&record.name.as_str().into());
        queue.bucket = Bucket::renewed(queue.bucket.take(), &record.settings, now);
        queue.settings = record.settings.clone();
        queue.version = record.version;
    }

    /// Returns the numbers of waiting and of running jobs of a queue.
    pub(crate) fn jobs_in(&self, name: &str) -> (u64, u32) {
        self.queues.get(name).map_or((0, 0), |queue| (queue.waiting, queue.running))
    }

    /// Removes the settings of a queue that has no jobs.
    pub(crate) fn remove_settings(&mut self, name: &str) {
        self.queues.remove(name);
    }

    /// Removes the settings of all queues; queues with jobs stay with the defaults. Their rows are about to
    /// be read again.
    pub(crate) fn clear_settings(&mut self) {
        for queue in self.queues.values_mut() {
            (queue.settings, queue.version, queue.bucket) = (QueueSettings::default(), 0, None);
        }
        self.queues.retain(|_, queue| queue.waiting > 0 || queue.running > 0);
    }

    /// Restarts all rate limits with empty buckets: a change of owner must not allow another burst.
    pub(crate) fn restart_rates(&mut self, now: Timestamp) {
        for queue in self.queues.values_mut() {
            queue.bucket = Bucket::new(&queue.settings, now, true);
        }
    }

    /// Returns the version of a queue's settings; 0 if it has none.
    pub(crate) fn version(&self, name: &str) -> u64 {
        self.queues.get(name).map_or(0, |queue| queue.version)
    }

    pub(crate) fn waiting_in(&self, name: &str) -> u64 {
        self.queues.get(name).map_or(0, |queue| queue.waiting)
    }

    /// Returns whether a job is the next of its queue.
    pub(crate) fn is_first(&self, job: QueuedJob<'_>) -> bool {
        self.queues.get(&job.profile.queue).is_some_and(|queue| {
            queue.lanes.find(&queue.shares, |_| true, |_| true).is_some_and(|(first, _)| first == job.id)
        })
    }

    /// Returns the reasons of its queue, its key and its namespace that block a waiting job.
    ///
    /// `now` is steady time; `on_the_wall` converts a steady time to wall time.
    pub(crate) fn reasons(
        &self,
        now: Timestamp,
        job: QueuedJob<'_>,
        on_the_wall: impl Fn(Timestamp) -> Timestamp,
    ) -> Vec<Reason> {
        let mut reasons = Vec::new();
        let name = || job.profile.queue.as_ref().to_owned();
        if let Some(queue) = self.queues.get(&job.profile.queue) {
            reasons.extend(queue.closed_gates(now).map(|gate| match gate {
                Gate::Paused => Reason::QueuePaused { queue: name(), note: queue.settings.note.clone() },
                Gate::LimitReached { limit } => {
                    Reason::QueueConcurrency { queue: name(), running: queue.running, limit }
                }
                Gate::RateLimited { until } => Reason::QueueRate { queue: name(), until: on_the_wall(until) },
            }));
        }
        reasons.extend(self.quotas.reasons(&job.profile.namespace, &job.profile.shape));
        if let Some(concurrency) = job.concurrency {
            let running = self.keys.running(&job.profile.namespace, &concurrency.key);
            if running >= concurrency.limit {
                let key = concurrency.key.clone();
                reasons.push(Reason::ConcurrencyKey { key, running, limit: concurrency.limit });
            }
        }
        reasons
    }

    /// Returns all queues that have jobs or settings.
    pub(crate) fn view(&self) -> Vec<QueueView> {
        let shown = self.queues.iter().filter(|(_, q)| q.version > 0 || q.waiting > 0 || q.running > 0);
        shown
            .map(|(name, queue)| QueueView {
                name: name.as_ref().to_owned(),
                settings: queue.settings.clone(),
                version: queue.version,
                waiting: queue.waiting,
                running: u64::from(queue.running),
                oldest: queue.lanes.oldest(),
            })
            .collect()
    }

    /// Returns in how many places a job waits: 1 if it is waiting, otherwise 0. For
    /// [`Engine::check_invariants`](crate::Engine::check_invariants).
    pub(crate) fn places_of(&self, job: QueuedJob<'_>) -> usize {
        let queue = self.queues.get(&job.profile.queue);
        let in_lane = queue.is_some_and(|q| q.lanes.contains(job.profile, job.flow, job.position()));
        let parked = job.concurrency.is_some_and(|c| {
            let entry = Parked::of(job, c.limit);
            self.keys.is_parked(&job.profile.namespace, &c.key, job.position(), &entry)
        });
        usize::from(in_lane) + usize::from(parked)
    }

    pub(crate) fn running_in(&self, name: &str) -> u32 {
        self.queues.get(name).map_or(0, |queue| queue.running)
    }
}
