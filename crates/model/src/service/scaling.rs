//! Automatic scaling: the desired number of replicas follows schedules and metrics.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::quantity::{Bytes, Millicores};
use crate::time::{Duration, Timestamp};
use crate::timing;

fn default_min() -> u32 {
    1
}

fn default_down_window() -> Duration {
    Duration::from_secs(300)
}

fn utc() -> String {
    timing::UTC.to_owned()
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Automatic scaling of a service: Belfry sets the desired number of replicas.
///
/// Every 15 seconds, each metric asks for a number of replicas, and the highest number counts. Without metrics, the service
/// has its minimum. A deviation of at most 10 % from the current number changes nothing. A metric without a value, for
/// example because its server does not answer, never reduces the number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Scaling {
    /// Minimum number of replicas, from 0 to 1,000. With 0, the service may have no replica; then it also needs a schedule, or
    /// a metric other than `cpu` and `memory` [default: 1].
    #[serde(default = "default_min")]
    pub min: u32,
    /// Maximum number of replicas, from 1 to 1,000.
    pub max: u32,
    /// Times at which the minimum changes, at most 16. The last one that has passed counts, until the next one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schedules: Vec<ScalingSchedule>,
    /// Metrics, at most 8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<ScalingMetric>,
    /// Stabilization window for more replicas: the lowest number that the metrics asked for within it counts; at most 1h
    /// [default: `0s`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub up_window: Duration,
    /// Stabilization window for fewer replicas: the highest number that the metrics asked for within it counts; at most
    /// 1h [default: `5m`].
    #[serde(default = "default_down_window")]
    pub down_window: Duration,
}

/// Times from which a service has another minimum of replicas.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScalingSchedule {
    /// Times as a cron expression, such as `0 8 * * 1-5`.
    pub cron: String,
    /// Time zone of the expression, as an IANA name such as `Asia/Shanghai` [default: `UTC`].
    #[serde(default = "utc")]
    pub zone: String,
    /// Minimum number of replicas from these times on, from 0 to the `max` of the service.
    pub min: u32,
}

/// A metric that asks for a number of replicas.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScalingMetric {
    /// Number of jobs that wait in a queue of Belfry.
    Queue(QueueMetric),
    /// Result of a PromQL query.
    Query(QueryMetric),
    /// CPU that the replicas use.
    Cpu(CpuMetric),
    /// Memory that the replicas use.
    Memory(MemoryMetric),
}

impl ScalingMetric {
    /// Returns whether the metric has a value only while the service has replicas.
    pub fn needs_replicas(&self) -> bool {
        matches!(self, Self::Cpu(_) | Self::Memory(_))
    }
}

/// CPU that the replicas of a service use, as their workers measure it every 5 seconds.
///
/// The value is the sum of the healthy replicas. As with the Horizontal Pod Autoscaler, replicas that were not measured yet
/// never make a change larger: they count with nothing if the others use more than `per_replica`, and with `per_replica`
/// otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CpuMetric {
    /// CPU of each replica, such as `500m`; greater than 0. It should be below the CPU limit of the job.
    pub per_replica: Millicores,
}

/// Memory that the replicas of a service use, without files that the kernel can drop. See [`CpuMetric`] for the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryMetric {
    /// Memory of each replica, such as `512MiB`; greater than 0. It should be below the memory limit of the job.
    pub per_replica: Bytes,
}

/// Number of waiting jobs in a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QueueMetric {
    /// Name of the queue. Waiting jobs of all namespaces count, except replicas of the service.
    pub name: String,
    /// Number of waiting jobs for each replica; at least 1.
    pub jobs_per_replica: u32,
}

/// Result of a query to Prometheus, or to another server with its HTTP API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QueryMetric {
    /// URL of the server without `/api/v1/query`, such as `http://prometheus:9090`; at most 2,000 bytes. The server of
    /// Belfry reaches private addresses only with the setting `server.private_networks`.
    pub url: String,
    /// PromQL query whose result is one number, such as `sum(rate(http_requests_total[1m]))`; at most 4,000 bytes.
    pub query: String,
    /// Value of the result for each replica; greater than 0.
    pub per_replica: f64,
}

/// The last change of the number of replicas by automatic scaling.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ScalingChange {
    /// Time of the change.
    pub at: Timestamp,
    /// Desired number of replicas before.
    pub from: u32,
    /// Desired number of replicas since.
    pub to: u32,
    /// What determined the number.
    pub cause: ScalingCause,
    /// Value of the metric, for the causes `queue`, `query`, `cpu` (cores) and `memory` (bytes).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
}

/// What determined a number of replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScalingCause {
    /// The minimum that applies at the time.
    Minimum,
    /// The maximum.
    Maximum,
    /// The number of waiting jobs in a queue.
    Queue,
    /// The result of a query.
    Query,
    /// The CPU that the replicas use.
    Cpu,
    /// The memory that the replicas use.
    Memory,
}

crate::status::words! { ScalingCause, "a cause of a change of replicas", {
    Minimum = "minimum";
    Maximum = "maximum";
    Queue = "queue";
    Query = "query";
    Cpu = "cpu";
    Memory = "memory";
} }
