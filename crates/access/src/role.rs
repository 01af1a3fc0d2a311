//! Roles: named sets of permissions.
//!
//! Four roles are built in, each with all permissions of the one before it; a server can have custom roles beside them.
//! The names of built-in roles are reserved, so a name never changes its meaning.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::action::{Resource, Verb};
use crate::permissions::Permissions;

/// Role that every server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BuiltInRole {
    /// Reads everything except accounts, roles, bindings and tokens.
    Viewer,
    /// Also cancels, retries, pauses, resumes, triggers, approves and drains.
    Operator,
    /// Also creates, changes and deletes definitions.
    Developer,
    /// Also manages queues, workers and access: everything except the work of a worker.
    Admin,
}

const READABLE: Permissions = Permissions::of(
    &[Verb::Read],
    &[
        Resource::Jobs,
        Resource::Executions,
        Resource::Logs,
        Resource::Events,
        Resource::Workers,
        Resource::Queues,
        Resource::Schedules,
        Resource::Services,
        Resource::Workflows,
        Resource::Runs,
        Resource::Calendars,
        Resource::Artifacts,
        Resource::Server,
        Resource::Alerts,
        Resource::Namespaces,
        Resource::Secrets,
    ],
);

const OPERABLE: Permissions = Permissions::of(
    &[Verb::Operate],
    &[
        Resource::Jobs,
        Resource::Runs,
        Resource::Schedules,
        Resource::Services,
        Resource::Workflows,
        Resource::Queues,
        Resource::Workers,
        Resource::Alerts,
    ],
);

const DEFINABLE: Permissions = Permissions::of(
    &[Verb::Create, Verb::Change, Verb::Delete],
    &[
        Resource::Jobs,
        Resource::Schedules,
        Resource::Services,
        Resource::Workflows,
        Resource::Runs,
        Resource::Calendars,
        Resource::Artifacts,
        Resource::Alerts,
        Resource::Secrets,
    ],
);

const ALL_EXCEPT_WORK: Permissions =
    Permissions::of(&[Verb::Read, Verb::Operate, Verb::Create, Verb::Change, Verb::Delete], Resource::ALL);

impl BuiltInRole {
    /// All built-in roles, each with all permissions of the one before it.
    pub const ALL: &'static [Self] = &[Self::Viewer, Self::Operator, Self::Developer, Self::Admin];

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|role| role.as_str() == name)
    }

    /// Returns the name of the role.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Developer => "developer",
            Self::Admin => "admin",
        }
    }

    /// Returns the permissions of the role.
    pub const fn permissions(self) -> Permissions {
        match self {
            Self::Viewer => READABLE,
            Self::Operator => READABLE.union(OPERABLE),
            Self::Developer => READABLE.union(OPERABLE).union(DEFINABLE),
            Self::Admin => ALL_EXCEPT_WORK,
        }
    }

    /// Returns a sentence for lists of roles.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Viewer => {
                "Reads everything except accounts, roles, bindings, tokens and the values of secrets"
            }
            Self::Operator => {
                "Reads like a viewer; cancels, retries and starts jobs and runs; pauses schedules, queues and workers; \
                 acknowledges and silences alerts"
            }
            Self::Developer => {
                "Operates like an operator; creates, changes and deletes jobs, schedules, workflows, runs, calendars, \
                 artifacts, secrets, alert rules and channels"
            }
            Self::Admin => "All permissions, also on queues, workers, accounts, roles, bindings and tokens",
        }
    }
}

impl fmt::Display for BuiltInRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Permissions of a custom role: each of the verbs on each of the resources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Allowed verbs; [`Verb::Work`] is only for worker tokens.
    pub verbs: Vec<Verb>,
    /// Resources of the verbs.
    pub resources: Vec<Resource>,
}

impl Rule {
    /// Returns the permissions of all `rules`.
    pub fn permissions(rules: &[Self]) -> Permissions {
        let each = rules.iter().map(|rule| Permissions::of(&rule.verbs, &rule.resources));
        each.fold(Permissions::NONE, Permissions::union)
    }

    /// Returns rules that give exactly these permissions: one for all resources with the same verbs.
    pub fn of(permissions: Permissions) -> Vec<Self> {
        let mut rules: Vec<Self> = Vec::new();
        for &resource in Resource::ALL {
            let verbs: Vec<_> =
                Verb::ALL.iter().copied().filter(|&verb| permissions.contains(verb, resource)).collect();
            if verbs.is_empty() {
                continue;
            }
            match rules.iter_mut().find(|rule| rule.verbs == verbs) {
                Some(rule) => rule.resources.push(resource),
                None => rules.push(Self { verbs, resources: vec![resource] }),
            }
        }
        rules
    }
}

/// Role that the users of a server defined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CustomRole {
    /// Name, different from those of the built-in roles.
    pub name: String,
    /// Purpose of the role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Permissions of the role.
    pub rules: Vec<Rule>,
}

/// Role of either kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is the kind")]
pub enum Role<'a> {
    BuiltIn(BuiltInRole),
    Custom(&'a CustomRole),
}

impl<'a> Role<'a> {
    /// Returns the name of the role.
    pub fn name(self) -> &'a str {
        match self {
            Self::BuiltIn(role) => role.as_str(),
            Self::Custom(role) => &role.name,
        }
    }

    /// Returns the purpose of the role.
    pub fn description(self) -> Option<&'a str> {
        match self {
            Self::BuiltIn(role) => Some(role.description()),
            Self::Custom(role) => role.description.as_deref(),
        }
    }

    /// Returns the permissions of the role.
    pub fn permissions(self) -> Permissions {
        match self {
            Self::BuiltIn(role) => role.permissions(),
            Self::Custom(role) => Rule::permissions(&role.rules),
        }
    }

    /// Returns the rules of the role; those of a built-in role are derived from its permissions.
    pub fn rules(self) -> Vec<Rule> {
        match self {
            Self::BuiltIn(role) => Rule::of(role.permissions()),
            Self::Custom(role) => role.rules.clone(),
        }
    }

    /// Returns whether the role is built in.
    pub const fn is_built_in(self) -> bool {
        matches!(self, Self::BuiltIn(_))
    }
}
