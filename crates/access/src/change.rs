//! Changes of the directory that users request.

use model::Timestamp;

use crate::entry::{AccountKind, Bearer, SubmitRate, TokenHash, TokenScope};
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
    /// Gives an account a role in a namespace.
    Bind {
        role: String,
        account: String,
        namespace: String,
    },
    /// Takes a role of an account in a namespace away.
    Unbind {
        role: String,
        account: String,
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
}
