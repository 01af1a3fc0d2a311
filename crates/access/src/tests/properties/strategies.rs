//! Drawn entries, rows and changes.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use model::Timestamp;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::super::{account, binding as bound, days, deletion, now, role, scope as scope_of, token};
use crate::{
    Account, AccountKind, Bearer, Binding, Change, CustomRole, Entry, Resource, Row, Rule, SubmitRate, Token,
    TokenHash, TokenScope, Verb,
};

pub(super) const ACCOUNTS: &[&str] = &["ann", "bob@example.com", "ci"];
pub(super) const TOKENS: &[&str] = &["t0", "t1", "t2", "t3"];
const CUSTOM_ROLES: &[&str] = &["custom", "other"];
const ROLES: &[&str] = &["viewer", "operator", "developer", "admin", "admin", "custom", "other"];
const PATTERNS: &[&str] = &["*", "*", "finance", "team", "team/*", "team/a", "team/a/*"];
/// Namespaces of decisions.
pub(super) const NAMESPACES: &[&str] = &["finance", "sales", "team", "team/a", "team/a/b", "team/b", "teams"];

pub(super) fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let verbs = subsequence(Verb::ALL.split_last().unwrap().1, 1..=5);
    let resources = prop_oneof![
        Just(vec![Resource::Access]),
        Just(Resource::ALL.to_vec()),
        subsequence(Resource::ALL, 1..=4),
    ];
    let rule = (verbs, resources).prop_map(|(verbs, resources)| Rule { verbs, resources });
    prop::collection::vec(rule, 1..3)
}

pub(super) fn binding() -> impl Strategy<Value = Binding> {
    (select(ROLES), select(ACCOUNTS), select(PATTERNS))
        .prop_map(|(role, account, namespace)| bound(role, account, namespace))
}

pub(super) fn scope() -> impl Strategy<Value = TokenScope> {
    (prop::option::of(select(ROLES)), subsequence(PATTERNS, 0..=2))
        .prop_filter("a scope limits something", |(role, namespaces)| {
            role.is_some() || !namespaces.is_empty()
        })
        .prop_map(|(role, namespaces)| scope_of(role, &namespaces))
}

fn bearer() -> impl Strategy<Value = Bearer> {
    prop_oneof![
        1 => Just(Bearer::Admin("root".into())),
        1 => Just(Bearer::Worker("node-1".into())),
        6 => select(ACCOUNTS).prop_map(|name| Bearer::Account(name.into())),
    ]
}

fn end() -> impl Strategy<Value = Option<Timestamp>> {
    prop_oneof![6 => Just(None), 1 => Just(Some(now())), 1 => Just(Some(now() + days(1)))]
}

fn accounts() -> impl Strategy<Value = Account> {
    let kind = select(&[AccountKind::User, AccountKind::Service][..]);
    let title = prop::option::of(select(&["Ann", "安妮 \"A\"", "é\\🦀"][..]).prop_map(str::to_owned));
    let rates = [SubmitRate::Default, SubmitRate::Unlimited, SubmitRate::PerMinute(NonZeroU32::MAX)];
    let submit_rate = select(rates.to_vec());
    (select(ACCOUNTS), kind, title, prop::bool::weighted(0.1), submit_rate).prop_map(
        |(name, kind, title, disabled, submit_rate)| Account {
            kind,
            title,
            disabled,
            submit_rate,
            ..account(name)
        },
    )
}

fn custom_roles() -> impl Strategy<Value = CustomRole> {
    (select(CUSTOM_ROLES), rules()).prop_map(|(name, rules)| role(name, &rules))
}

fn tokens() -> impl Strategy<Value = Token> {
    let limited = prop::option::weighted(0.4, scope());
    (select(TOKENS), bearer(), limited, end(), prop::bool::weighted(0.1), any::<[u8; 32]>()).prop_map(
        |(id, bearer, scope, expires_at, revoked, hash)| {
            let scope = scope.filter(|_| !matches!(bearer, Bearer::Worker(_)));
            let revoked_at = revoked.then(now);
            Token { scope, expires_at, revoked_at, hash: TokenHash(hash), ..token(id, bearer) }
        },
    )
}

fn entry() -> impl Strategy<Value = Entry> {
    prop_oneof![
        3 => accounts().prop_map(Entry::Account),
        2 => custom_roles().prop_map(Entry::Role),
        5 => binding().prop_map(Entry::Binding),
        4 => tokens().prop_map(Entry::Token),
    ]
}

/// Entries with different keys. Bindings and tokens can name absent accounts and roles.
pub(super) fn entries() -> impl Strategy<Value = Vec<Entry>> {
    prop::collection::vec(entry(), 0..24).prop_map(unique)
}

/// The last entry of a key replaces the others.
fn unique(entries: Vec<Entry>) -> Vec<Entry> {
    let unique: BTreeMap<_, _> =
        entries.into_iter().map(|entry| ((entry.kind(), entry.key()), entry)).collect();
    unique.into_values().collect()
}

/// Entries in which `ann`, with the token `t0`, manages access and has only some other rights.
pub(super) fn managed_entries() -> impl Strategy<Value = Vec<Entry>> {
    (entries(), prop::option::of(rules()), prop::option::weighted(0.2, scope())).prop_map(
        |(mut entries, rules, scope)| {
            let access = Rule {
                verbs: vec![Verb::Create, Verb::Change, Verb::Delete],
                resources: vec![Resource::Access],
            };
            let rules = [vec![access], rules.unwrap_or_default()].concat();
            // A drawn role of `ann` would often have all rights.
            entries.retain(
                |entry| !matches!(entry, Entry::Binding(binding) if binding.subject.account() == Some("ann")),
            );
            entries.extend([
                Entry::Account(account("ann")),
                Entry::Role(role("custom", &rules)),
                Entry::Binding(bound("custom", "ann", "*")),
                Entry::Token(Token { scope, ..token("t0", Bearer::Account("ann".into())) }),
            ]);
            unique(entries)
        },
    )
}

/// Rows in the order of their writing: entries, deletions, and bodies of a newer version.
pub(super) fn history() -> impl Strategy<Value = Vec<Row>> {
    let row = (entry(), 0..10u8).prop_map(|(entry, form)| match form {
        0 | 1 => deletion(&entry),
        2 => Row { body: r#"{"newer":1}"#.into(), ..entry.row() },
        _ => entry.row(),
    });
    prop::collection::vec(row, 0..40)
}

/// Changes that can give rights.
pub(super) fn change() -> impl Strategy<Value = Change> {
    let new_token = (bearer(), prop::option::of(scope())).prop_map(|(bearer, scope)| {
        let scope = scope.filter(|_| !matches!(bearer, Bearer::Worker(_)));
        let (hash, expires_at) = (TokenHash([0; 32]), Some(now() + days(1)));
        Change::CreateToken { id: "new".into(), hash, bearer, description: None, scope, expires_at }
    });
    let names = || (select(ROLES), select(ACCOUNTS), select(PATTERNS));
    prop_oneof![
        1 => select(ACCOUNTS).prop_map(|name| Change::CreateAccount {
            name: name.into(),
            kind: AccountKind::User,
            title: None,
            submit_rate: SubmitRate::Default,
        }),
        1 => custom_roles().prop_map(|CustomRole { name, description, rules }| Change::PutRole {
            name,
            description,
            rules
        }),
        1 => select(CUSTOM_ROLES).prop_map(|name| Change::DeleteRole { name: name.into() }),
        3 => names().prop_map(|(role, account, namespace)| Change::Bind {
            role: role.into(),
            subject: account.into(),
            namespace: namespace.into()
        }),
        1 => names().prop_map(|(role, account, namespace)| Change::Unbind {
            role: role.into(),
            subject: account.into(),
            namespace: namespace.into()
        }),
        4 => new_token,
    ]
}
