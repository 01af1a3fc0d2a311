//! The audit log.

use std::collections::BTreeMap;

use super::*;
use crate::audit::Entry;

/// Entry of the audit log, with its place in the chain of hashes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// Sequence number of the entry, from 1 on, without gaps.
    pub sequence: u64,
    /// SHA-256 of this entry, its sequence number and the hash of the entry before it, in hexadecimal digits.
    pub hash: String,
    /// Content of the entry.
    #[serde(flatten)]
    pub entry: Entry,
    /// Fields of a newer version, so that the entry can be verified.
    #[serde(flatten)]
    #[schema(ignore)]
    pub other: BTreeMap<String, serde_json::Value>,
}

/// Result of a verification of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditReport {
    /// Whether the verified entries are complete and unchanged.
    pub valid: bool,
    /// Whether the verification has reached the end of the log. If not, continue after `sequence` and `hash`.
    pub complete: bool,
    /// Number of verified entries.
    pub verified: u64,
    /// Sequence number of the last entry that retention deleted; 0 if none was deleted.
    pub deleted_until: u64,
    /// Sequence number of the last verified entry.
    pub sequence: u64,
    /// Hash of the last verified entry. Keep it elsewhere to detect a log that was replaced as a whole.
    pub hash: String,
    /// Place and kind of the damage, if the chain is not valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
