//! Queues: where waiting jobs stand.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How a queue lets jobs through. A queue that nobody set up has every default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QueueSettings {
    /// The most of its jobs that run at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// The most of its jobs that start in a second, on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_per_second: Option<f64>,
    /// How many may start at once after a quiet time; one second's worth where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// Its share against other queues, where all want the same workers.
    pub weight: u32,
    /// The shares of namespaces within it; 1 where not named.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub namespace_weights: BTreeMap<String, u32>,
    /// Whether nothing of it starts.
    pub paused: bool,
    /// Why it is paused, for people.
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
