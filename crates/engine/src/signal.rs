//! Signals: what a room of the engine tells the rooms above it.
//!
//! Rooms are in layers: jobs, then workflows, then schedules. A room calls the rooms below it directly. What
//! happens in a room and concerns a room above is a [`Signal`]; [`Engine::settle`](crate::Engine::settle)
//! delivers it after the current transition, in the order in which signals were raised.

use std::sync::Arc;

use model::firing::Origin;
use model::record::Files;
use model::{JobId, JobStatus, RunId, ScheduleId, Timestamp, WorkerId};

/// Something that happened in a room and concerns the rooms above it.
#[derive(Debug)]
pub(crate) enum Signal {
    /// A job has a final status. It is in memory until the next flush.
    JobEnded(JobEnded),
    /// A run of a schedule has a final status.
    RunEnded { run: RunId, origin: Arc<Origin>, end: WorkEnd },
    /// A worker reported that a job is still running or has not started.
    JobConfirmed(JobId),
    /// A worker joined, returned, or changed its labels.
    WorkerJoined(WorkerId),
    /// A worker is lost.
    WorkerLost(WorkerId),
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
