//! Stored form of the state: rows with a kind, a key and a body in JSON.
//!
//! A new field needs a default. Unknown fields of records are ignored, but not those of the specs of rules and channels: a
//! rule with a field that this server does not know would not do what its user wants. Such a rule is off, and its row stays
//! until a newer server leads, or a user replaces it.

use std::collections::VecDeque;

use model::alert::{AlertRuleSpec, ChannelSpec, MonitorSpec};
use model::api::{Alert, NotificationStatus, Ping, Silence};
use model::{Duration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::message::Item;

/// Row of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Kind of the row, for example `rule`.
    pub kind: &'static str,
    /// Key of the row, unique within its kind.
    pub key: String,
    /// Content as JSON; `None` deletes the row.
    pub body: Option<String>,
}

/// Row that cannot be read, with the reason. It is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Kind of the row.
    pub kind: String,
    /// Key of the row.
    pub key: String,
    /// What is wrong.
    pub reason: String,
}

/// Name of a rule, channel or monitor, with its namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Name {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// Key of the open alert of a rule for an object: the rule and the name of the object.
pub(crate) type OpenKey = (Name, String);

/// What a row is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RowId {
    Position,
    Rule(Name),
    Channel(Name),
    Silence(u64),
    RecurringSilence(u64),
    Alert(u64),
    Streak(Name, String),
    Notification(u64),
    Monitor(Name),
    MonitorState(Name),
}

impl RowId {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Position => "position",
            Self::Rule(_) => "rule",
            Self::Channel(_) => "channel",
            Self::Silence(_) => "silence",
            Self::RecurringSilence(_) => "recurring_silence",
            Self::Alert(_) => "alert",
            Self::Streak(..) => "streak",
            Self::Notification(_) => "notification",
            Self::Monitor(_) => "monitor",
            Self::MonitorState(_) => "monitor_state",
        }
    }

    pub(crate) fn key(&self) -> String {
        match self {
            Self::Position => String::new(),
            Self::Rule(name) | Self::Channel(name) | Self::Monitor(name) | Self::MonitorState(name) => {
                name.key()
            }
            Self::Silence(number)
            | Self::RecurringSilence(number)
            | Self::Alert(number)
            | Self::Notification(number) => number.to_string(),
            Self::Streak(rule, subject) => format!("{}/{subject}", rule.key()),
        }
    }
}

/// Position in the feed, and the last number that was given to an alert, notification or silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Position {
    /// Position of the last event that was evaluated; `None` before the first start.
    pub(crate) event: Option<u64>,
    pub(crate) number: u64,
}

/// A rule, with its last change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleRecord {
    /// Spec of the rule.
    pub spec: AlertRuleSpec,
    /// Version; increases with every change.
    pub version: u64,
    /// Time of the last change.
    pub updated_at: Timestamp,
    /// Account of the last change.
    pub updated_by: String,
}

/// A channel, with its last change and its last delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelRecord {
    /// Spec of the channel, with hidden secrets.
    pub spec: ChannelSpec,
    /// Target with its secrets, encrypted by the caller.
    pub sealed: String,
    /// Version; increases with every change.
    pub version: u64,
    /// Time of the last change.
    pub updated_at: Timestamp,
    /// Account of the last change.
    pub updated_by: String,
    /// Time of the last successful delivery.
    #[serde(default)]
    pub delivered_at: Option<Timestamp>,
    /// Error of the last attempt, if it failed.
    #[serde(default)]
    pub error: Option<String>,
}

/// An alert, with what only the rules need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AlertRecord {
    pub(crate) alert: Alert,
    /// Whether the channels of the rule must still be notified of the current state.
    pub(crate) unsent: bool,
    /// Channels that were notified of it, in order of their names.
    #[serde(default)]
    pub(crate) channels: Vec<String>,
    /// Time of the first notification, from which the time until the escalation counts.
    #[serde(default)]
    pub(crate) first_notified_at: Option<Timestamp>,
    /// Whether only the channels of the escalation must still be notified.
    #[serde(default)]
    pub(crate) escalating: bool,
}

impl AlertRecord {
    pub(crate) fn new(alert: Alert) -> Self {
        Self { alert, unsent: false, channels: Vec::new(), first_notified_at: None, escalating: false }
    }
}

/// Recent failures of the jobs of a name or of a workflow, or the last success.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Streak {
    /// Number of failures since the last success.
    #[serde(default)]
    pub(crate) failures: u32,
    /// Times of the last failures, oldest first; only for a rate of failures.
    #[serde(default)]
    pub(crate) times: Vec<Timestamp>,
    /// Time of the last success, or of the first look; only for `no_success`.
    #[serde(default)]
    pub(crate) since: Option<Timestamp>,
    /// Time of the last change.
    #[serde(default)]
    pub(crate) at: Timestamp,
}

/// A notification: a message to one channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NotificationRecord {
    pub(crate) namespace: String,
    pub(crate) rule: String,
    pub(crate) channel: String,
    pub(crate) items: Vec<Item>,
    pub(crate) total: u64,
    /// Number of its alerts that were not resolved, and number of all open alerts of the rule.
    #[serde(default)]
    pub(crate) firing: u64,
    #[serde(default)]
    pub(crate) open: u64,
    /// Time without an acknowledgement, of a notification that escalates.
    #[serde(default)]
    pub(crate) escalated_after: Option<Duration>,
    pub(crate) status: NotificationStatus,
    #[serde(default)]
    pub(crate) attempts: u32,
    pub(crate) created_at: Timestamp,
    #[serde(default)]
    pub(crate) next_attempt_at: Option<Timestamp>,
    #[serde(default)]
    pub(crate) finished_at: Option<Timestamp>,
    #[serde(default)]
    pub(crate) error: Option<String>,
    /// Facts of the rule at that time.
    pub(crate) condition: String,
    #[serde(default)]
    pub(crate) description: Option<String>,
    #[serde(default)]
    pub(crate) runbook: Option<String>,
    pub(crate) severity: model::alert::Severity,
}

/// A monitor, with its last change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MonitorRecord {
    pub(crate) spec: MonitorSpec,
    /// Token of the ping URL.
    pub(crate) token: PingToken,
    pub(crate) version: u64,
    pub(crate) updated_at: Timestamp,
    pub(crate) updated_by: String,
}

/// Secret part of a ping URL, in the forms in which it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PingToken {
    /// SHA-256 of the token, which finds the monitor.
    pub hash: String,
    /// Token encrypted by the caller, which shows it again.
    pub sealed: String,
}

/// What the pings of a monitor reported. A row of its own, because it changes with each ping.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MonitorState {
    /// Time from which pings are expected: the creation, the end of a pause, or the last change of the timing.
    pub(crate) since: Timestamp,
    /// Last success.
    #[serde(default)]
    pub(crate) succeeded_at: Option<Timestamp>,
    /// First start since the last success or failure.
    #[serde(default)]
    pub(crate) started_at: Option<Timestamp>,
    #[serde(default)]
    pub(crate) down: Option<Down>,
    /// Last pings, oldest first.
    #[serde(default)]
    pub(crate) pings: VecDeque<Ping>,
}

impl MonitorState {
    pub(crate) const fn new(since: Timestamp) -> Self {
        Self { since, succeeded_at: None, started_at: None, down: None, pings: VecDeque::new() }
    }
}

/// Since when a monitor is down, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Down {
    pub(crate) since: Timestamp,
    pub(crate) cause: DownCause,
}

/// Why a monitor is down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DownCause {
    /// A ping reported a failure.
    Failed { exit_code: Option<u8>, message: Option<String> },
    /// No ping arrived.
    Missing { expected_at: Timestamp },
    /// The job started and did not end.
    Unfinished { started_at: Timestamp, within: Duration },
}

/// Splits the key of a rule, channel or monitor.
pub(crate) fn name_of_key(key: &str) -> Option<(Name, Option<&str>)> {
    let (namespace, rest) = key.split_once('/')?;
    match rest.split_once('/') {
        Some((name, subject)) => Some((Name::new(namespace, name), Some(subject))),
        None => Some((Name::new(namespace, rest), None)),
    }
}

/// Delay before repetition `attempts` of a delivery, from 1.
pub(crate) fn retry_delay(attempts: u32) -> Duration {
    let doubled = crate::limits::RETRY_DELAY.as_millis() << attempts.saturating_sub(1).min(16);
    Duration::from_millis(doubled).min(crate::limits::RETRY_DELAY_MAX)
}

pub(crate) fn silence_matches(silence: &Silence, namespace: &str, rule: &str, subject: &str) -> bool {
    let fits = |pattern: &Option<String>, name: &str| {
        pattern.as_ref().is_none_or(|pattern| crate::glob::matches(pattern, name))
    };
    silence.namespace == namespace && fits(&silence.rule, rule) && fits(&silence.subject, subject)
}
