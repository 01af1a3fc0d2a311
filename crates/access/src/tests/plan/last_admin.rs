//! The last way to administrate everything.

use super::*;

/// A scenario whose only administrator is the account `chief`.
fn without_root() -> Scenario {
    office().token(Token { revoked_at: Some(now()), ..token("root", Bearer::Admin("root".into())) })
}

#[test]
fn the_last_administrator_remains() {
    let scenario = without_root();
    let ends = [revoke("chief"), disable("chief"), delete_account("chief"), unbind("admin", "chief", "*")];
    assert_codes(&scenario, "last_admin", ends.clone().map(|change| ("chief", change)));
    insta::assert_snapshot!(
        scenario.refusal("chief", revoke("chief")),
        @"cannot revoke token `chief`: no other usable token or password may administrate everything"
    );
    // With another way, each of them is allowed.
    let another = without_root().token(token("s", Bearer::Admin("s".into())));
    for change in ends {
        assert!(another.plan("chief", change.clone()).is_ok(), "{change:?}");
    }
}

#[test]
fn only_usable_tokens_without_a_scope_count_as_administrators() {
    let others = [
        Token { scope: Some(scope(Some("admin"), &[])), ..token("s", Bearer::Admin("s".into())) },
        Token { expires_at: Some(now()), ..token("s", Bearer::Admin("s".into())) },
        Token { revoked_at: Some(now()), ..token("s", Bearer::Admin("s".into())) },
        token("s", Bearer::Worker("node-1".into())),
        token("s", of("ann")),
        token("s", of("unknown")),
        token("s", of("chief")),
    ];
    for other in others {
        let scenario = without_root().token(other.clone());
        assert!(scenario.directory.has_admin(now()));
        assert_codes(&scenario, "last_admin", [("chief", disable("chief"))]);
    }
    let disabled = without_root()
        .user("eve")
        .bound("eve", "admin", "*")
        .entry(Entry::Account(Account { disabled: true, ..account("eve") }));
    assert_codes(&disabled, "last_admin", [("chief", disable("chief"))]);
    let second = without_root().user("eve").bound("eve", "admin", "*");
    assert!(second.plan("chief", disable("chief")).is_ok());
    // One of two tokens of the only administrator can be revoked.
    let spare = without_root().token(token("spare", of("chief")));
    assert!(spare.plan("chief", revoke("chief")).is_ok());
}

#[test]
fn an_administrator_by_a_custom_role_counts_too() {
    let everything = Rule::of(crate::BuiltInRole::Admin.permissions());
    let scenario = office()
        .token(Token { revoked_at: Some(now()), ..token("root", Bearer::Admin("root".into())) })
        .role("everything", &everything)
        .bound("chief", "everything", "*");
    assert!(scenario.plan("chief", unbind("admin", "chief", "*")).is_ok());
    let mut scenario = scenario;
    scenario.act("chief", unbind("admin", "chief", "*"));
    assert_codes(
        &scenario,
        "last_admin",
        [("chief", put_role("everything", Verb::Read)), ("chief", unbind("everything", "chief", "*"))],
    );
}
