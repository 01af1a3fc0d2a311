//! Words of access control: the actions and the kinds of resources that roles permit, and the kinds of accounts.
//!
//! The crate `access` decides with them; requests, responses and custom roles contain them.

use std::num::NonZeroU32;

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
    /// The audit log.
    Audit,
    /// Alerts, alert rules, channels, silences, notifications and monitors.
    Alerts,
    /// Settings and quotas of namespaces. They belong to the cluster: a right in one namespace does not change its quota.
    Namespaces,
    /// Services: their replicas, revisions and rollouts.
    Services,
    /// Secrets: their names, keys and versions. No right shows a value.
    Secrets,
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
    Audit = "audit";
    Alerts = "alerts";
    Namespaces = "namespaces";
    Services = "services";
    Secrets = "secrets";
} }

impl Resource {
    /// Returns whether objects of this kind are in a namespace.
    ///
    /// [`Access`](Self::Access) has both: a binding is in a namespace; an account or a role belongs to the cluster. So does
    /// [`Audit`](Self::Audit): an entry is in the namespace of its object.
    pub const fn is_namespaced(self) -> bool {
        !matches!(self, Self::Workers | Self::Queues | Self::Server | Self::Namespaces)
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

/// Limit on the jobs that an account may submit per minute. In JSON it is a number, `"unlimited"` or `"default"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SubmitRate {
    /// `server.submit_rate` for the account of a person, and unlimited for the account of a program.
    #[default]
    Default,
    /// Unlimited.
    Unlimited,
    /// Jobs per minute.
    PerMinute(NonZeroU32),
}

impl SubmitRate {
    /// Returns whether the account has no limit of its own.
    pub fn is_default(&self) -> bool {
        *self == Self::Default
    }

    /// Returns the limit of an account in jobs per minute; `None` if it is unlimited. `user_default` is the limit of
    /// accounts of people that have none of their own.
    pub fn per_minute(self, kind: AccountKind, user_default: Option<NonZeroU32>) -> Option<NonZeroU32> {
        match (self, kind) {
            (Self::PerMinute(jobs), _) => Some(jobs),
            (Self::Default, AccountKind::User) => user_default,
            (Self::Default, AccountKind::Service) | (Self::Unlimited, _) => None,
        }
    }
}

/// Text that is no submission rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a submission rate: expected a number of jobs per minute from 1, `unlimited` or `default`"
)]
pub struct InvalidSubmitRate(String);

impl std::str::FromStr for SubmitRate {
    type Err = InvalidSubmitRate;

    fn from_str(text: &str) -> Result<Self, InvalidSubmitRate> {
        match text {
            "default" => Ok(Self::Default),
            "unlimited" => Ok(Self::Unlimited),
            number => match number.parse() {
                Ok(jobs) => Ok(Self::PerMinute(jobs)),
                Err(_) => Err(InvalidSubmitRate(text.chars().take(64).collect())),
            },
        }
    }
}

impl std::fmt::Display for SubmitRate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.pad("default"),
            Self::Unlimited => f.pad("unlimited"),
            Self::PerMinute(jobs) => jobs.fmt(f),
        }
    }
}

impl Serialize for SubmitRate {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::PerMinute(jobs) => jobs.serialize(s),
            word => s.collect_str(word),
        }
    }
}

impl<'de> Deserialize<'de> for SubmitRate {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl serde::de::Visitor<'_> for Visitor {
            type Value = SubmitRate;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number of jobs per minute from 1, `unlimited` or `default`")
            }

            fn visit_u64<E: serde::de::Error>(self, jobs: u64) -> Result<SubmitRate, E> {
                let jobs = u32::try_from(jobs).ok().and_then(NonZeroU32::new);
                jobs.map(SubmitRate::PerMinute).ok_or_else(|| E::custom("expected 1 to 4294967295"))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<SubmitRate, E> {
                text.parse().map_err(E::custom)
            }
        }

        d.deserialize_any(Visitor)
    }
}

impl utoipa::PartialSchema for SubmitRate {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Type};
        let number = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)).maximum(Some(u32::MAX));
        let word = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(["default", "unlimited"]));
        OneOfBuilder::new()
            .item(number)
            .item(word)
            .description(Some(
                "Jobs per minute, `unlimited`, or `default`: the setting `server.submit_rate` for the account of a \
                 person, and unlimited for the account of a program",
            ))
            .into()
    }
}

impl ToSchema for SubmitRate {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_submission_rate_is_a_number_or_a_word() {
        for (json, text) in [("1000", "1000"), ("\"unlimited\"", "unlimited"), ("\"default\"", "default")] {
            let rate: SubmitRate = serde_json::from_str(json).unwrap();
            assert_eq!(
                (rate.to_string().as_str(), serde_json::to_string(&rate).unwrap().as_str()),
                (text, json)
            );
            assert_eq!(text.parse(), Ok(rate));
        }
        for wrong in ["0", "-1", "1.5", "4294967296", "null", "\"0\"", "\"none\"", "[]"] {
            assert!(serde_json::from_str::<SubmitRate>(wrong).is_err(), "{wrong}");
        }
        insta::assert_snapshot!("10/s".parse::<SubmitRate>().unwrap_err(),
            @"`10/s` is not a submission rate: expected a number of jobs per minute from 1, `unlimited` or `default`");
    }

    #[test]
    fn people_have_a_default_rate_and_programs_have_none() {
        let [default, own] = [1_000, 5].map(NonZeroU32::new);
        let rate = |rate: SubmitRate, kind| rate.per_minute(kind, default);
        assert_eq!(rate(SubmitRate::Default, AccountKind::User), default);
        assert_eq!(rate(SubmitRate::Default, AccountKind::Service), None);
        assert_eq!(rate(SubmitRate::Unlimited, AccountKind::User), None);
        assert_eq!(own.and_then(|own| rate(SubmitRate::PerMinute(own), AccountKind::Service)), own);
    }
}
