//! The contract of the audit log: rows in a chain of hashes, appended in order.
//!
//! The store does not know what a row means, and computes no hash: the crate `audit` does. The store keeps the chain
//! linear. A row is appended only after the row that its author has seen last, so two servers that append at the same
//! time cannot fork the chain; one of them is refused, and computes its hashes again. Retention cuts the chain at its
//! beginning and keeps the last deleted link, so that the rest can still be verified.
//!
//! Callers: `server::audit`.
//!
//! # Invariants
//! - Sequence numbers start at 1 and have no gaps.
//! - No row is ever changed. Rows are deleted only by [`trim_audit`](Audit::trim_audit), from the oldest on.
//! - A damaged row is returned as it is: its hash shows the damage, and its absence would look like a deletion.

use async_trait::async_trait;
use model::Timestamp;
use serde::{Deserialize, Serialize};

use crate::StoreError;
use crate::query::{Page, Paged};

/// Rows of the audit log.
#[async_trait]
pub trait Audit: Send + Sync + 'static {
    /// Returns both ends of the chain.
    async fn audit_chain(&self) -> Result<AuditChain, StoreError>;

    /// Appends rows with consecutive sequence numbers. Returns whether they were written: not if the last link is no
    /// longer `expected`.
    ///
    /// # Panics
    /// May panic if `rows` is empty.
    async fn append_audit(&self, expected: &AuditLink, rows: &[AuditRow]) -> Result<bool, StoreError>;

    /// Returns at most `limit` rows after a sequence number, oldest first.
    async fn audit_after(&self, after: u64, limit: usize) -> Result<Vec<AuditRow>, StoreError>;

    /// Returns a page of rows that match a filter, newest first.
    async fn audit(&self, filter: &AuditFilter, page: Page<u64>) -> Result<Paged<AuditRow>, StoreError>;

    /// Deletes at most `limit` rows from the oldest on, up to the first one that is not older than `before`. Returns
    /// their number. The last deleted link becomes [`AuditChain::cut`].
    async fn trim_audit(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;
}

/// Position in the chain: a sequence number and the hash of its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AuditLink {
    /// Sequence number; 0 before the first row.
    pub sequence: u64,
    /// SHA-256 of the row and of all rows before it; zeros before the first row.
    pub hash: [u8; 32],
}

/// Both ends of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AuditChain {
    /// Last row.
    pub last: AuditLink,
    /// Last row that retention deleted.
    pub cut: AuditLink,
}

/// Stored row. All columns except the hash repeat parts of the body, for filters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRow {
    /// Position in the chain.
    pub link: AuditLink,
    /// Time of the request.
    pub at: Timestamp,
    /// Namespace of the object.
    pub namespace: Option<String>,
    /// Name of the caller.
    pub actor: String,
    /// Action, for example `cancel_job`.
    pub action: String,
    /// Verb of the action.
    pub verb: String,
    /// Kind of the object.
    pub resource: String,
    /// Name or ID of the object.
    pub object: Option<String>,
    /// Outcome of the request.
    pub outcome: String,
    /// Entry, as canonical JSON.
    pub body: String,
}

/// Filter for rows. All given conditions must match.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditFilter {
    /// Namespace; `None` matches all, and rows without a namespace.
    pub namespace: Option<String>,
    /// Name of the caller.
    pub actor: Option<String>,
    /// Action.
    pub action: Option<String>,
    /// Verb of the action.
    pub verb: Option<String>,
    /// Kind of the object.
    pub resource: Option<String>,
    /// Name or ID of the object.
    pub object: Option<String>,
    /// Outcome of the request.
    pub outcome: Option<String>,
    /// Minimum time, inclusive.
    pub since: Option<Timestamp>,
    /// Maximum time, exclusive.
    pub until: Option<Timestamp>,
}
