//! Alert rules, notification channels and monitors, as a user writes them.
//!
//! A rule has a condition, selects the objects that it watches, and names the channels that are notified. The crate
//! `alerts` evaluates rules and decides what is sent; [`crate::validate`] checks names and limits.
//!
//! - `channel`: where notifications go; `monitor`: jobs that Belfry does not run.

mod channel;
mod monitor;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::spec::DEFAULT;
use crate::time::Duration;

pub use channel::{ChannelSpec, HIDDEN, Language, SecretText, Target};
pub use monitor::{MonitorSpec, MonitorTiming, ZonedCron};

fn default_namespace() -> String {
    DEFAULT.to_owned()
}

const fn one() -> u32 {
    1
}

const fn default_repeat() -> Duration {
    Duration::from_hours(4)
}

const fn yes() -> bool {
    true
}

/// An alert rule: notifies channels when its condition is met.
///
/// Only `name` and `when` are required. A rule without channels opens alerts that only the dashboard, the API and the
/// metrics show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AlertRuleSpec {
    /// Name of the rule, unique in its namespace. 1 to 63 letters, digits, `-`, `_` or `.`, starting with a letter or
    /// digit.
    pub name: String,
    /// Namespace (tenant) of the rule, and of the jobs, workflows, schedules, services and monitors that it watches
    /// [default: `default`].
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Owner of the rule: the person or team responsible for it, at most 128 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Description of the rule, at most 1,000 bytes. Notifications contain it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Condition of the alert.
    pub when: AlertCondition,
    /// Selects the objects that the rule watches [default: all objects of the namespace].
    #[serde(default, rename = "match", skip_serializing_if = "AlertMatch::is_default")]
    pub matches: AlertMatch,
    /// Severity of the alerts [default: `warning`].
    #[serde(default)]
    pub severity: Severity,
    /// Names of the channels to notify, in the namespace of the rule; at most 10 [default: none].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notify: Vec<String>,
    /// Further channels to notify if no user acknowledges an alert [default: none].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalate: Option<Escalation>,
    /// Shortest time between two notifications about the same alert, 1m to 7d. A notification is repeated while the
    /// condition lasts; for failures, only after a further failure [default: 4h].
    #[serde(default = "default_repeat")]
    pub repeat_every: Duration,
    /// Whether channels are also notified when the alert is resolved [default: true].
    #[serde(default = "yes")]
    pub notify_resolved: bool,
    /// URL of instructions for the person who is notified, at most 2,000 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runbook: Option<String>,
    /// Whether the rule is off: it opens no alerts, and its open alerts are resolved [default: false].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disabled: bool,
}

impl AlertRuleSpec {
    /// Returns the names of all channels of the rule, also those of its escalation.
    pub fn channels(&self) -> impl Iterator<Item = &String> {
        self.notify.iter().chain(self.escalate.iter().flat_map(|escalation| &escalation.notify))
    }

    /// Returns the escalation of the rule, if it notifies this channel.
    pub fn escalation_to(&self, channel: &str) -> Option<&Escalation> {
        self.escalate.as_ref().filter(|escalation| escalation.notify.iter().any(|name| name == channel))
    }
}

/// Further channels to notify if no user acknowledges an alert in time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Escalation {
    /// Time from the first notification of an alert that is neither acknowledged nor resolved, 1m to 7d.
    pub after: Duration,
    /// Names of the channels to notify, in the namespace of the rule; 1 to 10, and none of those in `notify` of the rule.
    pub notify: Vec<String>,
}

/// Condition of an alert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum AlertCondition {
    /// A job failed finally: its retries are exhausted, or its start deadline passed. Resolved when a job of the same
    /// name succeeds.
    JobFailed {
        /// Number of consecutive failed jobs of the same name, 1 to 1,000 [default: 1].
        #[serde(default = "one")]
        in_a_row: u32,
    },
    /// Several jobs of the same name failed within a period. Resolved when fewer failures remain in the period.
    FailureRate {
        /// Number of failed jobs, 1 to 1,000.
        failures: u32,
        /// Length of the period, 1m to 31d.
        within: Duration,
    },
    /// A job has not started although it is due. Resolved when no such job of the same name remains.
    JobLate {
        /// Time from the entry into the queue, 1s to 31d.
        after: Duration,
    },
    /// An execution runs for a long time. Resolved when no such execution of a job of the same name remains.
    JobSlow {
        /// Run time, 1s to 31d.
        after: Duration,
    },
    /// The completion deadline of a job passed before the job ended. Resolved when a job of the same name succeeds.
    JobOverdue {},
    /// No job of a name succeeded for some time. Requires `match.name` without `*`. Resolved when one succeeds.
    NoSuccess {
        /// Time since the last success, or since the creation of the rule; 1m to 366d.
        within: Duration,
    },
    /// A workflow run failed. Resolved when a run of the same workflow succeeds.
    RunFailed {
        /// Number of consecutive failed runs of the workflow, 1 to 1,000 [default: 1].
        #[serde(default = "one")]
        in_a_row: u32,
    },
    /// A schedule skipped or missed a scheduled time, for another reason than a calendar or a time window. Resolved when
    /// it creates a job again.
    FiringSkipped {},
    /// A schedule is paused. Resolved when it is resumed.
    SchedulePaused {},
    /// A service has fewer available replicas than desired for some time. Resolved when all desired replicas are available.
    ServiceDegraded {
        /// Time since the service had all replicas, 1s to 31d.
        longer_than: Duration,
    },
    /// A rollout of a service failed. Resolved when a rollout of the service completes, also that of a rollback.
    RolloutFailed {},
    /// A worker is lost. Resolved when it returns or is removed. Requires the right to read workers.
    WorkerLost {},
    /// Jobs wait in a queue for a long time. Resolved when they no longer do. Requires the right to read queues.
    QueueDelay {
        /// Waiting time of the oldest job, 1s to 31d.
        longer_than: Duration,
    },
    /// A monitor is down: a ping reported a failure, or an expected ping is missing. Resolved when a ping reports a success.
    MonitorDown {},
}

impl AlertCondition {
    /// Names of all conditions, in the order of the docs.
    pub const NAMES: [&'static str; 14] = [
        "job_failed",
        "failure_rate",
        "job_late",
        "job_slow",
        "job_overdue",
        "no_success",
        "run_failed",
        "firing_skipped",
        "schedule_paused",
        "service_degraded",
        "rollout_failed",
        "worker_lost",
        "queue_delay",
        "monitor_down",
    ];

    /// Returns the name of the condition, for example `job_failed`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::JobFailed { .. } => "job_failed",
            Self::FailureRate { .. } => "failure_rate",
            Self::JobLate { .. } => "job_late",
            Self::JobSlow { .. } => "job_slow",
            Self::JobOverdue {} => "job_overdue",
            Self::NoSuccess { .. } => "no_success",
            Self::RunFailed { .. } => "run_failed",
            Self::FiringSkipped {} => "firing_skipped",
            Self::SchedulePaused {} => "schedule_paused",
            Self::ServiceDegraded { .. } => "service_degraded",
            Self::RolloutFailed {} => "rollout_failed",
            Self::WorkerLost {} => "worker_lost",
            Self::QueueDelay { .. } => "queue_delay",
            Self::MonitorDown {} => "monitor_down",
        }
    }

    /// Returns the kind of the objects that the condition concerns.
    pub const fn subject(&self) -> SubjectKind {
        match self {
            Self::JobFailed { .. }
            | Self::FailureRate { .. }
            | Self::JobLate { .. }
            | Self::JobSlow { .. }
            | Self::JobOverdue {}
            | Self::NoSuccess { .. } => SubjectKind::Job,
            Self::RunFailed { .. } => SubjectKind::Workflow,
            Self::FiringSkipped {} | Self::SchedulePaused {} => SubjectKind::Schedule,
            Self::ServiceDegraded { .. } | Self::RolloutFailed {} => SubjectKind::Service,
            Self::WorkerLost {} => SubjectKind::Worker,
            Self::QueueDelay { .. } => SubjectKind::Queue,
            Self::MonitorDown {} => SubjectKind::Monitor,
        }
    }
}

/// Kind of the object that an alert concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AlertSubjectKind)]
pub enum SubjectKind {
    /// All jobs of a name.
    Job,
    /// A workflow.
    Workflow,
    /// A schedule.
    Schedule,
    /// A service.
    Service,
    /// A worker.
    Worker,
    /// A queue.
    Queue,
    /// A monitor: a job that Belfry does not run.
    Monitor,
}

crate::status::words! { SubjectKind, "a kind of subject", {
    Job = "job";
    Workflow = "workflow";
    Schedule = "schedule";
    Service = "service";
    Worker = "worker";
    Queue = "queue";
    Monitor = "monitor";
} }

/// Selects the objects that an alert rule watches: all fields must match.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AlertMatch {
    /// Name of the job, workflow, schedule, service, worker, queue or monitor; `*` stands for any characters
    /// [default: any].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Owner of the job or of the monitor [default: any]. Only for conditions of jobs and monitors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Queue of the job [default: any]. Only for conditions of jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Labels that the job or the monitor must have [default: none]. Only for conditions of jobs and monitors.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl AlertMatch {
    /// Returns whether the selection has no condition.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Severity of an alert.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// For information.
    Info,
    /// A person should look at it soon.
    #[default]
    Warning,
    /// A person must act now.
    Critical,
}

crate::status::words! { Severity, "a severity", {
    Info = "info";
    Warning = "warning";
    Critical = "critical";
} }
