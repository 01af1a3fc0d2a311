//! Compiling bindings to grants, and scopes to ceilings.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Directory, TokenRecord};
use crate::entry::TokenScope;
use crate::identity::{Ceiling, Grant, Grants};
use crate::names::Names;
use crate::namespace::Pattern;
use crate::permissions::Permissions;
use crate::role::BuiltInRole;

/// Entries whose compiled forms are out of date.
#[derive(Default)]
pub(super) struct Touched {
    pub(super) accounts: BTreeSet<Arc<str>>,
    pub(super) roles: BTreeSet<Arc<str>>,
    pub(super) tokens: BTreeSet<Arc<str>>,
}

/// Returns the grants of admin tokens: the role `admin` in `*`.
pub(super) fn grants_of_admin_token(names: &mut Names) -> Grants {
    let role = BuiltInRole::Admin;
    let grant =
        Grant { role: names.share(role.as_str()), permissions: role.permissions(), pattern: Pattern::All };
    Grants([grant].into())
}

impl Directory {
    /// Compiles the touched accounts and tokens, and all those that name a touched role.
    pub(super) fn compile(&mut self, mut touched: Touched) {
        if !touched.roles.is_empty() {
            self.spread(&mut touched);
        }
        for name in &touched.accounts {
            let grants = self.accounts.get(name).map(|record| self.grants(record.bindings.keys()));
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

    /// Adds the accounts and tokens that name a touched role.
    fn spread(&self, touched: &mut Touched) {
        let Touched { accounts, roles, tokens } = touched;
        let bound =
            self.accounts.iter().filter(|(_, r)| r.bindings.keys().any(|(role, _)| roles.contains(role)));
        accounts.extend(bound.map(|(name, _)| Arc::clone(name)));
        let role_of = |record: &TokenRecord| record.entry.scope.as_ref()?.role.clone();
        let scoped =
            self.tokens.iter().filter(|(_, r)| role_of(r).is_some_and(|role| roles.contains(&*role)));
        tokens.extend(scoped.map(|(id, _)| Arc::clone(id)));
    }

    fn grants<'a>(&self, bindings: impl Iterator<Item = &'a (Arc<str>, Arc<str>)>) -> Grants {
        let grant = |(role, namespace): &(Arc<str>, Arc<str>)| Grant {
            role: Arc::clone(role),
            permissions: self.permissions(role),
            pattern: Pattern::new(Arc::clone(namespace)),
        };
        Grants(bindings.map(grant).collect())
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
