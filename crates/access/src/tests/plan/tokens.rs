//! Rights to create and revoke tokens.

use super::*;

#[test]
fn an_account_creates_and_revokes_its_own_tokens() {
    let mut scenario = office();
    assert_eq!(scenario.act("bob", create_token(of("bob"), None)), ["token new"]);
    assert_eq!(scenario.identity("new").name, "bob".into());
    assert_eq!(scenario.act("new", revoke("bob")), ["token bob"]);
    assert_eq!(scenario.act("new", revoke("bob")), [""; 0], "it is revoked already");
    assert_eq!(scenario.act("new", revoke("new")), ["token new"]);
    assert_eq!(scenario.directory.identity("new", now()), None);
    assert_eq!(scenario.directory.token("new").unwrap().revoked_at, Some(now()));
}

/// The bearer can get further rights later, which the creator would then have, too.
#[test]
fn a_token_of_another_bearer_needs_the_role_admin_in_all_namespaces() {
    let creator = rules(&[Verb::Create], &[Resource::Access]);
    let scenario = office().role("creator", &creator).user("eve").bound("eve", "creator", "*");
    assert!(scenario.plan("chief", create_token(of("dev"), None)).is_ok());
    assert!(scenario.plan("chief", create_token(Bearer::Worker("node-1".into()), None)).is_ok());
    let refused = [of("bob"), of("chief"), Bearer::Admin("s".into()), Bearer::Worker("node-1".into())];
    assert_codes(&scenario, "escalation", refused.map(|bearer| ("eve", create_token(bearer, None))));
    insta::assert_snapshot!(
        scenario.refusal("eve", create_token(of("bob"), None)),
        @"`eve` may not create a token of `bob`: `eve` itself may not read jobs, operate jobs, create jobs and 86 more"
    );
}

#[test]
fn an_account_has_a_limited_number_of_usable_tokens() {
    let mut scenario = office();
    for number in 0..99 {
        scenario = scenario.token(token(&format!("t{number}"), of("bob")));
    }
    assert_codes(&scenario, "token_limit", [("bob", create_token(of("bob"), None))]);
    scenario.act("bob", revoke("t0"));
    assert!(scenario.plan("bob", create_token(of("bob"), None)).is_ok());
}

#[test]
fn a_limited_token_creates_only_tokens_with_the_same_or_a_narrower_scope() {
    let scenario = office().limited("chief", scope(Some("admin"), &["finance", "team/*"]));
    let plan = |scope| scenario.plan("chief", create_token(of("chief"), scope));
    for (role, namespaces) in [
        ("admin", &["finance", "team/*"][..]),
        ("viewer", &["finance"]),
        ("developer", &["team/a", "team/b/*"]),
    ] {
        assert!(plan(Some(scope(Some(role), namespaces))).is_ok(), "{role} {namespaces:?}");
    }
    for wider in [
        None,
        Some(scope(Some("viewer"), &[])),
        Some(scope(None, &["finance"])),
        Some(scope(Some("viewer"), &["finance", "sales"])),
        Some(scope(Some("viewer"), &["*"])),
        Some(scope(Some("viewer"), &["team"])),
    ] {
        assert_eq!(plan(wider.clone()).unwrap_err().code(), "wider_scope", "{wider:?}");
    }
    insta::assert_snapshot!(
        plan(Some(scope(Some("admin"), &[]))).unwrap_err(),
        @"`chief` may not create this token: its own token is limited to the namespaces `finance`, `team/*`"
    );
    let viewer = office().limited("bob", scope(Some("viewer"), &[]));
    insta::assert_snapshot!(
        viewer.refusal("bob", create_token(of("bob"), Some(scope(Some("operator"), &[])))),
        @"`bob` may not create this token: its own token is limited to the role `viewer`"
    );
}

#[test]
fn a_worker_token_cannot_come_from_a_limited_token() {
    let scenario = office().limited("chief", scope(Some("admin"), &[]));
    assert_codes(&scenario, "wider_scope", [("chief", create_token(Bearer::Worker("node-1".into()), None))]);
}

#[test]
fn the_token_of_an_account_expires_within_a_year() {
    let scenario = office();
    let plan = |bearer: &Bearer, end| scenario.plan("root", create_token_until(bearer.clone(), None, end));
    let latest = now() + days(366);
    assert!(plan(&of("bob"), Some(now() + Duration::from_millis(1))).is_ok());
    assert!(plan(&of("bob"), Some(latest)).is_ok());
    for end in [None, Some(now()), Some(latest + Duration::from_millis(1))] {
        assert_eq!(plan(&of("bob"), end).unwrap_err().code(), "invalid", "{end:?}");
    }
    for bearer in [Bearer::Admin("s".into()), Bearer::Worker("w".into())] {
        for end in [None, Some(latest + days(1))] {
            assert!(plan(&bearer, end).is_ok(), "{bearer:?} {end:?}");
        }
        assert_eq!(plan(&bearer, Some(now())).unwrap_err().code(), "invalid");
    }
}

#[test]
fn a_limited_token_creates_no_token_that_outlives_it() {
    let end = now() + days(1);
    let limit = Some(scope(Some("viewer"), &[]));
    let own = Token { scope: limit.clone(), expires_at: Some(end), ..token("limited", of("bob")) };
    let scenario = office().token(own);
    let plan = |end| scenario.plan("limited", create_token_until(of("bob"), limit.clone(), Some(end)));
    assert!(plan(end).is_ok());
    insta::assert_snapshot!(
        plan(end + Duration::from_millis(1)).unwrap_err(),
        @"`bob` may not create this token: its own token is limited to the time until 2026-03-03T08:00:00Z"
    );
}

#[test]
fn a_limited_token_revokes_only_itself() {
    let limited = Token { scope: Some(scope(Some("viewer"), &[])), ..token("limited", of("bob")) };
    let mut scenario = office().token(limited);
    assert_codes(&scenario, "denied", [("limited", revoke("bob"))]);
    assert_eq!(scenario.act("limited", revoke("limited")), ["token limited"]);
}
