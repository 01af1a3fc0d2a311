//! The rows of the modelled store: how a batch changes them, and which of them an engine loads.
//!
//! [`Rows::apply`] changes one row and returns what the history records about it, [`Rows::live`] returns the
//! rows for an engine, in the order of a real load. Ended jobs and runs are dropped, except for their final
//! status and for the last failed runs, which clients retry.
//!
//! [`StoreRecorder`] does the same for the batches of a real store: `node-sim` writes its history with it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use engine::input::CarriedResults;
use model::calendar::CalendarRecord;
use model::changelog::LiveKey;
use model::firing::{BackfillHead, BackfillState, BackfillStatus, ScheduleHead, ScheduleState};
use model::id::Epoch;
use model::namespace::NamespaceSettings;
use model::record::{
    Batch, Change, ExecutionRecord, JobHead, JobState, KeyRecord, LiveRow, NamespaceRecord, QueueRecord,
    RunKeyRecord, WorkerRecord,
};
use model::run::{
    BatchKey, ElementBatch, RetryFrom, RunHead, RunHistoryEntry, RunState, StepKey, StepRecord, StepState,
    WorkflowHead, WorkflowState, carried,
};
use model::service::{ServiceHead, ServiceState};
use model::statistics::Tally;
use model::{
    BackfillId, ExecutionId, JobId, JobStatus, RunId, RunStatus, ScheduleId, ServiceId, Timestamp, WorkerId,
    WorkflowId,
};

use super::super::plan::Mutation;
use crate::history::{
    Added, Commit, ExecutionRow, JobRow, Row, RunRow, ScheduleRow, ServiceRow, StepRow, WorkflowRow,
};

/// Maximum number of failed runs that are remembered.
const FAILED_MAX: usize = 8;

/// Rows of the modelled store.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rows {
    pub(super) jobs: BTreeMap<JobId, (Arc<JobHead>, Box<JobState>)>,
    /// Final status of ended jobs; their other data is dropped.
    pub(super) ended: BTreeMap<JobId, JobStatus>,
    pub(super) executions: BTreeMap<ExecutionId, Box<ExecutionRecord>>,
    keys: BTreeMap<u128, KeyRecord>,
    pub(super) workers: BTreeMap<WorkerId, Arc<WorkerRecord>>,
    queues: BTreeMap<String, Arc<QueueRecord>>,
    namespaces: BTreeMap<String, Arc<NamespaceRecord>>,
    pub(super) schedules: BTreeMap<ScheduleId, (Arc<ScheduleHead>, ScheduleState)>,
    pub(super) backfills: BTreeMap<BackfillId, (Arc<BackfillHead>, BackfillState)>,
    calendars: BTreeMap<(String, String), Arc<CalendarRecord>>,
    pub(super) workflows: BTreeMap<WorkflowId, (Arc<WorkflowHead>, WorkflowState)>,
    pub(super) runs: BTreeMap<RunId, (Arc<RunHead>, RunState)>,
    pub(super) services: BTreeMap<ServiceId, (Arc<ServiceHead>, ServiceState)>,
    batches: BTreeMap<BatchKey, ElementBatch>,
    steps: BTreeMap<StepKey, StepState>,
    /// Content of the last checkpoint of each job.
    pub(super) checkpoints: BTreeMap<JobId, u64>,
    /// Runs that failed last, and the state that a retry takes over from them.
    pub(super) failed: VecDeque<(RunId, Arc<RunHead>, CarriedResults)>,
    run_keys: BTreeMap<u128, RunKeyRecord>,
    /// What the statistics of all commits add up to.
    pub(super) tally: Tally,
    pub(super) now: Timestamp,
    /// Number of commits.
    pub(super) commits: u64,
    /// Job of every execution; kept only for the deliberate bug that confuses executions.
    pub(super) jobs_of: BTreeMap<ExecutionId, JobId>,
}

/// Records the batches that a real store committed.
#[derive(Debug, Default)]
pub struct StoreRecorder(Rows);

impl StoreRecorder {
    /// Records a batch that this server committed.
    pub fn committed(&mut self, server: u32, epoch: Epoch, decided_at: Timestamp, batch: &Batch) -> Commit {
        let rows = batch.changes.iter().cloned().filter_map(|change| self.0.apply(change, None)).collect();
        Commit { server, epoch, decided_at, now: batch.now, rows }
    }

    /// Number of jobs that have not ended.
    pub fn live(&self) -> usize {
        self.0.jobs.len()
    }
}

impl Rows {
    /// Returns how the statistics contradict the rows: every job and every end counts once.
    pub(super) fn statistics_difference(&self) -> Option<String> {
        let with = |status| self.ended.values().filter(|ended| **ended == status).count() as u64;
        let rows = [
            (self.jobs.len() + self.ended.len()) as u64,
            with(JobStatus::Succeeded),
            with(JobStatus::Failed),
            with(JobStatus::Cancelled),
            with(JobStatus::Expired),
        ];
        let Tally { submitted, succeeded, cancelled, expired, .. } = self.tally;
        let counted = [submitted, succeeded, self.tally.failed_total(), cancelled, expired];
        (rows != counted).then(|| {
            let what = "submitted, succeeded, failed, cancelled, expired";
            format!("statistics ({what}): counted {counted:?}, rows {rows:?}")
        })
    }

    pub(super) fn apply(&mut self, change: Change, mutation: Option<Mutation>) -> Option<Row> {
        match change {
            Change::Job { id, new, head, state } => Some(self.apply_job(id, new, head, state)),
            Change::Execution { new, record } => {
                if matches!(
                    mutation,
                    Some(Mutation::StaleReportAsCurrent | Mutation::StaleCheckpointAsCurrent)
                ) {
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
            Change::PurgeKeys { expired_before, .. } => {
                self.keys.retain(|_, key| key.expires_at > expired_before);
                self.run_keys.retain(|_, key| key.expires_at > expired_before);
                None
            }
            Change::Worker(record) => {
                let (worker, status, admission) = (record.id, record.status, record.admission);
                let capacity = record.capacity.clone();
                self.workers.insert(worker, record);
                Some(Row::Worker { worker, status, admission, capacity })
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
            Change::Namespace(record) => {
                let (namespace, settings) = (record.name.clone(), record.settings.clone());
                self.namespaces.insert(namespace.clone(), record);
                Some(Row::Namespace { namespace, settings })
            }
            Change::RemoveNamespace(name) => {
                self.namespaces.remove(&*name);
                Some(Row::Namespace { namespace: name.into(), settings: NamespaceSettings::default() })
            }
            Change::RemoveQueue(name) => {
                self.queues.remove(&*name);
                None
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
                let asked = head.as_ref().map(|head| (head.schedule, head.concurrency));
                match (head, self.backfills.get_mut(&id)) {
                    (_, Some(known)) => known.1 = state,
                    (Some(head), None) => {
                        self.backfills.insert(id, (head, state));
                    }
                    (None, None) => {}
                }
                Some(Row::Backfill { backfill: id, status: state.status, asked })
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
            Change::Service { id, new, head, state } => Some(self.apply_service(id, new, head, *state)),
            Change::RemoveService(id) => {
                self.services.remove(&id);
                Some(Row::ServiceRemoved(id))
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
            replica: head.as_ref().and_then(|head| head.replica.clone()),
            status: state.status,
            version: state.version,
            due_at: state.due_at,
            executions: state.executions,
            run_failures: state.run_failures,
            start_failures: state.start_failures,
            losses: state.losses,
            overdue: state.overdue,
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

    fn apply_service(
        &mut self,
        id: ServiceId,
        new: bool,
        head: Option<Arc<ServiceHead>>,
        state: ServiceState,
    ) -> Row {
        let revisions = head.iter().flat_map(|head| &head.revisions);
        let templates = revisions.map(|one| (one.number, one.rollback_to.unwrap_or(one.number)));
        let row = ServiceRow {
            service: id,
            new,
            spec: head.as_ref().map(|head| Arc::clone(&head.spec)),
            templates: templates.collect(),
            deleting: state.deleting,
            version: state.version,
            replicas: state.replicas,
            rollout: state.rollout.clone(),
            stable_revision: state.stable_revision,
        };
        let known = self.services.remove(&id).map(|(head, _)| head);
        if let Some(head) = head.or(known) {
            self.services.insert(id, (head, state));
        }
        Row::Service(Box::new(row))
    }

    /// Applies the row of a run. When it ends, its steps and elements are removed: an engine that takes over never
    /// loads them.
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

    /// Remembers the state that a retry of the run would take over.
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
        self.failed.push_back((id, Arc::clone(head), CarriedResults { records: carried.records, batches }));
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

    /// Returns all live rows, without unwanted schedules and jobs, of which there may be many.
    pub(super) fn live(&self, wanted: impl Fn(LiveKey) -> bool) -> Vec<LiveRow> {
        let calendars = self.calendars.values().map(|record| LiveRow::Calendar((**record).clone()));
        let schedules = self.schedules.iter().filter(|(id, _)| wanted(LiveKey::Schedule(**id)));
        let schedules = schedules.map(|(&id, (head, state))| LiveRow::Schedule {
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
        let services = self.services.iter().filter(|(id, _)| wanted(LiveKey::Service(**id)));
        let services = services.map(|(&id, (head, state))| LiveRow::Service {
            id,
            head: (**head).clone(),
            state: Box::new(state.clone()),
        });
        let jobs = self.jobs.iter().filter(|(id, _)| wanted(LiveKey::Job(**id)));
        let jobs = jobs.map(|(&id, (head, state))| LiveRow::Job {
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
        rows.extend(services);
        rows.extend(jobs);
        rows.extend(self.executions.values().map(|record| LiveRow::Execution(record.clone())));
        rows.extend(self.keys.values().map(|key| LiveRow::Key(*key)));
        rows.extend(self.run_keys.values().map(|key| LiveRow::RunKey(*key)));
        rows.extend(self.workers.values().map(|record| LiveRow::Worker((**record).clone())));
        rows.extend(self.queues.values().map(|record| LiveRow::Queue((**record).clone())));
        rows.extend(self.namespaces.values().map(|record| LiveRow::Namespace((**record).clone())));
        rows
    }
}

/// Decodes the content that a simulated task saved.
fn content(data: &[u8]) -> u64 {
    data.try_into().map_or(0, u64::from_le_bytes)
}

/// Returns the history entries that the previous row does not have. A full history loses entries from its middle, so
/// new entries follow the previous last one.
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
        preempted_by: record.preempted_by,
        started_at: record.started_at,
        health: record.health.as_ref().map(|health| (health.status, health.since)),
    }))
}
