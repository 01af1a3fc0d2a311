//! The state of the engine, its inputs, and its flush.
//!
//! [`Engine::handle`] passes each input to the module that owns the transition. [`Engine::flush`] fires due
//! timers, advances runs, places waiting jobs, and returns everything decided since the last flush. The
//! driver calls both (see the [crate's page](crate)); the transitions in the other modules change the fields
//! here.
//!
//! # Invariants
//! - `now` and `steady` never decrease.
//! - One flush fires at most about [`TIMERS_PER_FLUSH_MAX`] timers, so its batch has a bounded size.
//! - Inputs change only the memory of the engine: everything visible outside goes through `pending` and a
//!   flush. Grants are the only exception ([`Engine::take_grants`]).
//!
//! # Cost
//! An idle flush costs O(1). With workers, the engine requests a call every second ([`CALL_INTERVAL`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use foldhash::fast::FixedState;
use indexmap::IndexMap;
use model::id::{Epoch, IdSource};
use model::record::{KeyRecord, Lease};
use model::{Duration, ExecutionId, JobId, JobStatus, Refusal, ScheduleId, ShardId, Timestamp, WorkerId};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::clock::{ClockFilter, Now};
use crate::config::Config;
use crate::input::{Input, Ticket};
use crate::job::Job;
use crate::output::{Effect, Output, Reply, View};
use crate::pending::Pending;
use crate::profile::{Profiles, Shape};
use crate::queue::Queues;
use crate::reconcile::Reconciliation;
use crate::schedule::Schedules;
use crate::timer::{Timer, Timers};
use crate::worker::{Worker, Workers};
use crate::workflow::Workflows;

/// Interval at which the engine requests a call while there are workers. A longer gap means that the driver
/// was delayed, not that the workers were silent.
const CALL_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of timers that one flush fires: a million jobs that become ready at once arrive in batches
/// of this size.
const TIMERS_PER_FLUSH_MAX: usize = 10_000;
/// How many times faster than real time the purge limit follows the wall clock after a start; see
/// [`Engine::purge_before`].
const PURGE_SPEED: u64 = 60;
/// Interval between two searches for expired idempotency keys.
const KEY_PURGE_INTERVAL: Duration = Duration::from_secs(600);

/// A used idempotency key: the hash of its request, and the job that it created.
#[derive(Debug)]
pub(crate) struct IdempotencyEntry {
    pub(crate) body: u128,
    pub(crate) job: JobId,
    pub(crate) expires_at: Timestamp,
}

impl From<KeyRecord> for IdempotencyEntry {
    fn from(key: KeyRecord) -> Self {
        Self { body: key.body, job: key.job, expires_at: key.expires_at }
    }
}

/// Number of live jobs by status.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct LiveCounts(BTreeMap<JobStatus, u64>);

impl LiveCounts {
    pub(crate) fn add(&mut self, status: JobStatus) {
        *self.0.entry(status).or_default() += 1;
    }

    pub(crate) fn all(&self) -> &BTreeMap<JobStatus, u64> {
        &self.0
    }

    pub(crate) fn sub(&mut self, status: JobStatus) {
        if let Some(count) = self.0.get_mut(&status) {
            *count = count.saturating_sub(1);
        }
    }
}

/// The scheduling core. See the [crate's page](crate) for the driver's contract.
#[derive(Debug)]
pub struct Engine {
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
    /// Live jobs. A job that has ended stays until the next flush.
    pub(crate) jobs: IndexMap<JobId, Job, FixedState>,
    pub(crate) executions: IndexMap<ExecutionId, JobId, FixedState>,
    pub(crate) keys: IndexMap<u128, IdempotencyEntry, FixedState>,
    pub(crate) queues: Queues,
    pub(crate) workers: Workers,
    pub(crate) profiles: Profiles,
    pub(crate) schedules: Schedules,
    pub(crate) workflows: Workflows,
    /// Timers at a wall time: jobs become ready, deadlines pass.
    pub(crate) wall_timers: Timers,
    /// Timers after a duration, on the steady clock.
    pub(crate) steady_timers: Timers,
    /// Shapes for which no worker is eligible until capacity is freed, by shape id.
    pub(crate) blocked: BTreeMap<u64, Arc<Shape>>,
    /// Workers that freed capacity since the last dispatch.
    pub(crate) freed: BTreeSet<WorkerId>,
    pub(crate) dispatch_wanted: bool,
    pub(crate) live_counts: LiveCounts,
    pub(crate) pending: Pending,
    pub(crate) reconciliation: Reconciliation,
    /// Worker and schedule of each waiting job that may use a reservation.
    pub(crate) reservations: BTreeMap<JobId, (ScheduleId, WorkerId)>,
    /// Whether new work is held back; see [`hold_new_work`](Engine::hold_new_work).
    pub(crate) holds_new_work: bool,
    /// How long after the start another owner of the shards may still renew worker leases.
    pub(crate) former_owner_lease: Duration,
    /// Whether the engine has started. Before the start, a gap between two calls is not treated as a delay of
    /// the driver.
    pub(crate) started: bool,
}

impl Engine {
    /// Creates an empty engine that owns the leased shards; `shards` is the total number of shards.
    ///
    /// # Panics
    /// If no shard is leased or `shards` is zero: no shard could hold a job.
    pub fn new(config: Config, leases: &[Lease], shards: u16, now: impl Into<Now>) -> Self {
        let mut engine = Self::without_shards(config, shards, now);
        engine.become_owner(leases);
        engine
    }

    pub(crate) fn become_owner(&mut self, leases: &[Lease]) {
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

    pub(crate) fn without_shards(config: Config, shards: u16, now: impl Into<Now>) -> Self {
        let now = now.into();
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
            jobs: IndexMap::default(),
            executions: IndexMap::default(),
            keys: IndexMap::default(),
            queues: Queues::default(),
            workers: Workers::default(),
            profiles: Profiles::default(),
            schedules: Schedules::default(),
            workflows: Workflows::default(),
            wall_timers: Timers::default(),
            steady_timers: Timers::default(),
            blocked: BTreeMap::new(),
            freed: BTreeSet::new(),
            dispatch_wanted: false,
            live_counts: LiveCounts::default(),
            pending: Pending::default(),
            reconciliation: Reconciliation::default(),
            reservations: BTreeMap::new(),
            holds_new_work: false,
            former_owner_lease: Duration::ZERO,
            started: false,
            config,
        }
    }

    /// Processes one input. Its results are returned by the next [`flush`](Self::flush).
    pub fn handle(&mut self, now: impl Into<Now>, input: Input) {
        self.advance(now.into());
        match input {
            Input::Submit { ticket, jobs } => self.submit(ticket, &jobs),
            Input::Update { ticket, job, head, expected_version, actor } => {
                self.update(ticket, job, &head, expected_version, &actor);
            }
            Input::Cancel { ticket, job, actor, reason } => {
                self.cancel(ticket, job, &actor, reason.as_deref())
            }
            Input::Why { ticket, job } => self.explain(ticket, job),
            Input::Join(join) => self.join(*join),
            Input::Heartbeat { worker, session, seq, health } => self.heartbeat(worker, session, seq, health),
            Input::Disconnect { worker, session } => self.disconnect(worker, session),
            Input::Report { worker, session, execution, fence, report } => {
                self.report(worker, session, execution, fence, report);
            }
            Input::Task { ticket, execution, fence, request } => {
                self.on_task_request(ticket, execution, fence, *request);
            }
            Input::SetAdmission { ticket, worker, admission } => {
                self.set_admission(ticket, worker, admission)
            }
            Input::RemoveWorker { ticket, worker } => self.remove_worker(ticket, worker),
            Input::SetQueue { ticket, name, settings, expected_version } => {
                self.set_queue(ticket, name, settings, expected_version);
            }
            Input::RemoveQueue { ticket, name } => self.remove_queue(ticket, &name),
            Input::Schedule { ticket, request, actor } => {
                self.on_schedule_request(ticket, *request, &actor);
            }
            Input::Workflow { ticket, request, actor } => {
                self.on_workflow_request(ticket, *request, &actor);
            }
            Input::Tick => {}
        }
        self.settle();
    }

    /// Fires due timers, places waiting jobs, and returns everything decided since the last flush.
    pub fn flush(&mut self, now: impl Into<Now>) -> Output {
        self.advance(now.into());
        let mut timers = TIMERS_PER_FLUSH_MAX;
        let mut begun = if self.holds_new_work { 0 } else { Self::start_budget() };
        self.release_schedules();
        self.settle();
        loop {
            self.replan_calendar_users(&mut timers);
            self.settle();
            self.on_timers(&mut timers);
            while begun > 0 && self.workflows.has_runs_to_advance() {
                self.advance_runs(&mut begun);
                self.settle();
            }
            self.dispatch();
            self.settle();
            // A placed job releases the reservation of its schedule, which may arm the next one at a due
            // time.
            if timers == 0 || !self.has_due_timers() {
                break;
            }
        }
        let mut output = Output::default();
        output.batch.now = self.now;
        self.drain_workflows(&mut output.batch.changes);
        self.drain_jobs(&mut output.batch.changes);
        self.drain_schedules(&mut output.batch.changes);
        output.batch.changes.append(&mut self.pending.others);
        output.batch.events = std::mem::take(&mut self.pending.events);
        output.effects = std::mem::take(&mut self.pending.effects);
        output.effects.append(&mut self.pending.grants);
        output
    }

    /// Starts no new work while `hold` is true: no schedule fires, no buffered firing and no run of a
    /// backfill starts, no run of a workflow advances, and no waiting job is placed. Running jobs continue
    /// and end. A run that the end of a job triggers is still created, because it belongs to the batch of
    /// that end; its steps wait.
    ///
    /// The driver holds new work while the store's disk is full, because the reserved space is for running
    /// jobs. The driver itself refuses requests for new work. The first flush after the hold does the rest;
    /// schedules treat firings of the meantime as missed.
    ///
    /// If the hold is already in force, call this before [`start`](Self::start).
    pub fn hold_new_work(&mut self, hold: bool) {
        self.schedules.is_released = !hold && (self.schedules.is_released || self.holds_new_work);
        self.holds_new_work = hold;
        self.wall_timers.hold_schedules(hold);
        self.dispatch_wanted |= !hold;
    }

    /// Returns the answers to heartbeats. They may be released before the commit: they depend on no row, and
    /// a slow disk must not cost a worker its lease.
    pub fn take_grants(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.pending.grants)
    }

    fn has_due_timers(&self) -> bool {
        let due = |next: Option<Timestamp>, now| next.is_some_and(|at| at <= now);
        due(self.wall_timers.next(), self.now) || due(self.steady_timers.next(), self.steady)
    }

    /// Fires due timers, at most `left`.
    fn on_timers(&mut self, left: &mut usize) {
        while *left > 0 {
            let due = self.steady_timers.pop_due(self.steady).or_else(|| self.wall_timers.pop_due(self.now));
            let Some(timer) = due else { break };
            *left = left.saturating_sub(self.on_timer(timer, *left));
            self.settle();
        }
    }

    /// Returns the cost: 1, or the number of scheduled times that a schedule decided, at most about `bound`.
    fn on_timer(&mut self, timer: Timer, bound: usize) -> usize {
        match timer {
            Timer::Schedule(schedule) => return self.on_schedule(schedule, bound).max(1),
            Timer::JobReady(job) => self.on_due(job),
            Timer::Deadline(job) => self.on_deadline(job),
            Timer::Remind(execution) => self.on_remind(execution),
            Timer::ResultWait(execution) => self.on_result_overdue(execution),
            Timer::Lease(worker) => self.on_lease(worker),
            Timer::Declined(worker) => self.on_declined(worker),
            Timer::Reserve(schedule) => self.on_reserve(schedule),
            Timer::Run(run) => self.on_run_timeout(run),
            Timer::Step(run, step) => self.on_step_timer(run, step),
            Timer::Rate(_) => self.dispatch_wanted = true,
            Timer::PurgeKeys => self.purge_keys(),
            Timer::Reconciled => self.on_reconciled(),
        }
        1
    }

    /// Returns when [`flush`](Self::flush) must be called at the latest if no input arrives before. A wall
    /// time, valid until the wall clock is set.
    pub fn wakeup(&self) -> Option<Timestamp> {
        let pulse = (!self.workers.is_empty()).then(|| self.now + CALL_INTERVAL);
        self.next_due().into_iter().chain(pulse).min()
    }

    /// Returns when the next timer fires if no input arrives before. For drivers on virtual time, which need
    /// no pulse to detect their own delays; all others use [`wakeup`](Self::wakeup).
    pub fn next_due(&self) -> Option<Timestamp> {
        let chore = self.steady_timers.next().map(|at| self.now + at.since(self.steady));
        let at_once =
            (!self.schedules.is_idle() || !self.workflows.is_idle(self.holds_new_work)).then_some(self.now);
        self.wall_timers.next().into_iter().chain(chore).chain(at_once).min()
    }

    /// Converts a steady time to a wall time for display.
    pub(crate) fn wall_time_of(&self, steady: Timestamp) -> Timestamp {
        self.now + steady.since(self.steady)
    }

    /// Whether a flush at the current time would return nothing.
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty()
            && self.schedules.is_idle()
            && self.workflows.is_idle(self.holds_new_work)
            && (self.holds_new_work || !self.dispatch_wanted)
            && !self.has_due_timers()
    }

    /// Returns the current state for metrics and lists. Costs O(queues + workers).
    pub fn view(&self) -> View {
        View {
            live: self.live_counts.0.clone(),
            queues: self.queues.view(),
            workers: self.workers.values().map(Worker::view).collect(),
            schedules: self.schedules.counts.clone(),
            firings: self.schedules.firings.clone(),
            clock: self.clock_filter.view(self.now),
            purge_before: self.purge_before(),
        }
    }

    /// Returns the epoch under which the engine owns a shard, or `None` if it does not own it.
    pub fn epoch(&self, shard: ShardId) -> Option<Epoch> {
        self.epochs.get(&shard).copied()
    }

    /// Advances both clocks, never backwards.
    fn advance(&mut self, now: Now) {
        let gap = now.steady.since(self.steady);
        // The driver is called every PULSE; a gap of more than twice that is its own delay.
        if self.started && gap > CALL_INTERVAL + CALL_INTERVAL {
            self.extend_leases(gap);
        }
        self.now = self.now.max(self.clock_filter.read(now, self.now));
        self.steady = self.steady.max(now.steady);
    }

    /// Returns the accepted wall time: the reading of the driver, except for a forward leap that the steady
    /// clock does not confirm. Compare it with [`wakeup`](Self::wakeup).
    pub fn accepted_wall_time(&self, now: impl Into<Now>) -> Timestamp {
        self.clock_filter.accepted_wall_time(now.into())
    }

    /// Returns the wall time that the steady clock confirms, from the wall time that this engine accepted
    /// before; `None` before it has accepted any.
    pub fn confirmed_wall_time(&self, now: Now) -> Option<Timestamp> {
        self.clock_filter.confirmed_wall_time(now)
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

    pub(crate) fn reply(&mut self, ticket: Ticket, reply: Result<Reply, Refusal>) {
        self.pending.effects.push(Effect::Reply { ticket, reply });
    }

    pub(crate) fn arm_key_purge(&mut self) {
        self.steady_timers.arm(self.steady + KEY_PURGE_INTERVAL, Timer::PurgeKeys);
    }
}
