//! Signals: what a layer of the engine tells the layers above it.
//!
//! The layers are jobs, then services, workflows and schedules. A layer calls the layers below it directly. What happens in
//! a layer and concerns a layer above is a [`Signal`];
//! [`Engine::deliver_signals`](crate::Engine::deliver_signals) delivers it after the current transition, in the
//! order in which signals were raised.

use std::sync::Arc;

use model::firing::Origin;
use model::record::Files;
use model::{JobId, JobStatus, RunId, ScheduleId, ServiceId, Timestamp, WorkerId};

/// Something that happened in a layer and concerns the layers above it.
#[derive(Debug)]
pub(crate) enum Signal {
    /// A job has a final status. It is in memory until the next flush.
    JobEnded(JobEnded),
    /// A run of a schedule has a final status.
    RunEnded { run: RunId, origin: Arc<Origin>, end: WorkEnd },
    /// A worker reported that a job is still running or has not started.
    JobConfirmed(JobId),
    /// The status, the execution or the health of a replica changed, or the admission of its worker.
    ReplicaChanged(ServiceId),
    /// A worker joined, returned, or changed its labels.
    WorkerJoined(WorkerId),
    /// A worker is lost.
    WorkerLost(WorkerId),
    /// The admission of a worker has changed.
    AdmissionChanged,
    /// The job of a reservation was placed, so the schedule's reservation has ended.
    ReservationUsed(ScheduleId),
}

/// End of a job.
#[derive(Debug)]
pub(crate) struct JobEnded {
    pub(crate) job: JobId,
    pub(crate) end: WorkEnd,
    /// Versions of artifacts that its last execution read and stored.
    pub(crate) files: Option<Box<Files>>,
}

/// End of a job or run; the status of a run is mapped to that of a job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkEnd {
    pub(crate) status: JobStatus,
    pub(crate) started_at: Option<Timestamp>,
    /// When the task or run ended; earlier than now if the worker could not report it immediately.
    pub(crate) ended_at: Timestamp,
}
