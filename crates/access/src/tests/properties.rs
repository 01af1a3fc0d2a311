//! Invariants, for drawn directories, rows and changes.
//!
//! Names are drawn from small pools, so that bindings, roles, scopes and namespaces often meet. The reference of a
//! decision is [`may`]: it scans all bindings and compares strings.

mod strategies;

use std::collections::BTreeMap;

use proptest::prelude::*;

use self::strategies::{ACCOUNTS, NAMESPACES, TOKENS};
use super::{now, token};
use crate::{
    Bearer, Binding, BuiltInRole, Change, CustomRole, Directory, Entry, Identity, IdentityKind, Object,
    Resource, Row, Rule, Subject, Token, TokenScope, Verb,
};

/// All objects that decisions are compared for: each resource in each namespace, and in the cluster.
fn objects() -> impl Iterator<Item = Object<'static>> {
    Resource::ALL.iter().flat_map(|&resource| {
        let places = NAMESPACES.iter().copied().map(Some).chain([None]);
        places.map(move |namespace| Object { resource, namespace })
    })
}

fn actions() -> impl Iterator<Item = (Verb, Object<'static>)> {
    Verb::ALL.iter().flat_map(|&verb| objects().map(move |object| (verb, object)))
}

fn decisions(identity: Option<&Identity>) -> Vec<bool> {
    let may = |(verb, object)| identity.is_some_and(|identity| identity.decide(verb, object).is_ok());
    actions().map(may).collect()
}

/// Everything that a directory answers.
fn answers(directory: &Directory) -> impl PartialEq + std::fmt::Debug {
    let identities: Vec<_> = TOKENS.iter().map(|id| directory.identity(id, now())).collect();
    let decisions: Vec<_> = identities.iter().map(|identity| decisions(identity.as_ref())).collect();
    let accounts: Vec<_> = directory.accounts().cloned().collect();
    let roles: Vec<_> = directory.roles().map(|role| (role.name().to_owned(), role.rules())).collect();
    let tokens: Vec<_> = directory.tokens().cloned().collect();
    let bindings: Vec<_> = directory.bindings().collect();
    let over = directory.expired(model::Timestamp::MAX);
    (identities, decisions, accounts, roles, tokens, bindings, over)
}

fn directory(entries: &[Entry]) -> Directory {
    let mut directory = Directory::default();
    assert_eq!(directory.apply(entries.iter().map(Entry::row)), []);
    directory
}

/// The rules of a decision, for the readable entries of a store.
fn may(entries: &[&Entry], token: &Token, verb: Verb, object: Object<'_>) -> bool {
    let usable = token.revoked_at.is_none() && token.expires_at.is_none_or(|end| end > now());
    let account = match &token.bearer {
        Bearer::Worker(_) => return usable && verb == Verb::Work,
        Bearer::Admin(_) => None,
        Bearer::Account(name) => Some(name),
    };
    let exists = |name: &String| {
        entries.iter().any(|entry| matches!(entry, Entry::Account(a) if a.name == *name && !a.disabled))
    };
    if !usable || verb == Verb::Work || account.is_some_and(|name| !exists(name)) {
        return false;
    }
    let namespace = object.namespace.filter(|_| object.resource.is_namespaced());
    let everywhere = verb == Verb::Read && !object.resource.is_namespaced();
    let covers = |pattern: &str| match (namespace, pattern.strip_suffix('*')) {
        (Some(namespace), Some(prefix)) => namespace.starts_with(prefix),
        (Some(namespace), None) => namespace == pattern,
        (None, _) => everywhere || pattern == "*",
    };
    let role_has = |name: &str| {
        let custom = entries.iter().find_map(|entry| match entry {
            Entry::Role(role) if role.name == name => Some(role),
            _ => None,
        });
        match (BuiltInRole::named(name).ok_or(()), custom) {
            (Ok(role), _) => role.permissions().contains(verb, object.resource),
            (Err(_), Some(CustomRole { rules, .. })) => rules
                .iter()
                .any(|rule| rule.verbs.contains(&verb) && rule.resources.contains(&object.resource)),
            (Err(_), None) => false,
        }
    };
    let granted = account.is_none_or(|name| {
        entries.iter().any(|entry| {
            matches!(entry, Entry::Binding(Binding { role, subject: Subject::Account(account), namespace, .. })
                if account == name && role_has(role) && covers(namespace))
        })
    });
    let TokenScope { role, namespaces } =
        token.scope.clone().unwrap_or(TokenScope { role: None, namespaces: Vec::new() });
    let within = namespaces.is_empty() || namespaces.iter().any(|pattern| covers(pattern));
    granted && role.is_none_or(|role| role_has(&role)) && within
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Each row counts until a newer one of its key, whatever the order and the split of the newest ones.
    #[test]
    fn the_newest_rows_decide_in_any_order_and_split(
        (history, order, split) in strategies::history().prop_flat_map(|history| {
            let newest: BTreeMap<_, _> =
                history.iter().map(|row| ((row.kind.clone(), row.key.clone()), row.clone())).collect();
            let newest: Vec<Row> = newest.into_values().collect();
            let count = newest.len();
            (Just(history), Just(newest).prop_shuffle(), 1..=count.max(1))
        })
    ) {
        let mut replayed = Directory::default();
        for row in &history {
            replayed.apply([row.clone()]);
        }
        let mut directory = Directory::default();
        for rows in order.chunks(split) {
            directory.apply(rows.to_vec());
        }
        prop_assert_eq!(answers(&replayed), answers(&directory));
        // A server that reads the rows again, for example after a gap, gets the same directory.
        let mut loaded_twice = replayed.clone();
        loaded_twice.apply(history.iter().cloned());
        prop_assert_eq!(answers(&loaded_twice), answers(&directory));
    }

    #[test]
    fn decisions_are_those_of_a_scan_over_all_bindings(entries in strategies::entries()) {
        let directory = directory(&entries);
        let all: Vec<&Entry> = entries.iter().collect();
        for entry in &entries {
            let Entry::Token(token) = entry else { continue };
            let identity = directory.identity(&token.id, now());
            for (verb, object) in actions() {
                let allowed = identity.as_ref().is_some_and(|identity| identity.decide(verb, object).is_ok());
                prop_assert_eq!(allowed, may(&all, token, verb, object), "{:?}: {} {:?}", token, verb, object);
            }
        }
    }

    #[test]
    fn a_binding_takes_no_right_away(entries in strategies::entries(), added in strategies::binding()) {
        let before = directory(&entries);
        let mut after = before.clone();
        after.apply([Entry::Binding(added).row()]);
        for id in TOKENS {
            let (before, after) = (before.identity(id, now()), after.identity(id, now()));
            let changed = decisions(before.as_ref()).into_iter().zip(decisions(after.as_ref()));
            prop_assert!(changed.into_iter().all(|(before, after)| !before || after), "{}", id);
        }
    }

    #[test]
    fn a_scope_gives_no_right(entries in strategies::entries(), scope in strategies::scope()) {
        let directory = directory(&entries);
        for bearer in ACCOUNTS.iter().map(|&name| Bearer::Account(name.into())).chain([Bearer::Admin("s".into())]) {
            let free = token("free", bearer.clone());
            let limited = Token { scope: Some(scope.clone()), ..token("limited", bearer) };
            let mut directory = directory.clone();
            directory.apply([Entry::Token(free).row(), Entry::Token(limited).row()]);
            let decided = ["free", "limited"].map(|id| decisions(directory.identity(id, now()).as_ref()));
            prop_assert!(decided[0].iter().zip(&decided[1]).all(|(free, limited)| *free || !limited));
        }
    }

    #[test]
    fn namespaces_and_anywhere_agree_with_decisions(entries in strategies::entries()) {
        let directory = directory(&entries);
        for identity in TOKENS.iter().filter_map(|id| directory.identity(id, now())) {
            for &verb in Verb::ALL {
                for &resource in Resource::ALL {
                    let found = identity.namespaces(verb, resource);
                    for &namespace in NAMESPACES {
                        let allowed = identity.decide(verb, Object::in_namespace(resource, namespace)).is_ok();
                        prop_assert_eq!(found.contains(namespace), allowed, "{} {} {}", verb, resource, namespace);
                    }
                    prop_assert_eq!(identity.anywhere(verb, resource).is_err(), found.is_empty());
                }
            }
        }
    }

    /// No identity has a right after the change that neither it nor the actor had before.
    #[test]
    fn an_accepted_change_gives_no_right_that_its_actor_does_not_have(
        (entries, actor) in prop_oneof![
            3 => (strategies::managed_entries(), Just("t0")),
            1 => (strategies::entries(), prop::sample::select(TOKENS)),
        ],
        change in strategies::change(),
    ) {
        let before = directory(&entries);
        let Some(actor) = before.identity(actor, now()) else { return Ok(()) };
        let is_worker_token = matches!(&change, Change::CreateToken { bearer: Bearer::Worker(_), .. });
        let Ok(rows) = before.plan(&actor, change, now()) else { return Ok(()) };
        let mut after = before.clone();
        prop_assert_eq!(after.apply(rows), []);
        let held = decisions(Some(&actor));
        for id in TOKENS.iter().chain(&["new"]) {
            let old = decisions(before.identity(id, now()).as_ref());
            let new = after.identity(id, now());
            if is_worker_token && new.as_ref().is_some_and(|new| new.kind == IdentityKind::Worker) {
                continue;
            }
            for (at, allowed) in decisions(new.as_ref()).into_iter().enumerate() {
                prop_assert!(!allowed || old[at] || held[at], "{}: {:?}", id, actions().nth(at));
            }
        }
    }

    /// Whatever is accepted, a usable way to administrate everything remains.
    #[test]
    fn an_accepted_change_leaves_an_administrator(
        entries in strategies::entries(),
        actor in prop::sample::select(TOKENS),
        change in prop_oneof![
            strategies::change(),
            prop::sample::select(TOKENS).prop_map(|id| Change::RevokeToken { id: id.into() }),
            prop::sample::select(ACCOUNTS).prop_map(|name| Change::DeleteAccount { name: name.into() }),
            prop::sample::select(ACCOUNTS).prop_map(|name| {
                Change::ChangeAccount { name: name.into(), title: None, disabled: Some(true), submit_rate: None }
            }),
        ],
    ) {
        let before = directory(&entries);
        let Some(actor) = before.identity(actor, now()) else { return Ok(()) };
        let Ok(rows) = before.plan(&actor, change, now()) else { return Ok(()) };
        let mut after = before.clone();
        after.apply(rows);
        prop_assert!(after.has_admin(now()) || !before.has_admin(now()));
    }

    #[test]
    fn bodies_survive_a_round_trip(entries in strategies::entries()) {
        let directory = directory(&entries);
        let read: Vec<Entry> = directory
            .accounts()
            .cloned()
            .map(Entry::Account)
            .chain(directory.roles().filter_map(|role| match role {
                crate::Role::Custom(role) => Some(Entry::Role(role.clone())),
                crate::Role::BuiltIn(_) => None,
            }))
            .chain(directory.bindings().map(Entry::Binding))
            .chain(directory.tokens().cloned().map(Entry::Token))
            .collect();
        let rows = |entries: &[Entry]| {
            let mut rows: Vec<_> = entries.iter().map(Entry::row).map(|row| (row.kind, row.key, row.body)).collect();
            rows.sort();
            rows
        };
        prop_assert_eq!(rows(&read), rows(&entries));
    }

    #[test]
    fn a_truncated_body_gives_no_right(
        entries in strategies::entries(),
        truncated in any::<prop::sample::Index>(),
        length in any::<prop::sample::Index>(),
    ) {
        prop_assume!(!entries.is_empty());
        let before = directory(&entries);
        let row = truncated.get(&entries).row();
        let mut after = before.clone();
        let body = String::from_utf8_lossy(&row.body.as_bytes()[..length.index(row.body.len())]).into_owned();
        prop_assert_eq!(after.apply([Row { body, ..row }]).len(), 1);
        for id in TOKENS {
            let changed = [&before, &after].map(|directory| decisions(directory.identity(id, now()).as_ref()));
            prop_assert!(changed[0].iter().zip(&changed[1]).all(|(before, after)| *before || !after));
        }
    }

    #[test]
    fn rules_of_permissions_give_these_permissions(rules in strategies::rules()) {
        let permissions = Rule::permissions(&rules);
        prop_assert_eq!(Rule::permissions(&Rule::of(permissions)), permissions);
    }
}
