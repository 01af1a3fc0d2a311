//! Authorization: the rules, in the single function [`authorize`].
//!
//! Every route of the REST API and every call of the gRPC service names a [`Verb`] and a [`Resource`] and calls it.
//! There are two kinds of tokens: an admin may do everything, and a worker may act as a worker.

use std::fmt;

use store::query::TokenKind;

use super::Actor;

/// Action on a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Read the resource.
    Read,
    /// Create a resource.
    Create,
    /// Change or stop the resource.
    Change,
    /// Delete the resource.
    Delete,
    /// Act as a worker: run executions, report, send logs, read and store artifacts.
    Work,
}

impl Verb {
    /// All verbs.
    pub const ALL: &'static [Self] = &[Self::Read, Self::Create, Self::Change, Self::Delete, Self::Work];

    /// Returns the verb of error messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Create => "create",
            Self::Change => "change",
            Self::Delete => "delete",
            Self::Work => "work on",
        }
    }
}

/// Object of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// Jobs.
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
    /// The server itself: its version, its metrics, and the identity of the caller.
    Server,
}

impl Resource {
    /// All resources.
    pub const ALL: &'static [Self] = &[
        Self::Jobs,
        Self::Executions,
        Self::Logs,
        Self::Events,
        Self::Workers,
        Self::Queues,
        Self::Schedules,
        Self::Workflows,
        Self::Runs,
        Self::Calendars,
        Self::Artifacts,
        Self::Server,
    ];

    /// Returns the name of the resource in error messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::Executions => "executions",
            Self::Logs => "logs",
            Self::Events => "events",
            Self::Workers => "workers",
            Self::Queues => "queues",
            Self::Schedules => "schedules",
            Self::Workflows => "workflows",
            Self::Runs => "runs",
            Self::Calendars => "calendars",
            Self::Artifacts => "artifacts",
            Self::Server => "the server",
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A denied action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` may not {} {resource}: its token is for {}", verb.as_str(), bearer(*kind))]
pub struct Denied {
    /// Name of the caller.
    pub name: String,
    /// Kind of the caller's token.
    pub kind: TokenKind,
    /// Denied action.
    pub verb: Verb,
    /// Object of the denied action.
    pub resource: Resource,
}

fn bearer(kind: TokenKind) -> &'static str {
    match kind {
        TokenKind::Admin => "administrators",
        TokenKind::Worker => "workers",
    }
}

/// Checks whether `actor` may do `verb` to `resource`.
///
/// # Errors
/// [`Denied`] otherwise.
pub fn authorize(actor: &Actor, verb: Verb, resource: &Resource) -> Result<(), Denied> {
    let allowed = match actor.kind {
        TokenKind::Admin => true,
        TokenKind::Worker => verb == Verb::Work,
    };
    if allowed {
        return Ok(());
    }
    Err(Denied { name: actor.name.to_string(), kind: actor.kind, verb, resource: *resource })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actor(kind: TokenKind) -> Actor {
        Actor { name: "ann".into(), kind, token_id: "t".into() }
    }

    #[test]
    fn an_admin_may_do_everything_and_a_worker_only_work() {
        for &verb in Verb::ALL {
            for resource in Resource::ALL {
                assert_eq!(authorize(&actor(TokenKind::Admin), verb, resource), Ok(()));
                let worker = authorize(&actor(TokenKind::Worker), verb, resource);
                assert_eq!(worker.is_ok(), verb == Verb::Work, "{verb:?} {resource}");
            }
        }
    }

    #[test]
    fn a_denial_names_the_caller_and_the_action() {
        insta::assert_snapshot!(
            authorize(&actor(TokenKind::Worker), Verb::Create, &Resource::Jobs).unwrap_err(),
            @"`ann` may not create jobs: its token is for workers"
        );
    }
}
