//! Entries of the audit log: who did what to which object, from where, and with which outcome.
//!
//! The store keeps an entry as JSON, in a chain of hashes (crate `audit`). The API adds the position and the hash. An
//! entry has only text, whole numbers, booleans, lists and objects, so that its canonical JSON is unambiguous.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::access::{Resource, Verb};
use crate::time::Timestamp;

/// Entry of the audit log: one request, or several equal requests that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Entry {
    /// Time of the request.
    pub at: Timestamp,
    /// Name of the server that handled the request.
    pub server: String,
    /// Name of the caller: an account, or the name of an admin or worker token.
    pub actor: String,
    /// Kind of the caller: `admin`, `worker`, `user` or `service`.
    pub actor_kind: String,
    /// ID of the token of the caller; not secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_id: Option<String>,
    /// IP address of the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Beginning of the header `User-Agent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_agent: Option<String>,
    /// ID of the request, as in the header `X-Request-Id` and in the log of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Requested action: the name of the operation in the API, for example `cancel_job`.
    pub action: String,
    /// Right that the action needs: the verb.
    pub verb: Verb,
    /// Right that the action needs: the kind of resource.
    pub resource: Resource,
    /// Namespace of the object. Absent for an object of the cluster, and if the request ended before its namespace was
    /// known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name or ID of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Outcome of the request.
    pub outcome: Outcome,
    /// Error code, if the request did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Number of changed objects, if the request changes several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affected: Option<u64>,
    /// Number of further requests like the one before, which this entry stands for. Their first one has its own entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<u64>,
    /// Changed fields of a definition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<FieldChange>,
    /// Whether more fields were changed than are listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changes_truncated: bool,
}

/// Changed field of a definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldChange {
    /// Path of the field, for example `timing.rules[0].cron`.
    pub path: String,
    /// Value before the change, as JSON, at most 256 characters. Absent: the field was absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<String>,
    /// Value after the change, as JSON, at most 256 characters. Absent: the field is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<String>,
}

/// Outcome of a request in the audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AuditOutcome)]
pub enum Outcome {
    /// The request was allowed, and succeeded.
    Allowed,
    /// The caller was not authenticated, or did not have the right.
    Denied,
    /// The request was allowed, and failed.
    Failed,
    /// The client disconnected before the response, or the outcome is unknown for another reason.
    Unknown,
}

crate::status::words! { Outcome, "an outcome", {
    Allowed = "allowed";
    Denied = "denied";
    Failed = "failed";
    Unknown = "unknown";
} }
