//! The contract of access control: the entries that say who may do what (accounts, roles, bindings and tokens).
//!
//! The store does not know what an entry means: it has a kind, a key, and a body, which the crate `access` defines.
//! Every change of entries has a greater version. So a server reads what has changed since its last look
//! with one small query, and two servers that change entries at the same time cannot overwrite each other's change.
//!
//! Callers: `server::auth`.
//!
//! # Invariants
//! - A change applies completely or not at all, and only to the version that the caller has seen.
//! - Rows of a version that a caller has read never change without a newer version. Only rows that no longer have a
//!   meaning are deleted ([`delete_access`](Access::delete_access)).
//! - A damaged row is never returned: an entry that cannot be read gives no right.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::StoreError;

/// Entries of access control.
#[async_trait]
pub trait Access: Send + Sync + 'static {
    /// Returns all rows that changed after version `since`, ordered by kind and key. `0` returns all rows.
    async fn access(&self, since: u64) -> Result<AccessRows, StoreError>;

    /// Writes rows, each in place of the row with its kind and key, as version `next`. Returns whether they were
    /// written: not if the version is no longer `expected`.
    ///
    /// The caller chooses a random step to `next`. So if a database loses its last commits, a later change does not get
    /// the version of a lost one, and a server that has seen the lost one detects it.
    ///
    /// # Panics
    /// May panic unless `next` is greater than `expected`.
    async fn change_access(&self, expected: u64, next: u64, rows: &[AccessRow]) -> Result<bool, StoreError>;

    /// Deletes rows without a new version, unless they have changed. The caller names rows that every server ignores:
    /// tokens that ended long ago, and notes of deletions.
    async fn delete_access(&self, rows: &[AccessRow]) -> Result<(), StoreError>;
}

/// Stored entry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AccessRow {
    /// Kind of the entry, for example `token`.
    pub kind: String,
    /// Key of the entry, unique within its kind.
    pub key: String,
    /// Content of the entry, as JSON.
    pub body: String,
}

/// Rows that changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessRows {
    /// Version of the entries, at least 1.
    pub version: u64,
    /// Changed rows, ordered by kind and key.
    pub rows: Vec<AccessRow>,
}

impl AccessRows {
    /// Collects the rows of an answer, each with the version of the entries.
    pub(crate) fn from_changes(changes: Vec<(u64, Option<AccessRow>)>) -> Self {
        let version = changes.first().map_or(0, |(version, _)| *version);
        Self { version, rows: changes.into_iter().filter_map(|(_, row)| row).collect() }
    }
}
