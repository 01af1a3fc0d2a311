//! Waiting jobs, and which of them goes next.
//!
//! A job enters when it is due and leaves when it is placed, cancelled, updated or expired. The
//! order is decided here and nowhere else: between queues by weighted fair share, within a queue by
//! priority, then fair share between namespaces, then fair share between runs, then age. Workers are unknown here; [dispatch]
//! (crate::dispatch) asks for the next job and says whether it fit.
//!
//! A job whose concurrency key is full is *parked*: it stands aside until another job of its key
//! ends, so that a full key costs nobody a look.
//!
//! # Always true
//! - A waiting job stands in exactly one lane, or is parked at its key.
//! - `running <= limit` when a job is placed, for every queue and every key.
//!
//! # Cost
//! O(log n) to enter and leave; choosing looks at each queue, and at each namespace and shape of the
//! highest priority, never at each job or run.

mod bucket;
mod fair;
mod key;
mod lane;

use std::collections::BTreeMap;
use std::sync::Arc;

use model::queue::QueueSettings;
use model::record::QueueRecord;
use model::why::Reason;
use model::{JobId, Timestamp};
use mutation::{Mutation, is_on};

use crate::job::Job;
use crate::output::QueueView;
use crate::profile::{Profile, Shape};
use bucket::Bucket;
use fair::Fair;
use key::{Keys, Parked, Unparked};
pub(crate) use lane::Flow;
use lane::Lanes;

/// All queues and all concurrency keys.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    queues: BTreeMap<Arc<str>, Queue>,
    keys: Keys,
    shares: Fair,
}

#[derive(Debug, Default)]
struct Queue {
    settings: QueueSettings,
    /// 0 for a queue that nobody set up.
    version: u64,
    lanes: Lanes,
    shares: Fair,
    bucket: Option<Bucket>,
    /// In lanes and parked.
    waiting: u64,
    running: u32,
}

/// Something that keeps a queue from letting anybody through.
enum Gate {
    Paused,
    Full { limit: u32 },
    Slow { until: Timestamp },
}

impl Queue {
    /// Every gate that is closed now; none if a job may pass.
    fn closed_gates(&self, now: Timestamp) -> impl Iterator<Item = Gate> {
        let paused = self.settings.paused.then_some(Gate::Paused);
        let over = u32::from(is_on(Mutation::EngineOverfillsQueues));
        let full = self.settings.concurrency.filter(|&limit| self.running >= limit + over);
        let slow = self.bucket.as_ref().and_then(|bucket| bucket.wait(now));
        paused
            .into_iter()
            .chain(full.map(|limit| Gate::Full { limit }))
            .chain(slow.map(|until| Gate::Slow { until }))
    }
}

/// The job that goes next, if it fits anywhere.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) job: JobId,
    pub(crate) profile: Arc<Profile>,
}

/// What [`Queues::next`] found.
#[derive(Debug, Default)]
pub(crate) struct Next {
    pub(crate) candidate: Option<Candidate>,
    /// Queues whose rate holds back jobs, and when it lets one through.
    pub(crate) slow: Vec<(Arc<str>, Timestamp)>,
}

impl Queues {
    fn queue(&mut self, name: &Arc<str>) -> &mut Queue {
        self.queues.entry(Arc::clone(name)).or_default()
    }

    /// Takes a job in; it goes to its lane, or is parked if its key is full.
    pub(crate) fn push(&mut self, id: JobId, job: &Job) {
        let place = job.place(id);
        let parked = job.concurrency.as_deref().is_some_and(|concurrency| {
            let entry = Parked::of(job, concurrency.limit);
            !self.keys.admit(&job.profile.namespace, &concurrency.key, place, entry)
        });
        let queue = self.queue(&job.profile.queue);
        queue.waiting += 1;
        if !parked {
            queue.lanes.insert(&job.profile, job.flow(), place);
        }
    }

    /// Lets a job go that is not placed.
    pub(crate) fn remove(&mut self, id: JobId, job: &Job) {
        let place = job.place(id);
        let queue = self.queue(&job.profile.queue);
        queue.waiting = queue.waiting.saturating_sub(1);
        let was_candidate = queue.lanes.remove(&job.profile, job.flow(), place);
        self.drop_if_unused(&job.profile.queue);
        if let Some(concurrency) = job.concurrency.as_deref() {
            let namespace = &job.profile.namespace;
            let entry = Parked::of(job, concurrency.limit);
            self.keys.leave(namespace, &concurrency.key, place, &entry, was_candidate);
            self.unpark(namespace, &concurrency.key);
        }
    }

    /// A job got an execution.
    pub(crate) fn placed(&mut self, id: JobId, job: &Job, now: Timestamp) {
        let profile = &job.profile;
        let queue = self.queue(&profile.queue);
        queue.lanes.serve(profile, job.flow(), job.place(id));
        queue.waiting = queue.waiting.saturating_sub(1);
        queue.running += 1;
        if let Some(bucket) = queue.bucket.as_mut().filter(|_| !is_on(Mutation::EngineForgetsRates)) {
            bucket.take(now);
        }
        let weight = queue.settings.namespace_weights.get(&*profile.namespace).copied().unwrap_or(1);
        queue.shares.charge(&profile.namespace, weight);
        let weight = queue.settings.weight;
        self.shares.charge(&profile.queue, weight);
        if let Some(concurrency) = job.concurrency.as_deref() {
            let entry = Parked::of(job, concurrency.limit);
            self.keys.place(&profile.namespace, &concurrency.key, &entry);
        }
    }

    /// A job's execution ended.
    pub(crate) fn ended(&mut self, job: &Job) {
        let queue = self.queue(&job.profile.queue);
        queue.running = queue.running.saturating_sub(1);
        self.drop_if_unused(&job.profile.queue);
        if let Some(concurrency) = job.concurrency.as_deref() {
            self.keys.end(&job.profile.namespace, &concurrency.key);
            self.unpark(&job.profile.namespace, &concurrency.key);
        }
    }

    fn drop_if_unused(&mut self, name: &str) {
        if self.queues.get(name).is_some_and(|q| q.version == 0 && q.waiting == 0 && q.running == 0) {
            self.queues.remove(name);
        }
    }

    /// A job that was running when its rows were kept still is.
    pub(crate) fn restore_running(&mut self, job: &Job) {
        self.queue(&job.profile.queue).running += 1;
        if let Some(concurrency) = job.concurrency.as_deref() {
            self.keys.restore_running(&job.profile.namespace, &concurrency.key);
        }
    }

    /// A job came up whose key turned out to be full, as jobs of one key may differ in their limits.
    pub(crate) fn park(&mut self, id: JobId, job: &Job) {
        let place = job.place(id);
        self.queue(&job.profile.queue).lanes.remove(&job.profile, job.flow(), place);
        if let Some(concurrency) = job.concurrency.as_deref() {
            let entry = Parked::of(job, concurrency.limit);
            self.keys.park(&job.profile.namespace, &concurrency.key, place, entry);
        }
    }

    /// Whether a job's concurrency key lets it start now.
    pub(crate) fn key_is_open(&self, job: &Job) -> bool {
        let over = u32::from(is_on(Mutation::EngineOverfillsKeys));
        let running = |key: &str| self.keys.running(&job.profile.namespace, key);
        job.concurrency.as_deref().is_none_or(|c| running(&c.key) < c.limit + over)
    }

    /// Whether the limits of a job's queue and of its key let one more job run.
    pub(crate) fn has_room(&self, job: &Job) -> bool {
        let queue = self.queues.get(&job.profile.queue);
        let full =
            queue.is_some_and(|queue| queue.settings.concurrency.is_some_and(|limit| queue.running >= limit));
        !full && self.key_is_open(job)
    }

    /// Whether a waiting job's queue and key let it start now, whoever else waits.
    pub(crate) fn lets_through(&self, job: &Job, now: Timestamp) -> bool {
        let open = |queue: &Queue| queue.closed_gates(now).next().is_none();
        self.queues.get(&job.profile.queue).is_none_or(open) && self.key_is_open(job)
    }

    fn unpark(&mut self, namespace: &Arc<str>, key: &str) {
        while let Some((place, Unparked { profile, flow })) = self.keys.unpark(namespace, key) {
            self.queue(&profile.queue).lanes.insert(&profile, flow, place);
        }
    }

    /// The job that goes next among those whose shape is not `blocked`.
    pub(crate) fn next(&self, now: Timestamp, blocked: &BTreeMap<u64, Arc<Shape>>) -> Next {
        let mut next = Next::default();
        let mut best: Option<(u64, Arc<str>, Candidate)> = None;
        for (name, queue) in &self.queues {
            let share = self.shares.start(name.as_ref());
            if queue.lanes.is_empty() || best.as_ref().is_some_and(|(least, ..)| *least <= share) {
                continue;
            }
            if let Some(gate) = queue.closed_gates(now).next() {
                if let Gate::Slow { until } = gate {
                    next.slow.push((Arc::clone(name), until));
                }
                continue;
            }
            if let Some((job, profile)) = queue.lanes.first(blocked, &queue.shares) {
                best = Some((share, Arc::clone(name), Candidate { job, profile }));
            }
        }
        next.candidate = best.map(|(.., candidate)| candidate);
        next
    }

    /// Sets up a queue. The rate of a new one starts with a full burst.
    pub(crate) fn set(&mut self, now: Timestamp, record: &QueueRecord) {
        let queue = self.queue(&record.name.as_str().into());
        queue.bucket = Bucket::renewed(queue.bucket.take(), &record.settings, now);
        queue.settings = record.settings.clone();
        queue.version = record.version;
    }

    /// The numbers of jobs that wait and that run in a queue.
    pub(crate) fn jobs_in(&self, name: &str) -> (u64, u32) {
        self.queues.get(name).map_or((0, 0), |queue| (queue.waiting, queue.running))
    }

    /// Forgets the settings of a queue that has no jobs.
    pub(crate) fn remove_settings(&mut self, name: &str) {
        self.queues.remove(name);
    }

    /// Nobody set up any queue, as far as is known.
    pub(crate) fn forget_settings(&mut self) {
        for queue in self.queues.values_mut() {
            (queue.settings, queue.version, queue.bucket) = (QueueSettings::default(), 0, None);
        }
        self.queues.retain(|_, queue| queue.waiting > 0 || queue.running > 0);
    }

    /// Rates begin anew, with nothing saved up: a change of owner must not let another burst through.
    pub(crate) fn restart_rates(&mut self, now: Timestamp) {
        for queue in self.queues.values_mut() {
            queue.bucket = Bucket::new(&queue.settings, now, true);
        }
    }

    /// The version of a queue's settings; 0 if nobody set it up.
    pub(crate) fn version(&self, name: &str) -> u64 {
        self.queues.get(name).map_or(0, |queue| queue.version)
    }

    /// How many jobs wait in a queue.
    pub(crate) fn waiting_in(&self, name: &str) -> u64 {
        self.queues.get(name).map_or(0, |queue| queue.waiting)
    }

    /// Whether a job is the next of its queue.
    pub(crate) fn is_first(&self, id: JobId, job: &Job) -> bool {
        self.queues.get(&job.profile.queue).is_some_and(|queue| {
            queue.lanes.first(&BTreeMap::new(), &queue.shares).is_some_and(|(first, _)| first == id)
        })
    }

    /// What of its queue and its key holds a waiting job back.
    ///
    /// `now` is steady time; `on_the_wall` tells the wall time of such an instant.
    pub(crate) fn reasons(
        &self,
        now: Timestamp,
        job: &Job,
        on_the_wall: impl Fn(Timestamp) -> Timestamp,
    ) -> Vec<Reason> {
        let mut reasons = Vec::new();
        let name = || job.profile.queue.as_ref().to_owned();
        if let Some(queue) = self.queues.get(&job.profile.queue) {
            reasons.extend(queue.closed_gates(now).map(|gate| match gate {
                Gate::Paused => Reason::QueuePaused { queue: name(), note: queue.settings.note.clone() },
                Gate::Full { limit } => {
                    Reason::QueueConcurrency { queue: name(), running: queue.running, limit }
                }
                Gate::Slow { until } => Reason::QueueRate { queue: name(), until: on_the_wall(until) },
            }));
        }
        if let Some(concurrency) = job.concurrency.as_deref() {
            let running = self.keys.running(&job.profile.namespace, &concurrency.key);
            if running >= concurrency.limit {
                let key = concurrency.key.clone();
                reasons.push(Reason::ConcurrencyKey { key, running, limit: concurrency.limit });
            }
        }
        reasons
    }

    /// Every queue that has jobs or was set up.
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

    /// In how many places a job stands: one if it waits, none if it does not.
    pub(crate) fn places_of(&self, id: JobId, job: &Job) -> usize {
        let queue = self.queues.get(&job.profile.queue);
        let in_lane = queue.is_some_and(|q| q.lanes.contains(&job.profile, job.flow(), job.place(id)));
        let parked = job.concurrency.as_deref().is_some_and(|c| {
            let entry = Parked::of(job, c.limit);
            self.keys.is_parked(&job.profile.namespace, &c.key, job.place(id), &entry)
        });
        usize::from(in_lane) + usize::from(parked)
    }

    /// How many jobs of a queue run.
    pub(crate) fn running_in(&self, name: &str) -> u32 {
        self.queues.get(name).map_or(0, |queue| queue.running)
    }
}
