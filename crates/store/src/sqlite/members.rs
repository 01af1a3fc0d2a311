//! [`Members`] of a store that only one process can open: the members are a list in memory; the owners of the shards
//! come from the file.
//!
//! The list ends with the process; the secrets are stored in the file.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use model::id::Epoch;
use model::{Duration, ServerId, ShardId, Timestamp};
use rusqlite::{Connection, params};

use super::SqliteStore;
use super::error::Failure;
use super::statements::Statements;
use crate::StoreError;
use crate::cluster::{Cluster, Member, Members, ServerRecord, ShardOwner};
use crate::command::Update;

#[async_trait]
impl Members for SqliteStore {
    async fn announce(
        &self,
        server: &ServerRecord,
        lag: Option<Duration>,
        ttl: Duration,
    ) -> Result<(), StoreError> {
        self.roster.announce(server, lag, self.clock.now(), ttl);
        Ok(())
    }

    async fn cluster(&self) -> Result<Cluster, StoreError> {
        let now = self.clock.now();
        let shards = self.readers.read(move |connection| shards(connection, now)).await?;
        Ok(Cluster { members: self.roster.members(now), shards })
    }

    async fn set_draining(&self, server: ServerId, draining: bool) -> Result<bool, StoreError> {
        Ok(self.roster.set_draining(server, draining, self.clock.now()))
    }

    async fn remove_member(&self, server: ServerId) -> Result<(), StoreError> {
        self.roster.remove_member(server);
        Ok(())
    }

    async fn secret(&self, name: &str, proposed: &[u8; 32]) -> Result<[u8; 32], StoreError> {
        self.writer.secret(Update::PutSecret { name: name.to_owned(), proposed: *proposed }).await
    }
}

/// List of the members. It ends with the process.
#[derive(Debug, Default)]
pub(super) struct MemberList {
    members: Mutex<BTreeMap<ServerId, Listed>>,
}

#[derive(Debug)]
struct Listed {
    server: ServerRecord,
    draining: bool,
    lag: Option<Duration>,
    expires_at: Timestamp,
}

impl MemberList {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ServerId, Listed>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn announce(&self, server: &ServerRecord, lag: Option<Duration>, now: Timestamp, ttl: Duration) {
        let mut members = self.lock();
        let draining = members.get(&server.id).is_some_and(|listed| listed.draining);
        members.insert(server.id, Listed { server: server.clone(), draining, lag, expires_at: now + ttl });
        members.retain(|_, listed| listed.expires_at > now);
    }

    fn set_draining(&self, server: ServerId, draining: bool, now: Timestamp) -> bool {
        let mut members = self.lock();
        let found = members.get_mut(&server).filter(|listed| listed.expires_at > now);
        found.is_some_and(|listed| {
            listed.draining = draining;
            true
        })
    }

    fn remove_member(&self, server: ServerId) {
        self.lock().remove(&server);
    }

    fn members(&self, now: Timestamp) -> Vec<Member> {
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

/// Returns the owner of each shard.
fn shards(connection: &Connection, now: Timestamp) -> Result<Vec<ShardOwner>, Failure> {
    let mut statement =
        connection.prepare_cached("SELECT shard, owner, epoch, expires_at FROM shards ORDER BY shard")?;
    let rows = statement.query_map([], |row| {
        let left = Timestamp::from_micros(row.get(3)?).since(now);
        let owner: Option<String> = row.get(1)?;
        Ok(ShardOwner {
            shard: ShardId(row.get(0)?),
            owner: owner.filter(|_| left > Duration::ZERO),
            epoch: Epoch(row.get(2)?),
            expires_in: left,
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Returns the secret of this name; stores `proposed` if there is none.
pub(super) fn secret(
    statements: &mut Statements<'_>,
    name: &str,
    proposed: &[u8; 32],
) -> Result<[u8; 32], Failure> {
    statements.secret_put.execute(params![name, proposed])?;
    Ok(statements.secret.query_row([name], |row| row.get(0))?)
}
