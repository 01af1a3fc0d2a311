//! Ways to administrate everything: the tokens without a scope, and the passwords, of callers with all permissions of
//! `admin` in `*`. Sessions do not count, because they end soon and can be created again only with the password. Roles of
//! groups do not count either: the provider may take a group away, or be unreachable.
//!
//! A change that would end the last of them is refused: no user could then undo it.

use model::Timestamp;

use crate::directory::Directory;
use crate::entry::{Bearer, Login};
use crate::namespace::Pattern;
use crate::permissions::Permissions;
use crate::role::BuiltInRole;

/// Change whose effect on the administrators is examined.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Without<'a> {
    Nothing,
    Token(&'a str),
    /// Without an account, or with a disabled one.
    Account(&'a str),
    /// Without the password of an account.
    Password(&'a str),
    Binding {
        role: &'a str,
        account: &'a str,
        namespace: &'a str,
    },
    /// With only these permissions of a role.
    Role(&'a str, Permissions),
}

impl Directory {
    /// Returns whether a usable token or a password exists that may administrate everything: an admin token without a
    /// scope, or a token without a scope or a password of an account with all permissions of `admin` in `*`.
    pub fn has_admin(&self, now: Timestamp) -> bool {
        self.has_admin_without(Without::Nothing, now)
    }

    /// Returns whether such a token or password exists after a change.
    pub(crate) fn has_admin_without(&self, change: Without<'_>, now: Timestamp) -> bool {
        let has_password = |login: &Login| {
            let stays = !matches!(change, Without::Password(name) if name == login.account);
            stays && login.password.is_some() && self.administrates_without(change, &login.account)
        };
        self.logins().any(has_password) || self.has_admin_token_without(change, now)
    }

    fn has_admin_token_without(&self, change: Without<'_>, now: Timestamp) -> bool {
        self.tokens().any(|token| {
            let counts = token.scope.is_none()
                && !token.session
                && token.is_usable(now)
                && !matches!(change, Without::Token(id) if id == token.id);
            counts
                && match &token.bearer {
                    Bearer::Admin(_) => true,
                    Bearer::Worker(_) => false,
                    Bearer::Account(account) => self.administrates_without(change, account),
                }
        })
    }

    fn administrates_without(&self, change: Without<'_>, account: &str) -> bool {
        if matches!(change, Without::Account(name) if name == account) {
            return false;
        }
        let Some((_, grants, _)) = self.enabled(account) else { return false };
        let in_all = grants.0.iter().filter(|grant| !grant.by_group && grant.pattern == Pattern::All);
        let permissions = in_all.map(|grant| match change {
            Without::Binding { role, account: name, namespace: "*" }
                if name == account && *role == *grant.role =>
            {
                Permissions::NONE
            }
            Without::Role(role, permissions) if *role == *grant.role => permissions,
            _ => grant.permissions,
        });
        let permissions = permissions.fold(Permissions::NONE, Permissions::union);
        BuiltInRole::Admin.permissions().difference(permissions).is_empty()
    }
}
