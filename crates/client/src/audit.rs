//! The audit log: search, entries, verification.

use model::Timestamp;
use model::access::{Resource, Verb};
use model::api::{AuditEntry, AuditReport, List};
use model::audit::Outcome;

use crate::error::Error;
use crate::http::{Client, Request};
use crate::page::{self, Items, Page};

/// Conditions for entries of the audit log. All conditions must match.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditFilter {
    /// Namespace of the object; `None` selects all entries that the caller may see.
    pub namespace: Option<String>,
    /// Name of the caller that made the request.
    pub actor: Option<String>,
    /// Action, for example `cancel_job`.
    pub action: Option<String>,
    /// Verb of the action.
    pub verb: Option<Verb>,
    /// Kind of the object.
    pub resource: Option<Resource>,
    /// Name or ID of the object.
    pub object: Option<String>,
    /// Outcome of the request.
    pub outcome: Option<Outcome>,
    /// Only entries at this time or later.
    pub since: Option<Timestamp>,
    /// Only entries before this time.
    pub until: Option<Timestamp>,
}

impl Client {
    /// Returns one page of the audit log, newest entries first.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn audit_page(&self, filter: &AuditFilter, page: &Page) -> Result<List<AuditEntry>, Error> {
        let request = Request::get(["audit"])
            .query_opt("namespace", filter.namespace.as_deref())
            .query_opt("actor", filter.actor.as_deref())
            .query_opt("action", filter.action.as_deref())
            .query_opt("verb", filter.verb)
            .query_opt("resource", filter.resource)
            .query_opt("object", filter.object.as_deref())
            .query_opt("outcome", filter.outcome)
            .query_opt("since", filter.since)
            .query_opt("until", filter.until)
            .page(page);
        self.json(request).await
    }

    /// Streams all entries of the audit log that match the filter, newest first.
    pub fn audit(&self, filter: AuditFilter) -> Items<AuditEntry> {
        let (client, filter) = (self.clone(), std::sync::Arc::new(filter));
        page::all(move |page| {
            let (client, filter) = (client.clone(), filter.clone());
            async move { client.audit_page(&filter, &page).await }
        })
    }

    /// Returns an entry of the audit log.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `audit_entry_not_found`.
    pub async fn audit_entry(&self, sequence: u64) -> Result<AuditEntry, Error> {
        self.json(Request::get(["audit", &sequence.to_string()])).await
    }

    /// Verifies a part of the audit log: after an entry with this sequence number and hash, or from the oldest entry on.
    /// Continue with the numbers of the report until it is complete.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn verify_audit(&self, after: Option<(u64, &str)>) -> Result<AuditReport, Error> {
        let request = Request::get(["audit", "verify"])
            .query_opt("sequence", after.map(|(sequence, _)| sequence))
            .query_opt("hash", after.map(|(_, hash)| hash));
        self.json(request).await
    }
}
