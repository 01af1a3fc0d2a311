//! The contract of alerts: rules, channels, the state of alerts, and notifications.
//!
//! The store does not know what a row means: it has a kind, a key, and a body, which the crate `alerts` defines. The leader
//! reads all rows once, and then only writes.
//!
//! Callers: `server::alerts`.
//!
//! # Invariants
//! - A change applies completely or not at all, and only to the version that the caller has seen. So of two servers that
//!   consider themselves the leader, one notices it.
//! - A damaged row is never returned.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::StoreError;

/// Rows of alerts.
#[async_trait]
pub trait Alerts: Send + Sync + 'static {
    /// Returns all rows, ordered by kind and key, and their version.
    async fn alerts(&self) -> Result<AlertRows, StoreError>;

    /// Writes and deletes rows, as version `next`. Returns whether it did: not if the version is no longer `expected`.
    ///
    /// The caller chooses a random step to `next`. So if a database loses its last commits, a later change does not get
    /// the version of a lost one.
    ///
    /// # Panics
    /// May panic unless `next` is greater than `expected`.
    async fn change_alerts(
        &self,
        expected: u64,
        next: u64,
        changes: &[AlertChange],
    ) -> Result<bool, StoreError>;
}

/// Stored row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AlertRow {
    /// Kind of the row, for example `rule`.
    pub kind: String,
    /// Key of the row, unique within its kind.
    pub key: String,
    /// Content of the row, as JSON.
    pub body: String,
}

/// Change of the row with a kind and a key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AlertChange {
    /// Kind of the row.
    pub kind: String,
    /// Key of the row.
    pub key: String,
    /// New content; `None` deletes the row.
    pub body: Option<String>,
}

/// All rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AlertRows {
    /// Version of the rows, at least 1.
    pub version: u64,
    /// Rows, ordered by kind and key.
    pub rows: Vec<AlertRow>,
}

impl AlertRows {
    /// Collects the rows of an answer, each with the version.
    pub(crate) fn from_answer(answer: Vec<(u64, Option<AlertRow>)>) -> Self {
        let version = answer.first().map_or(0, |(version, _)| *version);
        Self { version, rows: answer.into_iter().filter_map(|(_, row)| row).collect() }
    }
}
