//! [`Members`]: the servers of a database, and their common secrets.
//!
//! Membership has its own session, so that its calls never wait for a renewal or a long query.

use async_trait::async_trait;
use model::id::Epoch;
use model::{Duration, ServerId, ShardId, Timestamp};
use tokio_postgres::Row;
use uuid::Uuid;

use super::PostgresStore;
use super::connection::Query;
use super::error::Failure;
use super::guard::{clock, micros};
use super::param::{big, bytes, flag, id, optional_big, optional_bytes, optional_text, text, unescape};
use crate::StoreError;
use crate::cluster::{Cluster, Fingerprint, Member, Members, ServerRecord, ShardOwner};

#[async_trait]
impl Members for PostgresStore {
    async fn announce(
        &self,
        server: &ServerRecord,
        lag: Option<Duration>,
        ttl: Duration,
    ) -> Result<(), StoreError> {
        self.change_members(&announce(server, lag, ttl)).await.map(drop)
    }

    async fn cluster(&self) -> Result<Cluster, StoreError> {
        self.ask(&cluster_queries(), |answers| Ok(cluster(answers))).await
    }

    async fn set_draining(&self, server: ServerId, draining: bool) -> Result<bool, StoreError> {
        let answers = self.change(&[set_draining(server, draining)]).await?;
        Ok(answers.first().is_some_and(|rows| !rows.is_empty()))
    }

    async fn remove_member(&self, server: ServerId) -> Result<(), StoreError> {
        self.change_members(&[remove_member(server)]).await.map(drop)
    }

    async fn secret(&self, name: &str, proposed: &[u8; 32]) -> Result<[u8; 32], StoreError> {
        let answers = self.change(&secret(name, proposed)).await?;
        let kept = answers.last().and_then(|rows| rows.first()).map(|row| row.get::<_, &[u8]>(0));
        kept.and_then(|kept| kept.try_into().ok()).ok_or_else(|| {
            self.judge_change(Failure::Broken(format!("its secret `{name}` does not have 32 bytes")))
        })
    }
}

/// Registers a server. Deletes servers whose registration expired an hour ago.
fn announce(server: &ServerRecord, lag: Option<Duration>, ttl: Duration) -> Vec<Query> {
    vec![
        Query::new(
            concat!(
                "INSERT INTO servers (id, name, url, version, started_at, fingerprint, draining, lag, expires_at)
                 VALUES ($1, $2, $3, $4, $5, $6, FALSE, $8, ",
                clock!(),
                " + $7) ON CONFLICT (id) DO UPDATE SET name = excluded.name, url = excluded.url,
                     lag = excluded.lag, expires_at = excluded.expires_at"
            ),
            vec![
                id(server.id.to_bits()),
                text(&server.name),
                optional_text(server.url.as_deref()),
                text(&server.version),
                big(server.started_at.as_micros()),
                optional_bytes(server.fingerprint.map(|fingerprint| fingerprint.0.to_vec())),
                micros(ttl),
                optional_big(lag.map(|lag| i64::try_from(lag.as_millis()).unwrap_or(i64::MAX))),
            ],
        ),
        Query::new(concat!("DELETE FROM servers WHERE expires_at < ", clock!(), " - 3600000000"), Vec::new()),
    ]
}

/// Selects the registered servers, and all shards.
fn cluster_queries() -> [Query; 2] {
    [
        Query::new(
            concat!(
                "SELECT id, name, url, version, started_at, draining, expires_at - ",
                clock!(),
                ", fingerprint, lag FROM servers WHERE expires_at > ",
                clock!(),
                " ORDER BY id"
            ),
            Vec::new(),
        ),
        Query::new(
            concat!("SELECT shard, owner, epoch, expires_at - ", clock!(), " FROM shards ORDER BY shard"),
            Vec::new(),
        ),
    ]
}

/// Decodes the answer to [`cluster_queries`].
fn cluster(answers: &[Vec<Row>]) -> Cluster {
    let rows = |answer: usize| answers.get(answer).into_iter().flatten();
    Cluster { members: rows(0).map(member).collect(), shards: rows(1).map(shard_owner).collect() }
}

fn member(row: &Row) -> Member {
    let (name, url): (&str, Option<&str>) = (row.get(1), row.get(2));
    let (id, version): (Uuid, &str) = (row.get(0), row.get(3));
    let (fingerprint, lag): (Option<&[u8]>, Option<i64>) = (row.get(7), row.get(8));
    Member {
        server: ServerRecord {
            id: ServerId::from_bits(id.as_u128()),
            name: unescape(name).into_owned(),
            url: url.map(|url| unescape(url).into_owned()),
            version: unescape(version).into_owned(),
            started_at: Timestamp::from_micros(row.get(4)),
            fingerprint: fingerprint.and_then(|bytes| bytes.try_into().ok()).map(Fingerprint),
        },
        draining: row.get(5),
        lag: lag.map(|millis| Duration::from_millis(millis.max(0).cast_unsigned())),
        expires_in: left(row.get(6)),
    }
}

fn shard_owner(row: &Row) -> ShardOwner {
    let (shard, owner, epoch): (i32, Option<&str>, i64) = (row.get(0), row.get(1), row.get(2));
    let expires_in = left(row.get(3));
    ShardOwner {
        shard: ShardId(u16::try_from(shard).unwrap_or(u16::MAX)),
        epoch: Epoch(epoch.cast_unsigned()),
        owner: owner.filter(|_| expires_in > Duration::ZERO).map(|owner| unescape(owner).into_owned()),
        expires_in,
    }
}

fn left(micros: i64) -> Duration {
    Duration::from_millis(u64::try_from(micros / 1_000).unwrap_or(0))
}

/// Asks a server to hand over its shards, or revokes that request; returns a row if the server is registered.
fn set_draining(server: ServerId, draining: bool) -> Query {
    Query::new(
        concat!(
            "UPDATE servers SET draining = $2 WHERE id = $1 AND expires_at > ",
            clock!(),
            " RETURNING id"
        ),
        vec![id(server.to_bits()), flag(draining)],
    )
}

/// Deletes the registration of a server.
fn remove_member(server: ServerId) -> Query {
    Query::new("DELETE FROM servers WHERE id = $1", vec![id(server.to_bits())])
}

/// Stores a secret if there is none of its name, and returns the stored one.
fn secret(name: &str, proposed: &[u8; 32]) -> Vec<Query> {
    vec![
        Query::new(
            "INSERT INTO secrets (name, secret) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING",
            vec![text(name), bytes(proposed.to_vec())],
        ),
        Query::new("SELECT secret FROM secrets WHERE name = $1", vec![text(name)]),
    ]
}
