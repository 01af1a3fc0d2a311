//! The contract of membership: the servers that share a store, the owners of the shards, and the common secrets of the
//! servers.
//!
//! Servers know each other only by their rows. If a server stops [announcing](Members::announce) itself, it is
//! no longer a member after its `ttl`. Its shards become free only when their [leases](crate::Leases) expire.
//! Membership does not decide leadership. Its readers are operators, clients that look for a server, and a server that
//! drains.
//!
//! Callers: `server::members`, `server::auth` (the secrets), and the tests.
//!
//! # Cost
//! Each call is one small read or write, a few times a minute for each server. It never waits for a commit, a renewal
//! or a long query.

use std::fmt;

use async_trait::async_trait;
use model::id::Epoch;
use model::{Duration, ServerId, ShardId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::StoreError;

/// The servers that share a store.
#[async_trait]
pub trait Members: Send + Sync + 'static {
    /// Registers this server for `ttl` from now on the store's clock, with its [`lag`](Member::lag).
    ///
    /// Does not change whether the server is [draining](Member::draining); a new server is not.
    async fn announce(
        &self,
        server: &ServerRecord,
        lag: Option<Duration>,
        ttl: Duration,
    ) -> Result<(), StoreError>;

    /// Returns the registered servers and the owner of each shard.
    async fn cluster(&self) -> Result<Cluster, StoreError>;

    /// Asks a server to hand over its shards and acquire none, or revokes that request. Returns whether the server is
    /// registered.
    async fn set_draining(&self, server: ServerId, draining: bool) -> Result<bool, StoreError>;

    /// Removes the row of a server that stops. [`Leases::release`](crate::Leases::release) releases its shards
    /// separately.
    async fn remove_member(&self, server: ServerId) -> Result<(), StoreError>;

    /// Returns the secret of this name, which all servers share. If there is none, stores and returns `proposed`.
    async fn secret(&self, name: &str, proposed: &[u8; 32]) -> Result<[u8; 32], StoreError>;
}

/// SHA-256 of a server's public key, which identifies the server to the others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fingerprint(pub [u8; 32]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// Announcement of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerRecord {
    /// ID of the server, which is also the owner in its leases.
    pub id: ServerId,
    /// Name of the server, for display.
    pub name: String,
    /// URL at which other servers reach this one; `None` if they cannot.
    pub url: Option<String>,
    /// Version of the program.
    pub version: String,
    /// Start time, on the server's own clock.
    pub started_at: Timestamp,
    /// Fingerprint of the server's key; `None` for a release that had no keys.
    pub fingerprint: Option<Fingerprint>,
}

/// Registered server, as the others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Announcement of the server.
    pub server: ServerRecord,
    /// Whether an operator asked the server to hand over its shards and acquire none.
    pub draining: bool,
    /// Age of the server's copy of the live rows; `None` if the server does not follow them and would have to load
    /// them.
    pub lag: Option<Duration>,
    /// Time until the registration expires without another announcement.
    pub expires_in: Duration,
}

/// Ownership of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardOwner {
    /// Number of the shard.
    pub shard: ShardId,
    /// Epoch of the current or the last ownership.
    pub epoch: Epoch,
    /// ID of the owning server, while its lease is valid.
    pub owner: Option<String>,
    /// Remaining time of the lease without a renewal.
    pub expires_in: Duration,
}

/// All registered servers and all shards.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cluster {
    /// Registered servers, ordered by ID, which is the order of their start times.
    pub members: Vec<Member>,
    /// All shards, ordered by number.
    pub shards: Vec<ShardOwner>,
}

impl Cluster {
    /// Returns the server that owns a shard.
    pub fn owner_of(&self, shard: ShardId) -> Option<&Member> {
        let owner = self.shards.iter().find(|row| row.shard == shard)?.owner.as_deref()?;
        self.members.iter().find(|member| member.server.id.to_string() == owner)
    }

    /// Returns a registered server by ID.
    pub fn member(&self, id: ServerId) -> Option<&Member> {
        self.members.iter().find(|member| member.server.id == id)
    }
}
