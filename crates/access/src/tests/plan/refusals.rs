//! Refusals for names, fields and states of entries.

use super::*;

#[test]
fn absent_and_present_entries_are_named() {
    let scenario = office().role("reader", &rules(&[Verb::Read], &[Resource::Jobs]));
    let unknown_role = create_token(of("bob"), Some(scope(Some("reviewer"), &[])));
    let messages = [
        disable("eve"),
        delete_account("eve"),
        delete_role("reviewer"),
        bind("reviewer", "bob", "finance"),
        bind("viewer", "eve", "finance"),
        unbind("viewer", "bob", "finance"),
        create_token(of("eve"), None),
        unknown_role,
        revoke("unknown"),
        create_account("bob"),
        bind("admin", "ann", "finance"),
        put_role("viewer", Verb::Read),
        delete_role("admin"),
    ]
    .map(|change| scenario.refusal("root", change).to_string());
    insta::assert_snapshot!(messages.join("\n"));
    let taken = scenario.token(token("new", of("bob")));
    assert_codes(&taken, "exists", [("root", create_token(of("bob"), None))]);
}

#[test]
fn a_role_in_use_is_not_deleted() {
    let reader = rules(&[Verb::Read], &[Resource::Jobs]);
    let limited = |id| Token { scope: Some(scope(Some("reader"), &[])), ..token(id, of("bob")) };
    let mut scenario = office()
        .role("reader", &reader)
        .bound("ann", "reader", "finance")
        .bound("ann", "reader", "sales")
        .token(limited("t1"))
        .token(Token { revoked_at: Some(now()), ..limited("t2") });
    insta::assert_snapshot!(
        scenario.refusal("root", delete_role("reader")),
        @"cannot delete role `reader`: it is in use by the accounts `ann` and the tokens `t1`"
    );
    scenario.act("root", unbind("reader", "ann", "finance"));
    scenario.act("root", unbind("reader", "ann", "sales"));
    insta::assert_snapshot!(
        scenario.refusal("root", delete_role("reader")),
        @"cannot delete role `reader`: it is in use by the tokens `t1`"
    );
    scenario.act("root", revoke("t1"));
    assert_eq!(scenario.act("root", delete_role("reader")), ["role reader"]);
}

#[test]
fn an_entry_of_a_newer_server_is_not_replaced() {
    let mut scenario = office();
    for (kind, key) in
        [("account", "eve"), ("role", "reader"), ("binding", "viewer/bob/sales"), ("token", "new")]
    {
        scenario.directory.apply([Row { kind: kind.into(), key: key.into(), body: r#"{"newer":1}"#.into() }]);
    }
    let changes = [
        create_account("eve"),
        delete_account("eve"),
        put_role("reader", Verb::Read),
        delete_role("reader"),
        bind("viewer", "bob", "sales"),
        unbind("viewer", "bob", "sales"),
        create_token(of("bob"), None),
        revoke("new"),
    ];
    assert_codes(&scenario, "unreadable", changes.map(|change| ("root", change)));
}

#[test]
fn invalid_fields_are_named() {
    let scenario = office();
    let long = |length| "é".repeat(length);
    let messages = [
        Change::CreateAccount {
            name: "@ann".into(),
            kind: AccountKind::User,
            title: Some(long(101)),
            submit_rate: SubmitRate::Default,
        },
        Change::CreateAccount {
            name: "a".repeat(255),
            kind: AccountKind::User,
            title: Some("a\nb".into()),
            submit_rate: SubmitRate::Default,
        },
        Change::ChangeAccount {
            name: "bob".into(),
            title: Some(Some(String::new())),
            disabled: None,
            submit_rate: None,
        },
        Change::PutRole { name: "ro/le".into(), description: Some(long(201)), rules: vec![] },
        Change::PutRole {
            name: "a".repeat(64),
            description: None,
            rules: [rules(&[], &[]), rules(&[Verb::Work], &[Resource::Jobs])].concat(),
        },
        bind("viewer", "bob", "team/"),
        bind("viewer", "bob", "te*"),
        create_token_until(Bearer::Admin("a b".into()), Some(scope(None, &[])), Some(now())),
        create_token(Bearer::Worker("w".into()), Some(scope(Some("viewer"), &["**", "a//b"]))),
        Change::CreateToken {
            id: "a-b".into(),
            hash: TokenHash([0; 32]),
            bearer: of("bob"),
            description: Some(long(201)),
            scope: None,
            expires_at: None,
        },
    ]
    .map(|change| {
        let refusal = scenario.refusal("root", change);
        assert!(!refusal.problems().is_empty(), "{refusal}");
        refusal.problems().iter().map(|p| format!("{}: {}", p.path, p.message)).collect::<Vec<_>>().join("\n")
    });
    insta::assert_snapshot!(messages.join("\n\n"));
}

#[test]
fn names_of_accounts_can_be_email_addresses() {
    let mut scenario = office();
    for name in ["ann.b-c_d@example.com", "7", &"a".repeat(254)] {
        assert_eq!(scenario.act("root", create_account(name)), [format!("account {name}")]);
    }
}
