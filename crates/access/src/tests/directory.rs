//! Effects of rows on identities.

use super::{Scenario, account, binding, days, deletion, now, role, scope, token};
use crate::{
    Account, Bearer, Binding, Directory, Entry, IdentityKind, KEPT_AFTER_END, Object, Resource, Row, Rule,
    Token, Verb,
};
use model::Duration;

const IN_FINANCE: Object<'_> = Object::in_namespace(Resource::Jobs, "finance");

fn reads(scenario: &Scenario, token: &str) -> bool {
    scenario.identity(token).decide(Verb::Read, IN_FINANCE).is_ok()
}

#[test]
fn a_token_ends_exactly_at_its_expiry() {
    let end = now() + days(1);
    let scenario =
        Scenario::new().token(Token { expires_at: Some(end), ..token("t", Bearer::Admin("ci".into())) });
    let usable = |at| scenario.directory.identity("t", at).is_some();
    assert!(usable(end - Duration::from_millis(1)));
    assert!(!usable(end));
    assert!(scenario.directory.token_hash("t").is_some());
}

#[test]
fn a_revoked_token_has_no_identity_even_if_its_revocation_is_in_the_future() {
    let end = now() + days(1);
    let scenario =
        Scenario::new().token(Token { revoked_at: Some(end), ..token("t", Bearer::Admin("ci".into())) });
    assert_eq!(scenario.directory.identity("t", now()), None);
}

#[test]
fn an_account_that_is_missing_or_disabled_has_no_identity() {
    let absent =
        Scenario::new().bound("ann", "admin", "*").token(token("ann", Bearer::Account("ann".into())));
    assert_eq!(absent.directory.identity("ann", now()), None);
    assert_eq!(absent.directory.identity_of_account("ann"), None);
    let enabled = absent.entry(Entry::Account(account("ann")));
    assert!(reads(&enabled, "ann"));
    assert!(enabled.directory.identity_of_account("ann").is_some());
    let disabled = enabled.entry(Entry::Account(Account { disabled: true, ..account("ann") }));
    assert_eq!(disabled.directory.identity("ann", now()), None);
    assert_eq!(disabled.directory.identity_of_account("ann"), None);
}

#[test]
fn a_changed_role_changes_the_rights_of_its_accounts_and_tokens() {
    let rules = |verb| [Rule { verbs: vec![verb], resources: vec![Resource::Jobs] }];
    let scenario = Scenario::new()
        .user("ann")
        .bound("ann", "custom", "finance")
        .token(Token { scope: Some(scope(Some("custom"), &[])), ..token("s", Bearer::Admin("s".into())) });
    assert!(!reads(&scenario, "ann") && !reads(&scenario, "s"), "the role does not exist yet");
    let scenario = scenario.role("custom", &rules(Verb::Read));
    assert!(reads(&scenario, "ann") && reads(&scenario, "s"));
    let scenario = scenario.role("custom", &rules(Verb::Operate));
    assert!(!reads(&scenario, "ann") && !reads(&scenario, "s"));
    let mut scenario = scenario.role("custom", &rules(Verb::Read));
    scenario.directory.apply([deletion(&Entry::Role(role("custom", &[])))]);
    assert!(!reads(&scenario, "ann") && !reads(&scenario, "s"));
}

#[test]
fn an_unreadable_row_takes_the_rights_of_the_older_one_away() {
    for kind in ["account", "role", "binding", "token"] {
        let mut scenario = Scenario::new()
            .role("custom", &[Rule { verbs: vec![Verb::Read], resources: vec![Resource::Jobs] }])
            .user("ann")
            .bound("ann", "custom", "finance");
        assert!(reads(&scenario, "ann"));
        let key = match kind {
            "role" => "custom",
            "binding" => "custom/ann/finance",
            _ => "ann",
        };
        let row = Row { kind: kind.into(), key: key.into(), body: r#"{"newer":1}"#.into() };
        assert_eq!(scenario.directory.apply([row]).len(), 1);
        let identity = scenario.directory.identity("ann", now());
        assert!(identity.is_none_or(|identity| identity.decide(Verb::Read, IN_FINANCE).is_err()), "{kind}");
    }
}

#[test]
fn an_identity_shares_the_grants_of_its_account() {
    let scenario = Scenario::new().user("ann").bound("ann", "viewer", "finance");
    let (first, second) = (scenario.identity("ann"), scenario.identity("ann"));
    assert!(std::sync::Arc::ptr_eq(&first.grants, &second.grants));
    let other = scenario.user("bob").bound("bob", "viewer", "finance").identity("ann");
    assert!(std::sync::Arc::ptr_eq(&first.grants, &other.grants), "compiled again for another account");
}

#[test]
fn only_usable_tokens_count_as_present() {
    let worker = || token("w", Bearer::Worker("node-1".into()));
    let has = |token: Token, kind| {
        let mut directory = Directory::default();
        directory.apply([Entry::Token(token).row()]);
        directory.has_token(kind, now())
    };
    assert!(has(worker(), IdentityKind::Worker));
    assert!(!has(worker(), IdentityKind::Admin));
    assert!(!has(Token { expires_at: Some(now()), ..worker() }, IdentityKind::Worker));
    assert!(!has(Token { revoked_at: Some(now()), ..worker() }, IdentityKind::Worker));
    assert!(has(token("s", Bearer::Admin("s".into())), IdentityKind::Admin));
}

#[test]
fn ended_rows_are_kept_for_thirty_days() {
    let mut scenario = Scenario::new()
        .token(Token { revoked_at: Some(now()), ..token("revoked", Bearer::Admin("s".into())) })
        .token(Token { expires_at: Some(now()), ..token("expired", Bearer::Admin("s".into())) })
        .token(Token { expires_at: Some(now() + days(1)), ..token("later", Bearer::Admin("s".into())) });
    scenario.directory.apply([
        deletion(&Entry::Account(account("ann"))),
        deletion(&Entry::Binding(binding("viewer", "ann", "team/*"))),
    ]);
    let end = now() + KEPT_AFTER_END;
    assert_eq!(scenario.directory.expired(end - Duration::from_millis(1)), []);
    assert_eq!(scenario.directory.purge(end - Duration::from_millis(1)), 0);
    let over =
        [("account", "ann"), ("binding", "viewer/ann/team/*"), ("token", "expired"), ("token", "revoked")];
    let found = scenario.directory.expired(end);
    let found: Vec<_> = found.iter().map(|row| (row.kind.as_str(), row.key.as_str())).collect();
    assert_eq!(found, over);
    assert_eq!(scenario.directory.purge(end), over.len());
    assert_eq!(scenario.directory.expired(end), []);
    assert_eq!(scenario.directory.tokens().count(), 2);
}

#[test]
fn entries_are_listed_in_order() {
    let scenario = Scenario::new()
        .user("bob")
        .user("ann")
        .role("custom", &[Rule { verbs: vec![Verb::Read], resources: vec![Resource::Jobs] }])
        .bound("bob", "viewer", "*")
        .bound("ann", "viewer", "team/*")
        .bound("ann", "custom", "finance");
    let directory = &scenario.directory;
    let key = |binding: Binding| Entry::Binding(binding).key();
    assert_eq!(directory.accounts().map(|a| &*a.name).collect::<Vec<_>>(), ["ann", "bob"]);
    assert_eq!(
        directory.roles().map(crate::Role::name).collect::<Vec<_>>(),
        ["viewer", "operator", "developer", "admin", "custom"]
    );
    let all = ["custom/ann/finance", "viewer/ann/team/*", "viewer/bob/*"];
    assert_eq!(directory.bindings().map(key).collect::<Vec<_>>(), all);
    assert_eq!(directory.bindings_of(&"ann".into()).map(key).collect::<Vec<_>>(), all[..2]);
    assert_eq!(directory.tokens().map(|t| &*t.id).collect::<Vec<_>>(), ["ann", "bob", "root"]);
    assert!(directory.role("custom").is_some() && directory.role("admin").is_some());
    assert!(directory.account("eve").is_none() && directory.token("eve").is_none());
}
