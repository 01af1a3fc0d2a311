//! Settings of queues.
//!
//! A job waits in a queue until a worker is free. A queue need not be created: a queue without stored settings has
//! the defaults. [`crate::validate::queue`] checks the ranges; the engine applies the limits when it places jobs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Settings of a queue: limits on its jobs, and its share of the workers.
///
/// A queue need not be created; all settings of a new queue have their defaults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QueueSettings {
    /// Maximum number of concurrent jobs of the queue, from 1 to 1,000,000 [default: unlimited].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Rate limit: maximum average number of job starts per second, at most 1,000,000 [default: unlimited].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_per_second: Option<f64>,
    /// Maximum number of jobs that start at once after an idle period, under `rate_per_second`; from 1 to 1,000,000
    /// [default: `rate_per_second`, at least 1].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// Weight of the queue against other queues that compete for the same workers, from 1 to 1,000 [default: 1].
    pub weight: u32,
    /// Weights of namespaces within the queue, by name of the namespace, from 1 to 1,000 [default: 1 for each
    /// namespace].
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub namespace_weights: BTreeMap<String, u32>,
    /// Whether the queue is paused: no job of a paused queue starts [default: `false`].
    pub paused: bool,
    /// Reason why the queue is paused, as text for users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            concurrency: None,
            rate_per_second: None,
            burst: None,
            weight: 1,
            namespace_weights: BTreeMap::new(),
            paused: false,
            note: None,
        }
    }
}
