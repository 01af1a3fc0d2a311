//! Jobs, and everything that runs them: queues, workers, and the placement of jobs on workers.
//!
//! This is the lowest layer; see the [crate's page](crate). One file holds one
//! transition or one kind of request:
//!
//! - [`submit`], [`update`], [`cancel`]: requests of users. [`queue_settings`], [`namespace_settings`],
//!   [`admission`]: requests of operators.
//! - [`timers`]: ready time, end of a backoff, reminders. [`deadline`]: start deadline and completion deadline.
//! - [`dispatch`]: places waiting jobs on workers. [`job_reservation`]: preemption, and capacity that is reserved for a
//!   job. [`reservation`]: capacity that is reserved for a firing.
//! - [`session`], [`lease`], [`report`]: messages of workers, and the loss of a worker.
//! - [`start`], [`finish`]: what a report means for its job. [`unknown`]: executions of a lost worker.
//! - [`health`]: health checks of executions. [`replica`]: jobs that are replicas of services.
//! - [`checkpoint`]: checkpoints that a running task saves. [`levels`]: samples for the statistics.
//! - [`reconcile`]: holds back jobs that could run twice after the store lost commits.
//! - [`upstream`]: jobs that start after others have ended. [`requirements`]: services that jobs require.
//! - [`explain`]: waiting reasons. [`restore`]: rebuilds jobs from rows. [`check`]: invariants.
//!
//! # Invariants
//! - [`Jobs::transition`] makes every change of status and checks it against the table of legal transitions.
//! - A job has at most one live execution ([`Job::live`]).
//! - A worker's reserved resources are the sum over its live executions.
//! - A changed job is written once per flush, by [`Jobs::drain`].
//!
//! # Cost
//! O(1) for each transition, plus O(log n) for its queue and its timers. The scheduling properties of a spec
//! are shared between jobs ([`Profile`]).

mod admission;
mod cancel;
mod check;
mod checkpoint;
mod deadline;
mod dispatch;
mod explain;
mod finish;
mod health;
mod job_reservation;
mod lease;
mod levels;
mod namespace_settings;
mod queue_settings;
mod reconcile;
mod replica;
mod report;
mod requirements;
mod reservation;
mod restore;
mod session;
mod start;
mod submit;
mod timers;
mod unknown;
mod update;
mod upstream;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use foldhash::fast::FixedState;
use indexmap::IndexMap;
use model::checkpoint::CheckpointRecord;
use model::firing::Origin;
use model::record::{Change, EventKind, ExecutionRecord, HistoryEntry, JobHead, JobState, KeyRecord};
use model::run::StepOrigin;
use model::service::ReplicaOrigin;
use model::spec::{Concurrency, PriorityClass};
use model::statistics::JobSource;
use model::{
    Cause, Duration, ExecutionId, ExecutionStatus, Fence, JobId, JobStatus, RunId, ScheduleId, Timestamp,
    WorkerId, lifecycle, limits,
};
use mutation::{Mutation, is_on};

use crate::context::Context;
use crate::output::{NamespaceView, QueueView};
use crate::profile::{Profile, Shape};
use crate::queues::{QueuedJob, Queues};
use crate::signal::{JobEnded, Signal, WorkEnd};
use crate::workers::{Worker, Workers};

use deadline::Deadlines;
pub(crate) use finish::backoff;
use job_reservation::{JobReservation, LongWaiting};
pub use reconcile::OrphanedExecution;
use reconcile::Reconciliation;
use upstream::Downstream;

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
struct LiveCounts(BTreeMap<JobStatus, u64>);

impl LiveCounts {
    fn add(&mut self, status: JobStatus) {
        *self.0.entry(status).or_default() += 1;
    }

    fn sub(&mut self, status: JobStatus) {
        if let Some(count) = self.0.get_mut(&status) {
            *count = count.saturating_sub(1);
        }
    }
}

/// Live jobs, and the queues and workers that run them.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    /// Live jobs. A job that has ended stays until the next flush.
    all: IndexMap<JobId, Job, FixedState>,
    executions: IndexMap<ExecutionId, JobId, FixedState>,
    /// Idempotency keys of submissions.
    keys: IndexMap<u128, IdempotencyEntry, FixedState>,
    live_counts: LiveCounts,
    queues: Queues,
    workers: Workers,
    /// Shapes for which no worker is eligible until capacity is freed, by shape id.
    blocked: BTreeMap<u64, Arc<Shape>>,
    /// Number of available replicas of each service, by the hash of its namespace and name.
    available_replicas: IndexMap<u128, u32, FixedState>,
    /// Whether a worker joined, or another change than an end of an execution concerns workers, since the last dispatch.
    workers_changed: bool,
    /// Workers that freed capacity since the last dispatch.
    freed: BTreeSet<WorkerId>,
    dispatch_wanted: bool,
    reconciliation: Reconciliation,
    long_waiting: LongWaiting,
    /// Number of running jobs of each priority class, by its position in [`PriorityClass::ALL`].
    running_by_class: [u64; PriorityClass::ALL.len()],
    /// When the leases of all workers that have not reconnected after the start have ended; steady time.
    workers_expected_until: Timestamp,
    /// Reservations of waiting jobs.
    job_reservations: BTreeMap<JobId, JobReservation>,
    /// Worker and schedule of each waiting job that may use the reservation of its schedule.
    reservations: BTreeMap<JobId, (ScheduleId, WorkerId)>,
    /// How long after the start another owner of the shards may still renew worker leases.
    former_owner_lease: Duration,
    /// Jobs with changed rows, each once; `Job::dirty` marks them.
    changed: Vec<JobId>,
    /// Ended executions, which their jobs no longer refer to.
    ended: Vec<ExecutionRecord>,
    downstream: Downstream,
    /// The last checkpoint of each job that saved one.
    checkpoints: BTreeMap<JobId, Box<CheckpointRecord>>,
}

/// A live job.
#[derive(Debug)]
pub(crate) struct Job {
    /// Stored state that changes.
    pub(crate) state: JobState,
    /// Spec as JSON, sent to the worker.
    pub(crate) body: Arc<str>,
    /// Scheduling properties of the spec, shared by jobs with the same properties.
    pub(crate) profile: Arc<Profile>,
    /// What its statistics count for.
    pub(crate) source: Arc<JobSource>,
    /// Firing that created the job, if a schedule did.
    pub(crate) origin: Option<Arc<Origin>>,
    /// Run and step of the job, if it belongs to a workflow.
    pub(crate) step: Option<Arc<StepOrigin>>,
    /// Replica of a service that the job is.
    pub(crate) replica: Option<Arc<ReplicaOrigin>>,
    pub(crate) concurrency: Option<Box<Concurrency>>,
    pub(crate) deadlines: Option<Box<Deadlines>>,
    /// Execution of the job while it is `running`, or an execution with an unknown outcome.
    pub(crate) live: Option<Box<LiveExecution>>,
    /// Spec that is not yet written to the store; `None` if it is written.
    head: Option<Arc<JobHead>>,
    /// Whether the job has no row in the store yet.
    new: bool,
    /// Whether the job is in `Jobs::changed`.
    dirty: bool,
}

/// Execution of a running job, or of a waiting job whose lost worker may still return with it.
#[derive(Debug)]
pub(crate) struct LiveExecution {
    pub(crate) record: ExecutionRecord,
    /// When an unacknowledged assignment or stop is sent again; steady time.
    pub(crate) remind_at: Timestamp,
    /// Until when the job waits for its result after the lease of its worker has ended; steady time.
    pub(crate) result_wait_until: Timestamp,
    /// Whether a stop kills the task immediately.
    pub(crate) without_grace: bool,
    new: bool,
    dirty: bool,
}

impl LiveExecution {
    pub(crate) fn new(record: ExecutionRecord, remind_at: Timestamp) -> Self {
        Self {
            record,
            remind_at,
            result_wait_until: Timestamp::default(),
            without_grace: false,
            new: true,
            dirty: true,
        }
    }

    /// Whether its worker is lost and has not reported the outcome.
    pub(crate) fn is_unknown(&self) -> bool {
        self.record.status == ExecutionStatus::Unknown
    }
}

impl Job {
    /// Creates a job from its spec and its initial or restored state.
    pub(crate) fn new(
        cx: &mut Context,
        head: &Arc<JobHead>,
        profile: Arc<Profile>,
        state: JobState,
        created_at: Timestamp,
    ) -> Self {
        let spec = &head.spec;
        let schedule = head.origin.as_ref().map(|origin| origin.schedule);
        Self {
            source: cx.statistics.source(spec, schedule, cx.now),
            state,
            body: Arc::clone(&head.body),
            profile,
            origin: head.origin.clone(),
            step: head.step.clone(),
            replica: head.replica.clone(),
            concurrency: spec.concurrency.clone().map(Box::new),
            deadlines: Deadlines::of(head, created_at),
            live: None,
            head: None,
            new: false,
            dirty: false,
        }
    }

    /// Restores a live execution from its row.
    pub(crate) fn restore_execution(&mut self, record: ExecutionRecord, remind_at: Timestamp) {
        self.live = Some(Box::new(LiveExecution {
            new: false,
            dirty: false,
            ..LiveExecution::new(record, remind_at)
        }));
    }

    /// Whether an execution was ever placed. Its spec can then no longer be changed.
    pub(crate) fn has_started(&self) -> bool {
        self.state.executions > 0
    }

    /// Returns the job as its queue needs it.
    pub(crate) fn queued(&self, id: JobId) -> QueuedJob<'_> {
        QueuedJob {
            id,
            profile: &self.profile,
            due_at: self.state.due_at,
            // The jobs of a run share turns.
            flow: self.step.as_ref().map(|origin| origin.run),
            concurrency: self.concurrency.as_deref(),
        }
    }

    /// Returns the worker that a job should avoid: the one of its last execution, where it failed, was lost or
    /// was refused.
    pub(crate) fn last_worker(&self) -> Option<WorkerId> {
        self.state.worker.filter(|_| self.state.executions > 0)
    }
}

/// Details of a transition besides its cause.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TransitionDetails<'a> {
    pub(crate) execution: Option<(u32, ExecutionId, WorkerId)>,
    pub(crate) detail: Option<&'a str>,
    /// When the task ended, if the worker reported its run time.
    pub(crate) ended_at: Option<Timestamp>,
}

impl Jobs {
    pub(crate) fn get(&self, id: JobId) -> Option<&Job> {
        self.all.get(&id)
    }

    pub(crate) fn worker(&self, id: WorkerId) -> Option<&Worker> {
        self.workers.get(&id)
    }

    pub(crate) fn workers(&self) -> impl Iterator<Item = &Worker> {
        self.workers.values()
    }

    pub(crate) fn has_workers(&self) -> bool {
        !self.workers.is_empty()
    }

    pub(crate) fn queue_views(&self) -> Vec<QueueView> {
        self.queues.view()
    }

    pub(crate) fn namespace_views(&self) -> Vec<NamespaceView> {
        self.queues.quotas().view()
    }

    /// Returns the number of live jobs by status.
    pub(crate) fn live_counts(&self) -> &BTreeMap<JobStatus, u64> {
        &self.live_counts.0
    }

    /// Returns the entry of an idempotency key.
    pub(crate) fn key(&self, key: u128) -> Option<&IdempotencyEntry> {
        self.keys.get(&key)
    }

    /// Adds an idempotency key. Its row is written by the caller.
    pub(crate) fn insert_key(&mut self, record: KeyRecord) {
        self.keys.insert(record.key, IdempotencyEntry::from(record));
    }

    /// Keeps only the idempotency keys that `stays` accepts. Returns whether any was removed.
    pub(crate) fn retain_keys(&mut self, stays: impl Fn(&IdempotencyEntry) -> bool) -> bool {
        let before = self.keys.len();
        self.keys.retain(|_, key| stays(key));
        self.keys.len() < before
    }

    /// Makes the next flush place waiting jobs.
    pub(crate) fn want_dispatch(&mut self) {
        self.dispatch_wanted = true;
    }

    /// Returns the firing and the end of a job of a schedule that has ended since the last flush.
    pub(crate) fn end_of(&self, id: JobId) -> Option<(Arc<Origin>, WorkEnd)> {
        let job = self.all.get(&id).filter(|job| job.state.status.is_final())?;
        let JobState { status, started_at, finished_at, .. } = job.state;
        let ended_at = finished_at.unwrap_or(job.state.updated_at);
        Some((job.origin.clone()?, WorkEnd { status, started_at, ended_at }))
    }

    pub(crate) fn contains(&self, id: JobId) -> bool {
        self.all.contains_key(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (JobId, &Job)> {
        self.all.iter().map(|(&id, job)| (id, job))
    }

    /// Adds a run that the end of a job started. Returns whether the job is in memory.
    pub(crate) fn record_started_run(&mut self, id: JobId, run: RunId) -> bool {
        let job = self.all.get_mut(&id);
        job.map(|job| job.state.started.push(run)).is_some()
    }

    /// Whether nothing changed since the last flush, and no job could be placed.
    pub(crate) fn is_idle(&self, holds_new_work: bool) -> bool {
        self.changed.is_empty()
            && self.ended.is_empty()
            && self.checkpoints.is_empty()
            && (holds_new_work || !self.dispatch_wanted)
    }

    /// Marks a job's row as changed and increases its version.
    pub(crate) fn touch(&mut self, cx: &mut Context, id: JobId) {
        let now = cx.now;
        if let Some(job) = self.all.get_mut(&id) {
            job.state.updated_at = now;
            job.state.version += 1;
            if !job.dirty {
                job.dirty = true;
                self.changed.push(id);
            }
        }
    }

    /// Marks the rows of a job and of its execution as changed.
    pub(crate) fn touch_execution(&mut self, cx: &mut Context, id: JobId) {
        if let Some(live) = self.all.get_mut(&id).and_then(|job| job.live.as_mut()) {
            live.dirty = true;
        }
        self.touch(cx, id);
    }

    /// Changes a job's status, adds it to the history and emits an event.
    ///
    /// # Panics
    /// If the transition is not in the table of legal transitions.
    pub(crate) fn transition(
        &mut self,
        cx: &mut Context,
        id: JobId,
        to: JobStatus,
        cause: Cause,
        about: TransitionDetails<'_>,
    ) {
        let now = cx.now;
        let Some(job) = self.all.get_mut(&id) else { return };
        let from = (!job.state.history.is_empty()).then_some(job.state.status);
        assert!(
            lifecycle::is_legal(from, to, cause),
            "{id} cannot go from {from:?} to {to} because of {cause}"
        );
        job.state.status = to;
        job.state.history.push(HistoryEntry {
            at: now,
            from,
            to,
            cause,
            execution: about.execution.map(|(number, ..)| number),
            detail: about.detail.map(Into::into),
        });
        if job.state.history.len() > limits::HISTORY_MAX {
            job.state.history.remove(limits::HISTORY_MAX / 4);
        }
        let kind = EventKind::Job {
            job: id,
            from,
            to,
            cause,
            execution: about.execution.map(|(_, execution, _)| execution),
            worker: about.execution.map(|(.., worker)| worker),
            schedule: job.origin.as_ref().map(|origin| origin.schedule),
        };
        let namespace = Some(Arc::clone(&job.profile.namespace));
        cx.emit(namespace, kind);
        let worker = about.execution.map(|(.., worker)| worker);
        if to.is_final() {
            cx.statistics.count_end(&job.source, worker, to, cause);
            if matches!(to, JobStatus::Failed | JobStatus::Expired) {
                // The result of an expired job is that of an earlier execution.
                let result = job.state.outcome.as_deref().filter(|_| to == JobStatus::Failed);
                let error = result.and_then(|result| result.error.as_deref()).unwrap_or(cause.as_str());
                let exit_code = result.and_then(|result| result.exit_code);
                let message = result.and_then(|result| result.message.as_deref()).or(about.detail);
                let message = message.unwrap_or_default();
                let about = (id, &job.profile.namespace, &*job.source);
                cx.statistics.count_failure(about, error, exit_code, message, now);
            }
        } else if from == Some(JobStatus::Running) {
            cx.statistics.count_retried(&job.source, worker, cause);
        }
        if let Some(from) = from {
            self.live_counts.sub(from);
        } else {
            self.queues.quotas_mut().job_created(&job.profile.namespace);
        }
        if let Some(replica) = job.replica.as_ref().filter(|_| !to.is_final()) {
            cx.raise(Signal::ReplicaChanged(replica.service));
        }
        if to.is_final() {
            self.queues.quotas_mut().job_ended(&job.profile.namespace);
        } else {
            self.live_counts.add(to);
        }
        self.touch(cx, id);
    }

    /// Puts a ready job into its queue.
    pub(crate) fn enqueue(&mut self, cx: &Context, id: JobId) {
        let now = cx.now;
        let Some(job) = self.all.get_mut(&id) else { return };
        job.state.queued_at.get_or_insert(now);
        self.enqueue_or_hold(id);
    }

    /// Moves a job to a final status. The caller has removed it from its queue and closed its execution.
    pub(crate) fn end(
        &mut self,
        cx: &mut Context,
        id: JobId,
        to: JobStatus,
        cause: Cause,
        about: TransitionDetails<'_>,
    ) {
        self.pass_finish_deadline(cx, id);
        self.disarm_deadlines(cx, id);
        self.close_unknown(cx, id);
        self.forget_upstream(id);
        let now = cx.now;
        let retention = cx.config.retention;
        if let Some(job) = self.all.get_mut(&id) {
            job.state.finished_at = Some(about.ended_at.unwrap_or(now));
            job.state.expires_at = Some(now + job.profile.retention.unwrap_or(retention));
        }
        self.transition(cx, id, to, cause, about);
        self.reservations.remove(&id);
        self.release_job_reservation(id);
        let Some(job) = self.all.get(&id) else { return };
        let end =
            WorkEnd { status: to, started_at: job.state.started_at, ended_at: about.ended_at.unwrap_or(now) };
        // The row of the last execution, which is not yet written to the store.
        let execution = self.ended.last().filter(|record| record.job == id);
        let files = execution.and_then(|record| record.files.clone());
        cx.raise(Signal::JobEnded(JobEnded { job: id, end, files }));
    }

    /// Writes changed jobs as rows, and removes those that have ended.
    pub(crate) fn drain(&mut self, changes: &mut Vec<Change>) {
        let mut executions = Vec::new();
        for id in std::mem::take(&mut self.changed) {
            let Some(job) = self.all.get_mut(&id) else { continue };
            job.dirty = false;
            let new = std::mem::take(&mut job.new);
            let head = job.head.take();
            if let Some(live) = job.live.as_mut().filter(|live| live.dirty) {
                live.dirty = false;
                let new = std::mem::take(&mut live.new);
                executions.push(Change::Execution { new, record: Box::new(live.record.clone()) });
            }
            let state = if job.state.status.is_final() {
                self.all.swap_remove(&id).map(|job| job.state)
            } else {
                Some(job.state.clone())
            };
            changes.extend(state.map(|state| Change::Job { id, new, head, state: Box::new(state) }));
        }
        let checkpoints = std::mem::take(&mut self.checkpoints);
        changes.extend(checkpoints.into_values().map(Change::Checkpoint));
        let ended = std::mem::take(&mut self.ended);
        changes.extend(ended.into_iter().map(|r| Change::Execution { new: false, record: Box::new(r) }));
        changes.append(&mut executions);
    }

    /// Returns the next fence of a job: greater than its last one, and of the current epoch of its shard.
    pub(crate) fn next_fence(&self, cx: &Context, id: JobId, last: Fence) -> Fence {
        if is_on(Mutation::EngineKeepsTheFence) && last != Fence::default() {
            return last;
        }
        last.next(cx.epochs.get(&id.shard()).copied().unwrap_or_default())
    }
}

/// How long an execution may not report its start or its end before the worker is reminded. Fetching inputs
/// takes part of this time, so the interval is long; a reminder changes nothing.
pub(crate) const REMINDER_INTERVAL: Duration = Duration::from_secs(30);
