//! Identity of the token, and version of the server.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::http::{Client, Request};

/// Identity of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Me {
    /// Name of the owner of the token.
    pub name: String,
    /// Kind of the token: `admin` or `worker`.
    pub kind: String,
}

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
    /// Returns the identity of the token.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `unauthenticated`.
    pub async fn me(&self) -> Result<Me, Error> {
        self.json(Request::get(["me"])).await
    }

    /// Returns the version of the server.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn server_version(&self) -> Result<ServerVersion, Error> {
        self.json(Request::get(["version"])).await
    }
}
