//! Who serves a store: its servers, and which of them owns which shard.
//!
//! Servers know of one another by their rows alone. A server that does not renew its own is gone for
//! the others; what it owned is free when the leases of its shards run out, which is another matter.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::id::Epoch;
use model::{Duration, ServerId, ShardId, Timestamp};

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

/// The servers of a store that only one process can open: nothing of them outlives it.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    members: Mutex<BTreeMap<ServerId, Listed>>,
}

#[derive(Debug)]
struct Listed {
    server: ServerRecord,
    draining: bool,
    lag: Option<Duration>,
    expires_at: Timestamp,
}

impl Roster {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ServerId, Listed>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn announce(
        &self,
        server: &ServerRecord,
        lag: Option<Duration>,
        now: Timestamp,
        ttl: Duration,
    ) {
        let mut members = self.lock();
        let draining = members.get(&server.id).is_some_and(|listed| listed.draining);
        members.insert(server.id, Listed { server: server.clone(), draining, lag, expires_at: now + ttl });
        members.retain(|_, listed| listed.expires_at > now);
    }

    pub(crate) fn set_draining(&self, server: ServerId, draining: bool, now: Timestamp) -> bool {
        let mut members = self.lock();
        let found = members.get_mut(&server).filter(|listed| listed.expires_at > now);
        found.is_some_and(|listed| {
            listed.draining = draining;
            true
        })
    }

    pub(crate) fn depart(&self, server: ServerId) {
        self.lock().remove(&server);
    }

    pub(crate) fn members(&self, now: Timestamp) -> Vec<Member> {
        let members = self.lock();
        let there = members.values().filter(|listed| listed.expires_at > now);
        let member = |listed: &Listed| Member {
            server: listed.server.clone(),
            draining: listed.draining,
            lag: listed.lag,
            expires_in: listed.expires_at.since(now),
        };
        there.map(member).collect()
    }
}
