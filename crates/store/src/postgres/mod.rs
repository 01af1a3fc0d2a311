//! The PostgreSQL store: several servers share a database; each server owns shards.
//!
//! ```text
//!  commit               ─>  one session          ─┐
//!  acquire, renew, …    ─>  one session           ├─ PostgreSQL 13 or newer, or a compatible database
//!  announce, …          ─>  one session           │
//!  check                ─>  one session           │
//!  job, jobs, load, …   ─>  a few sessions       ─┘
//! ```
//!
//! - `address`, `tls`: address of the database. `connection`: sessions, and transactions that are sent in one message.
//! - `schema`, `settings`: tables and migrations; check that the settings of the database keep commits durable.
//! - `commit`, `leases`, `members`, `reads`, `housekeeping`: implementations of the traits of the same names.
//! - `guard`: condition in each changing transaction that the leases are still valid. `load`: live rows for a new
//!   owner.
//! - `changelog`, `live_rows`: how a standby follows the leader.
//! - `views`: single rows and lists. `quarantine`: rows that cannot be decoded.
//! - `target`: a database that becomes a copy of another store.
//! - `param`, `rows`: conversion of values. `error`: meaning of database errors.
//!
//! # Invariants
//! - A commit is durable on the database server before it is acknowledged, as far as the server's settings ensure it.
//!   The settings are checked when the store is opened, and with every health check.
//! - A commit under a lease that another server has acquired changes nothing, even if it was in flight when its
//!   connection was lost.
//! - After [`StoreError::OutcomeUnknown`], leases must be released, or expire, and be acquired again: the commit may
//!   still be in flight, and a higher epoch settles its outcome.
//! - After an invariant of the engine was broken, this store commits nothing any more.
//! - No session has state that matters: no locks, no `LISTEN`, no temporary tables. So a pooler in transaction mode
//!   works (PgBouncer from 1.21; before it, or if its `max_prepared_statements` is 0, with `prepared_statements=false`
//!   in the URL).
//!
//! # Cost
//! One round trip for each commit, whatever its size; see `commit` for what several servers wait for.
//! `examples/postgres.rs` compares it with SQLite.

mod access;
mod address;
mod alerts;
mod audit;
mod changelog;
mod commit;
mod connection;
mod error;
mod guard;
mod housekeeping;
mod leases;
mod live_rows;
mod load;
mod members;
mod param;
mod quarantine;
mod reads;
mod rows;
mod schema;
mod settings;
mod statistics;
mod target;
mod tls;
mod views;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use model::Duration;
use tokio_postgres::Row;

use address::Address;
use connection::{Lane, Mode, Query};
use error::{Failure, FatalState, Work};
use guard::{Guard, HistoryCheck};
use quarantine::{DamagedRow, move_to_quarantine};
use rows::Decoded;
use settings::{Requirements, Server};
pub(crate) use target::{Position, StartedCopy, Target};

use crate::StoreError;
use crate::codec::DecodeError;
use crate::moved::Moved;

/// Options for opening a store.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of shards of a new store; an existing store keeps its own number.
    pub shards: u16,
    /// Maximum number of concurrent queries, each in its own session. Four more sessions serve commits, leases, health
    /// checks and membership.
    pub readers: usize,
    /// Maximum duration of a query, and of its wait for a session.
    pub query_limit: Duration,
    /// Maximum duration of a statement in a change.
    pub change_limit: Duration,
    /// Whether to accept a database server that may lose acknowledged commits.
    pub allow_unsafe: bool,
    /// Whether to refuse a database server whose commits do not wait for a standby.
    pub require_sync_standby: bool,
    /// Password, if the URL has none.
    pub password: Option<Password>,
}

/// Password that `Debug` does not show.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// Wraps a password.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

impl Options {
    fn demands(&self) -> Requirements {
        Requirements { allow_unsafe: self.allow_unsafe, require_sync_standby: self.require_sync_standby }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            shards: 16,
            readers: 4,
            query_limit: Duration::from_secs(5),
            change_limit: Duration::from_secs(30),
            allow_unsafe: false,
            require_sync_standby: false,
            password: None,
        }
    }
}

/// Store in a PostgreSQL database.
///
/// The methods need a tokio runtime with time and I/O enabled. Send batches under the same leases one after the other:
/// each depends on the one before, so after a failure the later ones must not be committed.
#[derive(Debug)]
pub struct PostgresStore {
    commits: Lane,
    leases: Lane,
    /// Session for membership, which never waits for a renewal or a long query, and never delays one.
    members: Lane,
    /// Separate from the leases, because any caller may request a health check, and none may delay a renewal.
    checks: Lane,
    queries: Lane,
    trust: FatalState,
    guard: Guard,
    shards: u16,
    options: Options,
    /// Number below which this process has trimmed all changelog rows.
    trimmed_below: AtomicI64,
    /// Whether a change failed for lack of space, and no later check has found space.
    full: AtomicBool,
}

impl PostgresStore {
    /// Connects to the database at `url`, and creates missing tables.
    ///
    /// `url` is `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, with parameters like those of libpq: `sslmode`
    /// (`disable`, `prefer`, `require`, `verify-ca`, `verify-full`), `sslrootcert`, `connect_timeout`,
    /// `application_name` and others. `prepared_statements=false` is for poolers that do not support prepared
    /// statements. Several servers may open the same database at the same time.
    ///
    /// ```no_run
    ///  # async fn open() -> Result<(), store::StoreError> {
    ///  use store::postgres::{Options, PostgresStore};
    ///
    ///  let url = "postgres://belfry@db.example/belfry?sslmode=verify-full";
    ///  let store = PostgresStore::open(url, Options::default()).await?;
    ///  # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if the database does not answer, is read-only, or has unsafe settings.
    /// [`StoreError::TooNew`] if a newer version created its tables. [`StoreError::Fatal`] if the tables belong to
    /// another program. [`StoreError::Unfinished`] if the database is an incomplete copy. No error contains the
    /// password.
    pub async fn open(url: &str, options: Options) -> Result<Self, StoreError> {
        let store = Self::open_unchecked(url, options).await?;
        match target::unfinished(&store).await? {
            Some(source) => Err(StoreError::Unfinished { origin: source }),
            None => Ok(store),
        }
    }

    /// Returns the schema version of a database without changing it; `None` if it has no Belfry tables.
    async fn version_at(url: &str, options: &Options) -> Result<Option<u32>, StoreError> {
        let address = Address::parse(url)?.with_password(options.password.as_ref());
        let (lane, mode) = (Lane::new(Arc::new(address), 1), Mode::Read { limit: options.query_limit });
        let found = schema::found(&lane, mode).await;
        found.map_err(|failure| FatalState::default().judge(failure, Work::Change))
    }

    /// Opens the database even if it is an incomplete copy.
    async fn open_unchecked(url: &str, options: Options) -> Result<Self, StoreError> {
        let address = Arc::new(Address::parse(url)?.with_password(options.password.as_ref()));
        let leases = Lane::new(Arc::clone(&address), 1);
        let trust = FatalState::default();
        let mode = Mode::Write { limit: options.change_limit };
        let opening = async {
            let answers = leases.run(mode, &[settings::query()]).await?;
            let server = Server::of(&answers[0])?;
            server.check(options.demands()).map_err(Failure::Store)?;
            let shards = schema::migrate(&leases, mode, server.is_postgres, options.shards).await?;
            Ok((shards, HistoryCheck::of(&leases, mode, server.is_postgres).await?))
        };
        let (shards, past) = opening.await.map_err(|failure: Failure| trust.judge(failure, Work::Change))?;
        Ok(Self {
            commits: Lane::new(Arc::clone(&address), 1),
            members: Lane::new(Arc::clone(&address), 1).shared(),
            checks: Lane::new(Arc::clone(&address), 1).shared(),
            queries: Lane::new(address, options.readers).shared(),
            leases,
            trust,
            guard: Guard::new(past),
            trimmed_below: AtomicI64::new(0),
            full: AtomicBool::new(false),
            shards,
            options,
        })
    }

    fn write(&self) -> Mode {
        Mode::Write { limit: self.options.change_limit }
    }

    fn read(&self) -> Mode {
        Mode::Read { limit: self.options.query_limit }
    }

    fn judge_change(&self, failure: impl Into<Failure>) -> StoreError {
        let error = self.trust.judge(failure.into(), Work::Change);
        if matches!(error, StoreError::Full) {
            self.full.store(true, Ordering::Relaxed);
        }
        error
    }

    fn judge_query(&self, failure: impl Into<Failure>) -> StoreError {
        self.trust.judge(failure.into(), Work::Query { limit: self.options.query_limit })
    }

    /// Runs a query on one snapshot.
    async fn ask<T>(
        &self,
        queries: &[Query],
        read: impl Fn(&[Vec<Row>]) -> Result<T, DecodeError>,
    ) -> Result<T, StoreError> {
        self.trust.check()?;
        let answers =
            self.queries.run(self.read(), queries).await.map_err(|stopped| self.judge_query(stopped))?;
        read(&answers).map_err(|damage| self.judge_query(damage))
    }

    /// Runs a query like [`ask`](Self::ask). Quarantines rows that could not be decoded and repeats the query until no
    /// such row is left. Also returns the number of skipped rows.
    async fn ask_rows<T>(
        &self,
        queries: &[Query],
        read: impl Fn(&[Vec<Row>]) -> Result<Decoded<T>, DecodeError>,
    ) -> Result<(Vec<T>, usize), StoreError> {
        let mut moved = Moved::default();
        loop {
            let Decoded { good, damaged } = self.ask(queries, &read).await?;
            let (live, done): (Vec<_>, Vec<_>) = damaged.into_iter().partition(DamagedRow::is_live);
            if done.is_empty() {
                live.iter().for_each(DamagedRow::log_damage);
                return Ok((good, live.len()));
            }
            let stays = moved.add(done.iter().map(DamagedRow::place));
            stays.map_err(|reason| self.judge_query(Failure::Broken(reason)))?;
            self.move_to_quarantine(&done).await?;
        }
    }

    async fn ask_all<T>(
        &self,
        queries: &[Query],
        read: impl Fn(&[Vec<Row>]) -> Result<Decoded<T>, DecodeError>,
    ) -> Result<Vec<T>, StoreError> {
        Ok(self.ask_rows(queries, read).await?.0)
    }

    async fn move_to_quarantine(&self, damaged: &[DamagedRow]) -> Result<(), StoreError> {
        move_to_quarantine(&self.queries, self.write(), damaged)
            .await
            .map_err(|failure| self.judge_change(failure))
    }

    async fn change(&self, queries: &[Query]) -> Result<Vec<Vec<Row>>, StoreError> {
        self.trust.check()?;
        self.queries.run(self.write(), queries).await.map_err(|stopped| self.judge_change(stopped))
    }

    /// Runs a change like [`change`](Self::change), in the session for membership.
    async fn change_members(&self, queries: &[Query]) -> Result<Vec<Vec<Row>>, StoreError> {
        self.trust.check()?;
        self.members.run(self.write(), queries).await.map_err(|stopped| self.judge_change(stopped))
    }

    /// Checks in the answer to [`settings::query`] that the server keeps acknowledged commits durable.
    fn check_server(&self, answer: &[Row]) -> Result<(), StoreError> {
        let server = Server::of(answer).map_err(|failure| self.judge_change(failure))?;
        server.check(self.options.demands())
    }
}
