//! Version of the server.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::http::{Client, Request};

/// Version of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerVersion {
    /// Version, such as `0.1.0`.
    pub version: String,
    /// Further fields of the response.
    #[serde(flatten)]
    pub more: serde_json::Map<String, serde_json::Value>,
}

impl Client {
    /// Returns the version of the server.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn server_version(&self) -> Result<ServerVersion, Error> {
        self.json(Request::get(["version"])).await
    }
}
