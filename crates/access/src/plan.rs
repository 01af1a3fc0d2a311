//! Checks of changes, and the rows that they write.
//!
//! Each change is checked in the same order, so that a caller without rights learns nothing about the entries:
//!
//! 1. the rights of the actor;
//! 2. the fields of the change;
//! 3. the existence of the entries;
//! 4. escalation: an actor gives no permission that it does not have in the same namespaces;
//! 5. the last administrator: a usable token that may administrate everything remains.
//!
//! The plan depends on the entries that this server knows. Another server can write at the same time, so a binding can
//! name an account or a role that was just deleted. It then gives no right, and a later account or role of the same
//! name does not inherit it: its creation deletes such bindings, and revokes such tokens.
//!
//! # Files
//! - `accounts`: accounts, and the end of all that belongs to them.
//! - `roles`: custom roles and bindings.
//! - `tokens`: tokens.
//! - `logins`: passwords, invitations and sessions.
//! - `secrets`: secrets.

mod accounts;
mod logins;
mod roles;
mod secrets;
mod tokens;

use model::Timestamp;

use crate::action::{Object, Resource, Verb};
use crate::admins::Without;
use crate::change::Change;
use crate::check::Check;
use crate::decide::Denied;
use crate::directory::Directory;
use crate::entry::{Deletion, EntryKind, Row, Totp};
use crate::identity::Identity;
use crate::permissions::Permissions;
use crate::refusal::Refusal;

impl Directory {
    /// Checks a change and returns the rows to write; none if it changes nothing. Applies nothing.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn plan(&self, actor: &Identity, change: Change, now: Timestamp) -> Result<Vec<Row>, Refusal> {
        let plan = Plan { directory: self, actor, now };
        match change {
            Change::CreateAccount { name, kind, title, submit_rate } => {
                plan.create_account(name, kind, title, submit_rate)
            }
            Change::ChangeAccount { name, title, disabled, submit_rate } => {
                plan.change_account(&name, title, disabled, submit_rate)
            }
            Change::DeleteAccount { name } => plan.delete_account(name),
            Change::PutRole { name, description, rules } => plan.put_role(name, description, rules),
            Change::DeleteRole { name } => plan.delete_role(name),
            Change::Bind { role, subject, namespace } => plan.bind(role, subject, namespace),
            Change::Unbind { role, subject, namespace } => plan.unbind(&role, &subject, &namespace),
            Change::CreateToken { id, hash, bearer, description, scope, expires_at } => {
                plan.create_token(tokens::NewToken { id, hash, bearer, description, scope, expires_at })
            }
            Change::RevokeToken { id } => plan.revoke_token(&id),
            Change::Invite { account, id, hash, expires_at, reset } => {
                plan.invite(&account, logins::NewInvitation { id, hash, expires_at }, reset)
            }
            Change::RevokeInvitation { account } => plan.revoke_invitation(&account),
            Change::SetPassword { hash, by } => plan.set_password(hash, by),
            Change::OpenSession { proof, id, hash, description, expires_at } => {
                let new = logins::NewSession { id, hash, description, expires_at };
                plan.open_session(proof, new)
            }
            Change::RecordOidcLogin { issuer, subject, groups, link } => {
                plan.record_oidc_login(issuer, subject, groups, link)
            }
            Change::UnlinkOidc { account } => plan.unlink_oidc(&account),
            Change::SetTotp { password, sealed, step, recovery } => {
                let totp = Totp { sealed, last_step: step, recovery, set_at: now };
                plan.set_totp(&password, totp)
            }
            Change::DeleteTotp { account, password } => plan.delete_totp(&account, password.as_ref()),
            Change::EndSessions { account } => plan.end_sessions(&account),
            Change::PutSecret { namespace, name, description, values, expected } => {
                plan.put_secret(secrets::NewSecret { namespace, name, description, values }, expected)
            }
            Change::DeleteSecret { namespace, name, expected } => {
                plan.delete_secret(&namespace, &name, expected)
            }
        }
    }
}

/// One change of one actor.
struct Plan<'a> {
    directory: &'a Directory,
    actor: &'a Identity,
    now: Timestamp,
}

impl Plan<'_> {
    /// Checks the right to change accounts, roles and tokens, or the bindings of a namespace; `*` is the cluster.
    fn authorize(&self, verb: Verb, namespace: &str) -> Result<(), Denied> {
        let namespace = (namespace != "*").then_some(namespace);
        self.actor.decide(verb, Object { resource: Resource::Access, namespace })
    }

    /// Refuses to give permissions that the actor does not have.
    fn ensure_held(
        &self,
        permissions: Permissions,
        namespace: &str,
        action: impl FnOnce() -> String,
    ) -> Result<(), Refusal> {
        match self.actor.missing(permissions, namespace) {
            Permissions::NONE => Ok(()),
            missing => Err(Refusal::escalation(&self.actor.name, action(), namespace, missing)),
        }
    }

    fn ensure_admin_remains(
        &self,
        change: Without<'_>,
        action: impl FnOnce() -> String,
    ) -> Result<(), Refusal> {
        let (directory, now) = (self.directory, self.now);
        match directory.has_admin(now) && !directory.has_admin_without(change, now) {
            true => Err(Refusal::LastAdmin { action: action() }),
            false => Ok(()),
        }
    }

    /// Returns the refusal for an entry that is absent.
    fn absent(&self, kind: EntryKind, key: impl Into<String>) -> Refusal {
        let (what, name) = (kind.as_str(), key.into());
        match self.directory.is_unreadable(kind, &name) {
            true => Refusal::Unreadable { what, name },
            false => Refusal::NotFound { what, name },
        }
    }

    /// Checks that an entry is new.
    fn ensure_new(&self, kind: EntryKind, key: &str, exists: bool) -> Result<(), Refusal> {
        let (what, name) = (kind.as_str(), key.to_owned());
        if exists {
            return Err(Refusal::Exists { what, name });
        }
        match self.directory.is_unreadable(kind, &name) {
            true => Err(Refusal::Unreadable { what, name }),
            false => Ok(()),
        }
    }

    fn deletion(&self, kind: EntryKind, key: String) -> Row {
        Deletion { deleted_at: self.now }.row(kind, key)
    }

    fn actor_name(&self) -> String {
        self.actor.name.to_string()
    }
}

/// Checks the fields of a change.
fn validate(check: impl FnOnce(&mut Check)) -> Result<(), Refusal> {
    let mut found = Check::default();
    check(&mut found);
    Ok(found.finish()?)
}
