//! Reading rows of the store. Fails closed: see [`entry`](crate::entry).

use model::validate::Invalid;
use serde::de::DeserializeOwned;

use crate::check::Check;
use crate::entry::{Account, Binding, Deletion, Entry, EntryKind, Login, Row, Secret, Token, Unreadable};
use crate::role::{BuiltInRole, CustomRole};

/// Contents of a row.
#[derive(Debug)]
pub(crate) enum Stored {
    Live(Box<Entry>),
    Deleted(Deletion),
}

/// Reads a row of a known kind, and checks everything that decisions depend on.
///
/// # Errors
/// [`Unreadable`].
pub(crate) fn read(kind: EntryKind, row: &Row) -> Result<Stored, Unreadable> {
    let unreadable = |reason: String| Unreadable { kind: row.kind.clone(), key: row.key.clone(), reason };
    if kind != EntryKind::Token
        && let Ok(deletion) = serde_json::from_str(&row.body)
    {
        return Ok(Stored::Deleted(deletion));
    }
    let entry = entry(kind, &row.body).map_err(|error| unreadable(error.to_string()))?;
    if entry.key() != row.key {
        return Err(unreadable("its body belongs to another key".into()));
    }
    check(&entry).map_err(|invalid| unreadable(invalid.to_string()))?;
    Ok(Stored::Live(Box::new(entry)))
}

fn entry(kind: EntryKind, body: &str) -> serde_json::Result<Entry> {
    fn parse<T: DeserializeOwned>(body: &str, entry: impl FnOnce(T) -> Entry) -> serde_json::Result<Entry> {
        serde_json::from_str(body).map(entry)
    }
    match kind {
        EntryKind::Account => parse::<Account>(body, Entry::Account),
        EntryKind::Role => parse::<CustomRole>(body, Entry::Role),
        EntryKind::Binding => parse::<Binding>(body, Entry::Binding),
        EntryKind::Token => parse::<Token>(body, Entry::Token),
        EntryKind::Login => parse::<Login>(body, Entry::Login),
        EntryKind::Secret => parse::<Secret>(body, Entry::Secret),
    }
}

fn check(entry: &Entry) -> Result<(), Invalid> {
    let mut check = Check::default();
    match entry {
        Entry::Account(account) => check.account_name("name", &account.name),
        Entry::Role(role) => {
            check.role_name("name", &role.name);
            check.ensure(BuiltInRole::named(&role.name).is_none(), "name", || {
                "belongs to a built-in role".into()
            });
            check.rules(&role.rules);
        }
        Entry::Binding(binding) => {
            check.role_name("role", &binding.role);
            check.subject(&binding.subject);
            check.namespace("namespace", &binding.namespace);
        }
        Entry::Token(token) => {
            check.token_id("id", &token.id);
            check.bearer("bearer", &token.bearer);
            if let Some(scope) = &token.scope {
                check.scope(&token.bearer, scope);
            }
            check.session(token);
        }
        Entry::Login(login) => {
            check.account_name("account", &login.account);
            if let Some(password) = &login.password {
                check.password_hash("password.hash", &password.hash);
            }
            if let Some(invitation) = &login.invitation {
                check.token_id("invitation.id", &invitation.id);
            }
            if let Some(identity) = &login.oidc {
                check.oidc(identity);
            }
        }
        // No decision depends on a secret.
        Entry::Secret(_) => {}
    }
    check.finish()
}
