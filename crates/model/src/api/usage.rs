//! What running executions use.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::id::{ExecutionId, JobId, WorkerId};
use crate::quantity::{Bytes, Millicores};
use crate::time::Timestamp;

/// One measurement of a running execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UsageSample {
    /// Time at which the server received the measurement.
    pub at: Timestamp,
    /// CPU use since the previous measurement.
    pub cpu: Millicores,
    /// Memory use, without files that the kernel can drop.
    pub memory: Bytes,
    /// Bytes read from disks for each second since the previous measurement.
    pub read_bytes_per_second: u64,
    /// Bytes written to disks for each second since the previous measurement.
    pub written_bytes_per_second: u64,
    /// Number of processes.
    pub processes: u32,
}

/// What a running execution uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExecutionUsage {
    /// ID of the execution.
    pub execution_id: ExecutionId,
    /// ID of the job.
    pub job_id: JobId,
    /// Name of the job.
    pub job_name: String,
    /// Namespace (tenant) of the job.
    pub namespace: String,
    /// Queue of the job.
    pub queue: String,
    /// Name of the service whose replica the job is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// ID of the worker that runs the execution.
    pub worker_id: WorkerId,
    /// CPU request of the job.
    pub cpu_request: Millicores,
    /// Memory request of the job.
    pub memory_request: Bytes,
    /// The newest measurement.
    pub usage: UsageSample,
}

/// Order of a list of what executions use; the highest value is first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum UsageOrder {
    /// By CPU use.
    #[default]
    Cpu,
    /// By memory use.
    Memory,
    /// By bytes read from and written to disks for each second.
    Disk,
}

impl std::fmt::Display for UsageOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Disk => "disk",
        })
    }
}
