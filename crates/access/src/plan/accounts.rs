//! Changes of accounts.

use super::{Plan, validate};
use crate::action::Verb;
use crate::admins::Without;
use crate::entry::{Account, AccountKind, Bearer, Entry, EntryKind, Row, Subject, SubmitRate, Token};
use crate::refusal::Refusal;

impl Plan<'_> {
    pub(super) fn create_account(
        &self,
        name: String,
        kind: AccountKind,
        title: Option<String>,
        submit_rate: SubmitRate,
    ) -> Result<Vec<Row>, Refusal> {
        self.authorize(Verb::Create, "*")?;
        validate(|check| {
            check.account_name("name", &name);
            check.title(title.as_deref());
        })?;
        self.ensure_new(EntryKind::Account, &name, self.directory.account(&name).is_some())?;
        let mut rows = self.end_belongings(&name);
        let (created_at, created_by) = (self.now, self.actor_name());
        let account = Account { name, kind, title, disabled: false, submit_rate, created_at, created_by };
        rows.push(Entry::Account(account).row());
        Ok(rows)
    }

    pub(super) fn change_account(
        &self,
        name: &str,
        title: Option<Option<String>>,
        disabled: Option<bool>,
        submit_rate: Option<SubmitRate>,
    ) -> Result<Vec<Row>, Refusal> {
        self.authorize(Verb::Change, "*")?;
        validate(|check| check.title(title.as_ref().and_then(Option::as_deref)))?;
        let before = self.existing_account(name)?;
        let mut account = before.clone();
        account.title = title.unwrap_or(account.title);
        account.disabled = disabled.unwrap_or(account.disabled);
        account.submit_rate = submit_rate.unwrap_or(account.submit_rate);
        if account.disabled {
            self.ensure_admin_remains(Without::Account(name), || format!("disable account `{name}`"))?;
        }
        Ok(if account == *before { Vec::new() } else { vec![Entry::Account(account).row()] })
    }

    pub(super) fn delete_account(&self, name: String) -> Result<Vec<Row>, Refusal> {
        self.authorize(Verb::Delete, "*")?;
        self.existing_account(&name)?;
        self.ensure_admin_remains(Without::Account(&name), || format!("delete account `{name}`"))?;
        let mut rows = self.end_belongings(&name);
        rows.push(self.deletion(EntryKind::Account, name));
        Ok(rows)
    }

    pub(super) fn existing_account(&self, name: &str) -> Result<&Account, Refusal> {
        self.directory.account(name).ok_or_else(|| self.absent(EntryKind::Account, name))
    }

    /// Returns rows that delete the bindings and the login of an account and revoke its tokens.
    fn end_belongings(&self, account: &str) -> Vec<Row> {
        let subject = Subject::Account(account.to_owned());
        let bindings = self.directory.bindings_of(&subject);
        let deletions =
            bindings.map(|binding| self.deletion(EntryKind::Binding, Entry::Binding(binding).key()));
        let is_of_account =
            |token: &&Token| matches!(&token.bearer, Bearer::Account(name) if name == account);
        let tokens = self.directory.tokens().filter(is_of_account).filter(|token| token.revoked_at.is_none());
        let login = self.directory.has_login_row(account);
        let login = login.then(|| self.deletion(EntryKind::Login, account.to_owned()));
        deletions.chain(tokens.map(|token| self.revocation(token))).chain(login).collect()
    }
}
