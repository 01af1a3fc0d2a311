//! Changes of secrets.
//!
//! Each change has a version, which counts from 1, and starts again after a deletion.
//! Only the newest values are kept: an execution that runs has those of its start.

use std::collections::BTreeMap;

use model::limits::SECRETS_MAX;

use super::Plan;
use crate::action::{Object, Resource, Verb};
use crate::entry::{Entry, EntryKind, Row, Secret, secret_key};
use crate::refusal::Refusal;

/// Fields of a secret that the caller chooses.
pub(super) struct NewSecret {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) description: Option<String>,
    pub(super) values: BTreeMap<String, String>,
}

impl Plan<'_> {
    pub(super) fn put_secret(&self, new: NewSecret, expected: Option<u64>) -> Result<Vec<Row>, Refusal> {
        let NewSecret { namespace, name, description, values } = new;
        self.authorize_secrets(Verb::Change, &namespace)?;
        let known = self.directory.secret(&namespace, &name);
        let key = secret_key(&namespace, &name);
        if known.is_none() {
            self.ensure_new(EntryKind::Secret, &key, false)?;
            if self.directory.secret_count(&namespace) >= SECRETS_MAX {
                return Err(Refusal::SecretLimit { namespace, max: SECRETS_MAX });
            }
        }
        check_version(&key, expected, known.map_or(0, |known| known.version))?;
        if known.is_some_and(|known| known.description == description && known.values == values) {
            return Ok(Vec::new());
        }
        let (updated_at, updated_by) = (self.now, self.actor_name());
        let version = known.map_or(1, |known| known.version + 1);
        let created_at = known.map_or(self.now, |known| known.created_at);
        let secret =
            Secret { namespace, name, description, values, version, created_at, updated_at, updated_by };
        Ok(vec![Entry::Secret(secret).row()])
    }

    pub(super) fn delete_secret(
        &self,
        namespace: &str,
        name: &str,
        expected: Option<u64>,
    ) -> Result<Vec<Row>, Refusal> {
        self.authorize_secrets(Verb::Delete, namespace)?;
        let key = secret_key(namespace, name);
        let Some(known) = self.directory.secret(namespace, name) else {
            return Err(self.absent(EntryKind::Secret, key));
        };
        check_version(&key, expected, known.version)?;
        Ok(vec![self.deletion(EntryKind::Secret, key)])
    }

    fn authorize_secrets(&self, verb: Verb, namespace: &str) -> Result<(), Refusal> {
        let object = Object { resource: Resource::Secrets, namespace: Some(namespace) };
        Ok(self.actor.decide(verb, object)?)
    }
}

fn check_version(name: &str, expected: Option<u64>, found: u64) -> Result<(), Refusal> {
    match expected.filter(|expected| *expected != found) {
        None => Ok(()),
        Some(expected) => Err(Refusal::Outdated { what: "secret", name: name.to_owned(), expected, found }),
    }
}
