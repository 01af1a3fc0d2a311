//! Rights of changes, and their rows.

use super::*;

#[test]
fn accounts_and_roles_need_rights_in_the_whole_cluster() {
    let changes = [
        create_account("ci"),
        disable("bob"),
        delete_account("bob"),
        put_role("reader", Verb::Read),
        put_role("viewer", Verb::Read),
        delete_role("reader"),
        create_token(of("bob"), None),
        create_token(Bearer::Admin("s".into()), None),
        create_token(Bearer::Worker("w".into()), None),
        revoke("root"),
        revoke("unknown"),
    ];
    for change in changes {
        assert_codes(&office(), "denied", [("ann", change.clone()), ("dev", change)]);
    }
}

#[test]
fn a_worker_changes_nothing() {
    let scenario = office().token(token("w", Bearer::Worker("node-1".into())));
    assert_codes(&scenario, "denied", [("w", create_account("ci")), ("w", revoke("w"))]);
}

#[test]
fn an_admin_of_a_namespace_manages_its_bindings_only() {
    let mut scenario = office();
    assert_eq!(scenario.act("ann", bind("developer", "bob", "finance")), ["binding developer/bob/finance"]);
    assert!(
        scenario
            .identity("bob")
            .decide(Verb::Create, Object::in_namespace(Resource::Jobs, "finance"))
            .is_ok()
    );
    assert_eq!(scenario.act("ann", unbind("developer", "bob", "finance")), ["binding developer/bob/finance"]);
    assert!(scenario.identity("bob").anywhere(Verb::Read, Resource::Jobs).is_err());
    let elsewhere = ["sales", "*", "finance/*"];
    assert_codes(&scenario, "denied", elsewhere.map(|namespace| ("ann", bind("viewer", "bob", namespace))));
    assert_codes(
        &scenario,
        "denied",
        [("dev", bind("viewer", "bob", "finance")), ("ann", unbind("admin", "chief", "*"))],
    );
}

#[test]
fn a_prefix_is_bound_only_by_an_admin_of_the_prefix() {
    let scenario = Scenario::new().user("ann").bound("ann", "admin", "team/*").user("bob");
    for namespace in ["team/*", "team/a", "team/a/*"] {
        assert!(scenario.plan("ann", bind("admin", "bob", namespace)).is_ok(), "{namespace}");
    }
    for namespace in ["team", "*", "other/*"] {
        assert_codes(&scenario, "denied", [("ann", bind("viewer", "bob", namespace))]);
    }
}

#[test]
fn a_role_is_given_only_by_an_identity_with_all_its_permissions_there() {
    let manager = rules(&[Verb::Read, Verb::Change], &[Resource::Access, Resource::Jobs]);
    let scenario = office().role("manager", &manager).user("eve").bound("eve", "manager", "finance");
    assert!(scenario.plan("eve", bind("manager", "bob", "finance")).is_ok());
    let refusal = scenario.refusal("eve", bind("developer", "bob", "finance"));
    assert_eq!(refusal.code(), "escalation");
    insta::assert_snapshot!(refusal, @"`eve` may not give role `developer` to `bob` in namespace `finance`: `eve` itself may not operate jobs, create jobs, delete jobs and 46 more");
    // A removal gives no rights.
    assert!(scenario.plan("eve", unbind("admin", "ann", "finance")).is_ok());
}

#[test]
fn a_scope_also_limits_the_roles_that_are_given() {
    let scenario = office().limited("chief", scope(None, &["finance"]));
    assert!(scenario.plan("chief", bind("admin", "bob", "finance")).is_ok());
    assert_codes(
        &scenario,
        "denied",
        [("chief", bind("viewer", "bob", "sales")), ("chief", create_account("ci"))],
    );
    let manager = rules(&[Verb::Change], &[Resource::Access]);
    let scenario = office().role("manager", &manager).limited("chief", scope(Some("manager"), &[]));
    assert_codes(&scenario, "escalation", [("chief", bind("viewer", "bob", "finance"))]);
}

#[test]
fn a_role_defines_no_more_than_its_author_holds_in_the_cluster() {
    let manager =
        [rules(&[Verb::Create, Verb::Change], &[Resource::Access]), rules(&[Verb::Read], &[Resource::Jobs])];
    let scenario =
        Scenario::new().role("manager", &manager.concat()).user("eve").bound("eve", "manager", "*");
    assert!(scenario.plan("eve", put_role("reader", Verb::Read)).is_ok());
    let refusal = scenario.refusal("eve", put_role("runner", Verb::Operate));
    insta::assert_snapshot!(refusal, @"`eve` may not define role `runner`: `eve` itself may not operate jobs");
    assert_codes(&scenario, "escalation", [("eve", put_role("manager", Verb::Operate))]);
}

#[test]
fn the_end_of_an_account_ends_its_bindings_and_tokens() {
    let mut scenario = office();
    let keys = scenario.act("chief", delete_account("dev"));
    assert_eq!(keys, ["binding developer/dev/finance", "token dev", "account dev"]);
    assert_eq!(scenario.directory.identity("dev", now()), None);
    scenario.act("chief", create_account("dev"));
    assert_eq!(scenario.directory.bindings_of(&"dev".into()).count(), 0);
    assert_eq!(scenario.directory.identity("dev", now()), None, "the token stays revoked");
}

/// Another server can bind an account while this one deletes it.
#[test]
fn a_new_account_or_role_inherits_nothing_from_a_former_one() {
    let mut scenario = Scenario::new()
        .bound("ann", "admin", "*")
        .token(token("ann", Bearer::Account("ann".into())))
        .user("bob")
        .bound("bob", "custom", "*");
    let keys = scenario.act("root", create_account("ann"));
    assert_eq!(keys, ["binding admin/ann/*", "token ann", "account ann"]);
    assert_eq!(scenario.directory.identity("ann", now()), None);
    assert_eq!(scenario.act("root", put_role("custom", Verb::Read)), ["binding custom/bob/*", "role custom"]);
    assert!(scenario.identity("bob").anywhere(Verb::Read, Resource::Jobs).is_err());
}

#[test]
fn a_change_without_effect_writes_nothing() {
    let mut scenario = office().role("reader", &rules(&[Verb::Read], &[Resource::Jobs]));
    let title = |title| Change::ChangeAccount {
        name: "bob".into(),
        title: Some(title),
        disabled: None,
        submit_rate: None,
    };
    assert_eq!(scenario.act("root", put_role("reader", Verb::Read)), [""; 0]);
    assert_eq!(scenario.act("root", title(None)), [""; 0]);
    assert_eq!(scenario.act("root", title(Some("Bob 鲍勃".into()))), ["account bob"]);
    assert_eq!(scenario.directory.account("bob").unwrap().title.as_deref(), Some("Bob 鲍勃"));
    assert_eq!(scenario.act("root", title(None)), ["account bob"]);
    assert_eq!(scenario.directory.account("bob").unwrap().title, None);
}
