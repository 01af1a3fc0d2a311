//! Secrets, without their values.

use super::*;
use crate::secret::SecretSpec;

/// A secret. Its values are hidden.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Secret {
    /// Spec of the secret, with `******` in place of each value.
    #[serde(flatten)]
    pub spec: SecretSpec,
    /// Version of the secret; increases with every change.
    pub version: u64,
    /// Time of the creation.
    pub created_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
    /// Account of the last change.
    pub updated_by: String,
}

/// All secrets that match the filter, ordered by namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Secrets {
    /// The secrets.
    pub items: Vec<Secret>,
}
