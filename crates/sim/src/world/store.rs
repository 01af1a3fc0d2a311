//! A model of the store: rows, leases with epochs, and nothing that a real one would not do.
//!
//! Everything here happens at one instant; the time that it takes, and whether anybody hears of the
//! result, is the business of the network around it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use model::calendar::CalendarRecord;
use model::firing::{BackfillHead, BackfillState, BackfillStatus, ScheduleHead, ScheduleState};
use model::id::Epoch;
use model::record::{
    Batch, Change, ExecutionRecord, JobHead, JobState, KeyRecord, Lease, LiveRow, QueueRecord, RunKeyRecord,
    WorkerRecord,
};
use model::run::{
    BatchKey, ElementBatch, RetryFrom, RunHead, RunHistoryEntry, RunState, StepKey, StepOrigin, StepRecord,
    StepState, WorkflowHead, WorkflowState, carried,
};
use model::{
    BackfillId, Duration, ExecutionId, Fence, JobId, JobStatus, RunId, RunStatus, ScheduleId, ShardId,
    StepStatus, Timestamp, WorkerId, WorkflowId, WorkflowSpec,
};

use engine::input::Takeover;

use super::plan::Mutation;
use crate::history::{Added, Commit, ExecutionRow, JobRow, Row, RunRow, ScheduleRow, StepRow, WorkflowRow};

/// Who owns a shard.
#[derive(Debug, Clone, Copy, Default)]
struct Ownership {
    owner: usize,
    epoch: Epoch,
    until: Timestamp,
}

/// The rows of a store.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rows {
    jobs: BTreeMap<JobId, (Arc<JobHead>, Box<JobState>)>,
    /// Jobs that have ended: of them only that they were there.
    ended: BTreeMap<JobId, JobStatus>,
    executions: BTreeMap<ExecutionId, Box<ExecutionRecord>>,
    keys: BTreeMap<u128, KeyRecord>,
    workers: BTreeMap<WorkerId, Arc<WorkerRecord>>,
    queues: BTreeMap<String, Arc<QueueRecord>>,
    schedules: BTreeMap<ScheduleId, (Arc<ScheduleHead>, ScheduleState)>,
    backfills: BTreeMap<BackfillId, (Arc<BackfillHead>, BackfillState)>,
    calendars: BTreeMap<(String, String), Arc<CalendarRecord>>,
    workflows: BTreeMap<WorkflowId, (Arc<WorkflowHead>, WorkflowState)>,
    runs: BTreeMap<RunId, (Arc<RunHead>, RunState)>,
    batches: BTreeMap<BatchKey, ElementBatch>,
    steps: BTreeMap<StepKey, StepState>,
    /// What the last checkpoint of each job holds.
    checkpoints: BTreeMap<JobId, u64>,
    /// Runs that failed last, and what another try takes over from them.
    failed: VecDeque<(RunId, Arc<RunHead>, Takeover)>,
    run_keys: BTreeMap<u128, RunKeyRecord>,
    now: Timestamp,
    /// The job of every execution; kept only for a driver that mistakes one for another.
    jobs_of: BTreeMap<ExecutionId, JobId>,
}

/// Why a commit did not go through. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fenced;

/// What a recorder makes of the batches that a real store committed.
#[derive(Debug, Default)]
pub struct StoreRecorder(Rows);

impl StoreRecorder {
    /// A batch became durable, under an ownership of this server.
    pub fn committed(&mut self, server: u32, epoch: Epoch, decided_at: Timestamp, batch: &Batch) -> Commit {
        let rows = batch.changes.iter().cloned().filter_map(|change| self.0.apply(change, None)).collect();
        Commit { server, epoch, decided_at, now: batch.now, rows }
    }

    /// How many jobs have not ended.
    pub fn live(&self) -> usize {
        self.0.jobs.len()
    }
}

/// The store.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) rows: Rows,
    shards: Vec<Ownership>,
    /// The newest call of each server by which something was committed.
    newest: BTreeMap<usize, u64>,
    mutation: Option<Mutation>,
    /// Rows before the newest commits, oldest first; kept only where a tail may be lost.
    past: VecDeque<Rows>,
    keeps_past: bool,
    /// Commits were lost, and what came of that on the workers was not dealt with yet.
    tail_lost: bool,
    torn: u32,
}

const PAST_MAX: usize = 32;
const FAILED_MAX: usize = 8;

impl Store {
    pub(crate) fn new(shards: u16, mutation: Option<Mutation>, keeps_past: bool) -> Self {
        Self {
            rows: Rows::default(),
            shards: vec![Ownership::default(); usize::from(shards)],
            newest: BTreeMap::new(),
            mutation,
            past: VecDeque::new(),
            keeps_past: keeps_past || mutation == Some(Mutation::StoreReadsThePast),
            tail_lost: false,
            torn: 0,
        }
    }

    fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// Takes all shards, if each is free or its lease ran out.
    pub(crate) fn acquire(&mut self, owner: usize, ttl: Duration, now: Timestamp) -> Option<Vec<Lease>> {
        if self.shards.iter().any(|shard| shard.until > now) {
            return None;
        }
        let grows = u64::from(!self.has(Mutation::StoreReusesEpochs));
        for shard in &mut self.shards {
            *shard = Ownership { owner, epoch: Epoch((shard.epoch.0 + grows).max(1)), until: now + ttl };
        }
        Some(self.leases())
    }

    fn leases(&self) -> Vec<Lease> {
        let leases = self.shards.iter().zip(0..);
        leases.map(|(shard, id)| Lease { shard: ShardId(id), epoch: shard.epoch }).collect()
    }

    /// Whether nobody took these over.
    pub(crate) fn holds(&self, leases: &[Lease]) -> bool {
        leases.iter().all(|lease| self.shards[usize::from(lease.shard.0)].epoch == lease.epoch)
    }

    pub(crate) fn renew(&mut self, leases: &[Lease], ttl: Duration, now: Timestamp) -> Result<(), Fenced> {
        if !self.holds(leases) {
            return Err(Fenced);
        }
        self.shards.iter_mut().for_each(|shard| shard.until = now + ttl);
        Ok(())
    }

    /// Gives the shards back, if they were not taken over.
    pub(crate) fn release(&mut self, leases: &[Lease], now: Timestamp) {
        if self.holds(leases) {
            self.shards.iter_mut().for_each(|shard| shard.until = now);
        }
    }

    /// Who owns the shards now, if anybody does.
    pub(crate) fn owner(&self, now: Timestamp) -> Option<usize> {
        self.shards.first().filter(|shard| shard.until > now).map(|shard| shard.owner)
    }

    /// Whether a job was ever committed, for who reads.
    pub(crate) fn has_job(&self, job: JobId) -> bool {
        let rows = match self.past.back() {
            Some(past) if self.has(Mutation::StoreReadsThePast) => past,
            _ => &self.rows,
        };
        rows.jobs.contains_key(&job) || rows.ended.contains_key(&job)
    }

    /// Whether nothing lives any more.
    pub(crate) fn is_quiet(&self) -> bool {
        let running = |(_, state): &(_, BackfillState)| state.status == BackfillStatus::Running;
        self.rows.jobs.is_empty() && self.rows.runs.is_empty() && !self.rows.backfills.values().any(running)
    }

    /// Every workflow, with its generation.
    pub(crate) fn workflows(&self) -> Vec<(WorkflowId, Arc<WorkflowHead>, u64)> {
        let all = self.rows.workflows.iter();
        all.map(|(&id, (head, state))| (id, Arc::clone(head), state.generation)).collect()
    }

    /// Every run that has not ended.
    pub(crate) fn runs(&self) -> Vec<(RunId, Arc<WorkflowSpec>)> {
        let all = self.rows.runs.iter();
        all.map(|(&id, (head, _))| (id, Arc::clone(&head.definition.workflow))).collect()
    }

    /// Runs that failed not long ago, and what another try takes over from them.
    pub(crate) fn failed_runs(&self) -> Vec<(RunId, Arc<RunHead>, Takeover)> {
        self.rows.failed.iter().cloned().collect()
    }

    /// Every execution of a step that goes on.
    pub(crate) fn executions_of_steps(&self) -> Vec<(ExecutionId, Fence, Arc<StepOrigin>)> {
        let all = self.rows.executions.values().filter_map(|record| {
            let (head, _) = self.rows.jobs.get(&record.job)?;
            Some((record.id, record.fence, Arc::clone(head.step.as_ref()?)))
        });
        all.collect()
    }

    /// What the last checkpoint of the job of an execution holds, for that execution while it goes on.
    pub(crate) fn checkpoint(&self, execution: ExecutionId, fence: Fence) -> Option<u64> {
        let current = self.rows.executions.get(&execution).filter(|record| record.fence == fence)?;
        self.rows.checkpoints.get(&current.job).copied()
    }

    /// Every schedule and every worker.
    pub(crate) fn known(&self) -> (Vec<ScheduleId>, Vec<WorkerId>) {
        (self.rows.schedules.keys().copied().collect(), self.rows.workers.keys().copied().collect())
    }

    /// The live execution of the job of another one, and where it is.
    pub(crate) fn newest_like(&self, execution: ExecutionId) -> Option<(WorkerId, ExecutionId, Fence)> {
        let job = self.rows.jobs_of.get(&execution)?;
        let newest = self.rows.jobs.get(job)?.1.execution?;
        self.rows.executions.get(&newest).map(|record| (record.worker, record.id, record.fence))
    }

    /// Engine time of the newest commit.
    pub(crate) fn now(&self) -> Timestamp {
        self.rows.now
    }

    /// Forgets the newest commits. Epochs grow over it, for they are what fences are made of: what is on its way
    /// under the old ones comes to nothing.
    pub(crate) fn lose_tail(&mut self, commits: u32) -> u32 {
        let mut lost = 0;
        self.shards.iter_mut().for_each(|shard| shard.epoch.0 += 1);
        while lost < commits
            && let Some(rows) = self.past.pop_back()
        {
            self.rows = rows;
            lost += 1;
        }
        self.tail_lost |= lost > 0;
        lost
    }

    /// Whether what runs on workers may be unknown here.
    pub(crate) fn tail_lost(&self) -> bool {
        self.tail_lost && !self.has(Mutation::LostTailIsTrusted)
    }

    /// Every worker was heard since.
    pub(crate) fn tail_reconciled(&mut self, leases: &[Lease]) -> Result<(), Fenced> {
        if !self.holds(leases) {
            return Err(Fenced);
        }
        self.tail_lost = false;
        Ok(())
    }

    /// Whether nothing is missing between this commit of a server and what it sends behind that one.
    pub(crate) fn may_go_on(&self, server: usize, before: u64) -> bool {
        self.newest.get(&server) == Some(&before) || self.has(Mutation::StoreGoesOnBehindAFailure)
    }

    /// Something was committed by this call.
    pub(crate) fn done(&mut self, server: usize, call: u64) {
        self.newest.insert(server, call);
    }

    /// Makes a batch durable, and says what a recorder of the store sees of it.
    pub(crate) fn commit(
        &mut self,
        server: usize,
        leases: &[Lease],
        batch: Batch,
        decided_at: Timestamp,
    ) -> Result<Commit, Fenced> {
        if !self.holds(leases) && !self.has(Mutation::StoreIgnoresEpochs) {
            return Err(Fenced);
        }
        if self.keeps_past {
            self.past.push_back(self.rows.clone());
            if self.past.len() > PAST_MAX {
                self.past.pop_front();
            }
        }
        let mut changes = batch.changes;
        let mut rows = Vec::with_capacity(changes.len());
        if self.has(Mutation::StoreTearsBatches) {
            self.torn += 1;
            if self.torn.is_multiple_of(7) {
                changes.truncate(changes.len() / 2);
            }
        }
        for change in changes {
            if !self.forgets(&change) {
                rows.extend(self.rows.apply(change, self.mutation));
            }
        }
        self.rows.now = self.rows.now.max(batch.now);
        let epoch = leases.first().map_or(Epoch(0), |lease| lease.epoch);
        let server = u32::try_from(server).unwrap_or(u32::MAX);
        Ok(Commit { server, epoch, decided_at, now: batch.now, rows })
    }

    fn forgets(&mut self, change: &Change) -> bool {
        match (self.mutation, change) {
            (Some(Mutation::StoreForgetsNewJobs), Change::Job { new: true, .. }) => {
                self.torn += 1;
                self.torn.is_multiple_of(11)
            }
            (Some(Mutation::StoreForgetsCancels), Change::Job { state, .. }) => {
                state.status == JobStatus::Cancelled
            }
            (Some(Mutation::StoreForgetsKeys), Change::Key(_)) => true,
            (Some(Mutation::StoreForgetsEndsOfSteps), Change::Step(record)) => {
                record.state.status.is_final() && record.key.item.is_none()
            }
            (Some(Mutation::StoreForgetsElements), Change::ElementBatch(_)) => true,
            (Some(Mutation::StoreForgetsCheckpoints), Change::Checkpoint(_)) => {
                self.torn += 1;
                self.torn.is_multiple_of(2)
            }
            (Some(Mutation::StoreForgetsTheLedger), Change::Ledger(record)) => record.work.is_none(),
            _ => false,
        }
    }

    /// The rows of everything that lives, as an engine is built from them.
    pub(crate) fn load(&self) -> Vec<LiveRow> {
        let mut rows = self.rows.live();
        if self.mutation.is_none() {
            return rows;
        }
        if self.has(Mutation::LoadForgetsTriggers) {
            rows.iter_mut().for_each(forget_triggers);
        }
        if self.has(Mutation::LoadForgetsTriesOfRuns) {
            rows.iter_mut().for_each(forget_tries);
        }
        rows.retain(|row| {
            !matches!(
                (self.mutation, row),
                (Some(Mutation::LoadForgetsExecutions), LiveRow::Execution(_))
                    | (Some(Mutation::LoadForgetsQueues), LiveRow::Queue(_))
                    | (Some(Mutation::LoadForgetsWorkers), LiveRow::Worker(_))
                    | (Some(Mutation::LoadForgetsElements), LiveRow::ElementBatch(_))
            ) && !matches!(
                (self.mutation, row),
                (Some(Mutation::LoadForgetsSteps), LiveRow::Step(record))
                    if record.state.status == StepStatus::Succeeded
            ) && !matches!(
                (self.mutation, row),
                (Some(Mutation::LoadForgetsJobs), LiveRow::Job { state, .. })
                    if state.status == JobStatus::Retrying
            ) && !matches!(
                (self.mutation, row),
                (Some(Mutation::LoadForgetsRunsBetweenTries), LiveRow::Run { state, .. })
                    if state.status == RunStatus::Retrying
            )
        });
        rows
    }
}

impl Rows {
    fn apply(&mut self, change: Change, mutation: Option<Mutation>) -> Option<Row> {
        match change {
            Change::Job { id, new, head, state } => Some(self.apply_job(id, new, head, state)),
            Change::Execution { new, record } => {
                if matches!(mutation, Some(Mutation::StaleReportAsCurrent | Mutation::StaleSaveAsCurrent)) {
                    self.jobs_of.insert(record.id, record.job);
                }
                let row = execution_row(new, &record);
                if record.status.is_final() {
                    self.executions.remove(&record.id);
                } else {
                    self.executions.insert(record.id, record);
                }
                Some(row)
            }
            Change::Key(key) => {
                self.keys.insert(key.key, key);
                Some(Row::Key { key: format!("{:x}", key.key), job: key.job })
            }
            Change::ForgetKeys { expired_before, .. } => {
                self.keys.retain(|_, key| key.expires_at > expired_before);
                self.run_keys.retain(|_, key| key.expires_at > expired_before);
                None
            }
            Change::Worker(record) => {
                let (worker, status, capacity) = (record.id, record.status, record.capacity.clone());
                self.workers.insert(worker, record);
                Some(Row::Worker { worker, status, capacity })
            }
            Change::RemoveWorker(id) => {
                self.workers.remove(&id);
                None
            }
            Change::Queue(record) => {
                let (name, settings) = (record.name.clone(), record.settings.clone());
                self.queues.insert(name.clone(), record);
                Some(Row::Queue { name, settings })
            }
            Change::Schedule { id, new, head, state } => {
                Some(self.apply_schedule(id, new, head.as_ref(), *state, mutation))
            }
            Change::RemoveSchedule(id) => {
                self.schedules.remove(&id);
                Some(Row::ScheduleRemoved(id))
            }
            Change::Ledger(record) => Some(Row::Ledger(record)),
            Change::Backfill { id, head, state } => {
                match (head, self.backfills.get_mut(&id)) {
                    (_, Some(known)) => known.1 = state,
                    (Some(head), None) => {
                        self.backfills.insert(id, (head, state));
                    }
                    (None, None) => {}
                }
                Some(Row::Backfill { backfill: id, status: state.status })
            }
            Change::Workflow { id, head, state, .. } => {
                let spec = head.as_ref().map(|head| Arc::clone(&head.spec));
                let row =
                    WorkflowRow { workflow: id, spec, triggers: state.triggers.clone(), removed: false };
                let known = self.workflows.remove(&id).map(|(head, _)| head);
                if let Some(head) = head.or(known) {
                    self.workflows.insert(id, (head, state));
                }
                Some(Row::Workflow(Box::new(row)))
            }
            Change::Checkpoint(record) => {
                let data = content(&record.data);
                self.checkpoints.insert(record.job, data);
                Some(Row::Checkpoint { job: record.job, version: record.version, data })
            }
            Change::RunKey(key) => {
                self.run_keys.insert(key.key, key);
                None
            }
            Change::RemoveWorkflow(id) => {
                self.workflows.remove(&id);
                let row = WorkflowRow { workflow: id, spec: None, triggers: Vec::new(), removed: true };
                Some(Row::Workflow(Box::new(row)))
            }
            Change::Run { id, head, state } => Some(self.apply_run(id, head.as_ref(), &state)),
            Change::Step(record) => {
                let StepKey { run, step, item } = record.key;
                let StepState { status, cause, .. } = record.state;
                self.steps.insert(record.key, record.state);
                Some(Row::Step(Box::new(StepRow { run, step, item, status, cause })))
            }
            Change::ElementBatch(batch) => {
                let row = elements_row(&batch);
                self.batches.insert(batch.key, *batch);
                Some(row)
            }
            Change::Calendar(record) => {
                let key = (record.spec.namespace.clone(), record.spec.name.clone());
                self.calendars.insert(key, record);
                None
            }
            Change::RemoveCalendar { namespace, name } => {
                self.calendars.remove(&(namespace.to_string(), name.to_string()));
                None
            }
        }
    }

    fn apply_job(&mut self, id: JobId, new: bool, head: Option<Arc<JobHead>>, state: Box<JobState>) -> Row {
        let known = self.jobs.get_mut(&id);
        let steps = added(known.as_ref().map_or(&[], |(_, before)| &before.history), &state.history);
        let row = Row::Job(Box::new(JobRow {
            job: id,
            new,
            spec: head.as_ref().map(|head| Arc::clone(&head.spec)),
            origin: head.as_ref().and_then(|head| head.origin.clone()),
            step: head.as_ref().and_then(|head| head.step.clone()),
            status: state.status,
            version: state.version,
            due_at: state.due_at,
            executions: state.executions,
            run_failures: state.run_failures,
            start_failures: state.start_failures,
            fence: state.fence,
            cancel_requested: state.cancel_requested_at.is_some(),
            steps,
        }));
        if state.status.is_final() {
            self.jobs.remove(&id);
            self.checkpoints.remove(&id);
            self.ended.insert(id, state.status);
        } else if let Some((known, before)) = known {
            *known = head.unwrap_or_else(|| Arc::clone(known));
            *before = state;
        } else if let Some(head) = head {
            self.jobs.insert(id, (head, state));
        }
        row
    }

    /// A run that ended takes its steps and what was added to these with it: an engine that takes over never
    /// hears of them.
    fn apply_run(&mut self, id: RunId, head: Option<&Arc<RunHead>>, state: &RunState) -> Row {
        let known = self.runs.remove(&id);
        let before: &[RunHistoryEntry] = known.as_ref().map_or(&[], |(_, before)| &before.history);
        let steps = added(before, &state.history);
        if state.status.is_final() {
            self.keep_failed(id, known.as_ref().map(|(head, _)| head), state);
            self.batches.retain(|key, _| key.run != id);
            self.steps.retain(|key, _| key.run != id);
        } else if let Some(head) = head.cloned().or(known.map(|(head, _)| head)) {
            self.runs.insert(id, (head, state.clone()));
        }
        Row::Run(Box::new(RunRow {
            run: id,
            new: head.is_some(),
            spec: head.map(|head| Arc::clone(&head.definition.workflow)),
            origin: head.and_then(|head| head.origin.clone()),
            caller: head.and_then(|head| head.caller),
            trigger: head.and_then(|head| head.trigger.clone()),
            started: state.started.to_vec(),
            status: state.status,
            version: state.version,
            steps,
        }))
    }

    /// Keeps what another try of a run would take over.
    fn keep_failed(&mut self, id: RunId, head: Option<&Arc<RunHead>>, state: &RunState) {
        let Some(head) = head.filter(|head| head.caller.is_none() && state.started_at.is_some()) else {
            return;
        };
        if state.status != RunStatus::Failed {
            return;
        }
        let steps = self.steps.iter().filter(|(key, _)| key.run == id);
        let records: Vec<_> = steps.map(|(&key, state)| StepRecord { key, state: state.clone() }).collect();
        let carried = carried(&head.definition, &records, RetryFrom::Failed);
        let batches = self.batches.values().filter(|batch| batch.key.run == id && carried.takes(batch));
        let batches = batches.cloned().collect();
        self.failed.push_back((id, Arc::clone(head), Takeover { records: carried.records, batches }));
        if self.failed.len() > FAILED_MAX {
            self.failed.pop_front();
        }
    }

    fn apply_schedule(
        &mut self,
        id: ScheduleId,
        new: bool,
        head: Option<&Arc<ScheduleHead>>,
        mut state: ScheduleState,
        mutation: Option<Mutation>,
    ) -> Row {
        if let Some((known, before)) = self.schedules.get(&id) {
            if mutation == Some(Mutation::StoreForgetsCursors) {
                state.cursor = before.cursor;
            }
            let head = head.unwrap_or(known);
            self.schedules.insert(id, (Arc::clone(head), state.clone()));
        } else if let Some(head) = head {
            self.schedules.insert(id, (Arc::clone(head), state.clone()));
        }
        Row::Schedule(Box::new(ScheduleRow {
            schedule: id,
            new,
            spec: head.map(|head| Arc::clone(&head.spec)),
            generation: state.generation,
            status: state.status,
            cursor: state.cursor,
            owed: state.owed.to_vec(),
            created_at: state.created_at,
        }))
    }

    fn live(&self) -> Vec<LiveRow> {
        let calendars = self.calendars.values().map(|record| LiveRow::Calendar((**record).clone()));
        let schedules = self.schedules.iter().map(|(&id, (head, state))| LiveRow::Schedule {
            id,
            head: (**head).clone(),
            state: Box::new(state.clone()),
        });
        let running = self.backfills.values().filter(|(_, state)| state.status == BackfillStatus::Running);
        let backfills =
            running.map(|(head, state)| LiveRow::Backfill { head: (**head).clone(), state: *state });
        let workflows = self.workflows.iter().map(|(&id, (head, state))| LiveRow::Workflow {
            id,
            head: (**head).clone(),
            state: state.clone(),
        });
        let runs = self.runs.iter().map(|(&id, (head, state))| LiveRow::Run {
            id,
            head: Arc::clone(head),
            state: Box::new(state.clone()),
        });
        let batches = self.batches.values().filter(|batch| self.runs.contains_key(&batch.key.run));
        let batches = batches.map(|batch| LiveRow::ElementBatch(Box::new(batch.clone())));
        let steps = self.steps.iter().filter(|(key, _)| self.runs.contains_key(&key.run));
        let steps =
            steps.map(|(&key, state)| LiveRow::Step(Box::new(StepRecord { key, state: state.clone() })));
        let jobs = self.jobs.iter().map(|(&id, (head, state))| LiveRow::Job {
            id,
            head: (**head).clone(),
            state: state.clone(),
        });
        let mut rows = Vec::with_capacity(self.jobs.len() + self.executions.len() + self.keys.len() + 64);
        rows.extend(calendars);
        rows.extend(schedules);
        rows.extend(backfills);
        rows.extend(workflows);
        rows.extend(runs);
        rows.extend(batches);
        rows.extend(steps);
        rows.extend(jobs);
        rows.extend(self.executions.values().map(|record| LiveRow::Execution(record.clone())));
        rows.extend(self.keys.values().map(|key| LiveRow::Key(*key)));
        rows.extend(self.run_keys.values().map(|key| LiveRow::RunKey(*key)));
        rows.extend(self.workers.values().map(|record| LiveRow::Worker((**record).clone())));
        rows.extend(self.queues.values().map(|record| LiveRow::Queue((**record).clone())));
        rows
    }
}

/// What a task of a simulated world saved.
fn content(data: &[u8]) -> u64 {
    data.try_into().map_or(0, u64::from_le_bytes)
}

fn forget_triggers(row: &mut LiveRow) {
    if let LiveRow::Workflow { head, state, .. } = row {
        Arc::make_mut(&mut head.spec).triggers.clear();
        state.triggers.clear();
    }
}

fn forget_tries(row: &mut LiveRow) {
    if let LiveRow::Run { state, .. } = row
        && state.status == RunStatus::Running
    {
        state.retry = None;
    }
}

/// The entries of a history that the row before does not have. A full history loses entries
/// from its middle, so what is new stands behind what was last.
fn added<T: Clone + PartialEq>(before: &[T], after: &[T]) -> Vec<T> {
    let Some(last) = before.last() else { return after.to_vec() };
    if after.len() >= before.len() && after[before.len() - 1] == *last {
        return after[before.len()..].to_vec();
    }
    let known = after.iter().rposition(|entry| entry == last);
    known.map_or_else(|| after.to_vec(), |index| after[index + 1..].to_vec())
}

fn elements_row(batch: &ElementBatch) -> Row {
    let ElementBatch { key, by, name, count, .. } = batch;
    let (run, step, batch) = (key.run, key.step, name.to_string());
    let added = Added { run, step, by: (by.step, by.item), batch };
    Row::Elements { added, first: key.first, count: *count }
}

fn execution_row(new: bool, record: &ExecutionRecord) -> Row {
    Row::Execution(Box::new(ExecutionRow {
        execution: record.id,
        job: record.job,
        new,
        number: record.number,
        fence: record.fence,
        worker: record.worker,
        status: record.status,
        assigned_at: record.assigned_at,
        started: record.started_at.is_some(),
        exit: record.outcome.as_ref().and_then(|outcome| outcome.exit_code),
    }))
}
