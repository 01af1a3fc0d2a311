//! Scenarios: a world of one engine, a store in memory and scripted workers.
//!
//! - [`Scenario`]: the engine, its clock and its rows. Requests (`ask`), time (`pass`, `until`), restarts,
//!   and what a test reads: statuses, histories, explanations.
//! - [`Rows`]: the store. It applies the changes of each batch, and returns the live rows for a restart.
//! - [`Player`]: a worker, with its journal and its open assignments. A test plays it (`take`, `start`,
//!   `report`).
//! - [`WorkerBuilder`], [`JobBuilder`]: workers and jobs with defaults, so that a test sets only what it is
//!   about.
//!
//! Every action is followed by a flush whose batch is applied to the rows, so tests read as a sequence of
//! events. `schedule_scenario` and `workflow` add helpers for schedules and runs.
//!
//! # Invariants
//! - After each flush, the engine's own invariants hold, and no batch writes a row twice.
//! - At each restart, an engine rebuilt from the rows equals one of a follower; the two are then used in
//!   turns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::input::{ExecutionEnd, Held, Key};
use engine::output::{Added, Assignment, Submitted};
use engine::{
    Config, Effect, Engine, Follower, Input, Join, NewJob, Now, Output, Reply, Report, Session, TaskRequest,
    Ticket,
};
use model::calendar::CalendarRecord;
use model::changelog::{LiveChange, LiveKey};
use model::checkpoint::CheckpointRecord;
use model::firing::{
    BackfillHead, BackfillState, BackfillStatus, FiringCause, LedgerRecord, ScheduleHead, ScheduleState,
};
use model::id::{Epoch, IdSource};
use model::namespace::{NamespaceSettings, Quota};
use model::queue::QueueSettings;
use model::record::{
    Change, Event, ExecutionRecord, JobHead, JobState, KeyRecord, Lease, LiveRow, NamespaceRecord, Outcome,
    QueueRecord, RunKeyRecord, Usage, WorkerRecord,
};
use model::run::{
    BatchKey, ElementBatch, RunHead, RunState, StepKey, StepRecord, StepState, WorkflowHead, WorkflowState,
};
use model::service::{ServiceHead, ServiceState};
use model::spec::{Concurrency, Constraint, Delivery, Operator, Placement, PriorityClass, SandboxLevel};
use model::statistics::Tally;
use model::why::{OpenEnum, Reason};
use model::worker::{Admission, Capabilities, Capacity, Health};
use model::{
    BackfillId, Bytes, Duration, ExecutionId, Fence, JobId, JobSpec, JobStatus, Millicores, Refusal, RunId,
    ScheduleId, ServiceId, ShardId, Timestamp, WorkerId, WorkflowId,
};

pub(crate) const SHARDS: u16 = 4;

/// The rows of a store, decoded.
#[derive(Default, Clone)]
pub(crate) struct Rows {
    pub(crate) jobs: BTreeMap<JobId, (JobHead, JobState)>,
    pub(crate) executions: BTreeMap<ExecutionId, ExecutionRecord>,
    pub(crate) keys: BTreeMap<u128, KeyRecord>,
    pub(crate) workers: BTreeMap<WorkerId, Arc<WorkerRecord>>,
    pub(crate) queues: BTreeMap<String, Arc<QueueRecord>>,
    pub(crate) namespaces: BTreeMap<String, Arc<NamespaceRecord>>,
    pub(crate) schedules: BTreeMap<ScheduleId, (ScheduleHead, ScheduleState)>,
    pub(crate) ledger: BTreeMap<LedgerKey, LedgerRecord>,
    pub(crate) backfills: BTreeMap<BackfillId, (BackfillHead, BackfillState)>,
    pub(crate) calendars: BTreeMap<(String, String), Arc<CalendarRecord>>,
    pub(crate) services: BTreeMap<ServiceId, (ServiceHead, ServiceState)>,
    pub(crate) workflows: BTreeMap<WorkflowId, (WorkflowHead, WorkflowState)>,
    pub(crate) runs: BTreeMap<RunId, (Arc<RunHead>, RunState)>,
    pub(crate) steps: BTreeMap<StepKey, StepState>,
    pub(crate) batches: BTreeMap<BatchKey, ElementBatch>,
    pub(crate) run_keys: BTreeMap<u128, RunKeyRecord>,
    pub(crate) checkpoints: BTreeMap<JobId, CheckpointRecord>,
    pub(crate) events: Vec<Event>,
    /// What the statistics of all commits add up to.
    pub(crate) tally: Tally,
}

/// Unique key of a ledger record.
pub(crate) type LedgerKey = (ScheduleId, u64, Timestamp, FiringCause, Option<BackfillId>);

/// A worker played by the test.
#[derive(Default)]
pub(crate) struct Player {
    pub(crate) session: Option<Session>,
    /// Whether it sends heartbeats while time passes.
    pub(crate) silent: bool,
    /// Its journal: each execution is started at most once.
    pub(crate) held: BTreeMap<ExecutionId, (Fence, bool)>,
    pub(crate) assigned: Vec<Assignment>,
    pub(crate) stopped: BTreeMap<ExecutionId, Fence>,
    /// Grace period of each stopped execution, from the last stop.
    pub(crate) graces: BTreeMap<ExecutionId, Duration>,
    seq: u64,
}

pub(crate) struct Scenario {
    pub(crate) engine: Engine,
    pub(crate) now: Timestamp,
    pub(crate) rows: Rows,
    pub(crate) players: BTreeMap<WorkerId, Player>,
    pub(crate) replies: BTreeMap<Ticket, Result<Reply, Refusal>>,
    /// Follows all commits, and replaces the engine at some restarts.
    standby: Follower,
    config: Config,
    epoch: u64,
    counter: u64,
    ids: IdSource,
    /// How long the previous owner may still act after the engine is rebuilt.
    former_owner: Duration,
    /// Whether the next engine starts while the store has no space.
    is_full: bool,
    /// Number of flushes so far.
    pub(crate) flushes: u32,
}

/// Creates a follower that has read these rows.
fn follower(config: &Config, now: Timestamp, rows: &Rows) -> Follower {
    let mut follower = Follower::new(config.clone(), SHARDS, now);
    rows.live().into_iter().for_each(|row| follower.restore(row));
    follower.loaded();
    follower
}

impl Scenario {
    pub(crate) fn new() -> Self {
        Self::with(Config::default())
    }

    pub(crate) fn with(config: Config) -> Self {
        let now = "2026-11-21T08:00:00Z".parse().unwrap();
        let mut engine = Engine::new(config.clone(), &leases(1), SHARDS, now);
        engine.start(now);
        let mut scenario = Self {
            engine,
            now,
            rows: Rows::default(),
            players: BTreeMap::new(),
            replies: BTreeMap::new(),
            standby: follower(&config, now, &Rows::default()),
            config,
            epoch: 1,
            counter: 0,
            ids: IdSource::default(),
            former_owner: Duration::ZERO,
            is_full: false,
            flushes: 0,
        };
        scenario.flush();
        scenario
    }

    fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    /// Passes an input to the engine and flushes.
    pub(crate) fn say(&mut self, input: Input) {
        self.engine.handle(self.now, input);
        self.flush();
    }

    /// Sends a request and returns its reply.
    pub(crate) fn ask(&mut self, make: impl FnOnce(Ticket) -> Input) -> Result<Reply, Refusal> {
        let ticket = Ticket(self.next());
        self.say(make(ticket));
        self.replies.remove(&ticket).expect("every request is answered by the next flush")
    }

    pub(crate) fn flush(&mut self) {
        self.flush_at(self.now.into());
    }

    /// Flushes at a time at which the two clocks differ, until the engine is idle.
    pub(crate) fn flush_at(&mut self, now: Now) {
        self.flush_once(now);
        let mut more = 0;
        while !self.engine.is_idle() {
            self.flush_once(now);
            more += 1;
            assert!(more < 100, "the engine never becomes idle");
        }
    }

    fn flush_once(&mut self, now: Now) {
        self.flushes += 1;
        let Output { batch, effects } = self.engine.flush(now);
        let (mut seen, mut lines) = (BTreeSet::new(), BTreeSet::new());
        let touched = LiveChange::by(&batch.changes);
        for change in batch.changes {
            if let Change::Job { id, .. } = &change {
                assert!(seen.insert(*id), "{id} is written twice in one batch");
            }
            if let Change::Ledger(r) = &change {
                let line = (r.schedule, r.generation, r.first, r.cause, r.backfill);
                assert!(lines.insert(line), "{line:?} is written twice in one batch");
            }
            self.rows.apply(change);
        }
        if self.standby.follow(&touched).is_err() {
            self.standby = follower(&self.config, self.now, &self.rows);
        }
        self.rows.events.extend(batch.events);
        batch.statistics.tallies.iter().for_each(|part| self.rows.tally.add(&part.tally));
        for effect in effects {
            self.release(effect);
        }
        self.engine.check_invariants().unwrap();
    }

    fn release(&mut self, effect: Effect) {
        match effect {
            Effect::Reply { ticket, reply } => {
                self.replies.insert(ticket, reply);
            }
            Effect::Assign { worker, session, assignment } => {
                let row = &self.rows.executions[&assignment.execution];
                assert_eq!(row.fence, assignment.fence, "an assignment is committed before it is sent");
                let player = self.players.get_mut(&worker).unwrap();
                let known = player.held.contains_key(&assignment.execution)
                    || player.assigned.iter().any(|a| a.execution == assignment.execution);
                if player.session == Some(session) && !known {
                    player.assigned.push(assignment);
                }
            }
            Effect::Stop { worker, execution, fence, session, grace, .. } => {
                let player = self.players.get_mut(&worker).unwrap();
                if player.session == Some(session) {
                    player.graces.insert(execution, grace);
                    player.stopped.insert(execution, fence);
                }
            }
            Effect::Ack { worker, execution, last: true, .. } => {
                self.players.get_mut(&worker).unwrap().held.remove(&execution);
            }
            Effect::Ack { .. } | Effect::Welcome { .. } | Effect::Grant { .. } => {}
        }
    }

    /// Lets time pass, second by second; workers that are not silent send heartbeats.
    pub(crate) fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now = self.now + Duration::from_secs(1);
            self.beat();
            self.flush();
        }
    }

    fn beat(&mut self) {
        let beats: Vec<_> = self
            .players
            .iter_mut()
            .filter(|(_, player)| !player.silent)
            .filter_map(|(&worker, player)| {
                player.seq += 1;
                Some(Input::Heartbeat {
                    worker,
                    session: player.session?,
                    seq: player.seq,
                    health: Health::default(),
                })
            })
            .collect();
        for beat in beats {
            self.engine.handle(self.now, beat);
        }
    }

    /// A worker sends a heartbeat with a problem, or without one.
    pub(crate) fn report_health(&mut self, worker: WorkerId, problem: Option<&str>) {
        let player = self.players.get_mut(&worker).unwrap();
        player.seq += 1;
        let (session, seq) = (player.session.unwrap(), player.seq);
        let health = Health { problem: problem.map(Into::into), ..Health::default() };
        self.say(Input::Heartbeat { worker, session, seq, health });
    }

    /// Lets time pass up to a time, from one wakeup of the engine to the next. For worlds without workers.
    pub(crate) fn until(&mut self, end: Timestamp) {
        while self.now < end {
            let next = self.engine.wakeup().unwrap_or(end).min(end);
            self.now = next.max(self.now + Duration::from_millis(1));
            self.flush();
        }
    }

    /// No server runs for a while; then another engine is built from the rows.
    pub(crate) fn outage(&mut self, length: Duration) {
        self.now = self.now + length;
        self.restart();
    }

    /// Rebuilds the engine after the rows were changed while no engine ran.
    pub(crate) fn start_over(&mut self) {
        self.standby = follower(&self.config, self.now, &self.rows);
        self.restart();
    }

    /// Checks that an engine rebuilt from the rows equals the running one.
    pub(crate) fn check_rebuilt(&self) {
        self.rows.check_statistics();
        let mut rebuilt = Engine::new(self.config.clone(), &leases(self.epoch), SHARDS, self.now);
        for row in self.rows.live() {
            rebuilt.restore(row).unwrap();
        }
        rebuilt.start(self.now);
        rebuilt.flush(self.now);
        assert_eq!(rebuilt.difference(&self.engine), None, "here: rebuilt engine; there: running engine");
    }

    /// Loses all commits since `before`; the next engine distrusts the affected shards.
    pub(crate) fn lose_tail(&mut self, before: Rows) {
        self.rows = before;
        self.restart_distrusting(&(0..SHARDS).map(ShardId).collect::<Vec<_>>());
    }

    /// Drops the engine and builds another from the rows.
    pub(crate) fn restart(&mut self) {
        self.restart_distrusting(&[]);
    }

    /// Does the same while the previous owner may still act for a while.
    pub(crate) fn restart_beside(&mut self, former_owner: Duration) {
        self.former_owner = former_owner;
        self.restart();
        self.former_owner = Duration::ZERO;
    }

    /// Does the same while the store has no space.
    pub(crate) fn restart_full(&mut self) {
        self.is_full = true;
        self.restart();
        self.is_full = false;
    }

    fn restart_distrusting(&mut self, lost: &[ShardId]) {
        // Beyond all ids that the lost commits can contain.
        self.epoch += if lost.is_empty() { 1 } else { 1 << 20 };
        let mut engine = Engine::new(self.config.clone(), &leases(self.epoch), SHARDS, self.now);
        for row in self.rows.live() {
            engine.restore(row).unwrap();
        }
        let standby = std::mem::replace(&mut self.standby, follower(&self.config, self.now, &self.rows));
        if lost.is_empty() {
            let followed = self.followed_engine(standby);
            assert_eq!(followed.difference(&engine), None, "here: follower; there: rebuilt engine");
            if self.epoch.is_multiple_of(2) {
                engine = followed;
            }
        }
        engine.assume_lost_commits(lost);
        engine.set_former_owner_lease(self.former_owner);
        engine.hold_new_work(self.is_full);
        engine.start(self.now);
        self.engine = engine;
        for player in self.players.values_mut() {
            player.session = None;
        }
        self.flush();
    }

    /// Returns the engine of a follower that has read all stale rows.
    fn followed_engine(&self, mut standby: Follower) -> Engine {
        let keys = standby.stale(usize::MAX);
        let rows = self.rows.live().into_iter();
        let rows = rows.filter(|row| LiveKey::of(row).is_some_and(|key| keys.contains(&key)));
        standby.refresh(&keys, rows.collect());
        standby.own(&leases(self.epoch)).expect("the rows are consistent")
    }

    pub(crate) fn worker(&mut self) -> WorkerBuilder<'_> {
        WorkerBuilder {
            name: format!("w{}", self.players.len() + 1),
            capacity: Capacity {
                cpu: Millicores(4_000),
                memory: Bytes(8 << 30),
                custom: BTreeMap::new(),
                slots: 100,
            },
            labels: BTreeMap::new(),
            capabilities: Capabilities::of_processes(),
            scenario: self,
        }
    }

    /// Opens a new session for a worker, with its journal.
    pub(crate) fn rejoin(&mut self, worker: WorkerId) {
        let record = Arc::clone(&self.rows.workers[&worker]);
        let join = self.join_of(worker, &record);
        self.say(Input::Join(Box::new(join)));
    }

    /// Reconnects every worker.
    pub(crate) fn rejoin_all(&mut self) {
        let workers: Vec<_> = self.players.keys().copied().collect();
        for worker in workers {
            self.rejoin(worker);
        }
    }

    fn join_of(&mut self, worker: WorkerId, record: &WorkerRecord) -> Join {
        let session = Session(self.next());
        let player = self.players.get_mut(&worker).unwrap();
        player.session = Some(session);
        player.silent = false;
        player.assigned.clear();
        let held = player.held.iter();
        let held = held
            .map(|(&execution, &(fence, running))| Held { execution, fence, running, job: None })
            .collect();
        Join {
            worker,
            session,
            name: record.name.clone(),
            version: record.version.clone(),
            address: record.address.clone(),
            labels: record.labels.clone(),
            capacity: record.capacity.clone(),
            capabilities: record.capabilities.clone(),
            held,
        }
    }

    /// Silences a worker until its lease has ended.
    pub(crate) fn lose(&mut self, worker: WorkerId) {
        self.silence(worker);
        self.pass(8);
    }

    pub(crate) fn silence(&mut self, worker: WorkerId) {
        let player = self.players.get_mut(&worker).unwrap();
        player.silent = true;
        if let Some(session) = player.session.take() {
            self.say(Input::Disconnect { worker, session });
        }
    }

    pub(crate) fn job(&mut self) -> JobBuilder<'_> {
        JobBuilder { spec: JobSpec::command(["true"]), key: None, scenario: self }
    }

    /// The worker of a job starts its assignment and reports the start.
    pub(crate) fn start(&mut self, job: JobId) -> ExecutionId {
        let (worker, assignment) = self.take(job);
        self.report(worker, assignment.execution, assignment.fence, Report::Started);
        assignment.execution
    }

    /// The worker of a job writes its assignment into its journal.
    pub(crate) fn take(&mut self, job: JobId) -> (WorkerId, Assignment) {
        let mut connected = self.players.iter_mut().filter(|(_, player)| player.session.is_some());
        let found = connected.find_map(|(&worker, player)| {
            let index = player.assigned.iter().position(|a| a.job == job)?;
            Some((worker, player.assigned.remove(index)))
        });
        let (worker, assignment) = found.unwrap_or_else(|| panic!("{job} is assigned to no worker"));
        let held = (assignment.fence, true);
        let before = self.players.get_mut(&worker).unwrap().held.insert(assignment.execution, held);
        assert_eq!(before, None, "a journal has an execution once");
        (worker, assignment)
    }

    pub(crate) fn report(&mut self, worker: WorkerId, execution: ExecutionId, fence: Fence, report: Report) {
        if report != Report::Started
            && let Some(held) = self.players.get_mut(&worker).unwrap().held.get_mut(&execution)
        {
            held.1 = false;
        }
        let Some(session) = self.players[&worker].session else { return };
        self.say(Input::Report { worker, session, execution, fence, report });
    }

    /// Returns the live execution of a job.
    pub(crate) fn execution(&self, job: JobId) -> &ExecutionRecord {
        let id = self.state(job).execution.unwrap();
        &self.rows.executions[&id]
    }

    pub(crate) fn end_with(&mut self, job: JobId, report: Report) {
        if self.players.values().any(|p| p.assigned.iter().any(|a| a.job == job)) {
            self.start(job);
        }
        let ExecutionRecord { worker, id, fence, .. } = *self.execution(job);
        self.report(worker, id, fence, report);
    }

    pub(crate) fn succeed(&mut self, job: JobId) {
        self.end_with(job, finished(ExecutionEnd::Succeeded, Some(0)));
    }

    pub(crate) fn fail(&mut self, job: JobId, exit_code: i32) {
        self.end_with(job, finished(ExecutionEnd::Failed, Some(exit_code)));
    }

    pub(crate) fn cancel(&mut self, job: JobId) -> Result<Reply, Refusal> {
        self.ask(|ticket| Input::Cancel { ticket, job, actor: "alice".into(), reason: None })
    }

    /// Saves a checkpoint of an execution.
    pub(crate) fn save(
        &mut self,
        (execution, fence): (ExecutionId, Fence),
        data: &str,
        expected_version: Option<u64>,
    ) -> Result<Reply, Refusal> {
        let hash = data.bytes().fold(7, |hash: u128, byte| hash.wrapping_mul(31) ^ u128::from(byte));
        let request = Box::new(TaskRequest::SaveCheckpoint {
            content_type: "text/plain".into(),
            data: data.as_bytes().into(),
            hash,
            expected_version,
        });
        self.ask(|ticket| Input::Task { ticket: Some(ticket), execution, fence, request })
    }

    /// Adds elements to a step on behalf of the task of a job; without a name, to the only possible step.
    pub(crate) fn add(
        &mut self,
        job: JobId,
        step: Option<&str>,
        batch: &str,
        elements: &[serde_json::Value],
    ) -> Result<Added, Refusal> {
        let record = self.execution(job);
        let (execution, fence) = (record.id, record.fence);
        let (step, batch, elements) = (step.map(Into::into), batch.into(), elements.to_vec());
        let request = Box::new(TaskRequest::AddElements { step, batch, elements });
        match self.ask(|ticket| Input::Task { ticket: Some(ticket), execution, fence, request })? {
            Reply::ElementsAdded(added) => Ok(added),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn queue(&mut self, name: &str, settings: QueueSettings) {
        let name = name.to_owned();
        self.ask(|ticket| Input::SetQueue { ticket, name, settings, expected_version: None }).unwrap();
    }

    /// Sets the quota of a namespace.
    pub(crate) fn quota(&mut self, namespace: &str, quota: Quota) {
        let settings = NamespaceSettings { quota, ..NamespaceSettings::default() };
        self.namespace(namespace, settings);
    }

    pub(crate) fn namespace(&mut self, name: &str, settings: NamespaceSettings) {
        let name = name.to_owned();
        self.ask(|ticket| Input::SetNamespace { ticket, name, settings, expected_version: None }).unwrap();
    }

    pub(crate) fn admit(&mut self, worker: WorkerId, admission: Admission) {
        self.ask(|ticket| Input::SetAdmission { ticket, worker, admission }).unwrap();
    }

    pub(crate) fn why(&mut self, job: JobId) -> Vec<Reason> {
        match self.ask(|ticket| Input::Why { ticket, job }) {
            Ok(Reply::Why(why)) => known(why.reasons),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn state(&self, job: JobId) -> &JobState {
        &self.rows.jobs[&job].1
    }

    pub(crate) fn status(&self, job: JobId) -> JobStatus {
        self.state(job).status
    }

    /// Ends the execution of a job as after a stop.
    pub(crate) fn stop(&mut self, job: JobId) {
        self.end_with(job, finished(ExecutionEnd::Stopped, None));
    }

    /// Returns whether the worker of a job was sent a stop for its execution.
    pub(crate) fn is_being_stopped(&self, job: JobId) -> bool {
        let ExecutionRecord { worker, id, .. } = *self.execution(job);
        self.players[&worker].stopped.contains_key(&id)
    }

    /// Returns the stored history: `waiting → running → retrying (run_failed) → …`.
    pub(crate) fn history(&self, job: JobId) -> String {
        let entries = self.state(job).history.iter().map(|e| format!("{} ({})", e.to, e.cause));
        entries.collect::<Vec<_>>().join(" → ")
    }

    pub(crate) fn running(&self) -> usize {
        self.rows.jobs.values().filter(|(_, s)| s.status == JobStatus::Running).count()
    }
}

/// Returns a report of an end.
pub(crate) fn finished(how: ExecutionEnd, exit_code: Option<i32>) -> Report {
    Report::Finished { how, outcome: Outcome { exit_code, ..Outcome::default() }, usage: Usage::default() }
}

pub(crate) fn leases(epoch: u64) -> Vec<Lease> {
    (0..SHARDS).map(|shard| Lease { shard: ShardId(shard), epoch: Epoch(epoch) }).collect()
}

impl Rows {
    /// H6. Checks that the statistics count every job, execution and end in the rows once.
    fn check_statistics(&self) {
        let with = |status| self.jobs.values().filter(|(_, state)| state.status == status).count() as u64;
        let started = self.executions.values().filter(|record| record.started_at.is_some()).count() as u64;
        let Tally { submitted, succeeded, cancelled, expired, .. } = self.tally;
        assert_eq!(
            (submitted, self.tally.started, succeeded, self.tally.failed_total(), cancelled, expired),
            (
                self.jobs.len() as u64,
                started,
                with(JobStatus::Succeeded),
                with(JobStatus::Failed),
                with(JobStatus::Cancelled),
                with(JobStatus::Expired),
            ),
            "submitted, started, succeeded, failed, cancelled and expired of the statistics; right: of the rows"
        );
    }

    pub(crate) fn apply(&mut self, change: Change) {
        match change {
            Change::Job { id, new, head, state } => match (new, head) {
                (true, Some(head)) => {
                    assert!(self.jobs.insert(id, ((*head).clone(), *state)).is_none(), "{id} is new twice");
                }
                (true, None) => panic!("{id} is new and has no head"),
                (false, head) => {
                    let row =
                        self.jobs.get_mut(&id).unwrap_or_else(|| panic!("{id} is changed and not there"));
                    assert!(!row.1.status.is_final(), "{id} changes after its end");
                    assert!(state.version > row.1.version, "the version of {id} does not increase");
                    row.1 = *state;
                    if let Some(head) = head {
                        row.0 = (*head).clone();
                    }
                }
            },
            Change::Execution { new, record } => {
                let before = self.executions.insert(record.id, (*record).clone());
                assert_eq!(before.is_none(), new, "{}", record.id);
                assert!(before.is_none_or(|b| !b.status.is_final()), "{} changes after its end", record.id);
            }
            Change::Key(key) => {
                self.keys.insert(key.key, key);
            }
            Change::PurgeKeys { expired_before, .. } => {
                self.keys.retain(|_, k| k.expires_at > expired_before);
                self.run_keys.retain(|_, k| k.expires_at > expired_before);
            }
            Change::Worker(record) => {
                self.workers.insert(record.id, record);
            }
            Change::RemoveWorker(id) => {
                self.workers.remove(&id);
            }
            Change::Queue(record) => {
                self.queues.insert(record.name.clone(), record);
            }
            Change::RemoveQueue(name) => {
                self.queues.remove(&*name);
            }
            Change::Namespace(record) => {
                self.namespaces.insert(record.name.clone(), record);
            }
            Change::RemoveNamespace(name) => {
                self.namespaces.remove(&*name);
            }
            Change::Schedule { id, new, head, state } => match (new, head) {
                (true, head) => {
                    let head = head.unwrap_or_else(|| panic!("{id} is new and has no head"));
                    let before = self.schedules.insert(id, ((*head).clone(), *state));
                    assert!(before.is_none(), "{id} is new twice");
                }
                (false, head) => {
                    let row = self.schedules.get_mut(&id).unwrap_or_else(|| panic!("{id} is not there"));
                    assert!(state.cursor >= row.1.cursor, "the cursor of {id} moves back");
                    row.1 = *state;
                    if let Some(head) = head {
                        row.0 = (*head).clone();
                    }
                }
            },
            Change::RemoveSchedule(id) => {
                self.schedules.remove(&id);
            }
            Change::Ledger(record) => {
                let key = (record.schedule, record.generation, record.first, record.cause, record.backfill);
                if let Some(work) = self.ledger.get(&key).and_then(|before| before.work) {
                    assert_eq!(record.work, Some(work), "I14: {key:?} fires twice");
                }
                self.ledger.insert(key, *record);
            }
            Change::Backfill { id, head, state } => match head {
                Some(head) => {
                    self.backfills.insert(id, ((*head).clone(), state));
                }
                None => self.backfills.get_mut(&id).unwrap().1 = state,
            },
            Change::Workflow { id, new, head, state } => {
                let known = self.workflows.remove(&id);
                assert_eq!(known.is_none(), new, "{id}");
                let head = head.map(|head| (*head).clone()).or(known.map(|(head, _)| head));
                self.workflows.insert(id, (head.expect("a new workflow has a head"), state));
            }
            Change::Service { id, new, head, state } => {
                let known = self.services.remove(&id);
                assert_eq!(known.is_none(), new, "{id}");
                let head = head.map(|head| (*head).clone()).or(known.map(|(head, _)| head));
                self.services.insert(id, (head.expect("a new service has a head"), *state));
            }
            Change::RemoveService(id) => {
                self.services.remove(&id);
            }
            Change::Checkpoint(record) => {
                let (job, version) = (record.job, record.version);
                let before = self.checkpoints.insert(job, *record);
                assert!(before.is_none_or(|before| before.version < version), "{job} saves {version} twice");
            }
            Change::RunKey(key) => {
                self.run_keys.insert(key.key, key);
            }
            Change::RemoveWorkflow(id) => {
                self.workflows.remove(&id);
            }
            Change::Run { id, head, state } => match self.runs.get_mut(&id) {
                None => {
                    let head = head.unwrap_or_else(|| panic!("{id} is new and has no head"));
                    self.runs.insert(id, (head, *state));
                }
                Some(row) => {
                    assert!(head.is_none(), "{id} is new twice");
                    assert!(!row.1.status.is_final(), "{id} changes after its end");
                    assert!(state.version > row.1.version, "the version of {id} does not increase");
                    row.1 = *state;
                }
            },
            Change::Step(record) => {
                let StepRecord { key, state } = *record;
                let before = self.steps.insert(key, state);
                let run_is_tried_again = self.runs[&key.run].1.retry.is_some();
                assert!(
                    run_is_tried_again || before.is_none_or(|b| !b.status.is_final()),
                    "{key:?} changes after its end"
                );
            }
            Change::ElementBatch(batch) => {
                let key = batch.key;
                assert!(self.batches.insert(key, *batch).is_none(), "{key:?} is new twice");
            }
            Change::Calendar(record) => {
                let key = (record.spec.namespace.clone(), record.spec.name.clone());
                self.calendars.insert(key, record);
            }
            Change::RemoveCalendar { namespace, name } => {
                self.calendars.remove(&(namespace.to_string(), name.to_string()));
            }
        }
    }

    pub(crate) fn live(&self) -> Vec<LiveRow> {
        let jobs = self.jobs.iter().filter(|(_, (_, state))| !state.status.is_final());
        let jobs = jobs.map(|(&id, (head, state))| LiveRow::Job {
            id,
            head: head.clone(),
            state: Box::new(state.clone()),
        });
        let executions = self.executions.values().filter(|e| !e.status.is_final());
        let schedules = self.schedules.iter().map(|(&id, (head, state))| LiveRow::Schedule {
            id,
            head: head.clone(),
            state: Box::new(state.clone()),
        });
        let running = self.backfills.values().filter(|(_, state)| state.status == BackfillStatus::Running);
        let backfills = running.map(|(head, state)| LiveRow::Backfill { head: head.clone(), state: *state });
        let workflows = self.workflows.iter().map(|(&id, (head, state))| LiveRow::Workflow {
            id,
            head: head.clone(),
            state: state.clone(),
        });
        let services = self.services.iter().map(|(&id, (head, state))| LiveRow::Service {
            id,
            head: head.clone(),
            state: Box::new(state.clone()),
        });
        let is_live = |id: &RunId| self.runs.get(id).is_some_and(|(_, state)| !state.status.is_final());
        let runs = self.runs.iter().filter(|(id, _)| is_live(id)).map(|(&id, (head, state))| LiveRow::Run {
            id,
            head: Arc::clone(head),
            state: Box::new(state.clone()),
        });
        let batches = self.batches.values().filter(|batch| is_live(&batch.key.run));
        let batches = batches.map(|batch| LiveRow::ElementBatch(Box::new(batch.clone())));
        let steps = self.steps.iter().filter(|(key, _)| is_live(&key.run));
        let steps =
            steps.map(|(&key, state)| LiveRow::Step(Box::new(StepRecord { key, state: state.clone() })));
        let calendars = self.calendars.values().map(|record| LiveRow::Calendar((**record).clone()));
        calendars
            .chain(schedules)
            .chain(backfills)
            .chain(services)
            .chain(workflows)
            .chain(runs)
            .chain(batches)
            .chain(steps)
            .chain(jobs)
            .chain(executions.map(|e| LiveRow::Execution(Box::new(e.clone()))))
            .chain(self.keys.values().map(|k| LiveRow::Key(*k)))
            .chain(self.run_keys.values().map(|k| LiveRow::RunKey(*k)))
            .chain(self.workers.values().map(|w| LiveRow::Worker((**w).clone())))
            .chain(self.queues.values().map(|q| LiveRow::Queue((**q).clone())))
            .chain(self.namespaces.values().map(|n| LiveRow::Namespace((**n).clone())))
            .collect()
    }
}

pub(crate) struct WorkerBuilder<'a> {
    scenario: &'a mut Scenario,
    name: String,
    capacity: Capacity,
    labels: BTreeMap<String, String>,
    capabilities: Capabilities,
}

impl WorkerBuilder<'_> {
    pub(crate) fn cpu(mut self, millis: u32) -> Self {
        self.capacity.cpu = Millicores(millis);
        self
    }

    pub(crate) fn memory_mib(mut self, mib: u64) -> Self {
        self.capacity.memory = Bytes(mib << 20);
        self
    }

    pub(crate) fn custom(mut self, name: &str, amount: u64) -> Self {
        self.capacity.custom.insert(name.into(), amount);
        self
    }

    pub(crate) fn slots(mut self, slots: u32) -> Self {
        self.capacity.slots = slots;
        self
    }

    pub(crate) fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    pub(crate) fn volumes(mut self, names: &[&str]) -> Self {
        self.capabilities.volumes = names.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    pub(crate) fn sandbox_levels(mut self, levels: &[SandboxLevel]) -> Self {
        self.capabilities.sandbox_levels = levels.to_vec();
        self
    }

    pub(crate) fn without_limits(mut self) -> Self {
        self.capabilities.memory_limit = false;
        self.capabilities.health_checks = false;
        self
    }

    pub(crate) fn join(self) -> WorkerId {
        let scenario = self.scenario;
        let entropy = scenario.next();
        let id = WorkerId::from_bits(scenario.ids.next(scenario.now, ShardId(0), entropy));
        scenario.players.insert(id, Player::default());
        let record = WorkerRecord {
            id,
            name: self.name,
            version: "test".into(),
            address: None,
            labels: self.labels,
            capacity: self.capacity,
            capabilities: self.capabilities,
            status: model::worker::WorkerStatus::Ready,
            admission: Admission::Open,
            created_at: scenario.now,
            updated_at: scenario.now,
            last_heartbeat_at: None,
        };
        let join = scenario.join_of(id, &record);
        scenario.say(Input::Join(Box::new(join)));
        id
    }
}

pub(crate) struct JobBuilder<'a> {
    scenario: &'a mut Scenario,
    spec: JobSpec,
    key: Option<Key>,
}

impl JobBuilder<'_> {
    pub(crate) fn spec(mut self, change: impl FnOnce(&mut JobSpec)) -> Self {
        change(&mut self.spec);
        self
    }

    pub(crate) fn retries(self, retries: u32) -> Self {
        self.spec(|s| s.retry.max_retries = retries)
    }

    pub(crate) fn delivery(self, delivery: Delivery) -> Self {
        self.spec(|s| s.delivery = delivery)
    }

    pub(crate) fn namespace(self, namespace: &str) -> Self {
        self.spec(|s| s.namespace = namespace.into())
    }

    pub(crate) fn queue(self, queue: &str) -> Self {
        self.spec(|s| s.queue = queue.into())
    }

    pub(crate) fn priority(self, priority: u8) -> Self {
        self.spec(|s| s.priority = priority)
    }

    pub(crate) fn cpu(self, millis: u32) -> Self {
        self.spec(|s| s.resources.cpu = Some(Millicores(millis)))
    }

    pub(crate) fn class(self, class: PriorityClass) -> Self {
        self.spec(|s| s.priority_class = class)
    }

    pub(crate) fn placement(self, placement: Placement) -> Self {
        self.spec(|s| s.placement = placement)
    }

    pub(crate) fn only_on(self, label: &str, value: &str) -> Self {
        let constraint =
            Constraint { label: label.into(), operator: Operator::In, values: vec![value.into()] };
        self.spec(|s| s.constraints.push(constraint))
    }

    pub(crate) fn concurrency(self, key: &str, limit: u32) -> Self {
        self.spec(|s| s.concurrency = Some(Concurrency { key: key.into(), limit }))
    }

    pub(crate) fn in_seconds(self, seconds: u64) -> Self {
        let at = self.scenario.now + Duration::from_secs(seconds);
        self.spec(|s| s.run_at = Some(at))
    }

    pub(crate) fn deadline(self, seconds: u64) -> Self {
        self.spec(|s| s.start_deadline = Some(Duration::from_secs(seconds)))
    }

    pub(crate) fn key(mut self, key: u128, body: u128) -> Self {
        self.key = Some(Key { key, body });
        self
    }

    pub(crate) fn head(&self) -> Arc<JobHead> {
        head(self.spec.clone())
    }

    pub(crate) fn submit(self) -> JobId {
        self.try_submit().unwrap().job
    }

    pub(crate) fn try_submit(self) -> Result<Submitted, Refusal> {
        let new = NewJob { head: self.head(), key: self.key, actor: "alice".into(), ended: Vec::new() };
        let reply = self.scenario.ask(|ticket| Input::Submit { ticket, jobs: vec![new] })?;
        match reply {
            Reply::Submitted(submitted) => Ok(submitted[0]),
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn head(spec: JobSpec) -> Arc<JobHead> {
    let body = serde_json::to_string(&spec).unwrap().into();
    Arc::new(JobHead { spec: Arc::new(spec), body, retry_of: None, origin: None, step: None, replica: None })
}

/// Unwraps reasons; the engine produces known ones only.
pub(crate) fn known<T>(reasons: Vec<OpenEnum<T>>) -> Vec<T> {
    let known = |reason| match reason {
        OpenEnum::Known(reason) => reason,
        OpenEnum::Unknown(value) => panic!("{value}"),
    };
    reasons.into_iter().map(known).collect()
}
