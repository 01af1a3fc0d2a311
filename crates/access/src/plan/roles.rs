//! Changes of custom roles and bindings.

use std::collections::BTreeSet;

use super::{Plan, validate};
use crate::action::Verb;
use crate::admins::Without;
use crate::entry::{Binding, Entry, EntryKind, Row, Subject, binding_key};
use crate::refusal::Refusal;
use crate::role::{BuiltInRole, CustomRole, Role, Rule};

impl Plan<'_> {
    pub(super) fn put_role(
        &self,
        name: String,
        description: Option<String>,
        rules: Vec<Rule>,
    ) -> Result<Vec<Row>, Refusal> {
        let existing = self.directory.role(&name);
        self.authorize(if existing.is_some() { Verb::Change } else { Verb::Create }, "*")?;
        if existing.is_some_and(Role::is_built_in) {
            return Err(Refusal::BuiltInRole { name });
        }
        validate(|check| {
            check.role_name("name", &name);
            check.description(description.as_deref());
            check.rules(&rules);
        })?;
        if existing.is_none() {
            self.ensure_new(EntryKind::Role, &name, false)?;
        }
        let permissions = Rule::permissions(&rules);
        self.ensure_held(permissions, "*", || format!("define role `{name}`"))?;
        self.ensure_admin_remains(Without::Role(&name, permissions), || format!("change role `{name}`"))?;
        let role = CustomRole { name, description, rules };
        match existing {
            Some(before) if before == Role::Custom(&role) => Ok(Vec::new()),
            Some(_) => Ok(vec![Entry::Role(role).row()]),
            None => {
                let mut rows = self.unbind_all(&role.name);
                rows.push(Entry::Role(role).row());
                Ok(rows)
            }
        }
    }

    /// Returns rows that delete the bindings of a former role of this name.
    fn unbind_all(&self, role: &str) -> Vec<Row> {
        let bindings = self.directory.bindings().filter(|binding| binding.role == role);
        bindings.map(|binding| self.deletion(EntryKind::Binding, Entry::Binding(binding).key())).collect()
    }

    pub(super) fn delete_role(&self, name: String) -> Result<Vec<Row>, Refusal> {
        self.authorize(Verb::Delete, "*")?;
        if BuiltInRole::named(&name).is_some() {
            return Err(Refusal::BuiltInRole { name });
        }
        self.existing_role(&name)?;
        let bindings = self.directory.bindings().filter(|binding| binding.role == name);
        let (mut accounts, mut groups) = (BTreeSet::new(), BTreeSet::new());
        for binding in bindings {
            match binding.subject {
                Subject::Account(name) => accounts.insert(name),
                Subject::Group(name) => groups.insert(name),
            };
        }
        let tokens = self.directory.tokens().filter(|token| token.is_usable(self.now)).filter(|token| {
            token.scope.as_ref().is_some_and(|scope| scope.role.as_deref() == Some(name.as_str()))
        });
        let tokens: Vec<String> = tokens.map(|token| token.id.clone()).collect();
        if !accounts.is_empty() || !groups.is_empty() || !tokens.is_empty() {
            let [accounts, groups] = [accounts, groups].map(|names| names.into_iter().collect());
            return Err(Refusal::RoleInUse { name, accounts, groups, tokens });
        }
        Ok(vec![self.deletion(EntryKind::Role, name)])
    }

    /// A group need not be known: the provider names the groups of an account at its next login.
    pub(super) fn bind(
        &self,
        role: String,
        subject: Subject,
        namespace: String,
    ) -> Result<Vec<Row>, Refusal> {
        self.authorize(Verb::Change, &namespace)?;
        validate(|check| {
            check.namespace("namespace", &namespace);
            if let Subject::Group(_) = subject {
                check.subject(&subject);
            }
        })?;
        let permissions = self.existing_role(&role)?.permissions();
        if let Subject::Account(account) = &subject {
            self.existing_account(account)?;
        }
        let key = binding_key(&role, &subject, &namespace);
        self.ensure_new(EntryKind::Binding, &key, self.directory.has_binding(&role, &subject, &namespace))?;
        self.ensure_held(permissions, &namespace, || format!("give role `{role}` to `{subject}`"))?;
        let (created_at, created_by) = (self.now, self.actor_name());
        Ok(vec![Entry::Binding(Binding { role, subject, namespace, created_at, created_by }).row()])
    }

    /// Needs only the right to change the bindings of the namespace: a removal gives no rights.
    pub(super) fn unbind(&self, role: &str, subject: &Subject, namespace: &str) -> Result<Vec<Row>, Refusal> {
        self.authorize(Verb::Change, namespace)?;
        let key = binding_key(role, subject, namespace);
        if !self.directory.has_binding(role, subject, namespace) {
            return Err(self.absent(EntryKind::Binding, key));
        }
        if let Subject::Account(account) = subject {
            self.ensure_admin_remains(Without::Binding { role, account, namespace }, || {
                format!("unbind role `{role}` from `{account}`")
            })?;
        }
        Ok(vec![self.deletion(EntryKind::Binding, key)])
    }

    pub(super) fn existing_role(&self, name: &str) -> Result<Role<'_>, Refusal> {
        self.directory.role(name).ok_or_else(|| self.absent(EntryKind::Role, name))
    }
}
