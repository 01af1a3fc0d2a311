//! Failure groups: failures of a namespace with the same signature.

use super::*;
use crate::failures::{FailureGroup as Group, FailureState};
use crate::statistics::OTHER_NAMES;

/// Failures of jobs of a namespace with the same signature: equal error code, equal exit code, and equal message apart
/// from numbers, dates and IDs. Names and jobs are lists of limited length; `count` includes all failures. Only the last
/// failure of a job counts, not those that are retried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailureGroup {
    /// ID of the group, unique within its namespace: 16 hexadecimal digits.
    #[schema(example = "9c1f0a3be4d27f58")]
    pub id: String,
    /// Namespace of the jobs.
    pub namespace: String,
    /// State of the group.
    pub state: FailureState,
    /// Whether a job failed after the group had been resolved.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reopened: bool,
    /// Error code of the results (`exit_code`, `timeout`, …), or the cause of the end if the jobs have no result.
    pub error: String,
    /// Exit code of the processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Message of the newest failure.
    pub message: String,
    /// Message without numbers, dates and IDs. Empty if the failures have no message, or if this is the
    /// group of all further messages of a namespace that has 1,000 groups.
    pub signature: String,
    /// Number of failed jobs.
    pub count: u64,
    /// Number of failed jobs in the last 24 hours, in whole hours: of an hour that began earlier, all jobs count.
    pub last_24h: u64,
    /// Time of the first failure.
    pub first_seen: Timestamp,
    /// Time of the newest failure.
    pub last_seen: Timestamp,
    /// Names of the jobs, the newest failure first. At most 50.
    pub names: Vec<FailedJobName>,
    /// Number of failed jobs whose names are not listed.
    pub unlisted_names: u64,
    /// IDs of the newest failed jobs, newest first. At most 10. The oldest may be deleted.
    pub jobs: Vec<JobId>,
    /// Number of failed jobs in each hour with failures of the last seven days before the newest failure, in order.
    pub hours: Vec<FailuresOfHour>,
    /// Note of the user who set the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// User who set the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_set_by: Option<String>,
    /// Time at which a user set the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_set_at: Option<Timestamp>,
}

/// Failed jobs of one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailedJobName {
    /// Name of the jobs. Absent for all jobs whose names have no statistics of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Number of failed jobs since the name entered the list.
    pub count: u64,
    /// Time of the newest failure.
    pub last_seen: Timestamp,
}

/// Failed jobs of one hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailuresOfHour {
    /// Start of the hour.
    pub at: Timestamp,
    /// Number of failed jobs.
    pub count: u64,
}

impl FailureGroup {
    /// Returns a group as the API shows it at a time.
    pub fn of(group: &Group, now: Timestamp) -> Self {
        let name = |name: &str| Some(name.to_owned()).filter(|name| name != OTHER_NAMES);
        let mark = group.mark.as_ref();
        Self {
            id: group.id().to_string(),
            namespace: group.namespace.to_string(),
            state: group.state(),
            reopened: group.is_reopened(),
            error: group.signature.error.to_string(),
            exit_code: group.signature.exit_code,
            message: group.message.to_string(),
            signature: group.signature.message.to_string(),
            count: group.count,
            last_24h: group.last_24h(now),
            first_seen: group.first_seen,
            last_seen: group.last_seen,
            names: group
                .names
                .iter()
                .map(|of| FailedJobName { name: name(&of.name), count: of.count, last_seen: of.last_seen })
                .collect(),
            unlisted_names: group.unlisted,
            jobs: group.jobs.clone(),
            hours: group.hours.iter().map(|&(at, count)| FailuresOfHour { at, count }).collect(),
            note: mark.and_then(|mark| mark.note.as_deref()).map(str::to_owned),
            state_set_by: mark.map(|mark| mark.by.to_string()),
            state_set_at: mark.map(|mark| mark.at),
        }
    }
}

/// Groups of failures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailureGroups {
    /// Groups, in the requested order.
    pub items: Vec<FailureGroup>,
    /// Number of groups that match, also of those that the limit leaves out.
    pub total: u64,
}

/// Order of failure groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureOrder {
    /// By the time of the newest failure, newest first.
    #[default]
    LastSeen,
    /// By the time of the first failure, newest first: new kinds of failures.
    FirstSeen,
    /// By the number of failed jobs in the last 24 hours, most first.
    Count,
}

crate::status::words! { FailureOrder, "an order of failure groups", {
    LastSeen = "last_seen";
    FirstSeen = "first_seen";
    Count = "count";
} }

/// Request to set the state of a failure group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetFailureState {
    /// The new state. `open` removes the note.
    pub state: FailureState,
    /// Note for others, such as the number of a ticket. At most 1,000 bytes. Absent: the group keeps its note. Empty: the
    /// group loses its note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
