//! Jobs that are replicas of services: what services need to know about them, and where they differ from other jobs.
//!
//! - A replica that exits by itself is restarted after a backoff, also after a success. A run of [`STABLE_RUN`] forgets
//!   earlier failures, so a service that crashes once a month restarts at once each time.
//! - A drain does not stop a replica, and no job preempts it: its service replaces it first.
//! - A replica ends when its service or a user cancels it. It also ends after [`REPLICA_EXECUTIONS_MAX`] executions,
//!   which bounds its rows; the service then creates another one.

use std::sync::Arc;

use model::record::JobHead;
use model::spec::HealthStatus;
use model::worker::{Admission, WorkerStatus};
use model::{Cause, Duration, ExecutionStatus, JobId, JobStatus, Timestamp, WorkerId};

use mutation::{Mutation, is_on};

use super::{Job, TransitionDetails};
use crate::context::Context;
use crate::jobs::Jobs;
use crate::profile::Profile;
use crate::signal::Signal;

/// Run time after which earlier failures of a replica no longer count. The value is that of Kubernetes.
const STABLE_RUN: Duration = Duration::from_secs(600);
/// Maximum number of executions of one replica.
pub(super) const REPLICA_EXECUTIONS_MAX: u32 = 1_000;

/// State of a live replica, as its service needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReplicaFacts {
    /// Whether it was told to stop.
    pub(crate) is_stopping: bool,
    /// Whether its execution has started.
    pub(crate) is_running: bool,
    /// Time since which its execution is healthy; `None` while it is not. Without ports and health checks, the time of
    /// its start.
    pub(crate) healthy_since: Option<Timestamp>,
    /// Whether it runs on a worker that has not reconnected since the engine started.
    pub(crate) is_expected: bool,
    /// Whether it is placed on a worker that is being drained.
    pub(crate) is_leaving: bool,
}

impl Jobs {
    /// Returns the number of waiting jobs in a queue.
    pub(crate) fn waiting_in(&self, queue: &str) -> u64 {
        self.queues.waiting_in(queue)
    }

    /// Returns whether a job waits in a queue.
    pub(crate) fn waits_in(&self, id: JobId, queue: &str) -> bool {
        let waits = |job: &Job| job.state.status == JobStatus::Waiting && *job.profile.queue == *queue;
        self.all.get(&id).is_some_and(waits)
    }

    /// Creates the job of a replica; it is ready immediately.
    pub(crate) fn create_replica(
        &mut self,
        cx: &mut Context,
        id: JobId,
        head: &Arc<JobHead>,
        profile: Arc<Profile>,
        detail: &str,
    ) {
        self.insert_new(cx, id, head, profile, cx.now);
        let about = TransitionDetails { detail: Some(detail), ..TransitionDetails::default() };
        self.transition(cx, id, JobStatus::Waiting, Cause::ReplicaStarted, about);
        self.enqueue(cx, id);
    }

    /// Returns the state of a replica; `None` if its job has ended.
    pub(crate) fn replica_facts(&self, id: JobId) -> Option<ReplicaFacts> {
        let job = self.all.get(&id).filter(|job| !job.state.status.is_final())?;
        let record = job.live.as_ref().map(|live| &live.record);
        let started = record.filter(|record| {
            job.state.status == JobStatus::Running && record.status == ExecutionStatus::Running
        });
        let healthy_since = started.and_then(|record| match &record.health {
            Some(health) if health.status == HealthStatus::Healthy => Some(health.since),
            Some(_) if !is_on(Mutation::EngineIgnoresHealthChecks) => None,
            _ if is_on(Mutation::EngineIgnoresHealthChecks) => record.started_at,
            Some(_) => None,
            None if job.profile.shape.health_checks && !is_on(Mutation::EngineIgnoresHealthChecks) => None,
            None => record.started_at,
        });
        // A job that waits is placed elsewhere, also if its last execution may still run on a lost worker.
        let placed = record.filter(|_| job.state.status == JobStatus::Running);
        let worker = placed.and_then(|record| self.workers.get(&record.worker));
        let is_expected = worker
            .filter(|_| started.is_some())
            .is_some_and(|worker| worker.record.status == WorkerStatus::Expected);
        Some(ReplicaFacts {
            is_expected,
            is_stopping: job.state.cancel_requested_at.is_some(),
            is_running: started.is_some(),
            healthy_since,
            is_leaving: worker.is_some_and(|worker| worker.record.admission == Admission::Draining),
        })
    }

    /// Forgets the failures of a replica before its live execution, if that execution has run for long enough.
    pub(super) fn forget_failures_before_stable_run(&mut self, cx: &Context, id: JobId) {
        let Some(job) = self.all.get_mut(&id).filter(|job| job.replica.is_some()) else { return };
        let started_at = job.live.as_ref().and_then(|live| live.record.started_at);
        if started_at.is_some_and(|started_at| cx.now.since(started_at) >= STABLE_RUN) {
            (job.state.run_failures, job.state.start_failures, job.state.losses) = (0, 0, 0);
        }
    }

    /// Tells the services with replicas on a worker that its admission has changed.
    pub(super) fn notify_services_on(&self, cx: &mut Context, id: WorkerId) {
        let services =
            self.workers.get(&id).map(|worker| worker.replicas.keys().map(|(service, _)| *service));
        services.into_iter().flatten().for_each(|service| cx.raise(Signal::ReplicaChanged(service)));
    }
}
