//! Identities at an OpenID provider, and roles of groups.

use super::super::{deletion, login};
use super::*;
use crate::{Object, OidcLink, Resource, SessionProof, Subject, Verb};

const ISSUER: &str = "https://id.example";

fn recorded(subject: &str, groups: &[&str], link: OidcLink) -> Change {
    let groups = groups.iter().map(|&group| group.to_owned()).collect();
    Change::RecordOidcLogin { issuer: ISSUER.into(), subject: subject.into(), groups, link }
}

fn new_account(subject: &str, name: &str, groups: &[&str]) -> Change {
    recorded(subject, groups, OidcLink::NewAccount { name: name.into(), title: None })
}

fn session(id: &str, subject: &str) -> Change {
    let proof = SessionProof::Oidc { issuer: ISSUER.into(), subject: subject.into() };
    let (hash, expires_at) = (TokenHash([3; 32]), now() + days(1));
    Change::OpenSession { proof, id: id.into(), hash, description: None, expires_at }
}

impl Scenario {
    /// Returns whether the account may read jobs in a namespace.
    fn reads(&self, account: &str, namespace: &str) -> bool {
        let identity = self.directory.identity_of_account(account).expect("an enabled account");
        identity.decide(Verb::Read, Object::in_namespace(Resource::Jobs, namespace)).is_ok()
    }
}

#[test]
fn the_first_login_creates_an_account_and_later_ones_find_it_by_issuer_and_subject() {
    let mut scenario = office();
    assert_eq!(
        scenario.act("root", new_account("s-1", "eve", &["b", "a", "b"])),
        ["account eve", "login eve"]
    );
    assert_eq!(scenario.directory.groups_of("eve"), ["a", "b"]);
    assert_eq!(scenario.directory.account_of_identity(ISSUER, "s-1").unwrap().name, "eve");
    assert!(scenario.directory.account_of_identity("https://other.example", "s-1").is_none());
    // The person has another name at the provider now.
    assert_eq!(scenario.act("root", new_account("s-1", "eve.lee", &["a"])), ["login eve"]);
    assert_eq!(scenario.act("root", new_account("s-1", "eve", &["a"])), [""; 0]);
    assert_codes(&scenario, "not_found", [("root", recorded("s-2", &[], OidcLink::Known))]);
    assert_codes(&scenario, "denied", [("ann", new_account("s-2", "mallory", &[]))]);
}

/// The provider, or its users, choose names. They must not select an account.
#[test]
fn a_name_of_the_provider_does_not_take_over_an_account() {
    let scenario = office().entry(Entry::Login(login("ann")));
    assert_codes(&scenario, "exists", [("root", new_account("s-1", "ann", &[]))]);
    assert!(scenario.plan("root", new_account("s-1", "Ann", &[])).is_ok(), "names are case-sensitive");
    assert_codes(&scenario, "invalid", [("root", new_account("s-1", "ann lee", &[]))]);
    assert_codes(&scenario, "invalid", [("root", new_account("", "eve", &[]))]);
    assert_codes(&scenario, "invalid", [("root", new_account("s-1", "eve", &["a\nb"]))]);
}

#[test]
fn an_invitation_links_an_account_once() {
    let mut scenario = office().entry(Entry::Login(login("ann")));
    scenario.act("root", recorded("s-1", &["a"], OidcLink::Invitation("ann".into())));
    assert_eq!(scenario.directory.account_of_identity(ISSUER, "s-1").unwrap().name, "ann");
    assert!(scenario.directory.login("ann").unwrap().password.is_some());
    let again = recorded("s-2", &[], OidcLink::Invitation("ann".into()));
    assert_codes(&scenario, "stale_proof", [("root", again)]);
}

#[test]
fn a_session_needs_the_identity_of_the_account() {
    let mut scenario = office();
    scenario.act("root", new_account("s-1", "eve", &[]));
    let eve = scenario.directory.identity_of_account("eve").unwrap();
    let plan = |scenario: &Scenario, change| scenario.directory.plan(&eve, change, now());
    assert_eq!(plan(&scenario, session("x", "s-2")).unwrap_err().code(), "stale_proof");
    let rows = plan(&scenario, session("x", "s-1")).unwrap();
    scenario.directory.apply(rows);
    assert_eq!(plan(&scenario, session("x", "s-1")).unwrap_err().code(), "exists", "a session opens once");
    scenario.act("root", Change::UnlinkOidc { account: "eve".into() });
    assert_eq!(scenario.directory.sessions_of("eve", now()).count(), 0);
    assert_eq!(plan(&scenario, session("y", "s-1")).unwrap_err().code(), "stale_proof");
}

#[test]
fn a_disabled_account_is_refused() {
    let mut scenario = office();
    scenario.act("root", new_account("s-1", "eve", &[]));
    scenario.act("root", disable("eve"));
    assert_codes(&scenario, "no_login", [("root", new_account("s-1", "eve", &[]))]);
}

#[test]
fn the_login_of_a_deleted_account_gives_a_later_account_nothing() {
    let mut scenario = office();
    scenario.act("root", new_account("s-1", "eve", &["devs"]));
    scenario.act("root", delete_account("eve"));
    assert!(scenario.directory.account_of_identity(ISSUER, "s-1").is_none());
    scenario.act("root", new_account("s-2", "eve", &[]));
    assert_eq!(scenario.directory.account_of_identity(ISSUER, "s-2").unwrap().name, "eve");
    assert_eq!(scenario.directory.groups_of("eve"), [""; 0]);
}

#[test]
fn roles_of_groups_follow_bindings_and_logins_at_once() {
    let mut scenario = office();
    scenario.act("root", new_account("s-1", "eve", &["devs", "/team/A b"]));
    assert!(!scenario.reads("eve", "web"));
    scenario.act("chief", bind("viewer", "group:devs", "web"));
    scenario.act("chief", bind("viewer", "group:/team/A b", "team/*"));
    assert!(scenario.reads("eve", "web") && scenario.reads("eve", "team/a"));
    let subject = Subject::parse("group:/team/A b");
    let found: Vec<_> = scenario.directory.bindings_of(&subject).map(|it| Entry::Binding(it).key()).collect();
    assert_eq!(found, ["viewer/group:%2Fteam%2FA b/team/*"]);
    assert_eq!(scenario.directory.bindings_of(&"eve".into()).count(), 0);
    // The provider takes a group away.
    scenario.act("root", new_account("s-1", "eve", &["devs"]));
    assert!(scenario.reads("eve", "web") && !scenario.reads("eve", "team/a"));
    scenario.act("chief", unbind("viewer", "group:devs", "web"));
    assert!(!scenario.reads("eve", "web"));
    let unknown = unbind("viewer", "group:devs", "web");
    assert_codes(&scenario, "not_found", [("chief", unknown)]);
}

#[test]
fn a_changed_role_changes_the_rights_of_groups() {
    let mut scenario = office().role("reader", &rules(&[Verb::Read], &[Resource::Logs]));
    scenario.act("root", new_account("s-1", "eve", &["devs"]));
    scenario.act("root", bind("reader", "group:devs", "web"));
    assert!(!scenario.reads("eve", "web"));
    insta::assert_snapshot!(
        scenario.refusal("root", delete_role("reader")),
        @"cannot delete role `reader`: it is in use by the groups `devs`"
    );
    let wider = rules(&[Verb::Read], &[Resource::Logs, Resource::Jobs]);
    scenario.act("root", Change::PutRole { name: "reader".into(), description: None, rules: wider });
    assert!(scenario.reads("eve", "web"));
}

#[test]
fn a_group_gets_no_rights_that_the_actor_does_not_have() {
    let scenario = office();
    let manager = office()
        .role("manager", &rules(&[Verb::Change], &[Resource::Access]))
        .bound("bob", "manager", "web")
        .bound("bob", "viewer", "web");
    assert!(manager.plan("bob", bind("viewer", "group:devs", "web")).is_ok());
    assert_codes(&manager, "denied", [("bob", bind("viewer", "group:devs", "*"))]);
    insta::assert_snapshot!(
        manager.refusal("bob", bind("operator", "group:devs", "web")),
        @"`bob` may not give role `operator` to `group:devs` in namespace `web`: `bob` itself may not operate jobs, operate workers, operate queues and 5 more"
    );
    assert_codes(&scenario, "invalid", [("root", bind("viewer", "group:", "web"))]);
}

/// The provider may take the group away, so the last other administrator stays.
#[test]
fn a_group_is_not_the_last_administrator() {
    let mut scenario = office();
    scenario.act("root", bind("admin", "group:ops", "*"));
    scenario.act("root", new_account("s-1", "eve", &["ops"]));
    let scenario = scenario
        .token(token("eve", of("eve")))
        .token(Token { revoked_at: Some(now()), ..token("root", Bearer::Admin("root".into())) });
    assert!(scenario.directory.identity("eve", now()).is_some());
    assert_codes(&scenario, "last_admin", [("chief", disable("chief"))]);
}

#[test]
fn rows_of_groups_are_read_in_any_order() {
    let mut source = office();
    source.act("root", new_account("s-1", "eve", &["devs"]));
    source.act("root", bind("viewer", "group:devs", "web"));
    let binding = source.directory.bindings().find(|it| it.subject.account().is_none()).unwrap();
    let rows = [
        Entry::Binding(binding.clone()).row(),
        Entry::Login(source.directory.login("eve").unwrap().clone()).row(),
        Entry::Account(source.directory.account("eve").unwrap().clone()).row(),
    ];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut scenario = Scenario::new();
        scenario.directory.apply(order.map(|at| rows[at].clone()));
        assert!(scenario.reads("eve", "web"), "{order:?}");
        scenario.directory.apply([deletion(&Entry::Binding(binding.clone()))]);
        assert!(!scenario.reads("eve", "web"), "{order:?}");
    }
}
