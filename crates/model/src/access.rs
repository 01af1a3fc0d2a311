//! Words of access control: the actions and the kinds of resources that roles permit, and the kinds of accounts.
//!
//! The crate `access` decides with them; requests, responses and custom roles contain them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Action on a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Read the resource.
    Read,
    /// Act on an existing resource without a change of its definition: cancel, retry, pause, resume, trigger, start,
    /// approve, drain.
    Operate,
    /// Create a resource.
    Create,
    /// Change the definition of a resource.
    Change,
    /// Delete the resource.
    Delete,
    /// Act as a worker: run executions, report, send logs, read and store artifacts.
    Work,
}

crate::status::words! { Verb, "a verb", {
    Read = "read";
    Operate = "operate";
    Create = "create";
    Change = "change";
    Delete = "delete";
    Work = "work";
} }

/// Kind of resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Jobs, and groups of failed jobs.
    Jobs,
    /// Executions.
    Executions,
    /// Log output of executions.
    Logs,
    /// Feed of events.
    Events,
    /// Workers.
    Workers,
    /// Queues.
    Queues,
    /// Schedules, their ledgers and backfills.
    Schedules,
    /// Workflows.
    Workflows,
    /// Runs of workflows, and their steps.
    Runs,
    /// Calendars.
    Calendars,
    /// Stored artifacts.
    Artifacts,
    /// The servers: their version and their metrics.
    Server,
    /// Accounts, roles, bindings and tokens.
    Access,
}

crate::status::words! { Resource, "a resource", {
    Jobs = "jobs";
    Executions = "executions";
    Logs = "logs";
    Events = "events";
    Workers = "workers";
    Queues = "queues";
    Schedules = "schedules";
    Workflows = "workflows";
    Runs = "runs";
    Calendars = "calendars";
    Artifacts = "artifacts";
    Server = "server";
    Access = "access";
} }

impl Resource {
    /// Returns whether objects of this kind are in a namespace.
    ///
    /// [`Access`](Self::Access) has both: a binding is in a namespace; an account or a role belongs to the cluster.
    pub const fn is_namespaced(self) -> bool {
        !matches!(self, Self::Workers | Self::Queues | Self::Server)
    }
}

/// Kind of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccountKind {
    /// Account of a person.
    User,
    /// Account of a program.
    Service,
}

crate::status::words! { AccountKind, "a kind of account", {
    User = "user";
    Service = "service";
} }
