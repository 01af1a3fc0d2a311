//! The store in a PostgreSQL database: many servers on one store, each with shards of its own.
//!
//! ```text
//! commit               ─>  one session          ─┐
//! acquire, renew, …    ─>  one session           ├─ PostgreSQL 13 or newer, or what speaks like it
//! announce, …          ─>  one session           │
//! check                ─>  one session           │
//! job, jobs, load, …   ─>  a few sessions       ─┘
//! ```
//!
//! - `address`, `tls`: where it is; `connection`: sessions, and transactions sent in one piece.
//! - `schema`, `settings`: the tables, and whether the server can keep our word.
//! - `commit`, `leases`, `members`, `reads`, `housekeeping`: the trait of that name.
//! - `guard`: the condition, in each changing transaction, that the leases still hold; `load`: live rows for a new owner.
//! - `changelog`, `live_rows`: how a standby follows the leader.
//! - `views`: single rows and lists; `quarantine`: rows that cannot be read.
//! - `target`: a database that becomes a copy of another store.
//! - `param`, `rows`: values on their way there and back; `error`: what an error means.
//!
//! # Always true
//! - A commit is durable on the server before it is answered, as far as the server's settings say so;
//!   these are looked at when the store is opened, and with every check.
//! - A commit under a lease that was taken over changes nothing, also one that was still on its way
//!   when its connection was lost.
//! - After [`StoreError::OutcomeUnknown`] leases must be given back, or run out, and be acquired anew:
//!   the commit may still be under way, and a higher epoch is what settles it.
//! - After a promise of the engine was broken, this store commits nothing any more.
//! - No session has a state that matters: no locks, no `LISTEN`, no temporary tables. A pooler that
//!   lends sessions by the transaction will do (PgBouncer from 1.21; before it, or where its
//!   `max_prepared_statements` is 0, with `prepared_statements=false` in the address).
//!
//! # Cost
//! One round trip for each commit, whatever is in it; `commit` says what several servers wait for.
//! `examples/postgres.rs` measures it beside SQLite.

mod address;
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
use error::{Failure, Trust, Work};
use guard::{Guard, Past};
use quarantine::{Damaged, set_aside};
use rows::Sorted;
use settings::{Demands, Server};
pub(crate) use target::{Begun, Position, Target};

use crate::StoreError;
use crate::codec::Damage;

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many shards a new store gets; one that exists keeps its own.
    pub shards: u16,
    /// How many queries run at the same time, each in a session of its own; four sessions more are for
    /// commits, leases, checks, and what servers say of one another.
    pub readers: usize,
    /// How long a query may take, and how long it may wait for its turn.
    pub query_limit: Duration,
    /// How long a statement of a change may take.
    pub change_limit: Duration,
    /// Whether a server is accepted that may lose acknowledged commits.
    pub allow_unsafe: bool,
    /// Whether a server is refused whose commits wait for no standby.
    pub require_sync_standby: bool,
    /// The password, where the address has none.
    pub password: Option<Password>,
}

/// A password that no output shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// Keeps one.
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
    fn demands(&self) -> Demands {
        Demands { allow_unsafe: self.allow_unsafe, require_sync_standby: self.require_sync_standby }
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

/// The store in a PostgreSQL database.
///
/// Its methods need a tokio runtime with time and I/O enabled. Batches under the same leases are to be
/// sent one after the other: each is decided on top of the one before, and if that one fails, those
/// behind it must not go through.
#[derive(Debug)]
pub struct PostgresStore {
    commits: Lane,
    leases: Lane,
    /// For what servers say of one another: never behind a renewal or a long query, and never before one.
    members: Lane,
    /// Apart from the leases: anyone may ask for a check, and none may delay a renewal.
    checks: Lane,
    queries: Lane,
    trust: Trust,
    guard: Guard,
    shards: u16,
    options: Options,
    /// No row of the changelog is left below this one, as far as this process has trimmed it.
    trimmed: AtomicI64,
    /// A change found no space, and none was looked for since with success.
    full: AtomicBool,
}

impl PostgresStore {
    /// Connects to the database at `url`, and makes its tables where they are missing.
    ///
    /// `url` is `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, with parameters as libpq takes them:
    /// `sslmode` (`disable`, `prefer`, `require`, `verify-ca`, `verify-full`), `sslrootcert`,
    /// `connect_timeout`, `application_name` and others; and `prepared_statements=false` for poolers
    /// that do not know of prepared statements. Several servers may do this at the same time.
    ///
    /// ```no_run
    /// # async fn open() -> Result<(), store::StoreError> {
    /// use store::postgres::{Options, PostgresStore};
    ///
    /// let url = "postgres://belfry@db.example/belfry?sslmode=verify-full";
    /// let store = PostgresStore::open(url, Options::default()).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if the database does not answer, takes no writes, or has unsafe
    /// settings; [`StoreError::TooNew`] if a newer version made its tables; [`StoreError::Fatal`] if the
    /// tables are of another program; [`StoreError::Unfinished`] if it is a copy that is not whole yet.
    /// None of them tells the password.
    pub async fn open(url: &str, options: Options) -> Result<Self, StoreError> {
        let store = Self::open_unchecked(url, options).await?;
        match target::unfinished(&store).await? {
            Some(source) => Err(StoreError::Unfinished { origin: source }),
            None => Ok(store),
        }
    }

    /// The version of the tables in a database, which is not changed; `None` where there are none of ours.
    async fn version_at(url: &str, options: &Options) -> Result<Option<u32>, StoreError> {
        let address = Address::parse(url)?.with_password(options.password.as_ref());
        let (lane, mode) = (Lane::new(Arc::new(address), 1), Mode::Read { limit: options.query_limit });
        let found = schema::found(&lane, mode).await;
        found.map_err(|failure| Trust::default().judge(failure, Work::Change))
    }

    /// Opens it also where it is a copy that is not whole yet.
    async fn open_unchecked(url: &str, options: Options) -> Result<Self, StoreError> {
        let address = Arc::new(Address::parse(url)?.with_password(options.password.as_ref()));
        let leases = Lane::new(Arc::clone(&address), 1);
        let trust = Trust::default();
        let mode = Mode::Write { limit: options.change_limit };
        let opening = async {
            let answers = leases.run(mode, &[settings::query()]).await?;
            let server = Server::of(&answers[0])?;
            server.check(options.demands()).map_err(Failure::Store)?;
            let shards = schema::migrate(&leases, mode, server.is_postgres, options.shards).await?;
            Ok((shards, Past::of(&leases, mode, server.is_postgres).await?))
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
            trimmed: AtomicI64::new(0),
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

    /// Asks in one state of the database.
    async fn ask<T>(
        &self,
        queries: &[Query],
        read: impl Fn(&[Vec<Row>]) -> Result<T, Damage>,
    ) -> Result<T, StoreError> {
        self.trust.check()?;
        let answers =
            self.queries.run(self.read(), queries).await.map_err(|stopped| self.judge_query(stopped))?;
        read(&answers).map_err(|damage| self.judge_query(damage))
    }

    /// As [`ask`](Self::ask); sets aside what could not be read, and asks again until nothing that can
    /// be set aside was in the way. Answers with how many rows were passed over, too.
    async fn ask_rows<T>(
        &self,
        queries: &[Query],
        read: impl Fn(&[Vec<Row>]) -> Result<Sorted<T>, Damage>,
    ) -> Result<(Vec<T>, usize), StoreError> {
        loop {
            let Sorted { good, damaged } = self.ask(queries, &read).await?;
            let (live, done): (Vec<_>, Vec<_>) = damaged.into_iter().partition(Damaged::is_live);
            if done.is_empty() {
                live.iter().for_each(Damaged::tell);
                return Ok((good, live.len()));
            }
            self.set_aside(&done).await?;
        }
    }

    async fn ask_all<T>(
        &self,
        queries: &[Query],
        read: impl Fn(&[Vec<Row>]) -> Result<Sorted<T>, Damage>,
    ) -> Result<Vec<T>, StoreError> {
        Ok(self.ask_rows(queries, read).await?.0)
    }

    async fn set_aside(&self, damaged: &[Damaged]) -> Result<(), StoreError> {
        set_aside(&self.queries, self.write(), damaged).await.map_err(|failure| self.judge_change(failure))
    }

    async fn change(&self, queries: &[Query]) -> Result<Vec<Vec<Row>>, StoreError> {
        self.trust.check()?;
        self.queries.run(self.write(), queries).await.map_err(|stopped| self.judge_change(stopped))
    }

    /// As [`change`](Self::change), on the session of the members.
    async fn change_members(&self, queries: &[Query]) -> Result<Vec<Vec<Row>>, StoreError> {
        self.trust.check()?;
        self.members.run(self.write(), queries).await.map_err(|stopped| self.judge_change(stopped))
    }

    /// Whether the server that answered [`settings::query`] can keep our word.
    fn check_server(&self, answer: &[Row]) -> Result<(), StoreError> {
        let server = Server::of(answer).map_err(|failure| self.judge_change(failure))?;
        server.check(self.options.demands())
    }
}
