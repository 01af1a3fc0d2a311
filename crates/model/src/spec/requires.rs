//! Services that a job requires.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

fn one() -> u32 {
    1
}

fn is_one(count: &u32) -> bool {
    *count == 1
}

/// A service that must be available before a job starts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RequiredService {
    /// Name of the service, in the namespace of the job. A service that does not exist is not available.
    pub service: String,
    /// Minimum number of available replicas, from 0 to 1,000. With 0, the job does not wait, and can still look up the
    /// endpoints of the service [default: 1].
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub min_available: u32,
}
