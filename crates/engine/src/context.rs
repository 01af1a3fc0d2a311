//! What every transition of the engine may use: time, ids, randomness, timers, and the output that it adds to.
//!
//! A transition gets the context as a parameter beside its layer. It reads the time here, draws ids and random
//! numbers, arms timers, and adds rows, events and effects, which the next flush returns. It raises
//! [signals](Signal) for the layers above.
//!
//! # Invariants
//! - `now` and `steady` do not change during a transition.
//! - Output becomes visible outside only through a flush. Grants are the only exception
//!   ([`Context::take_grants`]).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use model::id::{Epoch, IdSource};
use model::record::{Change, Event, EventKind, Lease, WorkerRecord};
use model::{Duration, Refusal, ShardId, Timestamp};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::clock::{ClockFilter, Now};
use crate::config::Config;
use crate::input::Ticket;
use crate::output::{Effect, Output, Reply};
use crate::profile::Profiles;
use crate::signal::Signal;
use crate::statistics::Statistics;
use crate::timer::Timers;

/// How many times faster than real time the purge limit follows the wall clock after a start; see
/// [`Context::purge_before`].
const PURGE_SPEED: u64 = 60;

/// What every transition may use, whichever layer it is in.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) config: Config,
    /// Engine time: the greatest accepted or restored wall time.
    pub(crate) now: Timestamp,
    /// Steady time of the last call.
    pub(crate) steady: Timestamp,
    /// Decides which readings of the wall clock are accepted.
    pub(crate) clock_filter: ClockFilter,
    /// Engine time before the start, and the steady time of the start; `None` without restored rows.
    pub(crate) resumed_from: Option<(Timestamp, Timestamp)>,
    pub(crate) rng: ChaCha8Rng,
    pub(crate) ids: IdSource,
    /// Total number of shards, owned or not.
    pub(crate) shards: u16,
    pub(crate) owned: Vec<ShardId>,
    pub(crate) epochs: BTreeMap<ShardId, Epoch>,
    /// Scheduling properties of specs, shared by jobs, schedules and workflows.
    pub(crate) profiles: Profiles,
    /// What jobs did since the last flush.
    pub(crate) statistics: Statistics,
    /// Timers at a wall time: jobs become ready, deadlines pass.
    pub(crate) wall_timers: Timers,
    /// Timers after a duration, on the steady clock.
    pub(crate) steady_timers: Timers,
    /// Whether new work is held back; see [`hold_new_work`](crate::Engine::hold_new_work).
    pub(crate) holds_new_work: bool,
    /// Rows to write, in order; a later row with the same key replaces an earlier one. Jobs, schedules and
    /// workflows keep their changed rows themselves until the flush.
    changes: Vec<Change>,
    events: Vec<Event>,
    /// Answers to heartbeats, released before the commit.
    grants: Vec<Effect>,
    /// Effects, released after the commit.
    effects: Vec<Effect>,
    /// Signals that are not yet delivered, in order.
    signals: VecDeque<Signal>,
}

impl Context {
    /// Creates the context of an engine that owns no shard; `shards` is the total number of shards.
    ///
    /// # Panics
    /// If `shards` is zero.
    pub(crate) fn new(config: Config, shards: u16, now: Now) -> Self {
        assert!(shards > 0, "there is at least one shard");
        Self {
            now: now.wall,
            steady: now.steady,
            clock_filter: ClockFilter::default(),
            resumed_from: None,
            rng: ChaCha8Rng::seed_from_u64(config.seed),
            ids: IdSource::default(),
            shards,
            owned: Vec::new(),
            epochs: BTreeMap::new(),
            profiles: Profiles::default(),
            statistics: Statistics::default(),
            wall_timers: Timers::default(),
            steady_timers: Timers::default(),
            holds_new_work: false,
            changes: Vec::new(),
            events: Vec::new(),
            grants: Vec::new(),
            effects: Vec::new(),
            signals: VecDeque::new(),
            config,
        }
    }

    /// Makes the engine the owner of the leased shards.
    ///
    /// # Panics
    /// If no shard is leased: no shard could hold a job.
    pub(crate) fn own(&mut self, leases: &[Lease]) {
        assert!(!leases.is_empty(), "an engine owns at least one shard");
        self.epochs = leases.iter().map(|lease| (lease.shard, lease.epoch)).collect();
        self.owned = self.epochs.keys().copied().collect();
        // A new owner of the same shards must draw different numbers, so the epochs are part of the seed.
        let salt = self
            .epochs
            .values()
            .fold(self.config.seed, |salt, epoch| salt.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ epoch.0);
        self.rng = ChaCha8Rng::seed_from_u64(salt);
    }

    /// Converts a steady time to a wall time for display.
    pub(crate) fn wall_time_of(&self, steady: Timestamp) -> Timestamp {
        self.now + steady.since(self.steady)
    }

    /// Returns the purge limit: rows that expired before it may be deleted.
    ///
    /// The limit never exceeds the wall clock, so an engine time ahead of the wall clock deletes nothing
    /// early. After a start, which has to accept the wall clock, the limit advances at [`PURGE_SPEED`] times
    /// real time. An outage of a week is caught up in three hours, and a clock that is a year ahead deletes
    /// almost nothing before an operator notices it.
    pub(crate) fn purge_before(&self) -> Timestamp {
        let wall = self.clock_filter.wall(self.now).min(self.now);
        self.resumed_from.map_or(wall, |(from, since)| {
            let passed = self.steady.since(since).as_millis().saturating_mul(PURGE_SPEED);
            wall.min(from + Duration::from_millis(passed))
        })
    }

    /// Adds a row to write.
    pub(crate) fn write(&mut self, change: Change) {
        self.changes.push(change);
    }

    /// Adds a row to write, and drops earlier versions of it.
    pub(crate) fn rewrite(&mut self, change: Change, is_same: impl Fn(&Change) -> bool) {
        self.changes.retain(|known| !is_same(known));
        self.changes.push(change);
    }

    /// Adds a worker's row and emits an event.
    pub(crate) fn write_worker(&mut self, record: &Arc<WorkerRecord>) {
        let is_same = |change: &Change| matches!(change, Change::Worker(known) if known.id == record.id);
        self.rewrite(Change::Worker(Arc::clone(record)), is_same);
        let (worker, status, admission) = (record.id, record.status, record.admission);
        self.emit(None, EventKind::Worker { worker, status, admission });
    }

    /// Returns the rows that are not yet written, to change one in place.
    pub(crate) fn unwritten(&mut self) -> &mut [Change] {
        &mut self.changes
    }

    /// Adds an event for subscribers; without a namespace for all of them.
    pub(crate) fn emit(&mut self, namespace: Option<Arc<str>>, kind: EventKind) {
        self.events.push(Event { at: self.now, namespace, kind });
    }

    /// Adds an effect, which is released after the commit.
    pub(crate) fn send(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Answers a request.
    pub(crate) fn reply(&mut self, ticket: Ticket, reply: Result<Reply, Refusal>) {
        self.send(Effect::Reply { ticket, reply });
    }

    /// Adds an answer to a heartbeat, which may be released before the commit.
    pub(crate) fn grant(&mut self, effect: Effect) {
        self.grants.push(effect);
    }

    /// Returns the answers to heartbeats.
    pub(crate) fn take_grants(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.grants)
    }

    /// Tells the layers above that something has happened.
    pub(crate) fn raise(&mut self, signal: Signal) {
        self.signals.push_back(signal);
    }

    /// Returns the oldest signal that is not yet delivered.
    pub(crate) fn next_signal(&mut self) -> Option<Signal> {
        self.signals.pop_front()
    }

    /// Whether a signal is not yet delivered.
    pub(crate) fn has_signals(&self) -> bool {
        !self.signals.is_empty()
    }

    /// Whether there is nothing to write, to emit, to send or to deliver.
    pub(crate) fn is_idle(&self) -> bool {
        self.changes.is_empty()
            && self.events.is_empty()
            && self.grants.is_empty()
            && self.effects.is_empty()
            && self.signals.is_empty()
            && self.statistics.is_idle()
    }

    /// Moves rows, events and effects to the output of a flush.
    pub(crate) fn drain(&mut self, output: &mut Output) {
        output.batch.now = self.now;
        output.batch.changes.append(&mut self.changes);
        output.batch.events = std::mem::take(&mut self.events);
        output.batch.statistics = self.statistics.take();
        output.effects = std::mem::take(&mut self.effects);
        output.effects.append(&mut self.grants);
    }
}
