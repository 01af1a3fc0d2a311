//! Encoding of events, several in one blob.

use std::borrow::Cow;

use model::record::{Event, EventKind};
use model::worker::{Admission, WorkerStatus};
use model::{ExecutionId, JobId, JobStatus, ScheduleId, Timestamp, WorkerId};
use serde::{Deserialize, Serialize};

use super::{Context, DecodeError, NONE, cause, encode, job_status, open, seal_bytes};

#[derive(Serialize, Deserialize)]
struct EventRow<'a> {
    at: i64,
    #[serde(borrow)]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow)]
    kind: KindRow<'a>,
}

/// New variants are added at the end, because the encoding contains their index.
#[derive(Serialize, Deserialize)]
enum KindRow<'a> {
    Job {
        job: [u8; 16],
        from: u8,
        to: u8,
        cause: u8,
        execution: Option<[u8; 16]>,
        worker: Option<[u8; 16]>,
    },
    Started {
        job: [u8; 16],
        execution: [u8; 16],
        worker: [u8; 16],
    },
    Worker {
        worker: [u8; 16],
        status: u8,
        admission: u8,
    },
    #[serde(borrow)]
    Queue(Cow<'a, str>),
    /// Event type without a compact encoding, as JSON.
    #[serde(borrow)]
    Other(Cow<'a, str>),
    /// As `Job`, for a job of a schedule.
    Run {
        job: [u8; 16],
        from: u8,
        to: u8,
        cause: u8,
        execution: Option<[u8; 16]>,
        worker: Option<[u8; 16]>,
        schedule: [u8; 16],
    },
}

const fn worker_status_code(status: WorkerStatus) -> u8 {
    match status {
        WorkerStatus::Ready => 0,
        WorkerStatus::Lost => 1,
        WorkerStatus::Expected => 2,
    }
}

const fn admission_code(admission: Admission) -> u8 {
    match admission {
        Admission::Open => 0,
        Admission::Cordoned => 1,
        Admission::Draining => 2,
    }
}

impl<'a> From<&'a EventKind> for KindRow<'a> {
    fn from(kind: &'a EventKind) -> Self {
        match kind {
            EventKind::Job { job, from, to, cause, execution, worker, schedule } => {
                let job = job.to_bits().to_be_bytes();
                let (from, to) = (from.map_or(NONE, JobStatus::code), to.code());
                let cause = cause.code();
                let execution = execution.map(|id| id.to_bits().to_be_bytes());
                let worker = worker.map(|id| id.to_bits().to_be_bytes());
                match schedule.map(|id| id.to_bits().to_be_bytes()) {
                    None => Self::Job { job, from, to, cause, execution, worker },
                    Some(schedule) => Self::Run { job, from, to, cause, execution, worker, schedule },
                }
            }
            EventKind::Started { job, execution, worker } => Self::Started {
                job: job.to_bits().to_be_bytes(),
                execution: execution.to_bits().to_be_bytes(),
                worker: worker.to_bits().to_be_bytes(),
            },
            EventKind::Worker { worker, status, admission } => Self::Worker {
                worker: worker.to_bits().to_be_bytes(),
                status: worker_status_code(*status),
                admission: admission_code(*admission),
            },
            EventKind::Queue { queue } => Self::Queue(Cow::Borrowed(queue)),
            other => Self::Other(Cow::Owned(serde_json::to_string(other).expect("events are plain data"))),
        }
    }
}

const EVENTS: &str = "payload";

impl TryFrom<KindRow<'_>> for EventKind {
    type Error = DecodeError;

    fn try_from(row: KindRow<'_>) -> Result<Self, DecodeError> {
        let value = |what, found: u8| DecodeError::Value { column: EVENTS, what, found: found.into() };
        Ok(match row {
            KindRow::Job { job, from, to, cause: code, execution, worker } => Self::Job {
                job: JobId::from_bits(u128::from_be_bytes(job)),
                from: if from == NONE { None } else { Some(job_status(EVENTS, from)?) },
                to: job_status(EVENTS, to)?,
                cause: cause(EVENTS, code)?,
                execution: execution.map(|id| ExecutionId::from_bits(u128::from_be_bytes(id))),
                worker: worker.map(|id| WorkerId::from_bits(u128::from_be_bytes(id))),
                schedule: None,
            },
            KindRow::Run { job, from, to, cause, execution, worker, schedule: of } => {
                let mut run = Self::try_from(KindRow::Job { job, from, to, cause, execution, worker })?;
                if let Self::Job { schedule, .. } = &mut run {
                    *schedule = Some(ScheduleId::from_bits(u128::from_be_bytes(of)));
                }
                run
            }
            KindRow::Started { job, execution, worker } => Self::Started {
                job: JobId::from_bits(u128::from_be_bytes(job)),
                execution: ExecutionId::from_bits(u128::from_be_bytes(execution)),
                worker: WorkerId::from_bits(u128::from_be_bytes(worker)),
            },
            KindRow::Worker { worker, status, admission } => Self::Worker {
                worker: WorkerId::from_bits(u128::from_be_bytes(worker)),
                status: [WorkerStatus::Ready, WorkerStatus::Lost, WorkerStatus::Expected]
                    .into_iter()
                    .find(|known| worker_status_code(*known) == status)
                    .ok_or_else(|| value("status of a worker", status))?,
                admission: [Admission::Open, Admission::Cordoned, Admission::Draining]
                    .into_iter()
                    .find(|known| admission_code(*known) == admission)
                    .ok_or_else(|| value("admission of a worker", admission))?,
            },
            KindRow::Queue(queue) => Self::Queue { queue: queue.into() },
            KindRow::Other(json) => {
                serde_json::from_str(&json).map_err(|error| DecodeError::decode(EVENTS, error))?
            }
        })
    }
}

/// Seals consecutive events, of which the first has the position `first`.
pub(crate) fn seal_events(first: u64, events: &[Event]) -> Vec<u8> {
    seal_encoded_events(first, encode_events(events))
}

/// Encodes consecutive events whose positions are not known yet.
pub(crate) fn encode_events(events: &[Event]) -> Vec<u8> {
    let rows: Vec<_> = events
        .iter()
        .map(|event| EventRow {
            at: event.at.as_micros(),
            namespace: event.namespace.as_deref().map(Cow::Borrowed),
            kind: KindRow::from(&event.kind),
        })
        .collect();
    encode(&rows)
}

/// Seals what [`encode_events`] encoded; the first event has the position `first`.
pub(crate) fn seal_encoded_events(first: u64, encoded: Vec<u8>) -> Vec<u8> {
    seal_bytes(Context::of(first.into()), encoded)
}

/// Opens what [`seal_events`] sealed.
pub(crate) fn open_events(first: u64, sealed: &[u8]) -> Result<Vec<Event>, DecodeError> {
    let rows: Vec<EventRow<'_>> = open(Context::of(first.into()), EVENTS, sealed)?;
    rows.into_iter()
        .map(|row| {
            Ok(Event {
                at: Timestamp::from_micros(row.at),
                namespace: row.namespace.map(Into::into),
                kind: EventKind::try_from(row.kind)?,
            })
        })
        .collect()
}
