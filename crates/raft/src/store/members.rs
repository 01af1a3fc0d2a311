//! [`Members`]: the servers that run on the nodes of the cluster, and their common secrets.
//!
//! Announcements are in memory and exchanged with the leader. Whether a server is being drained is in the log.
//!
//! Only the leader of the log can own shards. So a drained server that owns none passes the leadership on, also if it was
//! elected after it was drained.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use model::{Duration, ServerId, Timestamp};
use serde::{Deserialize, Serialize};
use store::cluster::{Cluster, Member, ServerRecord, ShardOwner};
use store::command::{Reply, Update};
use store::{Members, StoreError};

use super::{RaftStore, unexpected};
use crate::error::TransferError;
use crate::node::{Announcement, Role};
use crate::types::NodeId;

/// Servers of this process: usually one.
#[derive(Debug, Default)]
pub(super) struct OwnServers(Mutex<BTreeMap<ServerId, Announced>>);

#[derive(Debug, Clone)]
struct Announced {
    record: ServerRecord,
    lag: Option<Duration>,
    expires_at: Timestamp,
}

/// A server as its node announces it. Fields are added at the end, each with a default.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct ServerRow {
    record: ServerRecord,
    lag_millis: Option<u64>,
    left_millis: u64,
}

impl OwnServers {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ServerId, Announced>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn live(&self, now: Timestamp) -> Vec<Announced> {
        let mut servers = self.lock();
        servers.retain(|_, server| server.expires_at > now);
        servers.values().cloned().collect()
    }
}

impl RaftStore {
    /// Tells the leader which servers run here.
    async fn announce_servers(&self) {
        let now = self.clock.now();
        let servers = self.servers.live(now);
        let longest = servers.iter().map(|server| server.expires_at.since(now)).max();
        let rows: Vec<_> = servers
            .into_iter()
            .map(|server| ServerRow {
                record: server.record,
                lag_millis: server.lag.map(Duration::as_millis),
                left_millis: server.expires_at.since(now).as_millis(),
            })
            .collect();
        let body = postcard::to_stdvec(&rows).expect("announcements are plain data");
        self.node.announce(body, longest.unwrap_or(Duration::ZERO).to_std()).await;
    }

    /// Returns all announced servers, except whether they are being drained.
    fn announced(&self) -> Vec<Member> {
        let now = self.clock.now();
        let own = self.servers.live(now).into_iter().map(|server| Member {
            expires_in: server.expires_at.since(now),
            server: server.record,
            draining: false,
            lag: server.lag,
        });
        let mut members: BTreeMap<_, _> = own.map(|member| (member.server.id, member)).collect();
        let this = self.node.id();
        for announcement in self.node.announcements().iter().filter(|other| other.node != this) {
            members.extend(of_another(announcement).into_iter().map(|member| (member.server.id, member)));
        }
        members.into_values().collect()
    }

    /// Transfers the leadership of the log if the servers of this node are drained, own no shards, and have a successor.
    pub(super) async fn leave_leadership_if_drained(&self) -> Result<(), StoreError> {
        if !self.node.leads() || !self.table.is_empty() {
            return Ok(());
        }
        let draining = self.replica.draining().await?;
        let own = self.servers.live(self.clock.now());
        if own.is_empty() || !own.iter().all(|server| draining.contains(&server.record.id)) {
            return Ok(());
        }
        let Some(successor) = self.successor(&draining) else { return Ok(()) };
        let node = self.node.clone();
        tokio::spawn(async move {
            match node.transfer(Some(successor)).await {
                Ok(()) | Err(TransferError::InProgress | TransferError::NotLeader) => {}
                // It is repeated at the next announcement.
                Err(error) => tracing::warn!(to = %successor, %error, "cannot transfer the leadership"),
            }
        });
        Ok(())
    }

    /// Returns the voter with the most entries whose server is present and not drained.
    fn successor(&self, draining: &[ServerId]) -> Option<NodeId> {
        let announcements = self.node.announcements();
        let is_ready = |node: NodeId| {
            let announcement = announcements.iter().find(|announcement| announcement.node == node);
            let servers = announcement.map(of_another).unwrap_or_default();
            servers.iter().any(|member| !draining.contains(&member.server.id))
        };
        let status = self.node.status();
        let others =
            status.members.into_iter().filter(|member| member.is_voter && member.node != status.node);
        others
            .filter(|member| is_ready(member.node))
            .max_by_key(|member| member.matched)
            .map(|member| member.node)
    }

    /// Returns the owners of the shards, while their leases are believed to be valid.
    async fn shard_owners(&self) -> Result<Vec<ShardOwner>, StoreError> {
        let (now, status) = (self.clock.now(), self.node.status());
        let believed = match status.role {
            Role::Leader => Duration::ZERO,
            _ if status.leader.is_some() => {
                Duration::from(self.timing.lease.saturating_sub(status.silent_for))
            }
            _ => Duration::ZERO,
        };
        let owners = self.replica.owners().await?;
        let owner = |(shard, owner, epoch)| {
            let expires_in = match self.table.held(status.term, shard, epoch) {
                Some(held) if status.role == Role::Leader => held.expires_at.since(now),
                _ => believed,
            };
            ShardOwner {
                shard,
                epoch,
                owner: Option::filter(owner, |_| expires_in > Duration::ZERO),
                expires_in,
            }
        };
        Ok(owners.into_iter().map(owner).collect())
    }
}

/// Returns the servers of another node. A newer version may announce them in another way; then there are none.
fn of_another(announcement: &Announcement) -> Vec<Member> {
    let age = Duration::from(announcement.age).as_millis();
    let rows: Vec<ServerRow> = postcard::from_bytes(&announcement.body).unwrap_or_default();
    let left = |row: &ServerRow| Duration::from_millis(row.left_millis.saturating_sub(age));
    let live = rows.into_iter().filter(|row| left(row) > Duration::ZERO);
    live.map(|row| Member {
        expires_in: left(&row),
        server: row.record,
        draining: false,
        lag: row.lag_millis.map(|lag| Duration::from_millis(lag.saturating_add(age))),
    })
    .collect()
}

#[async_trait]
impl Members for RaftStore {
    async fn announce(
        &self,
        server: &ServerRecord,
        lag: Option<Duration>,
        ttl: Duration,
    ) -> Result<(), StoreError> {
        let expires_at = self.clock.now() + ttl;
        let announced = Announced { record: server.clone(), lag, expires_at };
        self.servers.lock().insert(server.id, announced);
        self.announce_servers().await;
        self.leave_leadership_if_drained().await
    }

    async fn cluster(&self) -> Result<Cluster, StoreError> {
        let mut members = self.announced();
        let draining = self.replica.draining().await?;
        for member in &mut members {
            member.draining = draining.contains(&member.server.id);
        }
        Ok(Cluster { members, shards: self.shard_owners().await? })
    }

    async fn set_draining(&self, server: ServerId, draining: bool) -> Result<bool, StoreError> {
        if !self.announced().iter().any(|member| member.server.id == server) {
            return Ok(false);
        }
        self.done(Update::SetDraining { server, draining }).await?;
        Ok(true)
    }

    async fn remove_member(&self, server: ServerId) -> Result<(), StoreError> {
        self.servers.lock().remove(&server);
        self.announce_servers().await;
        if self.replica.draining().await?.contains(&server) {
            self.done(Update::SetDraining { server, draining: false }).await?;
        }
        Ok(())
    }

    async fn secret(&self, name: &str, proposed: &[u8; 32]) -> Result<[u8; 32], StoreError> {
        match self.update(Update::PutSecret { name: name.to_owned(), proposed: *proposed }).await? {
            Reply::Secret(secret) => Ok(secret),
            other => Err(unexpected(&other)),
        }
    }
}
