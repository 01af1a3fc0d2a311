//! Entries: accounts, custom roles, bindings and tokens, as the store keeps them.
//!
//! The store knows only the kind, the key and the JSON body of an entry ([`Row`]). Reading fails closed: an unknown
//! field or value makes the whole entry [unreadable](Unreadable), and it then gives no right. So a server of an older
//! version never ignores a restriction that a newer one wrote.
//!
//! A deletion of an account, a role or a binding is a body too (`{"deleted_at": …}`), so that all servers see it. A
//! token is never deleted, only revoked. Both are over after [`KEPT_AFTER_END`].

use std::fmt;

pub use model::access::{AccountKind, SubmitRate};
use model::{Duration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::role::CustomRole;

/// Retention of deletions, and of revoked and expired tokens.
pub const KEPT_AFTER_END: Duration = Duration::from_hours(30 * 24);

/// Entry of the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is the kind")]
pub enum Entry {
    Account(Account),
    Role(CustomRole),
    Binding(Binding),
    Token(Token),
}

impl Entry {
    /// Returns the kind of the entry: `account`, `role`, `binding` or `token`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Account(_) => EntryKind::Account.as_str(),
            Self::Role(_) => EntryKind::Role.as_str(),
            Self::Binding(_) => EntryKind::Binding.as_str(),
            Self::Token(_) => EntryKind::Token.as_str(),
        }
    }

    /// Returns the key of the entry, unique within its kind.
    ///
    /// It is the name of an account or a role, the id of a token, and `role/account/namespace` for a binding; only the
    /// namespace can contain a `/`.
    pub fn key(&self) -> String {
        match self {
            Self::Account(account) => account.name.clone(),
            Self::Role(role) => role.name.clone(),
            Self::Binding(binding) => binding_key(&binding.role, &binding.account, &binding.namespace),
            Self::Token(token) => token.id.clone(),
        }
    }

    /// Returns the row of the entry.
    pub fn row(&self) -> Row {
        let body = match self {
            Self::Account(account) => serde_json::to_string(account),
            Self::Role(role) => serde_json::to_string(role),
            Self::Binding(binding) => serde_json::to_string(binding),
            Self::Token(token) => serde_json::to_string(token),
        };
        let body = body.expect("entries have no maps and no failing serializers");
        Row { kind: self.kind().to_owned(), key: self.key(), body }
    }
}

/// Kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EntryKind {
    Account,
    Role,
    Binding,
    Token,
}

impl EntryKind {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Account => "account",
            Self::Role => "role",
            Self::Binding => "binding",
            Self::Token => "token",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Self::Account, Self::Role, Self::Binding, Self::Token].into_iter().find(|kind| kind.as_str() == text)
    }
}

pub(crate) fn binding_key(role: &str, account: &str, namespace: &str) -> String {
    format!("{role}/{account}/{namespace}")
}

/// Returns role, account and namespace of the key of a binding.
pub(crate) fn split_binding_key(key: &str) -> Option<(&str, &str, &str)> {
    let (role, rest) = key.split_once('/')?;
    let (account, namespace) = rest.split_once('/')?;
    Some((role, account, namespace))
}

/// Account of a person or a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Account {
    /// Name, for example `ann` or `ann@example.com`.
    pub name: String,
    /// Kind of the account.
    pub kind: AccountKind,
    /// Display name, at most 100 characters of any script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Whether the tokens of the account are not accepted.
    pub disabled: bool,
    /// Limit on the jobs that the account may submit per minute.
    #[serde(default, skip_serializing_if = "SubmitRate::is_default")]
    pub submit_rate: SubmitRate,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Name of the identity that created it.
    pub created_by: String,
}

/// Role of an account in a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Binding {
    /// Name of a built-in or custom role.
    pub role: String,
    /// Name of the account.
    pub account: String,
    /// Namespace, `team/*` for all namespaces below `team`, or `*` for all namespaces and the cluster itself.
    pub namespace: String,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Name of the identity that created it.
    pub created_by: String,
}

/// Token of an account, of a worker, or of an administrator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// Id of the token; not secret.
    pub id: String,
    /// Bearer of the token.
    pub bearer: Bearer,
    /// Purpose of the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Hash of the secret.
    pub hash: TokenHash,
    /// Limit of the token; none by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<TokenScope>,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Name of the identity that created it.
    pub created_by: String,
    /// End of the token: not accepted at this time or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Time of its revocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
}

impl Token {
    /// Returns whether the token is neither revoked nor expired.
    ///
    /// A revocation counts at once, also if the clock of the server that revoked it is ahead.
    pub fn is_usable(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }

    /// Returns whether the token ended at least [`KEPT_AFTER_END`] ago.
    pub fn is_over(&self, now: Timestamp) -> bool {
        let end = self.revoked_at.into_iter().chain(self.expires_at).min();
        end.is_some_and(|end| now >= end + KEPT_AFTER_END)
    }
}

/// Deletion of an account, a role or a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deletion {
    /// Time of the deletion.
    pub deleted_at: Timestamp,
}

impl Deletion {
    /// Returns whether the deletion is at least [`KEPT_AFTER_END`] old.
    pub fn is_over(&self, now: Timestamp) -> bool {
        now >= self.deleted_at + KEPT_AFTER_END
    }

    pub(crate) fn row(self, kind: EntryKind, key: String) -> Row {
        let body = serde_json::to_string(&self).expect("a deletion has one time");
        Row { kind: kind.as_str().to_owned(), key, body }
    }
}

/// Bearer of a token. The text is the name of the bearer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bearer {
    /// Administrator, independent of accounts.
    Admin(String),
    /// Worker.
    Worker(String),
    /// Account.
    Account(String),
}

impl Bearer {
    /// Returns the name of the bearer.
    pub fn name(&self) -> &str {
        match self {
            Self::Admin(name) | Self::Worker(name) | Self::Account(name) => name,
        }
    }
}

/// Limit of a token. It narrows the rights of the bearer and never widens them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenScope {
    /// Role whose permissions the token can have at most; all permissions of the bearer by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Namespaces and prefixes such as `team/*`; all namespaces of the bearer if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
}

/// SHA-256 of the secret of a token. `Debug` does not print it; JSON has it in lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenHash(pub [u8; 32]);

impl From<[u8; 32]> for TokenHash {
    fn from(hash: [u8; 32]) -> Self {
        Self(hash)
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(…)")
    }
}

impl Serialize for TokenHash {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let hex: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        s.serialize_str(&hex)
    }
}

impl<'de> Deserialize<'de> for TokenHash {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
        parse_hash(&text).ok_or_else(|| serde::de::Error::custom("expected 64 lower-case hexadecimal digits"))
    }
}

fn parse_hash(text: &str) -> Option<TokenHash> {
    let digits = text.as_bytes();
    let lower_case = digits.iter().all(|d| matches!(d, b'0'..=b'9' | b'a'..=b'f'));
    let mut hash = [0; 32];
    if digits.len() != 64 || !lower_case {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(TokenHash(hash))
}

/// Row of the store: one entry or one deletion.
#[derive(Clone, PartialEq, Eq)]
pub struct Row {
    /// Kind of the entry: `account`, `role`, `binding` or `token`.
    pub kind: String,
    /// Key of the entry within its kind.
    pub key: String,
    /// Entry or deletion, as JSON.
    pub body: String,
}

/// Omits the body: that of a token has the hash.
impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row").field("kind", &self.kind).field("key", &self.key).finish_non_exhaustive()
    }
}

/// Row that this version cannot read. Its entry is treated as absent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot read {kind} `{key}`: {reason}")]
pub struct Unreadable {
    /// Kind of the row.
    pub kind: String,
    /// Key of the row.
    pub key: String,
    /// Reason, without secrets.
    pub reason: String,
}
