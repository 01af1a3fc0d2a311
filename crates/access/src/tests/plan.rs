//! Rights of changes, and each refusal.
//!
//! - `rights`: accounts, roles and bindings.
//! - `tokens`: tokens and their scopes.
//! - `refusals`: names, fields, and states of entries.
//! - `last_admin`: the last way to administrate everything.
//! - `logins`: passwords, invitations and sessions.
//! - `secrets`: secrets.
//! - `oidc`: identities at an OpenID provider, and roles of groups.

mod last_admin;
mod logins;
mod oidc;
mod refusals;
mod rights;
mod secrets;
mod tokens;

use super::{Scenario, account, days, now, scope, token};
use crate::{
    Account, AccountKind, Bearer, Change, Entry, Object, Resource, Row, Rule, SubmitRate, Token, TokenHash,
    TokenScope, Verb,
};
use model::{Duration, Timestamp};

fn create_account(name: &str) -> Change {
    Change::CreateAccount {
        name: name.into(),
        kind: AccountKind::Service,
        title: None,
        submit_rate: SubmitRate::Default,
    }
}

fn disable(name: &str) -> Change {
    Change::ChangeAccount { name: name.into(), title: None, disabled: Some(true), submit_rate: None }
}

fn delete_account(name: &str) -> Change {
    Change::DeleteAccount { name: name.into() }
}

fn rules(verbs: &[Verb], resources: &[Resource]) -> Vec<Rule> {
    vec![Rule { verbs: verbs.to_vec(), resources: resources.to_vec() }]
}

fn put_role(name: &str, verb: Verb) -> Change {
    Change::PutRole { name: name.into(), description: None, rules: rules(&[verb], &[Resource::Jobs]) }
}

fn delete_role(name: &str) -> Change {
    Change::DeleteRole { name: name.into() }
}

fn bind(role: &str, account: &str, namespace: &str) -> Change {
    Change::Bind { role: role.into(), subject: account.into(), namespace: namespace.into() }
}

fn unbind(role: &str, account: &str, namespace: &str) -> Change {
    Change::Unbind { role: role.into(), subject: account.into(), namespace: namespace.into() }
}

fn revoke(id: &str) -> Change {
    Change::RevokeToken { id: id.into() }
}

/// A token `new` for 90 days.
fn create_token(bearer: Bearer, scope: Option<TokenScope>) -> Change {
    create_token_until(bearer, scope, Some(now() + days(90)))
}

fn create_token_until(bearer: Bearer, scope: Option<TokenScope>, expires_at: Option<Timestamp>) -> Change {
    Change::CreateToken {
        id: "new".into(),
        hash: TokenHash([1; 32]),
        bearer,
        description: None,
        scope,
        expires_at,
    }
}

fn of(account: &str) -> Bearer {
    Bearer::Account(account.into())
}

/// `chief` is admin of the cluster, `ann` of `finance`, `dev` is developer in `finance`, and `bob` has no role.
fn office() -> Scenario {
    Scenario::new()
        .user("chief")
        .bound("chief", "admin", "*")
        .user("ann")
        .bound("ann", "admin", "finance")
        .user("dev")
        .bound("dev", "developer", "finance")
        .user("bob")
}

#[track_caller]
fn assert_codes(
    scenario: &Scenario,
    expected: &str,
    refused: impl IntoIterator<Item = (&'static str, Change)>,
) {
    for (actor, change) in refused {
        let refusal = scenario.refusal(actor, change.clone());
        assert_eq!(refusal.code(), expected, "{actor}: {change:?}: {refusal}");
        assert_ne!(refusal.hint(), "");
    }
}
