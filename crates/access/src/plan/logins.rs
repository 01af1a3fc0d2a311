//! Changes of logins: passwords, invitations, identities at OpenID providers, and sessions.
//!
//! With an invitation, its bearer can act as the account, so only an administrator of everything creates one. A person
//! sets the own password with an invitation or with the current password. The server has verified the password or the
//! invitation before; the plan checks that it is still the same, so of two uses of one invitation only one succeeds.

use std::collections::BTreeSet;

use model::{Duration, Timestamp};

use super::{Plan, validate};
use crate::action::Verb;
use crate::admins::Without;
use crate::change::{OidcLink, PasswordChange, SecondFactor, SessionProof};
use crate::entry::{
    Account, AccountKind, Bearer, Entry, EntryKind, Invitation, Login, OidcIdentity, Password, PasswordHash,
    Row, SubmitRate, Token, TokenHash, Totp,
};
use crate::identity::IdentityKind;
use crate::refusal::Refusal;
use crate::role::BuiltInRole;

/// Maximum time to the end of an invitation.
const INVITATION_MAX: Duration = Duration::from_hours(24 * 30);
/// Maximum time to the end of a session.
const SESSION_MAX: Duration = Duration::from_hours(24 * 30);
/// Maximum number of usable sessions of an account.
const SESSIONS_MAX: usize = 50;
/// Maximum number of recovery codes.
const RECOVERY_MAX: usize = 20;

/// Fields of an invitation that the caller chooses.
pub(super) struct NewInvitation {
    pub(super) id: String,
    pub(super) hash: TokenHash,
    pub(super) expires_at: Timestamp,
}

/// Fields of a session that the caller chooses.
pub(super) struct NewSession {
    pub(super) id: String,
    pub(super) hash: TokenHash,
    pub(super) description: Option<String>,
    pub(super) expires_at: Timestamp,
}

impl Plan<'_> {
    pub(super) fn invite(&self, name: &str, new: NewInvitation, reset: bool) -> Result<Vec<Row>, Refusal> {
        self.authorize(Verb::Create, "*")?;
        validate(|check| {
            check.token_id("id", &new.id);
            let latest = self.now + INVITATION_MAX;
            let ok = new.expires_at > self.now && new.expires_at <= latest;
            check.ensure(ok, "expires_at", || format!("expected a time in the future, until {latest}"));
        })?;
        let account = self.existing_account(name)?;
        self.ensure_held(BuiltInRole::Admin.permissions(), "*", || format!("invite `{name}`"))?;
        ensure_person(account)?;
        let before = self.login_of(account)?;
        let invitation = Invitation {
            id: new.id,
            hash: new.hash,
            created_at: self.now,
            created_by: self.actor_name(),
            expires_at: new.expires_at,
        };
        let mut login = Login { invitation: Some(invitation), ..before };
        let mut rows = Vec::new();
        if reset {
            if login.password.take().is_some() {
                self.ensure_admin_remains(Without::Password(name), || {
                    format!("delete the password of `{name}`")
                })?;
            }
            rows = self.ended_sessions(name);
        }
        rows.push(Entry::Login(login).row());
        Ok(rows)
    }

    pub(super) fn revoke_invitation(&self, name: &str) -> Result<Vec<Row>, Refusal> {
        self.authorize(Verb::Delete, "*")?;
        let account = self.existing_account(name)?;
        let before = self.login_of(account)?;
        let has_invitation = before.invitation.is_some();
        let row = Entry::Login(Login { invitation: None, ..before }).row();
        Ok(if has_invitation { vec![row] } else { Vec::new() })
    }

    pub(super) fn set_password(&self, hash: PasswordHash, by: PasswordChange) -> Result<Vec<Row>, Refusal> {
        let account = self.person()?;
        validate(|check| check.password_hash("hash", &hash))?;
        let before = self.login_of(account)?;
        let is_valid = match &by {
            PasswordChange::Invitation(id) => {
                let found = self.directory.invitation(id, self.now);
                found.is_some_and(|(of, _)| of.name == account.name)
            }
            PasswordChange::Current(hash) => has_password(&before, hash),
        };
        if !is_valid {
            return Err(Refusal::StaleProof);
        }
        let password = Some(Password { hash, set_at: self.now });
        let mut rows = self.ended_sessions(&account.name);
        rows.push(Entry::Login(Login { password, invitation: None, ..before }).row());
        Ok(rows)
    }

    pub(super) fn open_session(&self, proof: SessionProof, new: NewSession) -> Result<Vec<Row>, Refusal> {
        let account = self.person()?;
        let bearer = Bearer::Account(account.name.clone());
        validate(|check| {
            check.token_id("id", &new.id);
            check.description(new.description.as_deref());
            let latest = self.now + SESSION_MAX;
            let ok = new.expires_at > self.now && new.expires_at <= latest;
            check.ensure(ok, "expires_at", || format!("expected a time in the future, until {latest}"));
        })?;
        self.ensure_new(EntryKind::Token, &new.id, self.directory.token(&new.id).is_some())?;
        let before = self.login_of(account)?;
        let mut login = before;
        match &proof {
            SessionProof::Password(hash, second) if has_password(&login, hash) => {
                use_second_factor(&mut login, *second)?;
            }
            // The provider has asked for its own second factor.
            SessionProof::Oidc { issuer, subject } if has_identity(&login, issuer, subject) => {}
            _ => return Err(Refusal::StaleProof),
        }
        login.last_login_at = Some(self.now);
        let mut rows = self.surplus_sessions(&account.name);
        rows.push(Entry::Login(login).row());
        let token = Token {
            id: new.id,
            bearer,
            description: new.description,
            hash: new.hash,
            scope: None,
            session: true,
            created_at: self.now,
            created_by: self.actor_name(),
            expires_at: Some(new.expires_at),
            revoked_at: None,
        };
        rows.push(Entry::Token(token).row());
        Ok(rows)
    }

    /// Links an identity to an account at the first login, and records the groups at each.
    pub(super) fn record_oidc_login(
        &self,
        issuer: String,
        subject: String,
        groups: Vec<String>,
        link: OidcLink,
    ) -> Result<Vec<Row>, Refusal> {
        self.authorize(Verb::Create, "*")?;
        let groups: BTreeSet<String> = groups.into_iter().collect();
        let identity =
            OidcIdentity { issuer, subject, groups: groups.into_iter().collect(), linked_at: self.now };
        validate(|check| check.oidc(&identity))?;
        let known = self.directory.account_of_identity(&identity.issuer, &identity.subject);
        let (account, mut rows) = match (known, link) {
            (Some(account), _) => (account.clone(), Vec::new()),
            (None, OidcLink::Known) => {
                let name = identity.subject;
                return Err(Refusal::NotFound { what: EntryKind::Account.as_str(), name });
            }
            (None, OidcLink::NewAccount { name, title }) => self.new_person(name, title)?,
            (None, OidcLink::Invitation(id)) => {
                let found = self.directory.invitation(&id, self.now);
                let (account, _) = found.ok_or(Refusal::StaleProof)?;
                (account.clone(), self.ended_sessions(&account.name))
            }
        };
        ensure_person(&account)?;
        let before = self.login_of(&account)?;
        let login = match &before.oidc {
            Some(old) if old.issuer == identity.issuer && old.subject == identity.subject => {
                let oidc = Some(OidcIdentity { linked_at: old.linked_at, ..identity });
                Login { oidc, ..before.clone() }
            }
            _ => Login { oidc: Some(identity), invitation: None, ..before.clone() },
        };
        if login != before {
            rows.push(Entry::Login(login).row());
        }
        Ok(rows)
    }

    /// Returns a new account of a person, and the rows that create it.
    fn new_person(&self, name: String, title: Option<String>) -> Result<(Account, Vec<Row>), Refusal> {
        let account = Account {
            name: name.clone(),
            kind: AccountKind::User,
            title: title.clone(),
            disabled: false,
            submit_rate: SubmitRate::Default,
            created_at: self.now,
            created_by: self.actor_name(),
        };
        let mut rows = self.create_account(name, AccountKind::User, title, SubmitRate::Default)?;
        // A former login of the same name is replaced.
        rows.retain(|row| row.kind != EntryKind::Login.as_str());
        Ok((account, rows))
    }

    pub(super) fn set_totp(&self, password: &PasswordHash, totp: Totp) -> Result<Vec<Row>, Refusal> {
        let account = self.person()?;
        validate(|check| {
            check.ensure(!totp.sealed.is_empty(), "sealed", || "must not be empty".into());
            check.ensure(totp.recovery.len() <= RECOVERY_MAX, "recovery", || {
                format!("has {} entries: expected at most {RECOVERY_MAX}", totp.recovery.len())
            });
        })?;
        let before = self.login_of(account)?;
        if !has_password(&before, password) {
            return Err(Refusal::StaleProof);
        }
        Ok(vec![Entry::Login(Login { totp: Some(totp), ..before }).row()])
    }

    /// An administrator needs the same rights as for an invitation: both let a person log in.
    pub(super) fn delete_totp(
        &self,
        name: &str,
        password: Option<&PasswordHash>,
    ) -> Result<Vec<Row>, Refusal> {
        let before = match password {
            Some(hash) => {
                let before = self.login_of(self.person()?)?;
                if before.account != name || !has_password(&before, hash) {
                    return Err(Refusal::StaleProof);
                }
                before
            }
            None => {
                self.authorize(Verb::Delete, "*")?;
                let account = self.existing_account(name)?;
                let action = || format!("delete the second factor of `{name}`");
                self.ensure_held(BuiltInRole::Admin.permissions(), "*", action)?;
                self.login_of(account)?
            }
        };
        let has_one = before.totp.is_some();
        let row = Entry::Login(Login { totp: None, ..before }).row();
        Ok(if has_one { vec![row] } else { Vec::new() })
    }

    pub(super) fn unlink_oidc(&self, name: &str) -> Result<Vec<Row>, Refusal> {
        self.authorize(Verb::Delete, "*")?;
        let account = self.existing_account(name)?;
        let before = self.login_of(account)?;
        if before.oidc.is_none() {
            return Ok(Vec::new());
        }
        let mut rows = self.ended_sessions(name);
        rows.push(Entry::Login(Login { oidc: None, ..before }).row());
        Ok(rows)
    }

    pub(super) fn end_sessions(&self, name: &str) -> Result<Vec<Row>, Refusal> {
        let is_own = self.actor.ceiling.is_none() && self.is_own(&Bearer::Account(name.to_owned()));
        if !is_own {
            self.authorize(Verb::Delete, "*")?;
        }
        self.existing_account(name)?;
        Ok(self.ended_sessions(name))
    }

    /// Returns the account of the actor, if it can have a password. The actor may have no token: then the server has
    /// verified a password or an invitation.
    fn person(&self) -> Result<&Account, Refusal> {
        let name = &*self.actor.name;
        if self.actor.ceiling.is_some() {
            return Err(Refusal::LimitedToken { actor: name.to_owned() });
        }
        if self.actor.kind != IdentityKind::User {
            let (account, reason) = (name.to_owned(), "the caller is not the account of a person");
            return Err(Refusal::NoLogin { account, reason });
        }
        let account = self.existing_account(name)?;
        ensure_person(account)?;
        Ok(account)
    }

    /// Returns the login of an account, or one without a password.
    fn login_of(&self, account: &Account) -> Result<Login, Refusal> {
        if self.directory.is_unreadable(EntryKind::Login, &account.name) {
            return Err(self.absent(EntryKind::Login, account.name.as_str()));
        }
        let new = || Login {
            account: account.name.clone(),
            account_created_at: account.created_at,
            password: None,
            invitation: None,
            oidc: None,
            totp: None,
            last_login_at: None,
        };
        Ok(self.directory.login(&account.name).cloned().unwrap_or_else(new))
    }

    /// Returns rows that end the sessions of an account, except that of the actor.
    fn ended_sessions(&self, account: &str) -> Vec<Row> {
        let sessions = self.directory.sessions_of(account, self.now);
        sessions.filter(|it| *it.id != *self.actor.token_id).map(|it| self.revocation(it)).collect()
    }

    /// Returns rows that end the oldest sessions, so that there is a place for another one.
    fn surplus_sessions(&self, account: &str) -> Vec<Row> {
        let mut sessions: Vec<_> = self.directory.sessions_of(account, self.now).collect();
        sessions.sort_by_key(|it| it.created_at);
        let surplus = (sessions.len() + 1).saturating_sub(SESSIONS_MAX);
        sessions.into_iter().take(surplus).map(|it| self.revocation(it)).collect()
    }
}

/// Checks that an account can have a password.
fn ensure_person(account: &Account) -> Result<(), Refusal> {
    let reason = match account {
        Account { kind: AccountKind::Service, .. } => "it is the account of a program",
        Account { disabled: true, .. } => "it is disabled",
        _ => return Ok(()),
    };
    Err(Refusal::NoLogin { account: account.name.clone(), reason })
}

/// Uses up the second factor of a login; does nothing if the login has none.
fn use_second_factor(login: &mut Login, second: Option<SecondFactor>) -> Result<(), Refusal> {
    let Some(totp) = &mut login.totp else { return Ok(()) };
    match second {
        Some(SecondFactor::Step(step)) if step > totp.last_step => totp.last_step = step,
        Some(SecondFactor::Recovery(hash)) => {
            let at = totp.recovery.iter().position(|known| *known == hash).ok_or(Refusal::StaleProof)?;
            totp.recovery.remove(at);
        }
        _ => return Err(Refusal::StaleProof),
    }
    Ok(())
}

fn has_identity(login: &Login, issuer: &str, subject: &str) -> bool {
    login.oidc.as_ref().is_some_and(|identity| identity.issuer == issuer && identity.subject == subject)
}

fn has_password(login: &Login, hash: &PasswordHash) -> bool {
    login.password.as_ref().is_some_and(|password| password.hash == *hash)
}
