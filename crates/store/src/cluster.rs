//! The contract of membership: which servers share a store, which of them owns which shard, and their common secrets.
//!
//! Servers know of one another by their rows alone. A server that stops [announcing](Members::announce) itself is gone
//! for the others after its `ttl`; the shards that it owned are free only when their [leases](crate::Leases) run out.
//! Nothing here decides who leads: it is read by people, by clients that look for a server, and by a server that
//! drains.
//!
//! Callers: `server::members`, `server::auth` (the secrets), and the tests.
//!
//! # Cost
//! One small write or read a call, a few times a minute for each server; it never waits behind a commit, a renewal or
//! a long query.

use std::fmt;

use async_trait::async_trait;
use model::id::Epoch;
use model::{Duration, ServerId, ShardId, Timestamp};

use crate::StoreError;

/// The servers that share a store.
#[async_trait]
pub trait Members: Send + Sync + 'static {
    /// Tells the others that this server is there, for `ttl` from now on the store's clock, and its
    /// [`lag`](Member::lag).
    ///
    /// Whether it is [draining](Member::draining) stays as it was; a new one is not.
    async fn announce(
        &self,
        server: &ServerRecord,
        lag: Option<Duration>,
        ttl: Duration,
    ) -> Result<(), StoreError>;

    /// The servers that are there, and who owns which shard.
    async fn cluster(&self) -> Result<Cluster, StoreError>;

    /// Asks a server to give its shards away and to take none, or takes that back. Says whether there
    /// is such a server.
    async fn set_draining(&self, server: ServerId, draining: bool) -> Result<bool, StoreError>;

    /// Forgets a server that stops. Its shards are [released](crate::Leases::release) apart from this.
    async fn depart(&self, server: ServerId) -> Result<(), StoreError>;

    /// The secret of this name, which all servers share: what is kept, or else `proposed`, which is
    /// kept from now on.
    async fn secret(&self, name: &str, proposed: &[u8; 32]) -> Result<[u8; 32], StoreError>;
}

/// The SHA-256 of a server's public key, by which the others know it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
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

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerRecord {
    /// Which; what its leases name as their owner.
    pub id: ServerId,
    /// What people call it.
    pub name: String,
    /// Where the other servers reach it; `None` where they cannot.
    pub url: Option<String>,
    /// The version of its program.
    pub version: String,
    /// When it started, on its own clock.
    pub started_at: Timestamp,
    /// What it proves to the others that it is itself; `None` for one of a release that had no keys.
    pub fingerprint: Option<Fingerprint>,
}

/// A server, as the others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// What it says of itself.
    pub server: ServerRecord,
    /// Somebody asked it to give its shards away and to take none.
    pub draining: bool,
    /// How old the newest is that it knows of the live rows; `None` if it does not follow them, so that it would
    /// have to load them.
    pub lag: Option<Duration>,
    /// For how long it counts as there without another word.
    pub expires_in: Duration,
}

/// A shard, and who has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardOwner {
    /// Which.
    pub shard: ShardId,
    /// Which ownership this is, or was.
    pub epoch: Epoch,
    /// The id of the server that has it, while its lease lasts.
    pub owner: Option<String>,
    /// How long the lease lasts without renewal.
    pub expires_in: Duration,
}

/// All servers that are there, by id, and all shards.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cluster {
    /// In the order of their ids, which is that of their starts.
    pub members: Vec<Member>,
    /// In order.
    pub shards: Vec<ShardOwner>,
}

impl Cluster {
    /// The server that owns a shard.
    pub fn owner_of(&self, shard: ShardId) -> Option<&Member> {
        let owner = self.shards.iter().find(|row| row.shard == shard)?.owner.as_deref()?;
        self.members.iter().find(|member| member.server.id.to_string() == owner)
    }

    /// One of its servers.
    pub fn member(&self, id: ServerId) -> Option<&Member> {
        self.members.iter().find(|member| member.server.id == id)
    }
}
