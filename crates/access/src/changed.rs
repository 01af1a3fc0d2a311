//! Entries before and after a change, for the audit log.

use model::alert::HIDDEN;
use serde_json::Value;

use crate::directory::Directory;
use crate::entry::{Deletion, Entry, EntryKind, Row, split_binding_key};
use crate::role::Role;

/// Entry that a change writes, before and after the change, without secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// Kind of the entry: `account`, `role`, `binding`, `token`, `login` or `secret`.
    pub kind: String,
    /// Key of the entry within its kind.
    pub key: String,
    /// Entry before the change; `None` if it did not exist.
    pub old: Option<Value>,
    /// Entry after the change; `None` if the change deletes it.
    pub new: Option<Value>,
}

impl Directory {
    /// Returns the entries of planned rows, before and after the change.
    pub fn changed(&self, rows: &[Row]) -> Vec<Changed> {
        let changed = rows.iter().map(|row| Changed {
            kind: row.kind.clone(),
            key: row.key.clone(),
            old: self.live(row).and_then(|entry| shown(&entry.row().body)),
            new: match serde_json::from_str::<Deletion>(&row.body) {
                Ok(_) => None,
                Err(_) => shown(&row.body),
            },
        });
        changed.collect()
    }

    /// Returns the entry with the kind and the key of a row.
    fn live(&self, row: &Row) -> Option<Entry> {
        match EntryKind::parse(&row.kind)? {
            EntryKind::Account => self.account(&row.key).cloned().map(Entry::Account),
            EntryKind::Role => match self.role(&row.key)? {
                Role::Custom(role) => Some(Entry::Role(role.clone())),
                Role::BuiltIn(_) => None,
            },
            EntryKind::Binding => {
                let (role, subject, namespace) = split_binding_key(&row.key)?;
                let mut bindings = self.bindings_of(&subject);
                bindings.find(|it| it.role == role && it.namespace == namespace).map(Entry::Binding)
            }
            EntryKind::Token => self.token(&row.key).cloned().map(Entry::Token),
            EntryKind::Login => self.login(&row.key).cloned().map(Entry::Login),
            EntryKind::Secret => {
                let (namespace, name) = row.key.rsplit_once('/')?;
                self.secret(namespace, name).map(|secret| Entry::Secret(secret.as_ref().clone()))
            }
        }
    }
}

/// Returns an entry without the hashes of tokens, invitations and passwords, without second factors, and without the
/// values of secrets.
fn shown(body: &str) -> Option<Value> {
    let mut value: Value = serde_json::from_str(body).ok()?;
    let fields = value.as_object_mut()?;
    fields.remove("hash");
    if let Some(values) = fields.get_mut("values").and_then(Value::as_object_mut) {
        values.values_mut().for_each(|value| *value = HIDDEN.into());
    }
    for (part, secret) in [
        ("password", "hash"),
        ("invitation", "hash"),
        ("totp", "sealed"),
        ("totp", "recovery"),
        ("totp", "last_step"),
    ] {
        if let Some(part) = fields.get_mut(part).and_then(Value::as_object_mut) {
            part.remove(secret);
        }
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use model::Timestamp;

    use crate::{Bearer, Change, Directory, Identity, SubmitRate};

    #[test]
    fn a_change_shows_its_entries_without_hashes() {
        let mut directory = Directory::default();
        let now = Timestamp::from_millis(1_780_000_000_000);
        let root = Identity::admin("root");
        let mut lines = Vec::new();
        let account = |title: &str| Some(title.to_owned());
        for change in [
            Change::CreateAccount {
                name: "ann".into(),
                kind: crate::AccountKind::User,
                title: account("Ann"),
                submit_rate: SubmitRate::Default,
            },
            Change::Bind { role: "viewer".into(), subject: "ann".into(), namespace: "finance".into() },
            Change::CreateToken {
                id: "000000000000".into(),
                hash: [0xab; 32].into(),
                bearer: Bearer::Admin("ops".into()),
                description: None,
                scope: None,
                expires_at: None,
            },
            Change::DeleteAccount { name: "ann".into() },
        ] {
            let rows = directory.plan(&root, change, now).unwrap();
            for changed in directory.changed(&rows) {
                let of = |value: &Option<serde_json::Value>| {
                    value.as_ref().map_or("-".to_owned(), |value| value["created_by"].to_string())
                };
                assert!(!format!("{changed:?}").contains("abab"), "{changed:?}");
                lines.push(format!(
                    "{} {}: {} → {}",
                    changed.kind,
                    changed.key,
                    of(&changed.old),
                    of(&changed.new)
                ));
            }
            directory.apply(rows);
        }
        insta::assert_snapshot!(lines.join("\n"), @r#"
        account ann: - → "root"
        binding viewer/ann/finance: - → "root"
        token 000000000000: - → "root"
        binding viewer/ann/finance: "root" → -
        account ann: "root" → -
        "#);
    }
}
