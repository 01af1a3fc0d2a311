//! Entries of the audit log for workers.
//!
//! A worker that connects for the first time makes an entry, and so does a caller that may not act as a worker. A worker
//! that connects again makes none.

use audit::{Entry, Outcome};
use model::WorkerId;

use crate::auth::{Identity, Resource, Verb};
use crate::services::Services;

/// Bearer of a token.
pub(super) struct Caller {
    name: String,
    kind: &'static str,
    token_id: String,
}

/// Returns the caller with this identity.
pub(super) fn caller(identity: &Identity) -> Caller {
    let (name, token_id) = (identity.name.to_string(), identity.token_id.to_string());
    Caller { name, kind: identity.kind.as_str(), token_id }
}

/// Returns the bearer of a refused token, if a server has created it.
pub(super) fn bearer(services: &Services, token_id: &str) -> Option<Caller> {
    let (name, kind) = services.access.known_bearer(token_id)?;
    Some(Caller { name, kind: kind.as_str(), token_id: token_id.to_owned() })
}

/// Returns an entry of an action of a worker.
pub(super) fn entry(services: &Services, caller: &Caller, action: &str, resource: Resource) -> Entry {
    Entry {
        actor: caller.name.clone(),
        actor_kind: caller.kind.to_owned(),
        token_id: Some(caller.token_id.clone()),
        verb: Verb::Work,
        resource,
        ..services.audit.system_entry(action)
    }
}

/// Makes the entry of a worker that was not known before.
pub(super) fn registered(services: &Services, identity: &Identity, worker: WorkerId, name: &str) {
    let entry = entry(services, &caller(identity), "register_worker", Resource::Workers);
    let object = audit::clean(&format!("{name} ({worker})"), 200);
    services.audit.add(Entry { object: Some(object), outcome: Outcome::Allowed, ..entry });
}
