//! Alerts, alert rules, channels, silences and notifications.

use super::*;
use crate::alert::{AlertRuleSpec, ChannelSpec, Severity, SubjectKind, ZonedCron};

/// Status of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AlertStatus {
    /// The condition of the rule is met.
    Firing,
    /// A user takes care of it; notifications are not repeated.
    Acknowledged,
    /// The condition is no longer met, or a user resolved the alert.
    Resolved,
}

crate::status::words! { AlertStatus, "a status of an alert", {
    Firing = "firing";
    Acknowledged = "acknowledged";
    Resolved = "resolved";
} }

/// Object that an alert concerns.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
pub struct AlertSubject {
    /// Kind of the object.
    pub kind: SubjectKind,
    /// Name of the object. Empty if the rule has too many open alerts: this one stands for all further objects.
    pub name: String,
    /// ID of the object, if it is a schedule, a workflow or a worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// An alert: a rule whose condition is met for an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Alert {
    /// Number of the alert; newer alerts have greater numbers.
    pub id: u64,
    /// Namespace of the rule.
    pub namespace: String,
    /// Name of the rule.
    pub rule: String,
    /// Name of the condition, for example `job_failed`.
    pub condition: String,
    /// Object that the alert concerns.
    pub subject: AlertSubject,
    /// Severity of the rule when the alert opened.
    pub severity: Severity,
    /// Current status.
    pub status: AlertStatus,
    /// Number of occurrences, for example failed jobs, since the alert opened. Approximate for late and slow jobs.
    pub count: u64,
    /// Description of the last occurrence in one line, in English.
    pub summary: String,
    /// Error message of the last failed job, or why the monitor is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Time of the first occurrence.
    pub opened_at: Timestamp,
    /// Time of the last occurrence.
    pub last_at: Timestamp,
    /// Time at which the alert was resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_at: Option<Timestamp>,
    /// Reason of the resolution: `recovered`, `resolved_by_user`, `rule_changed` or `stale`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_by: Option<String>,
    /// User who acknowledged or resolved the alert.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// Comment of that user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Whether a silence holds notifications of the alert back now.
    #[serde(default)]
    pub silenced: bool,
    /// Time of the last notification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notified_at: Option<Timestamp>,
    /// Time of the escalation: no user acknowledged the alert, and further channels were notified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalated_at: Option<Timestamp>,
    /// Newest jobs of the alert, at most 20; the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobId>,
    /// Newest workflow runs of the alert, at most 20; the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<RunId>,
}

/// A page of alerts: open alerts first, then resolved ones; each newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Alerts {
    /// The alerts.
    pub items: Vec<Alert>,
    /// Number of open alerts that match the filter.
    pub open: u64,
    /// Whether further alerts match the filter: narrow it to see them.
    pub more: bool,
}

/// Acknowledges or resolves an alert.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AlertAct {
    /// Comment, at most 1,000 bytes [default: none].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// An alert rule with its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AlertRule {
    /// Spec of the rule.
    #[serde(flatten)]
    pub spec: AlertRuleSpec,
    /// Version of the rule; increases with every change.
    pub version: u64,
    /// Time of the last change.
    pub updated_at: Timestamp,
    /// Account of the last change.
    pub updated_by: String,
    /// Number of open alerts of the rule.
    pub open_alerts: u64,
    /// Channels of the rule that do not exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_channels: Vec<String>,
}

/// All alert rules that match the filter, ordered by namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AlertRules {
    /// The rules.
    pub items: Vec<AlertRule>,
}

/// A channel with its state. Secrets are hidden.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Channel {
    /// Spec of the channel, with `******` in place of each secret.
    #[serde(flatten)]
    pub spec: ChannelSpec,
    /// Version of the channel; increases with every change.
    pub version: u64,
    /// Time of the last change.
    pub updated_at: Timestamp,
    /// Account of the last change.
    pub updated_by: String,
    /// Rules that notify the channel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
    /// Number of notifications that wait for delivery.
    pub waiting: u64,
    /// Time of the last successful delivery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_at: Option<Timestamp>,
    /// Error of the last attempt, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// All channels that match the filter, ordered by namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Channels {
    /// The channels.
    pub items: Vec<Channel>,
}

/// Result of a test of a channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChannelTest {
    /// Whether the service accepted the test notification.
    pub delivered: bool,
    /// Error of the attempt, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Creates a silence: holds notifications of matching alerts back until a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSilence {
    /// Namespace of the alerts [default: `default`].
    #[serde(default = "default_silence_namespace")]
    pub namespace: String,
    /// Name of the rule; `*` stands for any characters [default: any].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Name of the job, workflow, schedule, service, worker, queue or monitor; `*` stands for any characters
    /// [default: any].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Highest severity of the alerts; more severe alerts are notified [default: any].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity_max: Option<Severity>,
    /// Start of the silence [default: now].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts_at: Option<Timestamp>,
    /// Length of the silence, 1m to 366d. Of a recurring silence, the length of each period, 1m to 31d.
    pub duration: Duration,
    /// Start times of the periods of a recurring silence: quiet hours, or a maintenance window [default: not recurring].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recurrence: Option<ZonedCron>,
    /// End of a recurring silence, at most 366d after its start [default: 366d after its start].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<Timestamp>,
    /// Reason of the silence, at most 1,000 bytes.
    pub reason: String,
}

fn default_silence_namespace() -> String {
    crate::spec::DEFAULT.to_owned()
}

/// A silence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Silence {
    /// Number of the silence.
    pub id: u64,
    /// Namespace of the alerts.
    pub namespace: String,
    /// Name of the rule; `*` stands for any characters. Absent if any rule matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Name of the object; `*` stands for any characters. Absent if any object matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Highest severity of the alerts. Absent if any severity matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity_max: Option<Severity>,
    /// Start of the silence.
    pub starts_at: Timestamp,
    /// End of the silence.
    pub ends_at: Timestamp,
    /// Start times of the periods of a recurring silence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recurrence: Option<ZonedCron>,
    /// Length of each period of a recurring silence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Duration>,
    /// Whether the silence holds notifications back now.
    #[serde(default)]
    pub active: bool,
    /// Reason of the silence.
    pub reason: String,
    /// Account that created the silence.
    pub created_by: String,
    /// Time at which the silence was created.
    pub created_at: Timestamp,
}

/// Current and future silences, ordered by their end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Silences {
    /// The silences.
    pub items: Vec<Silence>,
}

/// Status of a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NotificationStatus {
    /// Waiting for delivery, or for the next attempt.
    Waiting,
    /// The service accepted it.
    Delivered,
    /// The service refused it, or was not reachable for a day.
    Failed,
}

crate::status::words! { NotificationStatus, "a status of a notification", {
    Waiting = "waiting";
    Delivered = "delivered";
    Failed = "failed";
} }

/// A notification: a message about alerts of one rule to one channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Notification {
    /// Number of the notification. Receivers get it as the idempotency key, because a delivery can be repeated.
    pub id: u64,
    /// Namespace of the rule and of the channel.
    pub namespace: String,
    /// Name of the rule.
    pub rule: String,
    /// Name of the channel.
    pub channel: String,
    /// Numbers of the alerts, at most 20.
    pub alerts: Vec<u64>,
    /// Number of all alerts that the message is about.
    pub total: u64,
    /// Current status.
    pub status: NotificationStatus,
    /// Number of attempts so far.
    pub attempts: u32,
    /// Time at which the notification was created, with its alerts.
    pub created_at: Timestamp,
    /// Time of the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<Timestamp>,
    /// Time at which the notification was delivered or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Error of the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The newest notifications that match the filter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Notifications {
    /// The notifications, newest first.
    pub items: Vec<Notification>,
    /// Whether further notifications match the filter.
    pub more: bool,
}
