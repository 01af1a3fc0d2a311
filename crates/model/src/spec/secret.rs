//! References from jobs to secrets.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::JobSpec;

/// A value of a secret that a task gets, in an environment variable or in a file: exactly one of `env` and `file`.
///
/// The spec names the secret and never contains its value. The worker gets the current value when an execution starts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretReference {
    /// Name of the secret, in the namespace of the job.
    pub secret: String,
    /// Key of the value in the secret.
    pub key: String,
    /// Environment variable that gets the value. In the runtime `http`, `${NAME}` in `url`, `headers` and `body` is the
    /// value. `BELFRY_*` and `LD_*` are reserved. Required if `file` is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<String>,
    /// Name of the file that gets the value, in the directory `$BELFRY_SECRETS`. 1 to 255 letters, digits, `-`, `_` or `.`,
    /// not starting with `.`. Not allowed with the runtime `http`. Required if `env` is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

impl JobSpec {
    /// Environment variable with the directory of the files of secrets.
    pub const SECRETS_VARIABLE: &'static str = "BELFRY_SECRETS";

    /// Text that the JSON of each spec with secrets contains. A search for it is faster than parsing.
    pub const SECRETS_WORD: &'static str = "\"secrets\"";
}
