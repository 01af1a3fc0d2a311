//! Workers: what they have, what they can, how they are.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::quantity::{Bytes, Millicores};

/// What a worker has to give.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Capacity {
    /// CPU of the machine, or what of it Belfry may use.
    pub cpu: Millicores,
    /// Memory, likewise.
    pub memory: Bytes,
    /// Custom resources.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub custom: BTreeMap<String, u64>,
    /// The most executions at a time.
    pub slots: u32,
}

/// What a worker can enforce and run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Capabilities {
    /// The names of its runtimes.
    pub runtimes: Vec<String>,
    /// Whether it can keep a memory limit.
    pub memory_limit: bool,
    /// Whether it can keep a CPU limit.
    pub cpu_limit: bool,
    /// Whether it can keep a limit on processes.
    pub pids_limit: bool,
    /// Whether tasks run as a user of their own.
    pub own_user: bool,
}

impl Capabilities {
    /// Of a worker that runs processes, each as a user of its own, and keeps every limit.
    pub fn of_processes() -> Self {
        Self {
            runtimes: vec!["process".into()],
            memory_limit: true,
            cpu_limit: true,
            pids_limit: true,
            own_user: true,
        }
    }
}

/// How a worker's machine is, as it last said.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// CPU in use on the machine, by anyone.
    pub cpu_used: Millicores,
    /// Memory that could be had.
    pub memory_available: Bytes,
    /// Disk that could be had where executions live.
    pub disk_available: Bytes,
    /// Executions that run there.
    pub running: u32,
    /// Why it calls itself unhealthy; nothing new is placed then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// Whether work is placed on a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkerStatus {
    /// Connected, lease running.
    #[default]
    Ready,
    /// Known, but not heard of within its lease; it has nothing to run.
    Lost,
    /// Not heard of yet since this server started; it has a full lease to come back.
    Expected,
}

/// Whether an operator lets work be placed on a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Admission {
    /// New work is welcome.
    #[default]
    Open,
    /// No new work; what runs may end.
    Cordoned,
    /// No new work, and what runs is stopped and placed elsewhere.
    Draining,
}
