//! How similar jobs are distributed over workers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How running jobs with the same name are distributed over workers, so that a failure affects as few of them as possible.
///
/// Counted are the running jobs of the namespace that have the same name and set `spread`. Among the eligible workers,
/// the one with the fewest of them is chosen.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JobSpread {
    /// Label of workers, such as `zone`: first of all, the value with the fewest of these jobs is chosen [default: only
    /// workers are compared].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over: Option<String>,
    /// Maximum number of these jobs on one worker, from 1 to 1,000. Further jobs wait [default: no maximum].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_per_worker: Option<u32>,
}
