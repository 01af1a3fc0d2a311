//! Secrets of jobs: named values that a spec refers to and never contains.
//!
//! A secret belongs to a namespace and has one or more values, each with a key. A user writes a secret and reads only its
//! keys and its version. The server stores the values encrypted (`access` and `server::seal`), and gives them only to the
//! worker that holds an execution of a job that refers to them ([`crate::spec::SecretReference`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::alert::{HIDDEN, SecretText};
use crate::spec::DEFAULT;

fn default_namespace() -> String {
    DEFAULT.to_owned()
}

/// A secret: values that jobs of its namespace can use. Its values are stored encrypted, and responses hide them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretSpec {
    /// Name of the secret, unique in its namespace. 1 to 63 letters, digits, `-`, `_` or `.`, starting with a letter
    /// or digit.
    pub name: String,
    /// Namespace (tenant) of the secret; only jobs of this namespace can use it [default: `default`].
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Description of the secret, at most 1,000 bytes. It is not encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Values of the secret by key, 1 to 64, each at most 64 KiB and all together at most 256 KiB. A key has 1 to 255
    /// letters, digits, `-`, `_` or `.`. Responses have `******` in place of each value; in a request, it keeps the stored
    /// value.
    pub values: BTreeMap<String, SecretText>,
}

impl SecretSpec {
    /// Hides all values.
    pub fn hide_values(&mut self) {
        self.values.values_mut().for_each(|value| *value = SecretText::new(HIDDEN));
    }
}
