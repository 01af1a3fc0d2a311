//! The servers that share a store, and the members of a Raft cluster.

use model::ServerId;
use model::api::{ClusterMember, List, Server};

use crate::error::Error;
use crate::http::{Client, Request};

impl Client {
    /// Returns all running servers of the store.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn servers(&self) -> Result<Vec<Server>, Error> {
        let list: List<Server> = self.json(Request::get(["servers"])).await?;
        Ok(list.items)
    }

    /// Returns a server.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `server_not_found`.
    pub async fn server(&self, id: ServerId) -> Result<Server, Error> {
        self.json(Request::get(["servers", &id.to_string()])).await
    }

    /// Drains a server: it hands its shards over to another server, and takes none until it is undrained or restarted.
    ///
    /// Returns before the handover is complete: poll [`Client::server`] until it owns no shards.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `server_not_found` and `no_other_server`.
    pub async fn drain_server(&self, id: ServerId) -> Result<Server, Error> {
        self.json(Request::post(["servers", &id.to_string(), "drain"]).repeatable()).await
    }

    /// Undoes a drain: the server may take shards again.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `server_not_found`.
    pub async fn undrain_server(&self, id: ServerId) -> Result<Server, Error> {
        self.json(Request::post(["servers", &id.to_string(), "undrain"]).repeatable()).await
    }

    /// Returns the members of the cluster; empty without the Raft store.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn cluster_members(&self) -> Result<Vec<ClusterMember>, Error> {
        let list: List<ClusterMember> = self.json(Request::get(["cluster", "members"])).await?;
        Ok(list.items)
    }

    /// Removes a member whose server has ended for good.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `member_not_found` and `member_not_removable`.
    pub async fn remove_cluster_member(&self, id: &str) -> Result<(), Error> {
        self.send_ignoring_body(Request::delete(["cluster", "members", id])).await
    }
}
