//! Ports and health checks of a job.
//!
//! The worker allocates ports and runs health checks beside the task, so neither needs a server. A job with one of them
//! runs only on workers that support it ([`crate::worker::Capabilities::health_checks`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::time::Duration;

/// A network port that the task listens on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// Name of the port: 1 to 15 lower-case letters, digits or `-`, starting with a letter. The task finds the number in
    /// `BELFRY_PORT_<NAME>`, with the name in upper case and `_` for `-`.
    pub name: String,
    /// Fixed port number, from 1 to 65535. At most one execution on a worker has the same fixed port [default: a free
    /// port from the range of the worker].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

impl Port {
    /// Returns the name of the environment variable with the number of the port.
    pub fn variable(&self) -> String {
        format!("BELFRY_PORT_{}", self.name.to_ascii_uppercase().replace('-', "_"))
    }
}

/// Health checks of an execution, which the worker runs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HealthChecks {
    /// Check that must succeed once before the other checks run. If it fails too often, the execution is stopped and
    /// fails with the error `unhealthy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup: Option<HealthCheck>,
    /// Check that decides whether the execution can do its work. While it fails, the execution is `unhealthy` and
    /// continues to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readiness: Option<HealthCheck>,
    /// Check that decides whether the execution must be restarted. If it fails too often, the execution is stopped and
    /// fails with the error `unhealthy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub liveness: Option<HealthCheck>,
}

impl HealthChecks {
    /// Returns whether there is no check.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the checks with their names, in the order in which they matter.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &HealthCheck)> {
        let named =
            [("startup", &self.startup), ("readiness", &self.readiness), ("liveness", &self.liveness)];
        named.into_iter().filter_map(|(name, check)| Some((name, check.as_ref()?)))
    }
}

fn is_zero(duration: &Duration) -> bool {
    *duration == Duration::ZERO
}

fn default_interval() -> Duration {
    Duration::from_secs(10)
}

fn default_timeout() -> Duration {
    Duration::from_secs(5)
}

fn default_failures() -> u32 {
    3
}

fn default_successes() -> u32 {
    1
}

/// A repeated health check: exactly one of `http`, `tcp`, `grpc` and `command`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HealthCheck {
    /// Sends an HTTP request. It succeeds with a status from 200 to 399.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpCheck>,
    /// Opens a TCP connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpCheck>,
    /// Calls the gRPC health service `grpc.health.v1.Health`. It succeeds with the status `SERVING`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc: Option<GrpcCheck>,
    /// Runs a command in the working directory of the execution, with the environment of the task. It succeeds with the
    /// exit code 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Delay before the first check, at most 1h [default: `0s`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub initial_delay: Duration,
    /// Time between the starts of two checks, from 1s to 1h [default: `10s`].
    #[serde(default = "default_interval")]
    pub interval: Duration,
    /// Maximum time of one check, from 100ms to 10m [default: `5s`].
    #[serde(default = "default_timeout")]
    pub timeout: Duration,
    /// Number of consecutive failures after which the check has failed, from 1 to 1,000 [default: 3].
    #[serde(default = "default_failures")]
    pub failure_threshold: u32,
    /// Number of consecutive successes after which the check has succeeded, from 1 to 1,000. Must be 1 for `startup` and
    /// `liveness` [default: 1].
    #[serde(default = "default_successes")]
    pub success_threshold: u32,
}

impl HealthCheck {
    /// Returns a check with default times that does nothing yet; the caller sets one kind of check.
    pub fn new() -> Self {
        Self {
            http: None,
            tcp: None,
            grpc: None,
            command: Vec::new(),
            initial_delay: Duration::ZERO,
            interval: default_interval(),
            timeout: default_timeout(),
            failure_threshold: default_failures(),
            success_threshold: default_successes(),
        }
    }
}

impl Default for HealthCheck {
    fn default() -> Self {
        Self::new()
    }
}

/// Port of a health check: the name of a port of the job, or a number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum CheckedPort {
    /// Number of the port.
    Number(u16),
    /// Name of a port of the job.
    Name(String),
}

/// An HTTP request to the worker's own machine (`127.0.0.1`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpCheck {
    /// Name of a port of the job, or a port number.
    pub port: CheckedPort,
    /// Path of the request, with an optional query [default: `/`].
    #[serde(default = "root_path", skip_serializing_if = "is_root")]
    pub path: String,
    /// Headers of the request; at most 20.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

fn root_path() -> String {
    "/".to_owned()
}

fn is_root(path: &String) -> bool {
    path == "/"
}

/// A TCP connection to the worker's own machine (`127.0.0.1`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TcpCheck {
    /// Name of a port of the job, or a port number.
    pub port: CheckedPort,
}

/// A call of the gRPC health service on the worker's own machine (`127.0.0.1`), without TLS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GrpcCheck {
    /// Name of a port of the job, or a port number.
    pub port: CheckedPort,
    /// Name of the service in the request [default: the server as a whole].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub service: String,
}

/// Health of a running execution, as its worker reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExecutionHealth {
    /// Result of the health checks.
    pub status: HealthStatus,
    /// Time of the last change of the status.
    pub since: crate::time::Timestamp,
    /// Result of the last failed check, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub detail: Option<Box<str>>,
    /// Numbers of the ports of the execution, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ports: BTreeMap<String, u16>,
}

/// Result of the health checks of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HealthStatus {
    /// Startup and readiness checks have not succeeded yet.
    Starting,
    /// All checks succeed, or there are none.
    Healthy,
    /// A check has failed.
    Unhealthy,
}

crate::status::words! { HealthStatus, "a health status", {
    Starting = "starting";
    Healthy = "healthy";
    Unhealthy = "unhealthy";
} }
