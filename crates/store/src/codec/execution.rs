//! Encoding of executions.

use std::borrow::Cow;

use model::record::{ExecutionRecord, FileVersion, Files, MeasuredUsage, Outcome, Usage};
use model::spec::{ExecutionHealth, HealthStatus};
use model::{Bytes, Duration, ExecutionId, ExecutionStatus, Fence, JobId, Millicores, Timestamp, WorkerId};
use serde::{Deserialize, Serialize};

use super::{Context, DecodeError, OutcomeRow, RowsReader, RowsWriter, instant, micros};

/// Fields of an execution without their own columns.
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

/// Artifact versions that an execution read and stored; follows its row if the worker reported them.
#[derive(Default, Serialize, Deserialize)]
struct FilesRow<'a> {
    #[serde(borrow)]
    inputs: Vec<FileRow<'a>>,
    #[serde(borrow)]
    outputs: Vec<FileRow<'a>>,
}

/// The job that preempts an execution; follows the files of an execution that is preempted.
#[derive(Default, Serialize, Deserialize)]
struct PreemptionRow {
    by: [u8; 16],
    /// Whether the worker reported files. Otherwise the row of the files before this one is only its default.
    has_files: bool,
}

/// Health and ports of an execution; follow the preemption if the worker reported them.
#[derive(Default, Serialize, Deserialize)]
struct HealthRow<'a> {
    status: u8,
    since: i64,
    #[serde(borrow)]
    detail: Option<Cow<'a, str>>,
    #[serde(borrow)]
    ports: Vec<(Cow<'a, str>, u16)>,
    /// Whether the worker reported files. Otherwise the row of the files is only its default.
    has_files: bool,
    /// Whether the execution is preempted. Otherwise the row of the preemption is only its default.
    is_preempted: bool,
}

/// Statistics of measurements of an execution; follow the health if the worker reported them.
#[derive(Default, Serialize, Deserialize)]
struct MeasuredRow {
    measurements: u32,
    cpu_p95_millis: u32,
    cpu_max_millis: u32,
    memory_mean_bytes: u64,
    memory_p95_bytes: u64,
    read_bytes: u64,
    written_bytes: u64,
    /// Which of the rows before this one are present; the others are only their defaults.
    has_files: bool,
    is_preempted: bool,
    has_health: bool,
}

impl From<&MeasuredRow> for MeasuredUsage {
    fn from(row: &MeasuredRow) -> Self {
        Self {
            measurements: row.measurements,
            cpu_p95: Millicores(row.cpu_p95_millis),
            cpu_max: Millicores(row.cpu_max_millis),
            memory_mean: Bytes(row.memory_mean_bytes),
            memory_p95: Bytes(row.memory_p95_bytes),
            read_bytes: row.read_bytes,
            written_bytes: row.written_bytes,
        }
    }
}

/// Returns the code of a health status. A code never changes its meaning.
const fn health_code(status: HealthStatus) -> u8 {
    match status {
        HealthStatus::Starting => 0,
        HealthStatus::Healthy => 1,
        HealthStatus::Unhealthy => 2,
    }
}

impl TryFrom<HealthRow<'_>> for ExecutionHealth {
    type Error = DecodeError;

    fn try_from(row: HealthRow<'_>) -> Result<Self, DecodeError> {
        let status = HealthStatus::ALL.iter().copied().find(|known| health_code(*known) == row.status);
        Ok(Self {
            status: status.ok_or(DecodeError::Value {
                column: REST,
                what: "health status",
                found: row.status.into(),
            })?,
            since: Timestamp::from_micros(row.since),
            detail: row.detail.map(Into::into),
            ports: row.ports.into_iter().map(|(name, port)| (name.into_owned(), port)).collect(),
        })
    }
}

#[derive(Serialize, Deserialize)]
struct FileRow<'a> {
    #[serde(borrow)]
    artifact: Cow<'a, str>,
    #[serde(borrow)]
    sha256: Cow<'a, str>,
    #[serde(borrow)]
    path: Cow<'a, str>,
}

impl<'a> From<&'a Files> for FilesRow<'a> {
    fn from(files: &'a Files) -> Self {
        let rows = |versions: &'a [FileVersion]| {
            let row = |version: &'a FileVersion| FileRow {
                artifact: Cow::Borrowed(&version.artifact),
                sha256: Cow::Borrowed(&version.sha256),
                path: Cow::Borrowed(&version.path),
            };
            versions.iter().map(row).collect()
        };
        Self { inputs: rows(&files.inputs), outputs: rows(&files.outputs) }
    }
}

impl From<FilesRow<'_>> for Files {
    fn from(rows: FilesRow<'_>) -> Self {
        let versions = |rows: Vec<FileRow<'_>>| {
            let version = |row: FileRow<'_>| FileVersion {
                artifact: row.artifact.into_owned(),
                sha256: row.sha256.into_owned(),
                path: row.path.into_owned(),
            };
            rows.into_iter().map(version).collect()
        };
        Self { inputs: versions(rows.inputs), outputs: versions(rows.outputs) }
    }
}

/// Columns of an execution.
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

const REST: &str = "rest";

/// Seals the fields of an execution without their own columns.
pub(crate) fn seal_execution(record: &ExecutionRecord) -> Vec<u8> {
    let rest = ExecutionRest {
        assigned_at: record.assigned_at.as_micros(),
        started_at: micros(record.started_at),
        finished_at: micros(record.finished_at),
        outcome: record.outcome.as_ref().map(OutcomeRow::from),
        usage: record.usage.as_ref().map(|usage| UsageRow {
            run_millis: usage.run_time.as_millis(),
            cpu_millis: usage.cpu_time.as_millis(),
            peak_memory_bytes: usage.peak_memory_bytes,
            log_bytes: usage.log_bytes,
        }),
    };
    let files = record.files.as_deref().map(FilesRow::from);
    let preemption = record
        .preempted_by
        .map(|job| PreemptionRow { by: job.to_bits().to_be_bytes(), has_files: files.is_some() });
    let health = record.health.as_deref().map(|health| HealthRow {
        status: health_code(health.status),
        since: health.since.as_micros(),
        detail: health.detail.as_deref().map(Cow::Borrowed),
        ports: health.ports.iter().map(|(name, port)| (Cow::Borrowed(name.as_str()), *port)).collect(),
        has_files: files.is_some(),
        is_preempted: preemption.is_some(),
    });
    let measured = record.usage.as_ref().and_then(|usage| usage.measured.as_deref());
    let measured = measured.map(|measured| MeasuredRow {
        measurements: measured.measurements,
        cpu_p95_millis: measured.cpu_p95.0,
        cpu_max_millis: measured.cpu_max.0,
        memory_mean_bytes: measured.memory_mean.0,
        memory_p95_bytes: measured.memory_p95.0,
        read_bytes: measured.read_bytes,
        written_bytes: measured.written_bytes,
        has_files: files.is_some(),
        is_preempted: preemption.is_some(),
        has_health: health.is_some(),
    });
    let rows = RowsWriter::new(&rest)
        .then(files.as_ref())
        .then(preemption.as_ref())
        .then(health.as_ref())
        .then(measured.as_ref());
    rows.seal(ExecutionColumns::of(record).context())
}

/// Opens what [`seal_execution`] sealed, and adds the columns.
pub(crate) fn open_execution(
    columns: &ExecutionColumns,
    sealed: &[u8],
) -> Result<ExecutionRecord, DecodeError> {
    let mut rows = RowsReader::open(columns.context(), REST, sealed)?;
    let rest: ExecutionRest<'_> = rows.first()?;
    let files: Option<FilesRow<'_>> = rows.optional()?;
    let preemption: Option<PreemptionRow> = rows.optional()?;
    let health: Option<HealthRow<'_>> = rows.optional()?;
    let measured: Option<MeasuredRow> = rows.optional()?;
    rows.end()?;
    // A later row tells whether an earlier one is present or only its default.
    let health = health.filter(|_| measured.as_ref().is_none_or(|measured| measured.has_health));
    let preemption = preemption.filter(|_| measured.as_ref().is_none_or(|measured| measured.is_preempted));
    let preemption = preemption.filter(|_| health.as_ref().is_none_or(|health| health.is_preempted));
    let has_files = match (&measured, &health, &preemption) {
        (Some(measured), _, _) => measured.has_files,
        (None, Some(health), _) => health.has_files,
        (None, None, Some(preemption)) => preemption.has_files,
        (None, None, None) => true,
    };
    let files = files.filter(|_| has_files);
    let status = ExecutionStatus::from_code(columns.status).ok_or(DecodeError::Value {
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
            measured: measured.as_ref().map(|measured| Box::new(measured.into())),
        }),
        files: files.map(|files| Box::new(files.into())),
        preempted_by: preemption.map(|preemption| JobId::from_bits(u128::from_be_bytes(preemption.by))),
        health: health.map(ExecutionHealth::try_from).transpose()?.map(Box::new),
    })
}
