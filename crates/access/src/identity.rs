//! Identities: callers of requests, with everything that a decision about them needs.
//!
//! A [`Directory`](crate::Directory) creates an identity from a token. It shares the compiled grants of the account, so
//! a clone costs three or four reference counts. An identity does not change: after a change of the directory, the next
//! request gets a new one.

use std::fmt;
use std::sync::Arc;

use crate::entry::SubmitRate;
use crate::namespace::Pattern;
use crate::permissions::Permissions;
use crate::role::BuiltInRole;

/// Caller of a request: the bearer of a usable token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Name of the account, or of an admin or worker token: the owner of submitted jobs, and the actor in histories.
    pub name: Arc<str>,
    /// Kind of the caller.
    pub kind: IdentityKind,
    /// ID of the token; empty for an identity without a token.
    pub token_id: Arc<str>,
    /// Limit on the jobs that the account may submit per minute.
    pub submit_rate: SubmitRate,
    /// Rights of the account.
    pub(crate) grants: Arc<Grants>,
    /// Limit of the token.
    pub(crate) ceiling: Option<Arc<Ceiling>>,
}

/// Kind of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IdentityKind {
    /// Bearer of an admin token: has the role `admin` in `*`, independently of accounts.
    Admin,
    /// Worker: may do [`Verb::Work`](crate::Verb::Work), and nothing else.
    Worker,
    /// Account of a person.
    User,
    /// Account of a program.
    Service,
}

impl IdentityKind {
    /// Returns the name of the kind.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Worker => "worker",
            Self::User => "user",
            Self::Service => "service",
        }
    }
}

impl fmt::Display for IdentityKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Identity {
    /// Returns an administrator without a token, for changes that a server makes itself.
    pub fn admin(name: &str) -> Self {
        let permissions = BuiltInRole::Admin.permissions();
        let role = BuiltInRole::Admin.as_str().into();
        let grant = Grant { role, permissions, pattern: Pattern::All, by_group: false };
        let grants = Arc::new(Grants([grant].into()));
        Self {
            name: name.into(),
            kind: IdentityKind::Admin,
            token_id: "".into(),
            submit_rate: SubmitRate::Unlimited,
            grants,
            ceiling: None,
        }
    }
}

/// Compiled rights of an account: one grant for each of its bindings, and of those of its groups.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Grants(pub(crate) Box<[Grant]>);

/// Compiled binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) role: Arc<str>,
    /// None if the role does not exist.
    pub(crate) permissions: Permissions,
    pub(crate) pattern: Pattern,
    /// Whether the binding is one of a group of the account.
    pub(crate) by_group: bool,
}

/// Compiled scope of a token. It only takes rights away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ceiling {
    /// Role with all permissions that the token can have. A role that does not exist has none.
    pub(crate) role: Option<(Arc<str>, Permissions)>,
    /// Namespaces of the token; all if empty.
    pub(crate) patterns: Box<[Pattern]>,
}
