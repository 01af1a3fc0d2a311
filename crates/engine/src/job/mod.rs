//! The life of a job, one file per transition.
//!
//! - [`submit`], [`update`], [`cancel`]: requests of users.
//! - [`timers`]: timers: ready time, end of a backoff, start deadline, reminders.
//! - [`start`], [`finish`]: reports of workers.
//! - [`checkpoint`]: checkpoints that a running task saves.
//! - [`unknown`]: executions of a lost worker.
//! - [`explain`]: waiting reasons.
//!
//! # Invariants
//! - [`Engine::transition`] makes every change of status and checks it against the table of legal transitions.
//! - A job has at most one live execution ([`Job::live`]).
//! - A changed job is written once per flush, by [`Engine::drain_jobs`].
//!
//! # Cost
//! O(1) for each transition, plus O(log n) for its queue and its timers. The scheduling properties of a spec
//! are shared between jobs ([`Profile`]).

mod cancel;
mod check;
mod checkpoint;
mod explain;
mod finish;
mod restore;
mod start;
mod submit;
mod timers;
mod unknown;
mod update;

use std::sync::Arc;

use model::firing::Origin;
use model::record::{Change, Event, EventKind, ExecutionRecord, HistoryEntry, JobHead, JobState};
use model::run::StepOrigin;
use model::spec::Concurrency;
use model::{
    Cause, Duration, ExecutionId, ExecutionStatus, Fence, JobId, JobStatus, Timestamp, WorkerId, lifecycle,
    limits,
};
use mutation::{Mutation, is_on};

use crate::engine::Engine;
use crate::profile::Profile;
use crate::queue::Flow;
use crate::signal::{JobEnded, Signal, WorkEnd};
use crate::timer::Timer;

pub(crate) use finish::backoff;

/// A live job.
#[derive(Debug)]
pub(crate) struct Job {
    /// Stored state that changes.
    pub(crate) state: JobState,
    /// Spec as JSON, sent to the worker.
    pub(crate) body: Arc<str>,
    /// Scheduling properties of the spec, shared by jobs with the same properties.
    pub(crate) profile: Arc<Profile>,
    /// Firing that created the job, if a schedule did.
    pub(crate) origin: Option<Arc<Origin>>,
    /// Run and step of the job, if it belongs to a workflow.
    pub(crate) step: Option<Arc<StepOrigin>>,
    pub(crate) concurrency: Option<Box<Concurrency>>,
    /// Deadline of the first start.
    pub(crate) deadline: Option<Timestamp>,
    /// Execution of the job while it is `running`, or an execution with an unknown outcome.
    pub(crate) live: Option<Box<LiveExecution>>,
    /// Spec that is not yet written to the store; `None` if it is written.
    head: Option<Arc<JobHead>>,
    /// Whether the job has no row in the store yet.
    new: bool,
    /// Whether the job is in `pending.jobs`.
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
        head: &Arc<JobHead>,
        profile: Arc<Profile>,
        state: JobState,
        created_at: Timestamp,
    ) -> Self {
        let spec = &head.spec;
        Self {
            state,
            body: Arc::clone(&head.body),
            profile,
            origin: head.origin.clone(),
            step: head.step.clone(),
            concurrency: spec.concurrency.clone().map(Box::new),
            deadline: match &head.origin {
                Some(origin) => origin.start_by,
                None => spec.start_deadline.map(|d| spec.run_at.unwrap_or(created_at) + d),
            },
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

    /// Position among the waiting jobs of its queue, priority and namespace.
    pub(crate) fn queue_position(&self, id: JobId) -> (Timestamp, JobId) {
        (self.state.due_at, id)
    }

    /// The flow with which it shares turns in its queue: its run.
    pub(crate) fn flow(&self) -> Flow {
        self.step.as_ref().map(|origin| origin.run)
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

impl Engine {
    /// Marks a job's row as changed and increases its version.
    pub(crate) fn touch(&mut self, id: JobId) {
        let now = self.now;
        if let Some(job) = self.jobs.get_mut(&id) {
            job.state.updated_at = now;
            job.state.version += 1;
            if !job.dirty {
                job.dirty = true;
                self.pending.jobs.push(id);
            }
        }
    }

    /// Marks the rows of a job and of its execution as changed.
    pub(crate) fn touch_execution(&mut self, id: JobId) {
        if let Some(live) = self.jobs.get_mut(&id).and_then(|job| job.live.as_mut()) {
            live.dirty = true;
        }
        self.touch(id);
    }

    /// Changes a job's status, adds it to the history and emits an event.
    ///
    /// # Panics
    /// If the transition is not in the table of legal transitions.
    pub(crate) fn transition(
        &mut self,
        id: JobId,
        to: JobStatus,
        cause: Cause,
        about: TransitionDetails<'_>,
    ) {
        let now = self.now;
        let Some(job) = self.jobs.get_mut(&id) else { return };
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
        self.pending.events.push(Event { at: now, namespace, kind });
        if let Some(from) = from {
            self.live_counts.sub(from);
        }
        if !to.is_final() {
            self.live_counts.add(to);
        }
        self.touch(id);
    }

    /// Puts a ready job into its queue.
    pub(crate) fn enqueue(&mut self, id: JobId) {
        let now = self.now;
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.state.queued_at.get_or_insert(now);
        self.enqueue_or_hold(id);
    }

    /// Moves a job to a final status. The caller has removed it from its queue and closed its execution.
    pub(crate) fn end(&mut self, id: JobId, to: JobStatus, cause: Cause, about: TransitionDetails<'_>) {
        self.disarm_deadline(id);
        self.close_unknown(id);
        let now = self.now;
        let retention = self.config.retention;
        if let Some(job) = self.jobs.get_mut(&id) {
            job.state.finished_at = Some(about.ended_at.unwrap_or(now));
            job.state.expires_at = Some(now + job.profile.retention.unwrap_or(retention));
        }
        self.transition(id, to, cause, about);
        self.reservations.remove(&id);
        let Some(job) = self.jobs.get(&id) else { return };
        let end =
            WorkEnd { status: to, started_at: job.state.started_at, ended_at: about.ended_at.unwrap_or(now) };
        // The row of the last execution, which is not yet written to the store.
        let execution = self.pending.ended.last().filter(|record| record.job == id);
        let files = execution.and_then(|record| record.files.clone());
        self.pending.signals.push_back(Signal::JobEnded(JobEnded { job: id, end, files }));
    }

    pub(crate) fn disarm_deadline(&mut self, id: JobId) {
        if let Some(deadline) = self.jobs.get(&id).and_then(|job| job.deadline) {
            self.wall_timers.disarm(deadline, Timer::Deadline(id));
        }
    }

    /// Writes changed jobs as rows, and removes those that have ended.
    pub(crate) fn drain_jobs(&mut self, changes: &mut Vec<Change>) {
        let mut executions = Vec::new();
        for id in std::mem::take(&mut self.pending.jobs) {
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            job.dirty = false;
            let new = std::mem::take(&mut job.new);
            let head = job.head.take();
            if let Some(live) = job.live.as_mut().filter(|live| live.dirty) {
                live.dirty = false;
                let new = std::mem::take(&mut live.new);
                executions.push(Change::Execution { new, record: Box::new(live.record.clone()) });
            }
            let state = if job.state.status.is_final() {
                self.jobs.swap_remove(&id).map(|job| job.state)
            } else {
                Some(job.state.clone())
            };
            changes.extend(state.map(|state| Change::Job { id, new, head, state: Box::new(state) }));
        }
        let checkpoints = std::mem::take(&mut self.pending.checkpoints);
        changes.extend(checkpoints.into_values().map(Change::Checkpoint));
        let ended = std::mem::take(&mut self.pending.ended);
        changes.extend(ended.into_iter().map(|r| Change::Execution { new: false, record: Box::new(r) }));
        changes.append(&mut executions);
    }

    /// Returns the next fence of a job: greater than its last one, and of the current epoch of its shard.
    pub(crate) fn next_fence(&self, id: JobId, last: Fence) -> Fence {
        if is_on(Mutation::EngineKeepsTheFence) && last != Fence::default() {
            return last;
        }
        last.next(self.epochs.get(&id.shard()).copied().unwrap_or_default())
    }
}

/// How long an execution may not report its start or its end before the worker is reminded. Fetching inputs
/// takes part of this time, so the interval is long; a reminder changes nothing.
pub(crate) const REMINDER_INTERVAL: Duration = Duration::from_secs(30);
