//! Who may do what: the one choke point, [`authorize`].
//!
//! Every route of the REST API and every call of the workers' gRPC service names a [`Verb`] and a
//! [`Resource`] and passes here. Two kinds of bearers exist so far: an admin may do everything, and
//! a worker may be a worker.

use std::fmt;

use store::query::TokenKind;

use super::Actor;

/// What somebody wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// See it.
    Read,
    /// Make a new one.
    Create,
    /// Change it, or stop it.
    Change,
    /// Remove it.
    Delete,
    /// Do a worker's part: take executions, report, send logs, fetch and store their files.
    Work,
}

impl Verb {
    /// Every one.
    pub const ALL: &'static [Self] = &[Self::Read, Self::Create, Self::Change, Self::Delete, Self::Work];

    /// The word in messages.
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

/// What somebody wants to do it to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// Jobs.
    Jobs,
    /// Executions.
    Executions,
    /// What executions wrote.
    Logs,
    /// The feed of what happens.
    Events,
    /// Workers.
    Workers,
    /// Queues.
    Queues,
    /// Schedules, what became of their instants, and backfills of them.
    Schedules,
    /// Workflows.
    Workflows,
    /// Runs of workflows, and their steps.
    Runs,
    /// Calendars.
    Calendars,
    /// Stored files.
    Artifacts,
    /// The server itself: its version, its metrics, and who one is to it.
    Server,
}

impl Resource {
    /// Every one.
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

    /// The word in messages.
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

/// A right that somebody does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` may not {} {resource}: its token is for {}", verb.as_str(), bearer(*kind))]
pub struct Denied {
    /// Who.
    pub name: String,
    /// What they are.
    pub kind: TokenKind,
    /// What they wanted to do.
    pub verb: Verb,
    /// To what.
    pub resource: Resource,
}

fn bearer(kind: TokenKind) -> &'static str {
    match kind {
        TokenKind::Admin => "administrators",
        TokenKind::Worker => "workers",
    }
}

/// Whether `actor` may do `verb` to `resource`.
///
/// # Errors
/// [`Denied`] if they may not.
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
    fn a_denial_says_who_and_what() {
        insta::assert_snapshot!(
            authorize(&actor(TokenKind::Worker), Verb::Create, &Resource::Jobs).unwrap_err(),
            @"`ann` may not create jobs: its token is for workers"
        );
    }
}
