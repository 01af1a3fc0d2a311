//! The decision: may an identity do something?
//!
//! [`decide`] is the only function with rules about it; [`Identity::namespaces`] and [`Identity::anywhere`] answer the
//! same question for many namespaces at once, and a property test compares them. The crate's first page has the rules.
//!
//! # Cost
//! A decision reads the grants of the account in order, one `and` each, and compares the namespace only with grants
//! that have the permission. It allocates nothing unless it denies.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::action::{Object, Resource, Verb};
use crate::identity::{Ceiling, Identity, IdentityKind};
use crate::namespace::{Namespaces, Pattern};
use crate::permissions::Permissions;

/// Permissions on cluster-wide objects that a role in any namespace gives: they tell where jobs can run.
const READABLE_FROM_ANYWHERE: Permissions = Permissions::of(
    &[Verb::Read],
    &[Resource::Workers, Resource::Queues, Resource::Server, Resource::Namespaces],
);

/// Checks whether `identity` may do `verb` to `object`.
///
/// # Errors
/// [`Denied`] otherwise.
pub fn decide(identity: &Identity, verb: Verb, object: Object<'_>) -> Result<(), Denied> {
    let place = Place::of(verb, object);
    let checked = match KindRule::of(identity.kind, verb) {
        KindRule::Allowed => return Ok(()),
        KindRule::Denied(reason) => Err(reason),
        KindRule::ByRole => check_account(identity, verb, object.resource, place)
            .and_then(|()| check_token(identity.ceiling.as_deref(), verb, object.resource, place)),
    };
    checked.map_err(|reason| {
        let namespace = object.namespace.filter(|_| object.resource.is_namespaced());
        Denied::new(identity, verb, object.resource, namespace, reason)
    })
}

/// Namespaces whose grants count for an action.
#[derive(Clone, Copy)]
enum Place<'a> {
    /// Any namespace.
    Anywhere,
    Namespace(&'a str),
    /// `*` only.
    Cluster,
}

impl<'a> Place<'a> {
    fn of(verb: Verb, object: Object<'a>) -> Self {
        match object.namespace.filter(|_| object.resource.is_namespaced()) {
            Some(namespace) => Self::Namespace(namespace),
            None if READABLE_FROM_ANYWHERE.contains(verb, object.resource) => Self::Anywhere,
            None => Self::Cluster,
        }
    }

    fn is_in(self, pattern: &Pattern) -> bool {
        match self {
            Self::Anywhere => true,
            Self::Namespace(namespace) => pattern.covers(namespace),
            Self::Cluster => *pattern == Pattern::All,
        }
    }
}

/// Part of a decision that depends on the kind of the caller only.
enum KindRule {
    Allowed,
    Denied(DeniedReason),
    /// Roles decide.
    ByRole,
}

impl KindRule {
    fn of(kind: IdentityKind, verb: Verb) -> Self {
        match (kind, verb) {
            (IdentityKind::Worker, Verb::Work) => Self::Allowed,
            (IdentityKind::Worker, _) => Self::Denied(DeniedReason::WorkerToken),
            (_, Verb::Work) => Self::Denied(DeniedReason::NotWorker),
            _ => Self::ByRole,
        }
    }
}

fn check_account(
    identity: &Identity,
    verb: Verb,
    resource: Resource,
    place: Place<'_>,
) -> Result<(), DeniedReason> {
    let grants = &identity.grants.0;
    if grants.iter().any(|grant| grant.permissions.contains(verb, resource) && place.is_in(&grant.pattern)) {
        return Ok(());
    }
    // For the whole cluster, roles of single namespaces are named too: they are what the caller knows of.
    let named = |pattern| matches!(place, Place::Cluster) || place.is_in(pattern);
    let roles: BTreeSet<&str> =
        grants.iter().filter(|grant| named(&grant.pattern)).map(|grant| &*grant.role).collect();
    Err(if grants.iter().any(|grant| named(&grant.pattern) && grant.permissions.contains(verb, resource)) {
        DeniedReason::ClusterWide
    } else if roles.is_empty() {
        DeniedReason::NoRole
    } else {
        DeniedReason::Roles(roles.into_iter().map(str::to_owned).collect())
    })
}

fn check_token(
    ceiling: Option<&Ceiling>,
    verb: Verb,
    resource: Resource,
    place: Place<'_>,
) -> Result<(), DeniedReason> {
    let Some(ceiling) = ceiling else { return Ok(()) };
    match &ceiling.role {
        Some((role, limit)) if !limit.contains(verb, resource) => {
            Err(DeniedReason::TokenRole(role.to_string()))
        }
        _ if ceiling.patterns.is_empty() || ceiling.patterns.iter().any(|p| place.is_in(p)) => Ok(()),
        _ => Err(DeniedReason::TokenNamespaces),
    }
}

impl Identity {
    /// Checks whether the identity may do `verb` to `object`: [`decide`].
    ///
    /// # Errors
    /// [`Denied`] otherwise.
    pub fn decide(&self, verb: Verb, object: Object<'_>) -> Result<(), Denied> {
        decide(self, verb, object)
    }

    /// Checks whether the identity may do `verb` to a resource in at least one namespace.
    ///
    /// # Errors
    /// [`Denied`] otherwise.
    pub fn anywhere(&self, verb: Verb, resource: Resource) -> Result<(), Denied> {
        if !resource.is_namespaced() {
            return self.decide(verb, Object::cluster(resource));
        }
        let reason = match KindRule::of(self.kind, verb) {
            KindRule::Allowed => return Ok(()),
            KindRule::Denied(reason) => reason,
            KindRule::ByRole if self.reachable(verb, resource).next().is_some() => return Ok(()),
            KindRule::ByRole => check_account(self, verb, resource, Place::Anywhere)
                .and_then(|()| check_token(self.ceiling.as_deref(), verb, resource, Place::Anywhere))
                .err()
                .unwrap_or(DeniedReason::TokenNamespaces),
        };
        Err(Denied::new(self, verb, resource, None, reason))
    }

    /// Returns the namespaces in which the identity may do `verb` to a resource.
    ///
    /// For a resource without namespaces these are all or none.
    pub fn namespaces(&self, verb: Verb, resource: Resource) -> Namespaces {
        let by_role = matches!(KindRule::of(self.kind, verb), KindRule::ByRole);
        if !by_role || !resource.is_namespaced() {
            let allowed = self.decide(verb, Object::cluster(resource)).is_ok();
            return if allowed { Namespaces::All } else { Namespaces::Some(BTreeSet::new()) };
        }
        let mut found = BTreeSet::new();
        for pattern in self.reachable(verb, resource) {
            match pattern {
                Pattern::All => return Namespaces::All,
                Pattern::Prefix(text) | Pattern::Name(text) => found.insert(Arc::clone(text)),
            };
        }
        Namespaces::Some(found)
    }

    /// Returns the namespaces in which both the account and its token allow something. Some may cover others.
    fn reachable(&self, verb: Verb, resource: Resource) -> impl Iterator<Item = &Pattern> {
        let ceiling = self.ceiling.as_deref();
        let within_role = check_token(ceiling, verb, resource, Place::Anywhere).is_ok();
        let granted = self.grants.0.iter().filter(move |grant| grant.permissions.contains(verb, resource));
        granted.filter(move |_| within_role).flat_map(move |grant| {
            let limits: &[Pattern] = ceiling.map_or(&[], |ceiling| &ceiling.patterns);
            let unlimited = limits.is_empty().then_some(&grant.pattern);
            limits.iter().filter_map(|limit| grant.pattern.intersection(limit)).chain(unlimited)
        })
    }

    /// Returns which of the `wanted` permissions the identity does not have in all namespaces of a pattern.
    ///
    /// The rule against escalation: a role that an identity gives to others is missing nothing here.
    pub(crate) fn missing(&self, wanted: Permissions, pattern: &str) -> Permissions {
        let granted = self.grants.0.iter().map(|grant| match grant.pattern.covers(pattern) {
            true => grant.permissions,
            false => grant.permissions.intersection(READABLE_FROM_ANYWHERE),
        });
        let mut held = granted.fold(Permissions::NONE, Permissions::union);
        if let Some(ceiling) = self.ceiling.as_deref() {
            if let Some((_, limit)) = &ceiling.role {
                held = held.intersection(*limit);
            }
            if !ceiling.patterns.is_empty() && !ceiling.patterns.iter().any(|p| p.covers(pattern)) {
                held = held.intersection(READABLE_FROM_ANYWHERE);
            }
        }
        wanted.difference(held)
    }
}

/// A denied action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` may not {}{}: {}", Phrase(*verb, *resource), Within(namespace.as_deref()), Because(self))]
pub struct Denied {
    /// Name of the caller.
    pub name: String,
    /// Kind of the caller.
    pub kind: IdentityKind,
    /// Denied action.
    pub verb: Verb,
    /// Object of the denied action.
    pub resource: Resource,
    /// Namespace of the object; `None` for the whole cluster.
    pub namespace: Option<String>,
    /// Reason of the denial.
    pub reason: DeniedReason,
}

impl Denied {
    fn new(
        identity: &Identity,
        verb: Verb,
        resource: Resource,
        namespace: Option<&str>,
        reason: DeniedReason,
    ) -> Self {
        let (name, kind) = (identity.name.to_string(), identity.kind);
        Self { name, kind, verb, resource, namespace: namespace.map(str::to_owned), reason }
    }
}

/// Reason of a denial.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeniedReason {
    /// The token is for workers, which may only work.
    WorkerToken,
    /// Only a worker token can work.
    NotWorker,
    /// The account has no role in the namespace.
    NoRole,
    /// The account has these roles in the namespace, without the permission; sorted, never empty.
    Roles(Vec<String>),
    /// The token is limited to other namespaces.
    TokenNamespaces,
    /// The token is limited to this role, which does not have the permission.
    TokenRole(String),
    /// The account has the permission in some namespaces, but it is needed in all (`*`).
    ClusterWide,
}

/// Action in a message, after "may not".
pub(crate) struct Phrase(pub(crate) Verb, pub(crate) Resource);

impl fmt::Display for Phrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.0 == Verb::Work { "work on" } else { self.0.as_str() };
        match self.1 {
            Resource::Server => write!(f, "{verb} the server"),
            resource => write!(f, "{verb} {resource}"),
        }
    }
}

/// Place of an action in a message; empty for the whole cluster.
pub(crate) struct Within<'a>(pub(crate) Option<&'a str>);

impl fmt::Display for Within<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |namespace| write!(f, " in namespace `{namespace}`"))
    }
}

struct Because<'a>(&'a Denied);

impl fmt::Display for Because<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Denied { name, namespace, reason, .. } = self.0;
        let there = if namespace.is_some() { " there" } else { "" };
        match reason {
            DeniedReason::WorkerToken => f.write_str("its token is for workers"),
            DeniedReason::NotWorker => f.write_str("its token is not for workers"),
            DeniedReason::NoRole => write!(f, "`{name}` has no role{there}"),
            DeniedReason::Roles(roles) => {
                write!(f, "the roles of `{name}`{there} ({}) do not include it", List(roles))
            }
            DeniedReason::TokenNamespaces if namespace.is_none() => {
                f.write_str("the token is limited to certain namespaces")
            }
            DeniedReason::TokenNamespaces => f.write_str("the token is limited to other namespaces"),
            DeniedReason::TokenRole(role) => write!(f, "the token is limited to the role `{role}`"),
            DeniedReason::ClusterWide => {
                write!(f, "the roles of `{name}` include it in single namespaces only, not in all (`*`)")
            }
        }
    }
}

/// Names in a message: the first five, and the number of the others.
pub(crate) struct List<'a, T>(pub(crate) &'a [T]);

impl<T: fmt::Display> fmt::Display for List<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 5;
        for (i, name) in self.0.iter().take(SHOWN).enumerate() {
            write!(f, "{}`{name}`", if i == 0 { "" } else { ", " })?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}
