//! Passwords, invitations and sessions.

use super::super::{deletion, login, password_hash};
use super::*;
use crate::{Identity, Invitation, Login, PasswordChange, PasswordHash, Refusal, SecondFactor, SessionProof};

fn invite_until(account: &str, expires_at: Timestamp, reset: bool) -> Change {
    Change::Invite { account: account.into(), id: "inv".into(), hash: TokenHash([2; 32]), expires_at, reset }
}

fn invite(account: &str) -> Change {
    invite_until(account, now() + days(3), false)
}

fn reset(account: &str) -> Change {
    invite_until(account, now() + days(3), true)
}

fn by_invitation(id: &str) -> Change {
    Change::SetPassword { hash: password_hash("new"), by: PasswordChange::Invitation(id.into()) }
}

fn by_password(current: &str) -> Change {
    Change::SetPassword { hash: password_hash("new"), by: PasswordChange::Current(password_hash(current)) }
}

fn open(id: &str, password: PasswordHash) -> Change {
    let (hash, expires_at) = (TokenHash([3; 32]), now() + days(1));
    let proof = SessionProof::Password(password, None);
    Change::OpenSession { proof, id: id.into(), hash, description: None, expires_at }
}

/// `office`, in which `ann` and `chief` have passwords and invitations.
fn with_logins() -> Scenario {
    office().entry(Entry::Login(login("ann"))).entry(Entry::Login(login("chief")))
}

impl Scenario {
    /// Plans a change of an account whose password or invitation the server has verified.
    fn plan_as(&self, account: &str, change: Change) -> Result<Vec<Row>, Refusal> {
        let identity = self.directory.identity_of_account(account).expect("an enabled account");
        self.directory.plan(&identity, change, now())
    }

    #[track_caller]
    fn act_as(&mut self, account: &str, change: Change) {
        let rows = self.plan_as(account, change).unwrap();
        assert_eq!(self.directory.apply(rows), []);
    }

    fn code_as(&self, account: &str, change: Change) -> &'static str {
        self.plan_as(account, change).expect_err("a refusal").code()
    }

    fn sessions(&self, account: &str) -> Vec<String> {
        self.directory.sessions_of(account, now()).map(|it| it.id.clone()).collect()
    }
}

#[test]
fn an_administrator_of_everything_invites_people() {
    let mut scenario = office();
    assert_codes(
        &scenario,
        "denied",
        [("ann", invite("dev")), ("dev", invite("dev")), ("bob", reset("ann"))],
    );
    let managed = rules(&[Verb::Create, Verb::Change], &[Resource::Access]);
    let manager = office().role("manager", &managed).bound("bob", "manager", "*");
    assert_codes(&manager, "escalation", [("bob", invite("chief")), ("bob", invite("bob"))]);
    insta::assert_snapshot!(
        manager.refusal("bob", invite("dev")),
        @"`bob` may not invite `dev`: `bob` itself may not read jobs, operate jobs, create jobs and 85 more"
    );
    assert_eq!(scenario.act("chief", invite("ann")), ["login ann"]);
    let (account, invitation) = scenario.directory.invitation("inv", now()).unwrap();
    assert_eq!((account.name.as_str(), invitation.created_by.as_str()), ("ann", "chief"));
    assert!(scenario.directory.invitation("inv", now() + days(3)).is_none(), "it expires");
}

#[test]
fn only_enabled_accounts_of_people_have_passwords() {
    let mut scenario = office();
    scenario.act("root", create_account("ci"));
    scenario.act("root", disable("dev"));
    assert_codes(&scenario, "not_found", [("root", invite("unknown"))]);
    assert_codes(
        &scenario,
        "no_login",
        [("root", invite("ci")), ("root", invite("dev")), ("root", by_invitation("x"))],
    );
    insta::assert_snapshot!(
        scenario.refusal("root", invite("ci")),
        @"account `ci` cannot have a password: it is the account of a program"
    );
    let out_of_range = [now(), now() + days(31)].map(|end| ("root", invite_until("bob", end, false)));
    assert_codes(&scenario, "invalid", out_of_range);
}

#[test]
fn an_invitation_is_used_once() {
    let mut scenario = office();
    scenario.act("chief", invite("ann"));
    assert_eq!(scenario.code_as("bob", by_invitation("inv")), "stale_proof", "it is that of ann");
    assert_eq!(scenario.code_as("ann", by_invitation("other")), "stale_proof");
    scenario.act_as("ann", by_invitation("inv"));
    assert_eq!(
        scenario.directory.login("ann").unwrap().password.as_ref().unwrap().hash,
        password_hash("new")
    );
    assert!(scenario.directory.invitation("inv", now()).is_none());
    assert_eq!(scenario.code_as("ann", by_invitation("inv")), "stale_proof");
}

#[test]
fn a_new_invitation_replaces_the_earlier_one_and_keeps_the_password() {
    let mut scenario = with_logins();
    scenario.act("chief", invite("ann"));
    assert!(scenario.directory.invitation("ann", now()).is_none());
    assert!(scenario.directory.invitation("inv", now()).is_some());
    assert!(scenario.directory.login("ann").unwrap().password.is_some());
    assert_eq!(scenario.act("root", Change::RevokeInvitation { account: "ann".into() }), ["login ann"]);
    assert_eq!(scenario.code_as("ann", by_invitation("inv")), "stale_proof");
    assert_eq!(scenario.act("root", Change::RevokeInvitation { account: "ann".into() }), [""; 0]);
    assert_codes(&scenario, "denied", [("ann", Change::RevokeInvitation { account: "ann".into() })]);
}

#[test]
fn a_reset_ends_the_password_and_the_sessions_at_once() {
    let mut scenario = with_logins();
    scenario.act_as("ann", open("s1", password_hash("ann")));
    scenario.act("chief", invite("ann"));
    assert_eq!(scenario.sessions("ann"), ["s1"]);
    scenario.act("chief", reset("ann"));
    assert_eq!(scenario.sessions("ann"), [""; 0]);
    assert!(scenario.directory.login("ann").unwrap().password.is_none());
    assert_eq!(scenario.code_as("ann", open("s2", password_hash("ann"))), "stale_proof");
}

#[test]
fn a_person_changes_the_password_with_the_current_one_and_keeps_only_the_own_session() {
    let mut scenario = with_logins();
    for id in ["s1", "s2"] {
        scenario.act_as("ann", open(id, password_hash("ann")));
    }
    assert_codes(&scenario, "stale_proof", [("s1", by_password("wrong"))]);
    scenario.act("s1", by_password("ann"));
    assert_eq!(scenario.sessions("ann"), ["s1"]);
    assert!(scenario.directory.identity("ann", now()).is_some(), "tokens are no sessions");
    let login = scenario.directory.login("ann").unwrap();
    assert!(login.invitation.is_none(), "an older link does not replace the new password");
    assert_codes(&scenario, "stale_proof", [("s1", by_password("ann"))]);
    let limited = with_logins().limited("ann", scope(Some("viewer"), &[]));
    assert_codes(&limited, "limited_token", [("ann", by_password("ann"))]);
}

#[test]
fn a_session_has_the_rights_of_its_account_and_ends_with_it() {
    let mut scenario = with_logins();
    let before = scenario.identity("ann");
    scenario.act_as("ann", open("s1", password_hash("ann")));
    assert_eq!(scenario.directory.login("ann").unwrap().last_login_at, Some(now()));
    let session = scenario.identity("s1");
    assert_eq!(Identity { token_id: before.token_id.clone(), ..session }, before);
    assert!(scenario.directory.identity("s1", now() + days(1)).is_none(), "it expires");
    scenario.act("root", disable("ann"));
    assert!(scenario.directory.identity("s1", now()).is_none());
    assert!(scenario.directory.identity_of_account("ann").is_none());
    scenario.act("root", delete_account("ann"));
    assert_eq!(scenario.sessions("ann"), [""; 0]);
    assert!(scenario.directory.login("ann").is_none());
}

#[test]
fn a_later_account_of_the_same_name_has_no_login() {
    let mut scenario = with_logins();
    let rows = scenario.act("root", delete_account("ann"));
    assert!(rows.contains(&"login ann".to_owned()), "{rows:?}");
    scenario.act("root", create_account("ann"));
    assert!(scenario.directory.login("ann").is_none());
    // A server of an older version deletes an account without its login.
    let later = Account { created_at: now() + days(1), ..account("bob") };
    let scenario = Scenario::new().entry(Entry::Login(login("bob"))).entry(Entry::Account(later));
    assert!(scenario.directory.login("bob").is_none());
    assert!(scenario.directory.invitation("bob", now()).is_none());
    assert_eq!(scenario.directory.logins().count(), 0);
}

#[test]
fn the_oldest_sessions_end_when_there_are_too_many() {
    let mut scenario = with_logins();
    for number in 10..62 {
        scenario.act_as("ann", open(&format!("s{number}"), password_hash("ann")));
    }
    let sessions = scenario.sessions("ann");
    assert_eq!((sessions.len(), sessions[0].as_str()), (50, "s12"));
    // Sessions take no place of tokens.
    assert!(scenario.plan("ann", create_token(of("ann"), None)).is_ok());
}

#[test]
fn a_person_or_an_administrator_ends_all_sessions() {
    let end = || Change::EndSessions { account: "ann".into() };
    let mut scenario = with_logins();
    for id in ["s1", "s2", "s3"] {
        scenario.act_as("ann", open(id, password_hash("ann")));
    }
    assert_codes(&scenario, "denied", [("bob", end()), ("dev", end())]);
    scenario.act("s2", end());
    assert_eq!(scenario.sessions("ann"), ["s2"]);
    scenario.act("chief", end());
    assert_eq!(scenario.sessions("ann"), [""; 0]);
    let limited = with_logins().limited("ann", scope(Some("viewer"), &[]));
    assert_codes(&limited, "denied", [("ann", end())]);
}

#[test]
fn a_password_counts_as_a_way_to_administrate_and_a_session_does_not() {
    let revoked = Token { revoked_at: Some(now()), ..token("root", Bearer::Admin("root".into())) };
    let mut scenario = office().token(revoked).entry(Entry::Login(login("chief")));
    scenario.act_as("chief", open("s1", password_hash("chief")));
    scenario.act("s1", revoke("chief"));
    assert!(scenario.directory.has_admin(now()), "the password remains");
    assert_codes(&scenario, "last_admin", [("s1", reset("chief")), ("s1", disable("chief"))]);
    insta::assert_snapshot!(
        scenario.refusal("s1", reset("chief")),
        @"cannot delete the password of `chief`: no other usable token or password may administrate everything"
    );
    let without = Login { password: None, ..login("chief") };
    assert_eq!(scenario.directory.apply([Entry::Login(without).row()]), []);
    assert!(!scenario.directory.has_admin(now()), "a session does not count");
    assert!(scenario.plan("s1", revoke("s1")).is_ok());
}

#[test]
fn a_session_belongs_to_an_account_and_ends() {
    let session = |bearer, expires_at| Token { session: true, expires_at, ..token("s", bearer) };
    for wrong in [session(Bearer::Admin("x".into()), Some(now())), session(of("ann"), None)] {
        assert_eq!(office().directory.apply([Entry::Token(wrong).row()]).len(), 1);
    }
    let password = crate::Password { hash: PasswordHash("plain".into()), set_at: now() };
    let wrong = Login { password: Some(password), ..login("ann") };
    assert_eq!(office().directory.apply([Entry::Login(wrong).row()]).len(), 1);
}

#[test]
fn no_hash_is_shown() {
    let scenario = with_logins();
    let rows = scenario.plan("chief", invite("ann")).unwrap();
    let shown = format!("{:?} {:?} {rows:?}", scenario.directory, scenario.directory.changed(&rows));
    for secret in ["argon2id", "cdcd", "0202"] {
        assert!(!shown.contains(secret), "{secret}");
    }
    assert!(shown.contains("created_by"), "{shown}");
}

#[test]
fn an_unreadable_login_is_not_overwritten() {
    let newer = Row { body: r#"{"newer":1}"#.into(), ..Entry::Login(login("ann")).row() };
    let mut scenario = office();
    assert_eq!(scenario.directory.apply([newer]).len(), 1);
    assert_codes(&scenario, "unreadable", [("chief", invite("ann"))]);
    scenario.directory.apply([deletion(&Entry::Login(login("ann")))]);
    assert!(scenario.plan("chief", invite("ann")).is_ok());
}

#[test]
fn ended_sessions_are_kept_for_a_day() {
    let session = Token { session: true, expires_at: Some(now()), ..token("s", of("ann")) };
    let invitation = Invitation { expires_at: now(), ..login("ann").invitation.unwrap() };
    let scenario =
        office().token(session).entry(Entry::Login(Login { invitation: Some(invitation), ..login("ann") }));
    let over = |after: Duration| scenario.directory.expired(now() + after).len();
    assert_eq!((over(Duration::from_hours(23)), over(days(1))), (0, 1));
}

fn set_totp(current: &str) -> Change {
    let recovery = vec![TokenHash([7; 32]), TokenHash([8; 32])];
    Change::SetTotp { password: password_hash(current), sealed: "v1.x".into(), step: 10, recovery }
}

fn open_with(id: &str, second: Option<SecondFactor>) -> Change {
    let proof = SessionProof::Password(password_hash("ann"), second);
    let (hash, expires_at) = (TokenHash([3; 32]), now() + days(1));
    Change::OpenSession { proof, id: id.into(), hash, description: None, expires_at }
}

#[test]
fn each_code_of_a_second_factor_works_once() {
    let mut scenario = with_logins();
    assert_eq!(scenario.code_as("ann", set_totp("wrong")), "stale_proof");
    scenario.act_as("ann", set_totp("ann"));
    for second in [None, Some(SecondFactor::Step(10)), Some(SecondFactor::Recovery(TokenHash([9; 32])))] {
        assert_eq!(scenario.code_as("ann", open_with("s1", second)), "stale_proof", "{second:?}");
    }
    let (step, recovery) = (Some(SecondFactor::Step(12)), Some(SecondFactor::Recovery(TokenHash([7; 32]))));
    scenario.act_as("ann", open_with("s1", step));
    for used in [step, Some(SecondFactor::Step(11))] {
        assert_eq!(scenario.code_as("ann", open_with("s2", used)), "stale_proof", "{used:?}");
    }
    scenario.act_as("ann", open_with("s2", recovery));
    assert_eq!(scenario.code_as("ann", open_with("s3", recovery)), "stale_proof");
    assert_eq!(scenario.directory.login("ann").unwrap().totp.as_ref().unwrap().recovery.len(), 1);
    // A new password keeps the second factor.
    scenario.act_as("ann", by_password("ann"));
    assert!(scenario.directory.login("ann").unwrap().totp.is_some());
}

#[test]
fn a_second_factor_is_deleted_with_the_password_or_by_an_administrator_of_everything() {
    let mut scenario = with_logins();
    scenario.act_as("ann", set_totp("ann"));
    let delete = |account: &str, password: Option<&str>| Change::DeleteTotp {
        account: account.into(),
        password: password.map(password_hash),
    };
    assert_eq!(scenario.code_as("ann", delete("ann", Some("wrong"))), "stale_proof");
    assert_eq!(scenario.code_as("chief", delete("ann", Some("chief"))), "stale_proof", "it is that of ann");
    assert_codes(&scenario, "denied", [("ann", delete("ann", None)), ("dev", delete("ann", None))]);
    assert_eq!(scenario.act("chief", delete("ann", None)), ["login ann"]);
    assert_eq!(scenario.act("chief", delete("ann", None)), [""; 0]);
    scenario.act_as("ann", set_totp("ann"));
    scenario.act_as("ann", delete("ann", Some("ann")));
    assert!(scenario.directory.login("ann").unwrap().totp.is_none());
}

#[test]
fn a_second_factor_is_not_shown() {
    let mut scenario = with_logins();
    let rows = scenario.plan_as("ann", set_totp("ann")).unwrap();
    let shown = format!("{:?}", scenario.directory.changed(&rows));
    assert!(shown.contains("set_at") && !shown.contains("v1.x") && !shown.contains("0707"), "{shown}");
    scenario.directory.apply(rows);
    let shown = format!("{:?}", scenario.directory.login("ann"));
    assert!(!shown.contains("v1.x"), "{shown}");
}
