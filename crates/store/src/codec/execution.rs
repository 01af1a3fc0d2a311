//! Executions.

use model::record::{ExecutionRecord, Outcome, Usage};
use model::{Duration, ExecutionId, ExecutionStatus, Fence, JobId, Timestamp, WorkerId};
use serde::{Deserialize, Serialize};

use super::{Context, Damage, OutcomeRow, instant, micros, open, seal};

/// What of an execution stands in no column.
#[derive(Serialize, Deserialize)]
struct ExecutionRest<'a> {
    assigned_at: i64,
    started_at: Option<i64>,
    finished_at: Option<i64>,
    #[serde(borrow)]
    outcome: Option<OutcomeRow<'a>>,
    usage: Option<UsageRow>,
}

#[derive(Serialize, Deserialize)]
struct UsageRow {
    run_millis: u64,
    cpu_millis: u64,
    peak_memory_bytes: u64,
    log_bytes: u64,
}

/// The columns of an execution.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExecutionColumns {
    pub(crate) id: ExecutionId,
    pub(crate) job: JobId,
    pub(crate) number: u32,
    pub(crate) fence: u64,
    pub(crate) worker: WorkerId,
    pub(crate) status: u8,
}

impl ExecutionColumns {
    pub(super) fn of(record: &ExecutionRecord) -> Self {
        Self {
            id: record.id,
            job: record.job,
            number: record.number,
            fence: record.fence.0,
            worker: record.worker,
            status: record.status.code(),
        }
    }

    fn context(&self) -> Context {
        Context::of(self.id.to_bits())
            .with(&self.job.to_bits().to_be_bytes())
            .with_number(self.number.into())
            .with_number(self.fence)
            .with(&self.worker.to_bits().to_be_bytes())
            .with(&[self.status])
    }
}

/// All of an execution that stands in no column.
pub(crate) fn seal_execution(record: &ExecutionRecord) -> Vec<u8> {
    let rest = ExecutionRest {
        assigned_at: record.assigned_at.as_micros(),
        started_at: micros(record.started_at),
        finished_at: micros(record.finished_at),
        outcome: record.outcome.as_ref().map(OutcomeRow::from),
        usage: record.usage.map(|usage| UsageRow {
            run_millis: usage.run_time.as_millis(),
            cpu_millis: usage.cpu_time.as_millis(),
            peak_memory_bytes: usage.peak_memory_bytes,
            log_bytes: usage.log_bytes,
        }),
    };
    seal(ExecutionColumns::of(record).context(), &rest)
}

/// The whole execution.
pub(crate) fn open_execution(columns: &ExecutionColumns, sealed: &[u8]) -> Result<ExecutionRecord, Damage> {
    let rest: ExecutionRest<'_> = open(columns.context(), "rest", sealed)?;
    let status = ExecutionStatus::from_code(columns.status).ok_or(Damage::Value {
        column: "status",
        what: "status of an execution",
        found: columns.status.into(),
    })?;
    Ok(ExecutionRecord {
        id: columns.id,
        job: columns.job,
        number: columns.number,
        fence: Fence(columns.fence),
        worker: columns.worker,
        status,
        assigned_at: Timestamp::from_micros(rest.assigned_at),
        started_at: instant(rest.started_at),
        finished_at: instant(rest.finished_at),
        outcome: rest.outcome.map(Outcome::from),
        usage: rest.usage.map(|usage| Usage {
            run_time: Duration::from_millis(usage.run_millis),
            cpu_time: Duration::from_millis(usage.cpu_millis),
            peak_memory_bytes: usage.peak_memory_bytes,
            log_bytes: usage.log_bytes,
        }),
    })
}
