//! What a handler tells about its request for the audit log.

use std::sync::{Arc, Mutex, PoisonError};

use audit::Difference;
use serde::Serialize;
use serde_json::Value;

/// Longest name of an object in an entry, in characters.
const OBJECT_CHARS_MAX: usize = 200;

/// Facts about one request, which its handler adds. Clones share the facts.
#[derive(Debug, Clone, Default)]
pub struct Note(Arc<Mutex<Noted>>);

/// Facts about one request.
#[derive(Debug, Default)]
pub struct Noted {
    /// Namespace of the object. `None` if it is unknown, or if the request concerns several namespaces.
    pub namespace: Option<String>,
    /// Whether the request concerns several namespaces: its entry must not show one of them what concerns another.
    concerns_several: bool,
    /// Whether an object was hidden from the caller, because it lacks the right to it.
    pub is_denied: bool,
    /// Name or ID of the object.
    pub object: Option<String>,
    /// Number of changed objects.
    pub affected: Option<u64>,
    /// Changed fields.
    pub difference: Difference,
    /// Whether the request changed nothing and needs no entry.
    pub is_read: bool,
}

impl Note {
    /// Adds the namespace of the object.
    pub fn namespace(&self, namespace: &str) {
        self.with(|noted| {
            let namespace = audit::clean(namespace, OBJECT_CHARS_MAX);
            match &noted.namespace {
                None if !noted.concerns_several => noted.namespace = Some(namespace),
                Some(known) if *known != namespace => {
                    noted.namespace = None;
                    noted.concerns_several = true;
                }
                _ => {}
            }
        });
    }

    /// Notes that an object is hidden from the caller.
    pub fn is_denied(&self) {
        self.with(|noted| noted.is_denied = true);
    }

    /// Adds the name or ID of the object.
    pub fn object(&self, object: impl std::fmt::Display) {
        self.with(|noted| noted.object = Some(audit::clean(&object.to_string(), OBJECT_CHARS_MAX)));
    }

    /// Adds the number of changed objects, of a request that changes several.
    pub fn affected(&self, count: usize) {
        self.with(|noted| noted.affected = Some(count as u64));
    }

    /// Notes that the request only read.
    pub fn is_read(&self) {
        self.with(|noted| noted.is_read = true);
    }

    /// Adds the changed fields of a definition. Their paths begin with `prefix`, if the request changes several
    /// definitions.
    pub fn changed<T: Serialize>(&self, prefix: &str, old: Option<&T>, new: Option<&T>) {
        let [old, new] = [old.map(value), new.map(value)];
        self.changed_values(prefix, old.as_ref(), new.as_ref());
    }

    /// Adds the changed fields of a definition that is stored as JSON.
    pub fn changed_bodies(&self, prefix: &str, old: Option<&str>, new: Option<&str>) {
        if old == new {
            return;
        }
        let [old, new] =
            [old, new].map(|body| body.map(|body| serde_json::from_str(body).unwrap_or_default()));
        self.changed_values(prefix, old.as_ref(), new.as_ref());
    }

    fn changed_values(&self, prefix: &str, old: Option<&Value>, new: Option<&Value>) {
        self.with(|noted| noted.difference.add(prefix, old, new));
    }

    /// Returns all facts so far, and forgets them.
    pub fn take(&self) -> Noted {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn with(&self, change: impl FnOnce(&mut Noted)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

fn value<T: Serialize>(definition: &T) -> Value {
    serde_json::to_value(definition).unwrap_or_default()
}
