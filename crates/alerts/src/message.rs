//! What a notification says, independent of the channel.

use model::alert::{Language, Severity, SubjectKind};
use model::{Duration, JobId, RunId, Timestamp};
use serde::{Deserialize, Serialize};

/// Message to a channel: alerts of one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Number of the notification, which is also the idempotency key of the delivery.
    pub id: u64,
    /// Namespace of the rule.
    pub namespace: String,
    /// Name of the rule.
    pub rule: String,
    /// Name of the condition, for example `job_failed`.
    pub condition: String,
    /// Description of the rule.
    pub description: Option<String>,
    /// URL of instructions.
    pub runbook: Option<String>,
    /// Severity of the rule.
    pub severity: Severity,
    /// Language of the channel.
    pub language: Language,
    /// Time at which the notification was created.
    pub at: Timestamp,
    /// Alerts of the notification, at least one and at most 20; all others are only counted.
    pub items: Vec<Item>,
    /// Number of all alerts of the notification, at least the number of items.
    pub total: u64,
    /// Number of alerts of the notification that are not resolved.
    pub firing: u64,
    /// Number of open alerts of the rule, in the notification or not.
    pub open: u64,
    /// Time for which no user acknowledged the alerts, if the notification escalates them to this channel.
    pub escalated_after: Option<Duration>,
    /// Whether this is a test by a user, and no alert.
    pub is_test: bool,
    /// URL of the dashboard without a slash at the end; `None` if the server does not know it.
    pub dashboard: Option<String>,
}

/// Alert in a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Number of the alert.
    pub alert: u64,
    /// Kind of the object.
    pub kind: SubjectKind,
    /// Name of the object; empty for all further objects of the rule.
    pub subject: String,
    /// Whether the alert is resolved.
    pub resolved: bool,
    /// Number of occurrences since the alert opened.
    pub count: u64,
    /// Time of the first occurrence.
    pub opened_at: Timestamp,
    /// Time of the last occurrence.
    pub last_at: Timestamp,
    /// Time at which the alert was resolved.
    pub resolved_at: Option<Timestamp>,
    /// Description of the last occurrence in one line, in English.
    pub summary: String,
    /// Error message of the last failed job.
    pub detail: Option<String>,
    /// Last lines of the log of the last job.
    pub log: Option<String>,
    /// Newest job.
    pub job: Option<JobId>,
    /// Newest workflow run.
    pub run: Option<RunId>,
}

impl Message {
    /// Returns whether all alerts of the message are resolved.
    pub fn is_resolved(&self) -> bool {
        self.firing == 0
    }

    /// Returns whether the rule has no open alert any more. Services with one incident for a rule close it then.
    pub fn ends_incident(&self) -> bool {
        self.is_resolved() && self.open == 0
    }
}
