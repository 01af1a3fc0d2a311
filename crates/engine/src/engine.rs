//! The engine: its inputs, timers and flush.
//!
//! [`Engine::handle`] passes each input to the layer of the transition. [`Engine::flush`] fires due timers,
//! advances runs, places waiting jobs, and returns everything decided since the last flush. The driver calls
//! both (see the [crate's page](crate)).
//!
//! # Invariants
//! - Time never runs backwards.
//! - One flush fires at most about [`TIMERS_PER_FLUSH_MAX`] timers, so its batch has a bounded size.
//! - All signals are delivered before `handle` or `flush` returns.
//! - Inputs change only the memory of the engine: everything visible outside goes through a flush. Grants are
//!   the only exception ([`Engine::take_grants`]).
//!
//! # Cost
//! An idle flush costs O(1). With workers, the engine requests a call every second ([`CALL_INTERVAL`]).

use model::id::Epoch;
use model::record::Lease;
use model::{Duration, ShardId, Timestamp};

use crate::clock::Now;
use crate::config::Config;
use crate::context::Context;
use crate::input::Input;
use crate::jobs::Jobs;
use crate::output::{Effect, Output, View};
use crate::schedules::Schedules;
use crate::services::Services;
use crate::timer::Timer;
use crate::workers::Worker;
use crate::workflows::Workflows;

/// Interval at which the engine requests a call while there are workers. A longer gap means that the driver
/// was delayed, not that the workers were silent.
const CALL_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of timers that one flush fires: a million jobs that become ready at once arrive in batches
/// of this size.
const TIMERS_PER_FLUSH_MAX: usize = 10_000;
/// Interval between two searches for expired idempotency keys.
const KEY_PURGE_INTERVAL: Duration = Duration::from_secs(600);

/// The scheduling core. See the [crate's page](crate) for the driver's contract.
#[derive(Debug)]
pub struct Engine {
    pub(crate) cx: Context,
    pub(crate) jobs: Jobs,
    pub(crate) services: Services,
    pub(crate) workflows: Workflows,
    pub(crate) schedules: Schedules,
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
        engine.cx.own(leases);
        engine
    }

    /// Creates an empty engine that owns no shard; `shards` is the total number of shards.
    ///
    /// # Panics
    /// If `shards` is zero.
    pub(crate) fn without_shards(config: Config, shards: u16, now: impl Into<Now>) -> Self {
        Self {
            cx: Context::new(config, shards, now.into()),
            jobs: Jobs::default(),
            services: Services::default(),
            workflows: Workflows::default(),
            schedules: Schedules::default(),
            started: false,
        }
    }

    /// Processes one input. Its results are returned by the next [`flush`](Self::flush).
    pub fn handle(&mut self, now: impl Into<Now>, input: Input) {
        self.advance(now.into());
        let Self { cx, jobs, .. } = self;
        match input {
            Input::Submit { ticket, jobs } => self.submit(ticket, &jobs),
            Input::Update { ticket, job, head, expected_version, actor } => {
                jobs.update(cx, ticket, job, &head, expected_version, &actor);
            }
            Input::Cancel { ticket, job, actor, reason } => {
                jobs.cancel(cx, ticket, job, &actor, reason.as_deref())
            }
            Input::Why { ticket, job } => jobs.explain(cx, ticket, job),
            Input::Join(join) => jobs.join(cx, *join),
            Input::Heartbeat { worker, session, seq, health } => {
                jobs.heartbeat(cx, worker, session, seq, health)
            }
            Input::Disconnect { worker, session } => jobs.disconnect(worker, session),
            Input::Report { worker, session, execution, fence, report } => {
                jobs.report(cx, worker, session, execution, fence, report);
            }
            Input::Task { ticket, execution, fence, request } => {
                self.on_task_request(ticket, execution, fence, *request);
            }
            Input::SetAdmission { ticket, worker, admission } => {
                jobs.set_admission(cx, ticket, worker, admission)
            }
            Input::RemoveWorker { ticket, worker } => jobs.remove_worker(cx, ticket, worker),
            Input::SetQueue { ticket, name, settings, expected_version } => {
                jobs.set_queue(cx, ticket, name, settings, expected_version);
            }
            Input::RemoveQueue { ticket, name } => jobs.remove_queue(cx, ticket, &name),
            Input::SetNamespace { ticket, name, settings, expected_version } => {
                jobs.set_namespace(cx, ticket, name, settings, expected_version);
            }
            Input::RemoveNamespace { ticket, name } => jobs.remove_namespace(cx, ticket, &name),
            Input::Schedule { ticket, request, actor } => {
                self.on_schedule_request(ticket, *request, &actor);
            }
            Input::Workflow { ticket, request, actor } => {
                self.on_workflow_request(ticket, *request, &actor);
            }
            Input::Service { ticket, request, actor } => self.on_service_request(ticket, *request, &actor),
            Input::Health { worker, session, reports } => jobs.record_health(cx, worker, session, reports),
            Input::Metrics { readings } => self.services.read_metrics(&mut self.cx, &readings),
            Input::Tick => {}
        }
        self.deliver_signals();
    }

    /// Fires due timers, places waiting jobs, and returns everything decided since the last flush.
    pub fn flush(&mut self, now: impl Into<Now>) -> Output {
        self.advance(now.into());
        let mut timers = TIMERS_PER_FLUSH_MAX;
        let mut replicas = Services::creation_budget();
        let mut begun = if self.cx.holds_new_work { 0 } else { Workflows::start_budget() };
        let Self { cx, jobs, workflows, schedules, .. } = self;
        schedules.release_schedules(cx, workflows, jobs);
        self.deliver_signals();
        loop {
            let Self { cx, jobs, workflows, schedules, .. } = self;
            schedules.replan_calendar_users(cx, workflows, jobs, &mut timers);
            self.deliver_signals();
            self.on_timers(&mut timers);
            while begun > 0 && self.workflows.has_runs_to_advance() {
                self.workflows.advance_runs(&mut self.cx, &mut self.jobs, &mut begun);
                self.deliver_signals();
            }
            self.reconcile_services(&mut replicas);
            self.jobs.dispatch(&mut self.cx);
            self.deliver_signals();
            // A placed job releases the reservation of its schedule, which may arm the next one at a due
            // time. A placed replica changes the numbers of its service.
            self.reconcile_services(&mut replicas);
            if timers == 0 || !self.has_due_timers() {
                break;
            }
        }
        self.jobs.arm_sample(&mut self.cx);
        let mut output = Output::default();
        self.services.drain(&mut output.batch.changes);
        self.workflows.drain(&mut output.batch.changes);
        self.jobs.drain(&mut output.batch.changes);
        self.schedules.drain(&mut output.batch.changes);
        self.cx.drain(&mut output);
        output
    }

    /// Starts no new work while `hold` is true: no schedule fires, no buffered firing and no run of a
    /// backfill starts, no run of a workflow advances, no replica of a service is created or
    /// stopped, and no waiting job is placed. Running jobs continue
    /// and end. A run that the end of a job triggers is still created, because it belongs to the batch of
    /// that end; its steps wait.
    ///
    /// The driver holds new work while the store's disk is full, because the reserved space is for running
    /// jobs. The driver itself refuses requests for new work. The first flush after the hold does the rest;
    /// schedules treat firings of the meantime as missed.
    ///
    /// If the hold is already in force, call this before [`start`](Self::start).
    pub fn hold_new_work(&mut self, hold: bool) {
        self.schedules.hold(&self.cx, hold);
        self.cx.holds_new_work = hold;
        self.cx.wall_timers.hold_schedules(hold);
        if !hold {
            self.services.resume(self.cx.now);
            self.jobs.want_dispatch();
        }
    }

    /// Whether new work is held; see [`hold_new_work`](Self::hold_new_work).
    pub fn holds_new_work(&self) -> bool {
        self.cx.holds_new_work
    }

    /// Returns the answers to heartbeats. They may be released before the commit: they depend on no row, and
    /// a slow disk must not cost a worker its lease.
    pub fn take_grants(&mut self) -> Vec<Effect> {
        self.cx.take_grants()
    }

    fn has_due_timers(&self) -> bool {
        let due = |next: Option<Timestamp>, now| next.is_some_and(|at| at <= now);
        due(self.cx.wall_timers.next(), self.cx.now) || due(self.cx.steady_timers.next(), self.cx.steady)
    }

    /// Brings all services that changed closer to their specs, with at most `budget` new replicas.
    fn reconcile_services(&mut self, budget: &mut u32) {
        while *budget > 0 && !self.cx.holds_new_work && self.services.has_pending() {
            self.services.reconcile_pending(&mut self.cx, &mut self.jobs, budget);
            self.deliver_signals();
        }
    }

    /// Fires due timers, at most `left`.
    fn on_timers(&mut self, left: &mut usize) {
        while *left > 0 {
            let due = self
                .cx
                .steady_timers
                .pop_due(self.cx.steady)
                .or_else(|| self.cx.wall_timers.pop_due(self.cx.now));
            let Some(timer) = due else { break };
            *left = left.saturating_sub(self.on_timer(timer, *left));
            self.deliver_signals();
        }
    }

    /// Returns the cost: 1, or the number of scheduled times that a schedule decided, at most about `bound`.
    fn on_timer(&mut self, timer: Timer, bound: usize) -> usize {
        let Self { cx, jobs, workflows, schedules, .. } = self;
        match timer {
            Timer::Schedule(schedule) => {
                return schedules.on_schedule(cx, workflows, jobs, schedule, bound).max(1);
            }
            Timer::JobReady(job) => jobs.on_due(cx, job),
            Timer::StartBy(job) => jobs.on_start_deadline(cx, job),
            Timer::FinishBy(job) => jobs.on_finish_deadline(cx, job),
            Timer::Remind(execution) => jobs.on_remind(cx, execution),
            Timer::ResultWait(execution) => jobs.on_result_overdue(cx, execution),
            Timer::Lease(worker) => jobs.on_lease(cx, worker),
            Timer::Declined(worker) => jobs.on_declined(cx, worker),
            Timer::Reserve(schedule) => schedules.on_reserve(cx, jobs, schedule),
            Timer::Run(run) => workflows.on_run_timeout(cx, jobs, run),
            Timer::Step(run, step) => workflows.on_step_timer(cx, jobs, run, step),
            Timer::Service(service) => self.services.on_timer(service),
            Timer::Rate(_) => jobs.want_dispatch(),
            Timer::PurgeKeys => self.purge_keys(),
            Timer::SampleLevels => jobs.sample_levels(cx),
            Timer::Reconciled => jobs.on_reconciled(),
        }
        1
    }

    /// Returns when [`flush`](Self::flush) must be called at the latest if no input arrives before. A wall
    /// time, valid until the wall clock is set.
    pub fn wakeup(&self) -> Option<Timestamp> {
        let pulse = self.jobs.has_workers().then(|| self.cx.now + CALL_INTERVAL);
        self.next_due().into_iter().chain(pulse).min()
    }

    /// Returns when the next timer fires if no input arrives before. For drivers on virtual time, which need
    /// no pulse to detect their own delays; all others use [`wakeup`](Self::wakeup).
    pub fn next_due(&self) -> Option<Timestamp> {
        let chore = self.cx.steady_timers.next().map(|at| self.cx.now + at.since(self.cx.steady));
        let holds = self.cx.holds_new_work;
        let is_idle =
            self.schedules.is_idle() && self.workflows.is_idle(holds) && self.services.is_idle(holds);
        let at_once = (!is_idle).then_some(self.cx.now);
        self.cx.wall_timers.next().into_iter().chain(chore).chain(at_once).min()
    }

    /// Whether a flush at the current time would return nothing.
    pub fn is_idle(&self) -> bool {
        self.cx.is_idle()
            && self.schedules.is_idle()
            && self.workflows.is_idle(self.cx.holds_new_work)
            && self.services.is_idle(self.cx.holds_new_work)
            && self.jobs.is_idle(self.cx.holds_new_work)
            && !self.has_due_timers()
    }

    /// Returns the current state for metrics and lists. Costs O(queues + namespaces + workers).
    pub fn view(&self) -> View {
        View {
            live: self.jobs.live_counts().clone(),
            queues: self.jobs.queue_views(),
            namespaces: self.jobs.namespace_views(),
            workers: self.jobs.workers().map(Worker::view).collect(),
            services: self.services.counts(),
            metrics_to_read: self.services.metrics_to_read(),
            schedules: self.schedules.counts().clone(),
            firings: self.schedules.firings().clone(),
            clock: self.cx.clock_filter.view(self.cx.now),
            purge_before: self.cx.purge_before(),
        }
    }

    /// Returns the epoch under which the engine owns a shard, or `None` if it does not own it.
    pub fn epoch(&self, shard: ShardId) -> Option<Epoch> {
        self.cx.epochs.get(&shard).copied()
    }

    /// Advances both clocks, never backwards.
    fn advance(&mut self, now: Now) {
        let gap = now.steady.since(self.cx.steady);
        // The driver is called every PULSE; a gap of more than twice that is its own delay.
        if self.started && gap > CALL_INTERVAL + CALL_INTERVAL {
            self.jobs.extend_leases(&self.cx, gap);
        }
        self.cx.now = self.cx.now.max(self.cx.clock_filter.read(now, self.cx.now));
        self.cx.steady = self.cx.steady.max(now.steady);
    }

    /// Returns the accepted wall time: the reading of the driver, except for a forward leap that the steady
    /// clock does not confirm. Compare it with [`wakeup`](Self::wakeup).
    pub fn accepted_wall_time(&self, now: impl Into<Now>) -> Timestamp {
        self.cx.clock_filter.accepted_wall_time(now.into())
    }

    /// Returns the wall time that the steady clock confirms, from the wall time that this engine accepted
    /// before; `None` before it has accepted any.
    pub fn confirmed_wall_time(&self, now: Now) -> Option<Timestamp> {
        self.cx.clock_filter.confirmed_wall_time(now)
    }

    pub(crate) fn arm_key_purge(&mut self) {
        self.cx.steady_timers.arm(self.cx.steady + KEY_PURGE_INTERVAL, Timer::PurgeKeys);
    }
}
