//! The servers that share a store.

use model::ServerId;
use model::api::{List, Server};

use crate::error::Error;
use crate::http::{Client, Request};

impl Client {
    /// All servers that are there.
    ///
    /// # Errors
    /// As every request.
    pub async fn servers(&self) -> Result<Vec<Server>, Error> {
        let list: List<Server> = self.json(Request::get(["servers"])).await?;
        Ok(list.items)
    }

    /// One server.
    ///
    /// # Errors
    /// As every request.
    pub async fn server(&self, id: ServerId) -> Result<Server, Error> {
        self.json(Request::get(["servers", &id.to_string()])).await
    }

    /// Has a server give its shards to another one, and take none.
    ///
    /// # Errors
    /// As every request; `no_other_server` where nobody could go on.
    pub async fn drain_server(&self, id: ServerId) -> Result<Server, Error> {
        self.json(Request::post(["servers", &id.to_string(), "drain"]).repeatable()).await
    }

    /// Lets a server take shards again.
    ///
    /// # Errors
    /// As every request.
    pub async fn undrain_server(&self, id: ServerId) -> Result<Server, Error> {
        self.json(Request::post(["servers", &id.to_string(), "undrain"]).repeatable()).await
    }
}
