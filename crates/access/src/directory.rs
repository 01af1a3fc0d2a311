//! The directory: all entries of a server, and the compiled rights of each account.
//!
//! The server loads all rows at the start and [applies](Directory::apply) each change that it or another server writes.
//! For each request it gets an [`Identity`] from the id of a token. Changes are checked by
//! [`plan`](Directory::plan), which returns rows and applies nothing.
//!
//! # Invariants
//! - The contents depend only on the newest row of each key, not on the order of the rows.
//! - The grants of an account are those of its bindings and of those of its groups, and the ceiling of a token is that of
//!   its scope: both are compiled again when a row changes them, or changes a role or a group that they name.
//! - An account without an entry can have bindings, because rows arrive in any order. It gives no identity.
//!
//! # Cost
//! [`identity`](Directory::identity) is two look-ups and allocates nothing. Applying a row is O(log n), plus the
//! bindings of the touched account. A changed custom role reads all bindings once for each call of `apply`, and a changed
//! binding of a group reads all logins.

mod compile;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use model::Timestamp;

use self::compile::Touched;
use crate::entry::{
    Account, AccountKind, Bearer, Binding, Deletion, Entry, EntryKind, Invitation, Login, Row, Secret,
    Subject, SubmitRate, Token, Unreadable, secret_key, split_binding_key,
};
use crate::identity::{Ceiling, Grants, Identity, IdentityKind};
use crate::names::Names;
use crate::permissions::Permissions;
use crate::read::{self, Stored};
use crate::role::{BuiltInRole, CustomRole, Role};

/// All accounts, roles, bindings, tokens, logins and secrets, with the compiled rights of each account.
#[derive(Debug, Clone)]
pub struct Directory {
    accounts: BTreeMap<Arc<str>, AccountRecord>,
    /// Bindings of groups. Each group has at least one.
    groups: BTreeMap<Arc<str>, Bindings>,
    roles: BTreeMap<Arc<str>, RoleRecord>,
    tokens: BTreeMap<Arc<str>, TokenRecord>,
    /// By account.
    logins: BTreeMap<Arc<str>, Login>,
    /// Account of each invitation, by the id of the invitation.
    invitations: BTreeMap<Box<str>, Arc<str>>,
    /// Account of each identity at an OpenID provider, by issuer and subject.
    identities: BTreeMap<(Arc<str>, Box<str>), Arc<str>>,
    /// By `namespace/name`.
    secrets: BTreeMap<Box<str>, Arc<Secret>>,
    deletions: BTreeMap<(EntryKind, Box<str>), Deletion>,
    unreadable: BTreeSet<(EntryKind, Box<str>)>,
    /// Grants of each admin token.
    admin: Arc<Grants>,
    names: Names,
}

/// Account and its bindings. One of them exists.
#[derive(Debug, Clone, Default)]
struct AccountRecord {
    entry: Option<Account>,
    bindings: Bindings,
    grants: Arc<Grants>,
}

/// Bindings of an account or a group, by role and namespace.
type Bindings = BTreeMap<(Arc<str>, Arc<str>), Stamp>;

/// Creation of a binding.
#[derive(Debug, Clone)]
struct Stamp {
    created_at: Timestamp,
    created_by: Arc<str>,
}

#[derive(Debug, Clone)]
struct RoleRecord {
    entry: CustomRole,
    permissions: Permissions,
}

#[derive(Debug, Clone)]
struct TokenRecord {
    entry: Token,
    bearer_name: Arc<str>,
    ceiling: Option<Arc<Ceiling>>,
}

impl Default for Directory {
    fn default() -> Self {
        let mut names = Names::default();
        Self {
            accounts: BTreeMap::new(),
            groups: BTreeMap::new(),
            roles: BTreeMap::new(),
            tokens: BTreeMap::new(),
            logins: BTreeMap::new(),
            invitations: BTreeMap::new(),
            identities: BTreeMap::new(),
            secrets: BTreeMap::new(),
            deletions: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            admin: Arc::new(compile::grants_of_admin_token(&mut names)),
            names,
        }
    }
}

/// Rows of the store.
impl Directory {
    /// Applies rows of the store, in any order, also on top of older ones. Returns the rows that it cannot read.
    ///
    /// If several rows have the same key, the last one counts. An unreadable row makes its entry absent.
    pub fn apply(&mut self, rows: impl IntoIterator<Item = Row>) -> Vec<Unreadable> {
        let mut touched = Touched::default();
        let mut unreadable = Vec::new();
        for row in rows {
            let Some(kind) = EntryKind::parse(&row.kind) else {
                let reason = "its kind is unknown".to_owned();
                unreadable.push(Unreadable { kind: row.kind, key: row.key, reason });
                continue;
            };
            self.remove(kind, &row.key, &mut touched);
            match read::read(kind, &row) {
                Ok(Stored::Live(entry)) => self.insert(*entry, &mut touched),
                Ok(Stored::Deleted(deletion)) => {
                    self.deletions.insert((kind, row.key.into()), deletion);
                }
                Err(error) => {
                    self.unreadable.insert((kind, row.key.into()));
                    unreadable.push(error);
                }
            }
        }
        self.compile(touched);
        unreadable
    }

    /// Removes all that an earlier row of this key added.
    fn remove(&mut self, kind: EntryKind, key: &str, touched: &mut Touched) {
        let place = (kind, Box::from(key));
        self.deletions.remove(&place);
        self.unreadable.remove(&place);
        match kind {
            EntryKind::Account => {
                if let Some((name, _)) = self.accounts.get_key_value(key) {
                    touched.accounts.insert(Arc::clone(name));
                }
                if let Some(record) = self.accounts.get_mut(key) {
                    record.entry = None;
                }
                self.drop_if_empty(key);
            }
            EntryKind::Role => {
                if let Some((name, _)) = self.roles.remove_entry(key) {
                    touched.roles.insert(name);
                }
            }
            EntryKind::Binding => {
                let Some((role, subject, namespace)) = split_binding_key(key) else { return };
                let binding = (role.into(), namespace.into());
                match &subject {
                    Subject::Account(account) => {
                        if let Some((name, _)) = self.accounts.get_key_value(account.as_str()) {
                            touched.accounts.insert(Arc::clone(name));
                        }
                        if let Some(record) = self.accounts.get_mut(account.as_str()) {
                            record.bindings.remove(&binding);
                        }
                        self.drop_if_empty(account);
                    }
                    Subject::Group(group) => {
                        let Some(bindings) = self.groups.get_mut(group.as_str()) else { return };
                        bindings.remove(&binding);
                        touched.groups.insert(group.as_str().into());
                        if bindings.is_empty() {
                            self.groups.remove(group.as_str());
                        }
                    }
                }
            }
            EntryKind::Token => {
                self.tokens.remove(key);
            }
            EntryKind::Secret => {
                self.secrets.remove(key);
            }
            EntryKind::Login => {
                let Some((account, login)) = self.logins.remove_entry(key) else { return };
                if let Some(invitation) = &login.invitation
                    && self.invitations.get(invitation.id.as_str()).is_some_and(|of| *of == account)
                {
                    self.invitations.remove(invitation.id.as_str());
                }
                if let Some(identity) = login.oidc {
                    let place = (identity.issuer.into(), identity.subject.into());
                    if self.identities.get(&place).is_some_and(|of| *of == account) {
                        self.identities.remove(&place);
                    }
                    touched.accounts.insert(account);
                }
            }
        }
    }

    fn drop_if_empty(&mut self, account: &str) {
        if self.accounts.get(account).is_some_and(|r| r.entry.is_none() && r.bindings.is_empty()) {
            self.accounts.remove(account);
        }
    }

    fn insert(&mut self, entry: Entry, touched: &mut Touched) {
        match entry {
            Entry::Account(account) => {
                let name = self.names.share(&account.name);
                touched.accounts.insert(Arc::clone(&name));
                self.accounts.entry(name).or_default().entry = Some(account);
            }
            Entry::Role(role) => {
                let name = self.names.share(&role.name);
                let permissions = Role::Custom(&role).permissions();
                self.roles.insert(Arc::clone(&name), RoleRecord { entry: role, permissions });
                touched.roles.insert(name);
            }
            Entry::Binding(binding) => {
                let [role, namespace, created_by] = [&binding.role, &binding.namespace, &binding.created_by]
                    .map(|name| self.names.share(name));
                let stamp = Stamp { created_at: binding.created_at, created_by };
                let bindings = match &binding.subject {
                    Subject::Account(account) => {
                        let account = self.names.share(account);
                        touched.accounts.insert(Arc::clone(&account));
                        &mut self.accounts.entry(account).or_default().bindings
                    }
                    Subject::Group(group) => {
                        let group = self.names.share(group);
                        touched.groups.insert(Arc::clone(&group));
                        self.groups.entry(group).or_default()
                    }
                };
                bindings.insert((role, namespace), stamp);
            }
            Entry::Token(token) => {
                let id: Arc<str> = token.id.as_str().into();
                let bearer_name = self.names.share(token.bearer.name());
                self.tokens.insert(Arc::clone(&id), TokenRecord { entry: token, bearer_name, ceiling: None });
                touched.tokens.insert(id);
            }
            Entry::Secret(secret) => {
                let key = secret_key(&secret.namespace, &secret.name);
                self.secrets.insert(key.into(), Arc::new(secret));
            }
            Entry::Login(login) => {
                let account = self.names.share(&login.account);
                if let Some(invitation) = &login.invitation {
                    self.invitations.insert(invitation.id.as_str().into(), Arc::clone(&account));
                }
                if let Some(identity) = &login.oidc {
                    let place = (self.names.share(&identity.issuer), identity.subject.as_str().into());
                    self.identities.insert(place, Arc::clone(&account));
                    touched.accounts.insert(Arc::clone(&account));
                }
                self.logins.insert(account, login);
            }
        }
    }

    /// Returns the rows that are [over](crate::KEPT_AFTER_END), for the store to delete.
    pub fn expired(&self, now: Timestamp) -> Vec<Row> {
        let deletions = self.deletions.iter().filter(|(_, deletion)| deletion.is_over(now));
        let tokens = self.tokens.iter().filter(|(_, record)| record.entry.is_over(now));
        deletions
            .map(|((kind, key), deletion)| deletion.row(*kind, key.to_string()))
            .chain(tokens.map(|(_, record)| Entry::Token(record.entry.clone()).row()))
            .collect()
    }

    /// Drops the rows that are [over](crate::KEPT_AFTER_END) from memory. Returns their number.
    pub fn purge(&mut self, now: Timestamp) -> usize {
        let before = self.deletions.len() + self.tokens.len();
        self.deletions.retain(|_, deletion| !deletion.is_over(now));
        self.tokens.retain(|_, record| !record.entry.is_over(now));
        self.names.sweep();
        before - self.deletions.len() - self.tokens.len()
    }
}

/// Identities.
impl Directory {
    /// Returns the bearer of a token; `None` if the token is unknown, revoked or expired, or its account is missing or
    /// disabled.
    pub fn identity(&self, token_id: &str, now: Timestamp) -> Option<Identity> {
        let (id, record) = self.tokens.get_key_value(token_id)?;
        if !record.entry.is_usable(now) {
            return None;
        }
        let (kind, grants, submit_rate) = match &record.entry.bearer {
            Bearer::Admin(_) => (IdentityKind::Admin, Arc::clone(&self.admin), SubmitRate::Unlimited),
            Bearer::Worker(_) => (IdentityKind::Worker, Arc::default(), SubmitRate::Unlimited),
            Bearer::Account(account) => self.enabled(account)?,
        };
        Some(Identity {
            name: Arc::clone(&record.bearer_name),
            kind,
            token_id: Arc::clone(id),
            submit_rate,
            grants,
            ceiling: record.ceiling.clone(),
        })
    }

    /// Returns the identity of an account without a token; `None` if it is missing or disabled.
    pub fn identity_of_account(&self, name: &str) -> Option<Identity> {
        let (kind, grants, submit_rate) = self.enabled(name)?;
        Some(Identity { name: name.into(), kind, token_id: "".into(), submit_rate, grants, ceiling: None })
    }

    /// Returns the kind, the grants and the submission rate of an enabled account.
    pub(crate) fn enabled(&self, account: &str) -> Option<(IdentityKind, Arc<Grants>, SubmitRate)> {
        let record = self.accounts.get(account)?;
        let entry = record.entry.as_ref().filter(|entry| !entry.disabled)?;
        let kind = match entry.kind {
            AccountKind::User => IdentityKind::User,
            AccountKind::Service => IdentityKind::Service,
        };
        Some((kind, Arc::clone(&record.grants), entry.submit_rate))
    }

    /// Returns the hash of a token, to be compared in constant time.
    pub fn token_hash(&self, token_id: &str) -> Option<&[u8; 32]> {
        self.tokens.get(token_id).map(|record| &record.entry.hash.0)
    }

    /// Returns whether a usable token of this kind exists, with or without a scope.
    pub fn has_token(&self, kind: IdentityKind, now: Timestamp) -> bool {
        self.tokens.keys().any(|id| self.identity(id, now).is_some_and(|identity| identity.kind == kind))
    }
}

/// Entries.
impl Directory {
    /// Returns all accounts, by name.
    pub fn accounts(&self) -> impl Iterator<Item = &Account> {
        self.accounts.values().filter_map(|record| record.entry.as_ref())
    }

    /// Returns the account with this name.
    pub fn account(&self, name: &str) -> Option<&Account> {
        self.accounts.get(name)?.entry.as_ref()
    }

    /// Returns the built-in roles, then the custom roles by name.
    pub fn roles(&self) -> impl Iterator<Item = Role<'_>> {
        let built_in = BuiltInRole::ALL.iter().map(|&role| Role::BuiltIn(role));
        built_in.chain(self.roles.values().map(|record| Role::Custom(&record.entry)))
    }

    /// Returns the built-in or custom role with this name.
    pub fn role(&self, name: &str) -> Option<Role<'_>> {
        let custom = || self.roles.get(name).map(|record| Role::Custom(&record.entry));
        BuiltInRole::named(name).map(Role::BuiltIn).or_else(custom)
    }

    /// Returns all bindings: those of accounts, then those of groups, by name, role and namespace.
    pub fn bindings(&self) -> impl Iterator<Item = Binding> {
        let of_accounts = self
            .accounts
            .iter()
            .flat_map(|(name, record)| bindings(&record.bindings, Subject::Account(name.to_string())));
        let of_groups = self.groups.iter();
        of_accounts.chain(of_groups.flat_map(|(name, all)| bindings(all, Subject::Group(name.to_string()))))
    }

    /// Returns the bindings of an account or a group, by role and namespace. The bindings of the groups of an account
    /// are not among them.
    pub fn bindings_of(&self, subject: &Subject) -> impl Iterator<Item = Binding> {
        let found = self.bindings_map(subject).map(|all| bindings(all, subject.clone()));
        found.into_iter().flatten()
    }

    fn bindings_map(&self, subject: &Subject) -> Option<&Bindings> {
        match subject {
            Subject::Account(name) => self.accounts.get(name.as_str()).map(|record| &record.bindings),
            Subject::Group(name) => self.groups.get(name.as_str()),
        }
    }

    /// Returns the groups of an account at its last login with an OpenID provider.
    pub fn groups_of(&self, account: &str) -> &[String] {
        let identity = self.login(account).and_then(|login| login.oidc.as_ref());
        identity.map_or(&[], |identity| &identity.groups)
    }

    /// Returns the number of usable sessions of each account that has any.
    pub fn session_counts(&self, now: Timestamp) -> BTreeMap<&str, u32> {
        let mut counts = BTreeMap::new();
        for token in self.tokens().filter(|token| token.session && token.is_usable(now)) {
            *counts.entry(token.bearer.name()).or_default() += 1;
        }
        counts
    }

    /// Returns the usable sessions of an account, by id.
    pub fn sessions_of<'a>(&'a self, account: &'a str, now: Timestamp) -> impl Iterator<Item = &'a Token> {
        self.tokens().filter(move |token| token.is_session_of(account) && token.is_usable(now))
    }

    /// Returns all tokens by id, also revoked and expired ones.
    pub fn tokens(&self) -> impl Iterator<Item = &Token> {
        self.tokens.values().map(|record| &record.entry)
    }

    /// Returns the token with this id, also if it is revoked or expired.
    pub fn token(&self, id: &str) -> Option<&Token> {
        self.tokens.get(id).map(|record| &record.entry)
    }

    /// Returns the logins of all accounts, by account.
    pub fn logins(&self) -> impl Iterator<Item = &Login> {
        self.logins.values().filter(|login| self.is_current(login))
    }

    /// Returns the login of an account; `None` if it has no password, invitation or identity, and never had.
    pub fn login(&self, account: &str) -> Option<&Login> {
        self.logins.get(account).filter(|login| self.is_current(login))
    }

    /// Returns the secret with this name.
    pub fn secret(&self, namespace: &str, name: &str) -> Option<&Arc<Secret>> {
        self.secrets.get(secret_key(namespace, name).as_str())
    }

    /// Returns all secrets, by namespace and name.
    pub fn secrets(&self) -> impl Iterator<Item = &Secret> {
        self.secrets.values().map(Arc::as_ref)
    }

    /// Returns the number of secrets of a namespace.
    pub(crate) fn secret_count(&self, namespace: &str) -> usize {
        let first = secret_key(namespace, "");
        let from = self.secrets.range::<str, _>((Bound::Included(first.as_str()), Bound::Unbounded));
        from.take_while(|(key, _)| key.starts_with(first.as_str())).count()
    }

    /// Returns whether a login has the name of this account, also that of an earlier account.
    pub(crate) fn has_login_row(&self, account: &str) -> bool {
        self.logins.contains_key(account)
    }

    /// Returns whether a login belongs to the account that has its name now.
    fn is_current(&self, login: &Login) -> bool {
        self.account(&login.account).is_some_and(|account| account.created_at == login.account_created_at)
    }

    /// Returns the account of a usable invitation, and the invitation. The caller compares its secret.
    pub fn invitation(&self, id: &str, now: Timestamp) -> Option<(&Account, &Invitation)> {
        let login = self.login(self.invitations.get(id)?)?;
        let invitation =
            login.invitation.as_ref().filter(|found| found.id == id && now < found.expires_at)?;
        Some((self.account(&login.account).filter(|account| !account.disabled)?, invitation))
    }

    /// Returns the account with an identity at an OpenID provider.
    pub fn account_of_identity(&self, issuer: &str, subject: &str) -> Option<&Account> {
        let login = self.login(self.identities.get(&(issuer.into(), subject.into()))?)?;
        let identity = login.oidc.as_ref()?;
        let is_same = identity.issuer == issuer && identity.subject == subject;
        is_same.then(|| self.account(&login.account))?
    }

    pub(crate) fn has_binding(&self, role: &str, subject: &Subject, namespace: &str) -> bool {
        let key = (role.into(), namespace.into());
        self.bindings_map(subject).is_some_and(|bindings| bindings.contains_key(&key))
    }

    /// Returns whether entries exist that could not be read.
    pub fn has_unreadable(&self) -> bool {
        !self.unreadable.is_empty()
    }

    /// Returns whether the newest row of the key could not be read.
    pub(crate) fn is_unreadable(&self, kind: EntryKind, key: &str) -> bool {
        self.unreadable.contains(&(kind, key.into()))
    }
}

fn bindings(all: &Bindings, subject: Subject) -> impl Iterator<Item = Binding> {
    all.iter().map(move |((role, namespace), stamp)| Binding {
        role: role.to_string(),
        subject: subject.clone(),
        namespace: namespace.to_string(),
        created_at: stamp.created_at,
        created_by: stamp.created_by.to_string(),
    })
}
