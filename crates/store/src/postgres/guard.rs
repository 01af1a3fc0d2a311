//! The check of leases, made by each change in its own transaction, on the database's clock and history.
//!
//! A transaction that starts with [`Guard::hold`] locks the rows of its shards and finds its epochs and its owner in
//! them, or fails with the state [`GUARD`](super::error::GUARD). See [`leases`](super::leases) for the reasons.
//!
//! # Another history
//! A database that was restored from a backup, or whose standby was promoted without the last commits, has lost epochs
//! that were issued. One of three values then differs: its system identifier (another server), its timeline (a promoted
//! standby, or a recovery to a point in time), or the OID of the table (a restored dump). A commit under a lease of
//! another history is refused.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use model::former_lease::FormerLease;
use model::id::Epoch;
use model::record::Lease;
use model::{Duration, ShardId, Timestamp};
use tokio_postgres::Row;

use super::connection::{Lane, Mode, Query, Stopped};
use super::error::{Failure, describe};
use super::param::{Param, big, bigs, escape, ints, texts};

/// Time of the database's clock in microseconds; it advances also while a transaction waits.
macro_rules! clock {
    () => {
        "(extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT"
    };
}

/// Timeline of the database, in hexadecimal: it changes with each promotion.
macro_rules! promotion {
    () => {
        "substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"
    };
}

/// Timeline and OID of the table of shards: the OID changes when a dump is restored.
macro_rules! timeline {
    () => {
        concat!(promotion!(), " || '.' || shards.tableoid")
    };
}

/// Identity of the database server; it changes with a restore into a new server.
macro_rules! system {
    () => {
        "(SELECT system_identifier::TEXT FROM pg_control_system())"
    };
}

pub(super) use {clock, promotion, system, timeline};

macro_rules! hold {
    ($past:expr) => {
        concat!(
            "SELECT 1 / (CASE WHEN count(*) = $4 THEN 1 ELSE 0 END) FROM (
                SELECT shards.shard FROM shards, unnest($1, $2, $3) AS l (shard, epoch, owner)
                WHERE shards.shard = l.shard AND shards.epoch = l.epoch AND shards.owner IS NOT NULL
                    AND (l.owner = '' OR shards.owner = l.owner)",
            $past,
            " ORDER BY shards.shard FOR UPDATE OF shards
            ) AS held"
        )
    };
}

/// Whether the database reports its history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HistoryCheck {
    /// The database reports its history.
    Supported,
    /// The database does not report its history: it is not PostgreSQL, or the account may not query it. A loss of
    /// commits is not detected.
    Unsupported,
}

impl HistoryCheck {
    /// Checks whether the server reports its history.
    pub(super) async fn of(lane: &Lane, mode: Mode, is_postgres: bool) -> Result<Self, Failure> {
        if !is_postgres {
            return Ok(Self::Unsupported);
        }
        let ask = concat!("SELECT ", promotion!(), ", ", system!());
        match lane.run(mode, &[Query::new(ask.to_owned(), Vec::new())]).await {
            Ok(_) => Ok(Self::Supported),
            Err(Stopped { failure: Failure::Refused(error), .. }) => {
                let reason = describe(&error);
                tracing::warn!(error = reason, "commits lost by a failover cannot be detected");
                Ok(Self::Unsupported)
            }
            Err(stopped) => Err(stopped.into()),
        }
    }

    /// Locks the rows of `$1` until the transaction ends; an error unless all `$4` shards have the epochs `$2` and the
    /// owners `$3` (any owner if empty), and are on this history.
    const fn leases_hold(self) -> &'static str {
        match self {
            Self::Supported => {
                hold!(concat!(" AND (shards.timeline IS NULL OR shards.timeline = ", timeline!(), ")"))
            }
            Self::Unsupported => hold!(""),
        }
    }
}

/// Leases that this process acquired, and the query that checks them.
#[derive(Debug)]
pub(super) struct Guard {
    past: HistoryCheck,
    /// Owner at the acquire of each shard. A database that lost an acquire may issue the same epoch to another owner.
    owners: Mutex<BTreeMap<ShardId, (Epoch, String)>>,
    newest: Mutex<Option<LeaseExtension>>,
    former: Mutex<FormerLease>,
    /// Start of the steady time that `former` is measured in.
    started: Instant,
}

/// Last extension of the leases.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeaseExtension {
    pub(super) ttl: Duration,
    /// Time before the transaction was sent.
    sent_at: Instant,
}

impl LeaseExtension {
    /// Creates an extension by `ttl`, for a transaction that is sent next.
    pub(super) fn now(ttl: Duration) -> Self {
        Self { ttl, sent_at: Instant::now() }
    }
}

impl Guard {
    pub(super) fn new(past: HistoryCheck) -> Self {
        Self {
            past,
            owners: Mutex::default(),
            newest: Mutex::default(),
            former: Mutex::default(),
            started: Instant::now(),
        }
    }

    /// Locks the rows of the leases until the transaction ends; an error with state [`GUARD`](super::error::GUARD)
    /// unless all are valid.
    pub(super) fn hold(&self, leases: &[Lease]) -> Query {
        let mut params = self.params(leases);
        params.push(big(leases.len() as i64));
        Query::new(self.past.leases_hold(), params)
    }

    pub(super) fn past(&self) -> HistoryCheck {
        self.past
    }

    /// Returns shards, epochs and owners as columns; no owner if another process acquired the lease.
    pub(super) fn params(&self, leases: &[Lease]) -> Vec<Param> {
        let owners = lock(&self.owners);
        let owner = |lease: &Lease| match owners.get(&lease.shard) {
            Some((epoch, owner)) if *epoch == lease.epoch => escape(owner),
            _ => String::new(),
        };
        let owners = texts(leases.iter().map(owner).collect());
        // An epoch that cannot be stored was never issued.
        let epochs = leases.iter().map(|lease| i64::try_from(lease.epoch.0).unwrap_or(-1)).collect();
        vec![numbers(shards_of(leases)), bigs(epochs), owners]
    }

    /// Records the latest end of a lease in the rows of the requested shards.
    pub(super) fn record_expiry(&self, expires_at: Option<i64>) {
        lock(&self.former).observe(expires_at, self.steady());
    }

    /// Records that this process acquired shards.
    pub(super) fn record_acquired(&self, leases: &[Lease], owner: &str, by: LeaseExtension) {
        let taken = leases.iter().map(|lease| (lease.shard, (lease.epoch, owner.to_owned())));
        lock(&self.owners).extend(taken);
        self.prolonged(by);
        lock(&self.former).end(by.ttl);
    }

    /// Returns the time for which the owner before the newest acquire may still act.
    pub(super) fn former_owner(&self) -> Duration {
        lock(&self.former).left(self.steady())
    }

    fn steady(&self) -> Timestamp {
        Timestamp::from_micros(i64::try_from(self.started.elapsed().as_micros()).unwrap_or(i64::MAX))
    }

    /// Returns the extension for a commit that is sent now; `None` while more than seven eighths of the lease are left.
    /// A commit extends earlier than a renewal would, because a renewal waits for the rows that commits lock.
    pub(super) fn lease_extension(&self) -> Option<LeaseExtension> {
        let newest = (*lock(&self.newest))?;
        let is_due = newest.sent_at.elapsed() > newest.ttl.to_std() / 8;
        is_due.then(|| LeaseExtension::now(newest.ttl))
    }

    /// Records that a transaction extended the leases.
    pub(super) fn prolonged(&self, by: LeaseExtension) {
        *lock(&self.newest) = Some(by);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn shards_of(leases: &[Lease]) -> impl Iterator<Item = ShardId> {
    leases.iter().map(|lease| lease.shard)
}

pub(super) fn numbers(shards: impl Iterator<Item = ShardId>) -> Param {
    ints(shards.map(|shard| i32::from(shard.0)).collect())
}

/// Returns the first lease that is no longer valid.
pub(super) async fn first_invalid(lane: &Lane, mode: Mode, leases: &[Lease]) -> Failure {
    let look = "SELECT shard, epoch FROM shards WHERE shard = ANY($1) AND owner IS NOT NULL";
    let rows = match lane.run(mode, &[Query::new(look, vec![numbers(shards_of(leases))])]).await {
        Ok(mut answers) => answers.pop().unwrap_or_default(),
        Err(stopped) => return stopped.into(),
    };
    let held: Vec<_> = rows.iter().map(lease_of).collect();
    match leases.iter().find(|lease| !held.contains(lease)) {
        Some(lost) => Failure::Fenced(lost.shard),
        // The row is unchanged: the database is on another history since the acquire.
        None => Failure::Fenced(leases.first().map_or(ShardId(0), |lease| lease.shard)),
    }
}

pub(super) fn lease_of(row: &Row) -> Lease {
    let (shard, epoch): (i32, i64) = (row.get(0), row.get(1));
    Lease { shard: ShardId(u16::try_from(shard).unwrap_or(u16::MAX)), epoch: Epoch(epoch.cast_unsigned()) }
}

/// Converts a duration into the unit of the database's clock.
pub(super) fn micros(ttl: Duration) -> Param {
    big(i64::try_from(ttl.as_millis().saturating_mul(1_000)).unwrap_or(i64::MAX / 4))
}
