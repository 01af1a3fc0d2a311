//! Entries: accounts, custom roles, bindings, tokens, logins and secrets, as the store keeps them.
//!
//! The store knows only the kind, the key and the JSON body of an entry ([`Row`]). Reading fails closed: an unknown
//! field or value makes the whole entry [unreadable](Unreadable), and it then gives no right. So a server of an older
//! version never ignores a restriction that a newer one wrote.
//!
//! A deletion of an account, a role, a binding, a login or a secret is a body too (`{"deleted_at": …}`), so that all servers see
//! it. A token is never deleted, only revoked. Both are over after [`KEPT_AFTER_END`], and sessions after
//! [`SESSION_KEPT_AFTER_END`].
//!
//! A login is a row of its own, and not a part of its account: a server of an older version ignores the row and accepts
//! the tokens of the account.

use std::collections::BTreeMap;
use std::fmt;

pub use model::access::{AccountKind, SubmitRate};
use model::{Duration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::role::CustomRole;

/// Retention of deletions, and of revoked and expired tokens.
pub const KEPT_AFTER_END: Duration = Duration::from_hours(30 * 24);

/// Retention of sessions after their end. Each login creates one.
pub const SESSION_KEPT_AFTER_END: Duration = Duration::from_hours(24);

/// Entry of the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is the kind")]
pub enum Entry {
    Account(Account),
    Role(CustomRole),
    Binding(Binding),
    Token(Token),
    Login(Login),
    Secret(Secret),
}

impl Entry {
    /// Returns the kind of the entry: `account`, `role`, `binding`, `token`, `login` or `secret`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Account(_) => EntryKind::Account.as_str(),
            Self::Role(_) => EntryKind::Role.as_str(),
            Self::Binding(_) => EntryKind::Binding.as_str(),
            Self::Token(_) => EntryKind::Token.as_str(),
            Self::Login(_) => EntryKind::Login.as_str(),
            Self::Secret(_) => EntryKind::Secret.as_str(),
        }
    }

    /// Returns the key of the entry, unique within its kind.
    ///
    /// It is the name of an account or a role, the id of a token, and the name of the account of a login. For a binding it
    /// is `role/subject/namespace`, and for a secret `namespace/name`; only the namespace can contain a `/`.
    pub fn key(&self) -> String {
        match self {
            Self::Account(account) => account.name.clone(),
            Self::Role(role) => role.name.clone(),
            Self::Binding(binding) => binding_key(&binding.role, &binding.subject, &binding.namespace),
            Self::Token(token) => token.id.clone(),
            Self::Login(login) => login.account.clone(),
            Self::Secret(secret) => secret_key(&secret.namespace, &secret.name),
        }
    }

    /// Returns the row of the entry.
    pub fn row(&self) -> Row {
        let body = match self {
            Self::Account(account) => serde_json::to_string(account),
            Self::Role(role) => serde_json::to_string(role),
            Self::Binding(binding) => serde_json::to_string(binding),
            Self::Token(token) => serde_json::to_string(token),
            Self::Login(login) => serde_json::to_string(login),
            Self::Secret(secret) => serde_json::to_string(secret),
        };
        let body = body.expect("entries have only text keys and no failing serializers");
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
    Login,
    Secret,
}

impl EntryKind {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Account => "account",
            Self::Role => "role",
            Self::Binding => "binding",
            Self::Token => "token",
            Self::Login => "login",
            Self::Secret => "secret",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let all = [Self::Account, Self::Role, Self::Binding, Self::Token, Self::Login, Self::Secret];
        all.into_iter().find(|kind| kind.as_str() == text)
    }
}

pub(crate) fn secret_key(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

pub(crate) fn binding_key(role: &str, subject: &Subject, namespace: &str) -> String {
    let subject = subject.to_string().replace('%', "%25").replace('/', "%2F");
    format!("{role}/{subject}/{namespace}")
}

/// Returns role, subject and namespace of the key of a binding.
pub(crate) fn split_binding_key(key: &str) -> Option<(&str, Subject, &str)> {
    let (role, rest) = key.split_once('/')?;
    let (subject, namespace) = rest.split_once('/')?;
    Some((role, Subject::parse(&subject.replace("%2F", "/").replace("%25", "%")), namespace))
}

/// Secret of a namespace. The caller encrypts the values; this crate never has them in plain text.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Secret {
    /// Namespace of the secret.
    pub namespace: String,
    /// Name, unique in the namespace.
    pub name: String,
    /// Description for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Encrypted values by key.
    pub values: BTreeMap<String, String>,
    /// Number of the change, from 1.
    pub version: u64,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
    /// Name of the identity that made the last change.
    pub updated_by: String,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, name, version, .. } = self;
        write!(f, "Secret({namespace}/{name}, version {version})")
    }
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

/// Role of an account or a group in a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BindingBody", into = "BindingBody")]
pub struct Binding {
    /// Name of a built-in or custom role.
    pub role: String,
    /// Account or group that has the role.
    pub subject: Subject,
    /// Namespace, `team/*` for all namespaces below `team`, or `*` for all namespaces and the cluster itself.
    pub namespace: String,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Name of the identity that created it.
    pub created_by: String,
}

/// Binding in JSON. It has either an account or a group.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BindingBody {
    role: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    account: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    namespace: String,
    created_at: Timestamp,
    created_by: String,
}

impl From<Binding> for BindingBody {
    fn from(binding: Binding) -> Self {
        let Binding { role, subject, namespace, created_at, created_by } = binding;
        let (account, group) = match subject {
            Subject::Account(name) => (Some(name), None),
            Subject::Group(name) => (None, Some(name)),
        };
        Self { role, account, group, namespace, created_at, created_by }
    }
}

impl TryFrom<BindingBody> for Binding {
    type Error = &'static str;

    fn try_from(body: BindingBody) -> Result<Self, &'static str> {
        let BindingBody { role, account, group, namespace, created_at, created_by } = body;
        let subject = match (account, group) {
            (Some(name), None) => Subject::Account(name),
            (None, Some(name)) => Subject::Group(name),
            _ => return Err("expected either `account` or `group`"),
        };
        Ok(Self { role, subject, namespace, created_at, created_by })
    }
}

/// Subject of a binding. The text is the name of the account, or `group:NAME`; no account name contains a `:`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// Account.
    Account(String),
    /// All accounts that had this group of the identity provider at their last login.
    Group(String),
}

/// Beginning of the text of a group.
const GROUP: &str = "group:";

impl Subject {
    /// Reads the text of a subject.
    pub fn parse(text: &str) -> Self {
        match text.strip_prefix(GROUP) {
            Some(group) => Self::Group(group.to_owned()),
            None => Self::Account(text.to_owned()),
        }
    }

    /// Returns the name of the account; `None` for a group.
    pub fn account(&self) -> Option<&str> {
        match self {
            Self::Account(name) => Some(name),
            Self::Group(_) => None,
        }
    }
}

impl From<&str> for Subject {
    fn from(text: &str) -> Self {
        Self::parse(text)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Account(name) => f.write_str(name),
            Self::Group(name) => write!(f, "{GROUP}{name}"),
        }
    }
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
    /// Whether a login with a password created the token.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub session: bool,
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

    /// Returns whether the token ended at least [`KEPT_AFTER_END`] ago, a session [`SESSION_KEPT_AFTER_END`].
    pub fn is_over(&self, now: Timestamp) -> bool {
        let kept = if self.session { SESSION_KEPT_AFTER_END } else { KEPT_AFTER_END };
        let end = self.revoked_at.into_iter().chain(self.expires_at).min();
        end.is_some_and(|end| now >= end + kept)
    }

    /// Returns whether the token is a session of this account.
    pub(crate) fn is_session_of(&self, account: &str) -> bool {
        self.session && matches!(&self.bearer, Bearer::Account(name) if name == account)
    }
}

/// Login of the account of a person: its password, the invitation to set one, and its identity at an OpenID provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// Name of the account.
    pub account: String,
    /// Time of creation of the account. The login of a deleted account is not that of a later account of the same name.
    pub account_created_at: Timestamp,
    /// Password; none until the person has used an invitation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<Password>,
    /// Invitation that was not used yet. A new one replaces it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invitation: Option<Invitation>,
    /// Identity at the OpenID provider; none until the first login there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oidc: Option<OidcIdentity>,
    /// Second factor of logins with the password; none unless the person has turned it on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub totp: Option<Totp>,
    /// Time of the last login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_login_at: Option<Timestamp>,
}

/// Second factor of logins with a password: codes of an authenticator app, and recovery codes.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Totp {
    /// Secret that the app shares, encrypted by the server.
    pub sealed: String,
    /// Step of the last accepted code. Only codes of later steps are accepted.
    pub last_step: u64,
    /// Hashes of the recovery codes that were not used.
    pub recovery: Vec<TokenHash>,
    /// Time at which the person turned it on.
    pub set_at: Timestamp,
}

impl fmt::Debug for Totp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Totp").field("set_at", &self.set_at).finish_non_exhaustive()
    }
}

/// Identity of a person at an OpenID provider.
///
/// Issuer and subject together identify the person for ever. Names and mail addresses do not: a provider may give them to
/// another person later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OidcIdentity {
    /// URL of the provider, the claim `iss`.
    pub issuer: String,
    /// Identifier of the person at the provider, the claim `sub`.
    pub subject: String,
    /// Groups at the last login, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Time of the first login, which linked the account.
    pub linked_at: Timestamp,
}

/// Password of an account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Password {
    /// Hash of the password.
    pub hash: PasswordHash,
    /// Time at which the person set it.
    pub set_at: Timestamp,
}

/// Invitation to set a password. It can be used once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invitation {
    /// Id of the invitation; not secret.
    pub id: String,
    /// Hash of the secret.
    pub hash: TokenHash,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Name of the identity that created it.
    pub created_by: String,
    /// End of the invitation: not accepted at this time or later.
    pub expires_at: Timestamp,
}

/// Hash of a password by Argon2id, with its parameters and its salt, in the PHC string format (`$argon2id$v=19$…`).
/// `Debug` does not print it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PasswordHash(pub String);

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash(…)")
    }
}

/// Deletion of an account, a role, a binding or a login.
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
    /// Kind of the entry: `account`, `role`, `binding`, `token` or `login`.
    pub kind: String,
    /// Key of the entry within its kind.
    pub key: String,
    /// Entry or deletion, as JSON.
    pub body: String,
}

/// Omits the body: that of a token or a login has hashes.
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
