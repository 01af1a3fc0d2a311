//! Encoding of services.
//!
//! The **head** is what a user or a rollback changes: the spec and the newest revisions. The **state** is what a change
//! of a replica may rewrite. Revisions and state are JSON, so a new optional field of the model needs no new format.

use std::borrow::Cow;
use std::sync::Arc;

use model::ServiceId;
use model::service::{ServiceHead, ServiceState};
use serde::{Deserialize, Serialize};

use super::{Context, DecodeError, open, open_text, seal, seal_text};

const STATE: &str = "state";
const HEAD: &str = "head";

/// Spec and revisions of a service, both as JSON.
#[derive(Serialize, Deserialize)]
struct HeadRow<'a> {
    #[serde(borrow)]
    body: Cow<'a, str>,
    #[serde(borrow)]
    revisions: Cow<'a, str>,
}

fn context(id: ServiceId) -> Context {
    Context::of(id.to_bits())
}

fn from_json<'a, T: Deserialize<'a>>(column: &'static str, json: &'a str) -> Result<T, DecodeError> {
    serde_json::from_str(json).map_err(|error| DecodeError::decode(column, error))
}

/// Seals the spec and the revisions of a service.
pub(crate) fn seal_service_head(id: ServiceId, head: &ServiceHead) -> Vec<u8> {
    let revisions = serde_json::to_string(&head.revisions).expect("revisions are plain data");
    seal(context(id), &HeadRow { body: Cow::Borrowed(&head.body), revisions: revisions.into() })
}

/// Opens what [`seal_service_head`] sealed, and parses the spec.
pub(crate) fn open_service_head(id: ServiceId, sealed: &[u8]) -> Result<ServiceHead, DecodeError> {
    let row: HeadRow<'_> = open(context(id), HEAD, sealed)?;
    let revisions: Vec<_> = from_json(HEAD, &row.revisions)?;
    if revisions.is_empty() {
        return Err(DecodeError::decode(HEAD, "it has no revision"));
    }
    let spec = from_json(HEAD, &row.body)?;
    Ok(ServiceHead {
        spec: Arc::new(spec),
        body: row.body.into(),
        revisions: revisions.into_iter().map(Arc::new).collect(),
    })
}

/// Seals the state of a service.
pub(crate) fn seal_service(id: ServiceId, state: &ServiceState) -> Vec<u8> {
    let json = serde_json::to_string(state).expect("states are plain data");
    seal_text(context(id), &json)
}

/// Opens what [`seal_service`] sealed.
pub(crate) fn open_service(id: ServiceId, sealed: &[u8]) -> Result<ServiceState, DecodeError> {
    from_json(STATE, open_text(context(id), STATE, sealed)?)
}
