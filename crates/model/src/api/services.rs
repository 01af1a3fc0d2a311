//! Requests and responses of the REST API for services, their replicas, revisions and endpoints.
//!
//! The spec that users write is [`ServiceSpec`]. The texts of the types and fields are the descriptions in the OpenAPI
//! document.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ApplyChange;
use crate::id::{ExecutionId, JobId, ServiceId, WorkerId};
use crate::service::{ReplicaCounts, RevisionCause, Rollout, ScalingChange, ServiceSpec};
use crate::spec::ExecutionHealth;
use crate::status::JobStatus;
use crate::time::Timestamp;

/// A service: a long-running job that is kept at a number of replicas.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Service {
    /// ID of the service, assigned by the server.
    pub id: ServiceId,
    /// Name of the service, unique in its namespace.
    pub name: String,
    /// Namespace (tenant) of the service.
    pub namespace: String,
    /// Owner of the service: the person or team responsible for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Labels of the service.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Purpose of the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Version of the service; increases with every change by a user and is the value of the ETag.
    pub version: u64,
    /// Time at which the service was created.
    pub created_at: Timestamp,
    /// Time of the last change by a user.
    pub updated_at: Timestamp,
    /// Desired number of replicas.
    pub replicas: u32,
    /// Last change of `replicas` by automatic scaling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scaling: Option<ScalingChange>,
    /// Why a metric of the automatic scaling has no value. The metric does not reduce the number of replicas until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling_problem: Option<String>,
    /// Smallest number of available replicas that Belfry leaves when it stops replicas: `replicas` without
    /// `update.max_unavailable`.
    pub min_available: u32,
    /// Numbers of replicas.
    pub counts: ReplicaCounts,
    /// Rollout of the current revision.
    pub rollout: Rollout,
    /// Last revision that was rolled out completely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stable_revision: Option<u64>,
    /// Whether the service is being deleted: its replicas are stopping.
    #[serde(default)]
    pub deleting: bool,
    /// Spec of the service, with defaults. Absent in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Box<ServiceSpec>>,
}

/// Revision of a service: its spec at the time of a change of the template.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ServiceRevision {
    /// Number of the revision, from 1.
    pub number: u64,
    /// Time at which the revision was created.
    pub created_at: Timestamp,
    /// Why the revision was created.
    pub cause: RevisionCause,
    /// Revision whose template this one repeats, for the cause `rolled_back`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback_to: Option<u64>,
    /// Whether the revision was rolled out completely.
    #[serde(default)]
    pub completed: bool,
    /// User who requested the revision. Absent for an automatic rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// Spec of the service at that time.
    pub spec: Box<ServiceSpec>,
}

/// Replica of a service: a job that has not ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Replica {
    /// Number of the replica, from 0.
    pub replica: u32,
    /// Job of the replica. Its executions are the starts of the replica.
    pub job: JobId,
    /// Revision of the replica.
    pub revision: u64,
    /// Status of the job.
    pub status: JobStatus,
    /// Whether the replica is being stopped.
    pub stopping: bool,
    /// Number of starts after the first one.
    pub restarts: u32,
    /// Running execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<ExecutionId>,
    /// Worker of the running execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerId>,
    /// Start time of the running execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// Health and ports of the running execution. Absent for jobs without ports and health checks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<ExecutionHealth>,
    /// Result of the last ended execution, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_exit: Option<String>,
}

/// Port of a healthy replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Endpoint {
    /// Name of the port.
    pub port_name: String,
    /// Host name or IP address of the worker. Absent if the worker did not report one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Port number.
    pub port: u16,
    /// Number of the replica.
    pub replica: u32,
    /// Revision of the replica.
    pub revision: u64,
    /// Job of the replica.
    pub job: JobId,
    /// Worker of the replica.
    pub worker: WorkerId,
}

/// Targets with labels, in the form of Prometheus' HTTP service discovery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiscoveryTarget {
    /// Addresses in the form `host:port`.
    pub targets: Vec<String>,
    /// Labels of the targets: `__meta_belfry_namespace`, `__meta_belfry_service`, `__meta_belfry_port`,
    /// `__meta_belfry_replica`, `__meta_belfry_revision` and `__meta_belfry_label_<NAME>`.
    pub labels: BTreeMap<String, String>,
}

/// Request to apply several services in one transaction: all are applied or none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplyServices {
    /// Specs of the services, from 1 to 1,000.
    pub services: Vec<ServiceSpec>,
}

/// Response to a request to apply several services.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AppliedServices {
    /// One entry for each service of the request, in the order of the request.
    pub services: Vec<AppliedService>,
}

/// Result of applying a service, or the expected result in a dry run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppliedService {
    /// ID of the service. Absent in a dry run that would create the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<ServiceId>,
    /// Name of the service.
    pub name: String,
    /// Namespace (tenant) of the service.
    pub namespace: String,
    /// Change of the service.
    pub change: ApplyChange,
    /// Current revision after the change.
    pub revision: u64,
    /// Version of the service after the change.
    pub version: u64,
}

/// Request to change the number of replicas of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScaleService {
    /// Desired number of replicas, from 0 to 1,000.
    pub replicas: u32,
}

/// Request to return to an earlier revision of a service.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RollbackService {
    /// Number of the revision [default: the last revision that was rolled out completely, before the current one].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
}

/// State of a service after a request that changed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceChanged {
    /// Version of the service after the change.
    pub version: u64,
    /// Current revision after the change.
    pub revision: u64,
    /// Desired number of replicas after the change.
    pub replicas: u32,
}
