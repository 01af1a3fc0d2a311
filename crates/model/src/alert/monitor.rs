//! Monitors: jobs that Belfry does not run, and that tell it that they ran.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::default_namespace;
use crate::time::Duration;
use crate::timing::UTC;

const fn default_grace() -> Duration {
    Duration::from_secs(5 * 60)
}

fn utc() -> String {
    UTC.to_owned()
}

/// A monitor: expects pings of a job that Belfry does not run, for example of a cron job (a dead-man's switch).
///
/// Only `name` and `timing` are required. An alert rule with the condition `monitor_down` notifies channels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MonitorSpec {
    /// Name of the monitor, unique in its namespace. 1 to 63 letters, digits, `-`, `_` or `.`, starting with a letter
    /// or digit.
    pub name: String,
    /// Namespace (tenant) of the monitor [default: `default`].
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Owner of the job: the person or team responsible for it, at most 128 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Labels of the monitor. Alert rules can select by them [default: none].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Description of the monitor, at most 1,000 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// When pings are expected.
    pub timing: MonitorTiming,
    /// Time from an expected ping to the status `down`, 1s to 31d [default: 5m].
    #[serde(default = "default_grace")]
    pub grace: Duration,
    /// Longest time from a ping that the job starts to a ping that it ended, 1s to 31d [default: `grace`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_time_max: Option<Duration>,
    /// Whether the monitor is paused: it expects no pings, and its open alerts are resolved [default: false].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

impl MonitorSpec {
    /// Returns the longest time from a ping that the job starts to a ping that it ended.
    pub fn longest_run(&self) -> Duration {
        self.run_time_max.unwrap_or(self.grace)
    }
}

/// When a monitor expects pings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MonitorTiming {
    /// Longest time between two pings that report a success, 1m to 366d.
    Every(Duration),
    /// At the times of a cron expression.
    Cron(ZonedCron),
}

/// Cron expression with a time zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ZonedCron {
    /// Cron expression with the start times, for example `30 2 * * *`.
    pub expression: String,
    /// Time zone of the expression, as an IANA name such as `Asia/Shanghai` [default: `UTC`].
    #[serde(default = "utc")]
    pub zone: String,
}
