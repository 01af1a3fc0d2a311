//! Settings of namespaces: their quotas, and the minimum sandbox.
//!
//! A namespace need not be created: a namespace without stored settings has no limits. [`crate::validate::namespace`] checks
//! the ranges; the engine enforces the limits.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::quantity::{Bytes, Millicores};
use crate::spec::{PriorityClass, Sandbox};

/// Settings of a namespace: limits on its jobs.
///
/// A namespace need not be created; all settings of a new namespace have their defaults.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NamespaceSettings {
    /// Quota of the namespace [default: unlimited].
    #[serde(skip_serializing_if = "Quota::is_unlimited")]
    pub quota: Quota,
    /// Highest priority class of the jobs in the namespace. Jobs, schedules and workflows with a higher class are refused
    /// [default: `high`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_priority_class: Option<PriorityClass>,
    /// Minimum sandbox of new processes in the namespace. A process without a sandbox gets this one; any other gets at least
    /// this level, and no network that is more open. Other runtimes are not affected [default: no sandbox].
    #[serde(skip_serializing_if = "Sandbox::is_none")]
    pub sandbox: Sandbox,
    /// Reason for the limits, as text for users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Limits on the jobs of a namespace, over all queues and workers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Quota {
    /// Maximum CPU that is allocated to running jobs, for example `8` cores or `500m` [default: unlimited].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Millicores>,
    /// Maximum memory that is allocated to running jobs, for example `16GiB` [default: unlimited].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Maximum amount of each custom resource that is allocated to running jobs, for example `gpu: 2`; at most 16
    /// [default: unlimited].
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub custom: BTreeMap<String, u64>,
    /// Maximum number of running jobs, from 1 to 1,000,000 [default: unlimited].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<u32>,
    /// Maximum number of jobs that have not ended, from 1 to 100,000,000. Submissions beyond it are refused; schedules and
    /// workflow runs still create their jobs [default: unlimited].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<u64>,
}

impl Quota {
    /// Returns whether no limit is set.
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }
}

/// What the jobs of a namespace use of its quota.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct NamespaceUsage {
    /// CPU that is allocated to running jobs, in millicores.
    pub cpu: Millicores,
    /// Memory that is allocated to running jobs, in bytes.
    pub memory: Bytes,
    /// Custom resources that are allocated to running jobs.
    #[serde(default)]
    pub custom: BTreeMap<String, u64>,
    /// Number of running jobs.
    pub running: u64,
    /// Number of jobs that have not ended.
    pub jobs: u64,
}
