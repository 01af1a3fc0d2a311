//! Workers: their resources, features, health and status.
//!
//! A worker reports these values to the server; the placement of jobs filters and scores workers by them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::quantity::{Bytes, Millicores};
use crate::spec::SandboxLevel;
use crate::status::words;

/// Total resources and slots of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Capacity {
    /// CPU that executions may use, in millicores: the CPU of the machine, or a configured part of it.
    pub cpu: Millicores,
    /// Memory that executions may use, in bytes: the memory of the machine, or a configured part of it.
    pub memory: Bytes,
    /// Custom resources of the worker, by name of the resource.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub custom: BTreeMap<String, u64>,
    /// Maximum number of concurrent executions on the worker.
    pub slots: u32,
}

/// Features that a worker supports.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Capabilities {
    /// Names of the runtimes of the worker: `process`, and others that its machine has, such as `container`.
    pub runtimes: Vec<String>,
    /// Programs and versions behind the runtimes, for example `docker 29.1` for `container`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub runtime_versions: BTreeMap<String, String>,
    /// Whether the worker can enforce a memory limit.
    pub memory_limit: bool,
    /// Whether the worker can enforce a CPU limit.
    pub cpu_limit: bool,
    /// Whether the worker can enforce a limit on the number of processes.
    pub pids_limit: bool,
    /// Whether the worker runs tasks as an operating-system user other than its own.
    #[serde(alias = "own_user")]
    pub separate_user: bool,
    /// Whether the worker allocates ports and runs health checks.
    #[serde(default)]
    pub health_checks: bool,
    /// Names of the volumes of the worker: directories that tasks can use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    /// Levels of sandboxes that the kernel of the worker supports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sandbox_levels: Vec<SandboxLevel>,
}

impl Capabilities {
    /// Returns the capabilities of a worker that runs processes as another user and enforces all limits.
    pub fn of_processes() -> Self {
        Self {
            runtimes: vec!["process".into()],
            runtime_versions: BTreeMap::new(),
            memory_limit: true,
            cpu_limit: true,
            pids_limit: true,
            separate_user: true,
            health_checks: true,
            volumes: Vec::new(),
            sandbox_levels: vec![SandboxLevel::Basic, SandboxLevel::Strict],
        }
    }
}

/// Health of the machine of a worker, as last reported by the worker.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// CPU in use on the machine by all processes, in millicores.
    pub cpu_used: Millicores,
    /// Available memory of the machine, in bytes.
    pub memory_available: Bytes,
    /// Available disk space for the working directories of executions, in bytes.
    pub disk_available: Bytes,
    /// Number of running executions on the worker.
    pub running: u32,
    /// Reason why the worker is unhealthy. The server places no new executions on an unhealthy worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Connection status of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkerStatus {
    /// The worker is connected and its lease is valid.
    #[default]
    Ready,
    /// The worker sent no heartbeat within its lease. The server places no executions on the worker.
    Lost,
    /// The worker has not connected since this server became the leader. It has one lease period to reconnect.
    Expected,
}

words! { WorkerStatus, "a status of a worker", { Ready = "ready"; Lost = "lost"; Expected = "expected"; } }

/// Admission of new executions to a worker, as set by an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Admission {
    /// The worker accepts new executions.
    #[default]
    Open,
    /// The worker accepts no new executions; running executions continue.
    Cordoned,
    /// The worker accepts no new executions; running executions are stopped and placed on other workers.
    Draining,
}

words! {
    Admission, "an admission of a worker", { Open = "open"; Cordoned = "cordoned"; Draining = "draining"; }
}
