//! Volumes: named directories of workers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A volume that a job needs: a directory of its worker, which keeps its content after the execution.
///
/// Each worker declares its volumes, with their paths. A job runs only on workers that have all of its volumes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Volume {
    /// Name of the volume: 1 to 63 lower-case letters, digits or `-`, starting with a letter. The task finds the path in
    /// `BELFRY_VOLUME_<NAME>`, with the name in upper case and `_` for `-`.
    pub name: String,
}

impl Volume {
    /// Returns the name of the environment variable with the path of the volume.
    pub fn variable(&self) -> String {
        format!("BELFRY_VOLUME_{}", self.name.to_ascii_uppercase().replace('-', "_"))
    }

    /// Whether a text is a valid name of a volume.
    pub fn is_name(text: &str) -> bool {
        (1..=crate::limits::NAME_LEN_MAX).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    }
}
