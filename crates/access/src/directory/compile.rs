//! Compiling bindings to grants, and scopes to ceilings.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Bindings, Directory, TokenRecord};
use crate::entry::{Login, TokenScope};
use crate::identity::{Ceiling, Grant, Grants};
use crate::names::Names;
use crate::namespace::Pattern;
use crate::permissions::Permissions;
use crate::role::BuiltInRole;

/// Entries whose compiled forms are out of date.
#[derive(Default)]
pub(super) struct Touched {
    pub(super) accounts: BTreeSet<Arc<str>>,
    pub(super) groups: BTreeSet<Arc<str>>,
    pub(super) roles: BTreeSet<Arc<str>>,
    pub(super) tokens: BTreeSet<Arc<str>>,
}

/// Returns the grants of admin tokens: the role `admin` in `*`.
pub(super) fn grants_of_admin_token(names: &mut Names) -> Grants {
    let role = BuiltInRole::Admin;
    let (permissions, pattern) = (role.permissions(), Pattern::All);
    Grants([Grant { role: names.share(role.as_str()), permissions, pattern, by_group: false }].into())
}

impl Directory {
    /// Compiles the touched accounts and tokens, and all those that name a touched role or group.
    pub(super) fn compile(&mut self, mut touched: Touched) {
        if !touched.roles.is_empty() {
            self.spread_roles(&mut touched);
        }
        if !touched.groups.is_empty() {
            self.spread_groups(&mut touched);
        }
        for name in &touched.accounts {
            let grants = self.accounts.get(name).map(|record| self.grants(name, &record.bindings));
            if let (Some(record), Some(grants)) = (self.accounts.get_mut(name), grants) {
                record.grants = Arc::new(grants);
            }
        }
        for id in &touched.tokens {
            let scope = self.tokens.get(id).and_then(|record| record.entry.scope.clone());
            let ceiling = scope.map(|scope| Arc::new(self.ceiling(&scope)));
            if let Some(record) = self.tokens.get_mut(id) {
                record.ceiling = ceiling;
            }
        }
    }

    /// Adds the accounts, groups and tokens that name a touched role.
    fn spread_roles(&self, touched: &mut Touched) {
        let Touched { accounts, groups, roles, tokens } = touched;
        let names_role = |bindings: &Bindings| bindings.keys().any(|(role, _)| roles.contains(role));
        let bound = self.accounts.iter().filter(|(_, record)| names_role(&record.bindings));
        accounts.extend(bound.map(|(name, _)| Arc::clone(name)));
        let bound = self.groups.iter().filter(|(_, bindings)| names_role(bindings));
        groups.extend(bound.map(|(name, _)| Arc::clone(name)));
        let role_of = |record: &TokenRecord| record.entry.scope.as_ref()?.role.clone();
        let scoped =
            self.tokens.iter().filter(|(_, r)| role_of(r).is_some_and(|role| roles.contains(&*role)));
        tokens.extend(scoped.map(|(id, _)| Arc::clone(id)));
    }

    /// Adds the accounts that have a touched group.
    fn spread_groups(&self, touched: &mut Touched) {
        let Touched { accounts, groups, .. } = touched;
        let has_group = |login: &Login| {
            let identity = login.oidc.as_ref();
            identity.is_some_and(|it| it.groups.iter().any(|group| groups.contains(group.as_str())))
        };
        let members = self.logins.iter().filter(|(_, login)| has_group(login));
        accounts.extend(members.map(|(account, _)| Arc::clone(account)));
    }

    fn grants(&self, account: &str, own: &Bindings) -> Grants {
        let grant = |(role, namespace): &(Arc<str>, Arc<str>), by_group| Grant {
            role: Arc::clone(role),
            permissions: self.permissions(role),
            pattern: Pattern::new(Arc::clone(namespace)),
            by_group,
        };
        let of_groups = self.groups_of(account).iter().filter_map(|group| self.groups.get(group.as_str()));
        let of_groups = of_groups.flat_map(Bindings::keys).map(|key| grant(key, true));
        Grants(own.keys().map(|key| grant(key, false)).chain(of_groups).collect())
    }

    fn ceiling(&mut self, scope: &TokenScope) -> Ceiling {
        let role = scope.role.as_deref().map(|name| (self.names.share(name), self.permissions(name)));
        let patterns = scope.namespaces.iter().map(|text| Pattern::new(self.names.share(text))).collect();
        Ceiling { role, patterns }
    }

    /// Returns the permissions of a role; none if it does not exist.
    fn permissions(&self, role: &str) -> Permissions {
        match BuiltInRole::named(role) {
            Some(role) => role.permissions(),
            None => self.roles.get(role).map_or(Permissions::NONE, |record| record.permissions),
        }
    }
}
