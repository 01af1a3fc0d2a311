//! The server itself: who one is to it, and which version it is.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::http::{Client, Request};

/// Whom a token belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Me {
    /// The name of its owner.
    pub name: String,
    /// What it is for: `admin`, `worker`.
    pub kind: String,
}

/// Which version a server is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerVersion {
    /// Its version.
    pub version: String,
    /// What else it tells.
    #[serde(flatten)]
    pub more: serde_json::Map<String, serde_json::Value>,
}

impl Client {
    /// Whom the token belongs to.
    ///
    /// # Errors
    /// As every request.
    pub async fn me(&self) -> Result<Me, Error> {
        self.json(Request::get(["me"])).await
    }

    /// Which version the server is.
    ///
    /// # Errors
    /// As every request.
    pub async fn server_version(&self) -> Result<ServerVersion, Error> {
        self.json(Request::get(["version"])).await
    }
}
