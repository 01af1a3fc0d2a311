//! Monitors and their pings.

use super::*;
use crate::alert::MonitorSpec;

/// Status of a monitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MonitorStatus {
    /// No ping has arrived yet. The monitor expects none until the first one.
    New,
    /// The last expected ping arrived.
    Up,
    /// An expected ping is missing, and the grace time has not passed.
    Late,
    /// A ping reported a failure, or an expected ping is missing for longer than the grace time.
    Down,
    /// A user paused the monitor: it expects no pings.
    Paused,
}

crate::status::words! { MonitorStatus, "a status of a monitor", {
    New = "new";
    Up = "up";
    Late = "late";
    Down = "down";
    Paused = "paused";
} }

/// What a ping reports.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum PingKind {
    /// The job succeeded.
    #[default]
    Success,
    /// The job has started.
    Start,
    /// The job failed.
    Fail,
}

crate::status::words! { PingKind, "a kind of ping", {
    Success = "success";
    Start = "start";
    Fail = "fail";
} }

/// A ping that a monitor received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ping {
    /// Time at which the server received the ping.
    pub at: Timestamp,
    /// What the ping reports.
    pub kind: PingKind,
    /// Exit code of the job, if the ping has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
    /// Time since the ping that the job has started, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_time: Option<Duration>,
    /// Text of the ping. Longer texts are cut at their start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Pings a monitor.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NewPing {
    /// What the ping reports [default: `success`, or `fail` with an exit code other than 0].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<PingKind>,
    /// Exit code of the job, 0 to 255: 0 reports a success, and another one a failure. Cannot be combined with `kind`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
    /// Text for the person who is notified, for example the end of the log. Only the last 500 characters are stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl NewPing {
    /// Returns what the ping reports.
    pub fn reports(&self) -> PingKind {
        match (self.kind, self.exit_code) {
            (Some(kind), _) => kind,
            (None, None | Some(0)) => PingKind::Success,
            (None, Some(_)) => PingKind::Fail,
        }
    }
}

/// A monitor with its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Monitor {
    /// Spec of the monitor.
    #[serde(flatten)]
    pub spec: MonitorSpec,
    /// Version of the monitor; increases with every change of the spec.
    pub version: u64,
    /// Time of the last change of the spec.
    pub updated_at: Timestamp,
    /// Account of the last change of the spec.
    pub updated_by: String,
    /// Secret URL that the job requests as a ping. Only a path such as `/ping/…` if `server.public_url` is not set. Absent
    /// in lists, and for callers who may not ping the monitor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ping_url: Option<String>,
    /// Current status.
    pub status: MonitorStatus,
    /// Why the monitor is down, in English.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time since which the monitor is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_since: Option<Timestamp>,
    /// Time of the last ping that the job has started, if the job has not ended since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// Time of the last ping that reported a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub succeeded_at: Option<Timestamp>,
    /// Time at which the next ping is expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_at: Option<Timestamp>,
    /// Time at which the monitor is down without a further ping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_at: Option<Timestamp>,
    /// Newest pings, at most 20; the newest first. Lists have only the newest one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pings: Vec<Ping>,
    /// Number of open alerts about the monitor.
    pub open_alerts: u64,
}

/// All monitors that match the filter, ordered by namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Monitors {
    /// The monitors.
    pub items: Vec<Monitor>,
}
