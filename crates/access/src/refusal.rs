//! Refusals of changes: their messages, stable codes and hints.

use std::fmt;

use model::validate::{Invalid, Problem};

use crate::action::{Resource, Verb};
use crate::decide::{Denied, List, Phrase, Within};
use crate::permissions::Permissions;

/// Reason why a change was refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum Refusal {
    /// `what` is `account`, `role`, `binding`, `token`, `login` or `secret`; `name` is the key of the entry.
    #[error("{what} `{name}` does not exist")]
    NotFound { what: &'static str, name: String },
    #[error("{what} `{name}` already exists")]
    Exists { what: &'static str, name: String },
    /// A change by this server would remove what a newer one wrote, for example a restriction.
    #[error("cannot change {what} `{name}`: this server cannot read it")]
    Unreadable { what: &'static str, name: String },
    #[error("role `{name}` is built in and cannot be changed or deleted")]
    BuiltInRole { name: String },
    /// Accounts and groups with the role, and usable tokens that are limited to it.
    #[error("cannot delete role `{name}`: it is in use by {}", Users(.accounts, .groups, .tokens))]
    RoleInUse { name: String, accounts: Vec<String>, groups: Vec<String>, tokens: Vec<String> },
    /// Never empty.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The change gives rights that the actor does not have. `action` is for example "give role `admin` to `bob`";
    /// the namespace of the rights is `None` for all namespaces.
    #[error(
        "`{actor}` may not {action}{}: `{actor}` itself may not {}",
        Within(namespace.as_deref()),
        Actions(.missing)
    )]
    Escalation { actor: String, action: String, namespace: Option<String>, missing: Vec<(Verb, Resource)> },
    /// `limit` is for example "the role `viewer`".
    #[error("`{actor}` may not create this token: its own token is limited to {limit}")]
    WiderScope { actor: String, limit: String },
    #[error("account `{account}` has {max} usable tokens: it cannot have more")]
    TokenLimit { account: String, max: usize },
    /// `action` is for example "revoke token `4w1…`".
    #[error("cannot {action}: no other usable token or password may administrate everything")]
    LastAdmin { action: String },
    /// `reason` is for example "it is the account of a program".
    #[error("account `{account}` cannot have a password: {reason}")]
    NoLogin { account: String, reason: &'static str },
    #[error("the token of `{actor}` is limited: it cannot change the password")]
    LimitedToken { actor: String },
    /// The password, or the invitation, was used or replaced since the caller has verified it.
    #[error("the password or the invitation is no longer valid")]
    StaleProof,
    #[error("namespace `{namespace}` has {max} secrets, which is the limit")]
    SecretLimit { namespace: String, max: usize },
    /// `expected` is the version that the caller has seen, 0 if the entry did not exist.
    #[error("{what} `{name}` was changed meanwhile: expected version {expected} but got {found}")]
    Outdated { what: &'static str, name: String, expected: u64, found: u64 },
    #[error(transparent)]
    Denied(#[from] Denied),
}

impl Refusal {
    pub(crate) fn escalation(actor: &str, action: String, namespace: &str, missing: Permissions) -> Self {
        Self::Escalation {
            actor: actor.to_owned(),
            action,
            namespace: (namespace != "*").then(|| namespace.to_owned()),
            missing: missing.iter().collect(),
        }
    }

    /// Returns the stable code of the refusal.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "not_found",
            Self::Exists { .. } => "exists",
            Self::Unreadable { .. } => "unreadable",
            Self::BuiltInRole { .. } => "built_in_role",
            Self::RoleInUse { .. } => "role_in_use",
            Self::Invalid(_) => "invalid",
            Self::Escalation { .. } => "escalation",
            Self::WiderScope { .. } => "wider_scope",
            Self::TokenLimit { .. } => "token_limit",
            Self::LastAdmin { .. } => "last_admin",
            Self::NoLogin { .. } => "no_login",
            Self::LimitedToken { .. } => "limited_token",
            Self::StaleProof => "stale_proof",
            Self::SecretLimit { .. } => "secret_limit",
            Self::Outdated { .. } => "outdated",
            Self::Denied(_) => "denied",
        }
    }

    /// Returns the next step for the user.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "check the name, or create it first",
            Self::Exists { .. } => "choose another name, or change the existing one",
            Self::Unreadable { .. } => {
                "send the request to a server of the newest version, or update this server"
            }
            Self::BuiltInRole { .. } => "create a custom role with another name",
            Self::RoleInUse { .. } => {
                "unbind the role from these accounts and groups, and revoke these tokens first"
            }
            Self::Invalid(_) => "correct the named fields",
            Self::Escalation { .. } => "ask an administrator who has these permissions",
            Self::WiderScope { .. } => "choose the same or a narrower scope, or use a token without a scope",
            Self::TokenLimit { .. } => "revoke tokens that are not used any more",
            Self::LastAdmin { .. } => {
                "first create another admin token without a scope, or bind role `admin` in `*` to another account that \
                 has a password, or a token without a scope"
            }
            Self::NoLogin { .. } => "use an enabled account of a person; programs use tokens",
            Self::LimitedToken { .. } => "log in with the password, and change it then",
            Self::StaleProof => "repeat the request with the new password or invitation",
            Self::SecretLimit { .. } => "delete secrets that are not used any more",
            Self::Outdated { .. } => "read the secret again, and repeat the change",
            Self::Denied(_) => {
                "ask an administrator for a role that includes it, or use a token without a scope"
            }
        }
    }

    /// Returns the errors of the fields, with their paths.
    pub fn problems(&self) -> &[Problem] {
        match self {
            Self::Invalid(invalid) => &invalid.problems,
            _ => &[],
        }
    }
}

/// Accounts, groups and tokens that use a role.
struct Users<'a>(&'a [String], &'a [String], &'a [String]);

impl fmt::Display for Users<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(accounts, groups, tokens) = *self;
        let mut is_first = true;
        for (kind, names) in [("accounts", accounts), ("groups", groups), ("tokens", tokens)] {
            if !names.is_empty() {
                write!(f, "{}the {kind} {}", if is_first { "" } else { " and " }, List(names))?;
                is_first = false;
            }
        }
        Ok(())
    }
}

/// Permissions in a message: the first three, and the number of the others.
struct Actions<'a>(&'a [(Verb, Resource)]);

impl fmt::Display for Actions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 3;
        for (i, (verb, resource)) in self.0.iter().take(SHOWN).enumerate() {
            write!(f, "{}{}", if i == 0 { "" } else { ", " }, Phrase(*verb, *resource))?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}
