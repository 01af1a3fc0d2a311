//! Namespaces of bindings and of token scopes.
//!
//! A [`Pattern`] is written `*` (all namespaces, and the cluster itself), `team/*` (all namespaces below `team`, but
//! not `team`) or as the name of one namespace. Two patterns either have no namespace in common, or one of them covers
//! the other one, so coverage alone answers all questions about them.

use std::collections::BTreeSet;
use std::sync::Arc;

/// Set of namespaces, as a binding or a token scope names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pattern {
    /// `*`: all namespaces, and the cluster itself.
    All,
    /// `team/*`, stored as it is written.
    Prefix(Arc<str>),
    /// One namespace.
    Name(Arc<str>),
}

impl Pattern {
    /// Reads a valid pattern.
    pub(crate) fn new(text: Arc<str>) -> Self {
        match &*text {
            "*" => Self::All,
            prefix if prefix.ends_with("/*") => Self::Prefix(text),
            _ => Self::Name(text),
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::All => "*",
            Self::Prefix(text) | Self::Name(text) => text,
        }
    }

    /// Returns whether each namespace of `other` is in this pattern. `other` is a namespace or a pattern.
    pub(crate) fn covers(&self, other: &str) -> bool {
        match self {
            Self::All => true,
            Self::Prefix(prefix) => is_below(prefix, other),
            Self::Name(name) => **name == *other,
        }
    }

    /// Returns the namespaces of both patterns; `None` if they have none in common.
    pub(crate) fn intersection<'a>(&'a self, other: &'a Self) -> Option<&'a Self> {
        if self.covers(other.as_str()) { Some(other) } else { other.covers(self.as_str()).then_some(self) }
    }
}

/// Returns whether a namespace or a pattern lies below a prefix such as `team/*`.
fn is_below(prefix: &str, other: &str) -> bool {
    let prefix = &prefix[..prefix.len() - 1];
    other.len() > prefix.len() && other.starts_with(prefix)
}

/// Namespaces in which an identity may do something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Namespaces {
    /// All namespaces.
    All,
    /// These namespaces and prefixes such as `team/*`; none if the set is empty.
    Some(BTreeSet<Arc<str>>),
}

impl Namespaces {
    /// Returns whether the namespace is one of them.
    pub fn contains(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Some(found) => {
                found.contains(namespace)
                    || found.iter().any(|text| text.ends_with("/*") && is_below(text, namespace))
            }
        }
    }

    /// Returns whether there is no namespace.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Some(found) if found.is_empty())
    }
}
