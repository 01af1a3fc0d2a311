//! Changes of the directory that users request.

use std::collections::BTreeMap;

use model::Timestamp;

use crate::entry::{AccountKind, Bearer, PasswordHash, Subject, SubmitRate, TokenHash, TokenScope};
use crate::role::Rule;

/// Change of the directory. [`Directory::plan`](crate::Directory::plan) checks it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of the entries")]
pub enum Change {
    CreateAccount {
        name: String,
        kind: AccountKind,
        title: Option<String>,
        submit_rate: SubmitRate,
    },
    /// Changes the given fields. `title: Some(None)` removes the title.
    ChangeAccount {
        name: String,
        title: Option<Option<String>>,
        disabled: Option<bool>,
        submit_rate: Option<SubmitRate>,
    },
    /// Deletes an account with its bindings, and revokes its tokens.
    DeleteAccount {
        name: String,
    },
    /// Creates or replaces a custom role.
    PutRole {
        name: String,
        description: Option<String>,
        rules: Vec<Rule>,
    },
    /// Deletes a custom role that no account and no token has.
    DeleteRole {
        name: String,
    },
    /// Gives an account or a group a role in a namespace.
    Bind {
        role: String,
        subject: Subject,
        namespace: String,
    },
    /// Takes a role of an account or a group in a namespace away.
    Unbind {
        role: String,
        subject: Subject,
        namespace: String,
    },
    CreateToken {
        id: String,
        hash: TokenHash,
        bearer: Bearer,
        description: Option<String>,
        scope: Option<TokenScope>,
        expires_at: Option<Timestamp>,
    },
    /// Revokes a token. Does nothing if the token is revoked already.
    RevokeToken {
        id: String,
    },
    /// Creates an invitation to set the password of an account. It replaces the earlier one.
    Invite {
        account: String,
        id: String,
        hash: TokenHash,
        expires_at: Timestamp,
        /// Whether the password is deleted and the sessions end at once, and not when the invitation is used.
        reset: bool,
    },
    /// Deletes the invitation of an account. Does nothing if there is none.
    RevokeInvitation {
        account: String,
    },
    /// Sets the password of the actor, uses up its invitation, and ends its sessions, except that of the actor.
    SetPassword {
        hash: PasswordHash,
        by: PasswordChange,
    },
    /// Creates a session of the actor. Its oldest sessions end if there are too many.
    OpenSession {
        proof: SessionProof,
        id: String,
        hash: TokenHash,
        description: Option<String>,
        expires_at: Timestamp,
    },
    /// Ends the sessions of an account, except that of the actor.
    EndSessions {
        account: String,
    },
    /// Records a login of a person at an OpenID provider: the groups, and the link to an account at the first login. The
    /// actor is the server.
    RecordOidcLogin {
        issuer: String,
        subject: String,
        groups: Vec<String>,
        link: OidcLink,
    },
    /// Deletes the identity at the OpenID provider from a login, with its groups, and ends the sessions.
    UnlinkOidc {
        account: String,
    },
    /// Turns on the second factor of the actor. The caller has verified the password and a first code.
    SetTotp {
        /// Hash that the password matched.
        password: PasswordHash,
        sealed: String,
        /// Step of the first code.
        step: u64,
        recovery: Vec<TokenHash>,
    },
    /// Deletes the second factor of an account. The actor proves the own password, or administrates everything.
    DeleteTotp {
        account: String,
        /// Hash that the password of the actor matched; `None` for an administrator.
        password: Option<PasswordHash>,
    },
    /// Creates or replaces a secret. The caller has checked the fields, and encrypted the values.
    PutSecret {
        namespace: String,
        name: String,
        description: Option<String>,
        /// Encrypted values by key. An unchanged value has the same text as the stored one.
        values: BTreeMap<String, String>,
        /// Version that the caller has seen, 0 if the secret did not exist; `None` for any.
        expected: Option<u64>,
    },
    /// Deletes a secret, with its values.
    DeleteSecret {
        namespace: String,
        name: String,
        /// Version that the caller has seen; `None` for any.
        expected: Option<u64>,
    },
}

/// Account of a person who logs in at an OpenID provider for the first time. A known identity keeps its account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OidcLink {
    /// Only known identities may log in.
    Known,
    /// A new account. An existing account of the same name is not linked: its owner may be another person.
    NewAccount {
        /// Name of the account.
        name: String,
        /// Display name.
        title: Option<String>,
    },
    /// The account of the invitation with this id, which the caller has verified. It is used up.
    Invitation(String),
}

/// What lets the actor open a session. The caller has verified it, and it must still be valid at the time of the write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionProof {
    /// The password, by its hash, with the second factor if the login has one.
    Password(PasswordHash, Option<SecondFactor>),
    /// The identity at an OpenID provider.
    Oidc {
        /// URL of the provider.
        issuer: String,
        /// Identifier of the person there.
        subject: String,
    },
}

/// What lets the actor set its password. The caller has verified it, and it must still be valid at the time of the write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PasswordChange {
    /// The invitation with this id.
    Invitation(String),
    /// The current password, by its hash.
    Current(PasswordHash),
}

/// Second factor of a login. It can be used once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecondFactor {
    /// Code of this step.
    Step(u64),
    /// Recovery code with this hash.
    Recovery(TokenHash),
}
