//! Whether leases hold: asked by each change in its own transaction, on the database's clock and on its history.
//!
//! A transaction that begins with [`Guard::hold`] locks the rows of its shards and finds its epochs and its owner in
//! them, or fails with the state [`GUARD`](super::error::GUARD). [`leases`](super::leases) says what that is good for.
//!
//! # A past that is not ours
//! A database that was restored from a backup, or whose standby took over without the last commits,
//! has forgotten epochs that were given out. Its system identifier is another one then (it is another server), or
//! its timeline (a standby was promoted, or the log was played up to some moment), or the number of the table (a dump
//! was read into it): its [`Past`] is another one. A commit under a lease of another history is refused.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use model::id::Epoch;
use model::record::Lease;
use model::{Duration, ShardId};
use tokio_postgres::Row;

use super::connection::{Lane, Mode, Query, Stopped};
use super::error::{Failure, describe};
use super::param::{Param, big, bigs, escape, ints, texts};

/// The database's clock in microseconds; it does not stand still in a transaction that waits.
macro_rules! clock {
    () => {
        "(extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT"
    };
}

/// Which history of the database this is, in hexadecimal: another one after each promotion.
macro_rules! promotion {
    () => {
        "substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"
    };
}

/// The same and the number that the table of shards has in it: another one when a dump was read.
macro_rules! timeline {
    () => {
        concat!(promotion!(), " || '.' || shards.tableoid")
    };
}

/// Which database this is; another one after a restore into a new server.
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

/// Whether the database tells which history it is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Past {
    /// It does.
    Told,
    /// It does not: it is not PostgreSQL, or the account may not ask. Lost tails are not noticed.
    Untold,
}

impl Past {
    /// Asks the server.
    pub(super) async fn of(lane: &Lane, mode: Mode, is_postgres: bool) -> Result<Self, Failure> {
        if !is_postgres {
            return Ok(Self::Untold);
        }
        let ask = concat!("SELECT ", promotion!(), ", ", system!());
        match lane.run(mode, &[Query::new(ask.to_owned(), Vec::new())]).await {
            Ok(_) => Ok(Self::Told),
            Err(Stopped { failure: Failure::Refused(error), .. }) => {
                let reason = describe(&error);
                tracing::warn!(error = reason, "commits lost by a failover cannot be detected");
                Ok(Self::Untold)
            }
            Err(stopped) => Err(stopped.into()),
        }
    }

    /// Locks the rows of `$1` until the transaction ends; an error unless all `$4` have the epochs `$2`
    /// and the owners `$3` (any where that is empty), and are on this history.
    const fn leases_hold(self) -> &'static str {
        match self {
            Self::Told => {
                hold!(concat!(" AND (shards.timeline IS NULL OR shards.timeline = ", timeline!(), ")"))
            }
            Self::Untold => hold!(""),
        }
    }
}

/// The leases that this process took, and how the database is asked whether they hold.
#[derive(Debug)]
pub(super) struct Guard {
    past: Past,
    /// The owner that was named when a shard was taken. A database that forgot an acquire gives the same epoch to
    /// another owner.
    owners: Mutex<BTreeMap<ShardId, (Epoch, String)>>,
    newest: Mutex<Option<Prolongation>>,
    former: Mutex<FormerLease>,
}

/// The lease of another owner, as it was seen whenever this process asked for its shards.
///
/// It was granted before it was first seen, so by this machine's clock it is over a lease after that at the latest,
/// whatever the database's clock does.
#[derive(Debug, Default)]
struct FormerLease {
    /// The latest end in the table, on the database's clock; each renewal moves it.
    expires_at: Option<i64>,
    /// Since when it has been that.
    since: Option<Instant>,
    /// Until when the owner may have acted that was there before the newest acquire.
    acts_until: Option<Instant>,
}

impl FormerLease {
    /// Takes in what the rows say: the latest end of a lease among the shards that have an owner.
    fn see(&mut self, expires_at: Option<i64>, now: Instant) {
        if self.since.is_none() || self.expires_at != expires_at {
            (self.expires_at, self.since) = (expires_at, Some(now));
        }
    }

    /// The shards were taken, whose rows were just seen.
    fn end(&mut self, ttl: Duration) {
        let is_owned = self.expires_at.is_some();
        self.acts_until = self.since.filter(|_| is_owned).map(|since| since + ttl.to_std());
        (self.expires_at, self.since) = (None, None);
    }
}

/// How the leases were prolonged last.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prolongation {
    pub(super) ttl: Duration,
    /// Before it was sent.
    sent_at: Instant,
}

impl Prolongation {
    /// By `ttl`, in a transaction that is sent next.
    pub(super) fn now(ttl: Duration) -> Self {
        Self { ttl, sent_at: Instant::now() }
    }
}

impl Guard {
    pub(super) fn new(past: Past) -> Self {
        Self { past, owners: Mutex::default(), newest: Mutex::default(), former: Mutex::default() }
    }

    /// Locks the rows of the leases until the transaction ends; an error with state [`GUARD`](super::error::GUARD) unless all hold.
    pub(super) fn hold(&self, leases: &[Lease]) -> Query {
        let mut params = self.params(leases);
        params.push(big(leases.len() as i64));
        Query::new(self.past.leases_hold(), params)
    }

    pub(super) fn past(&self) -> Past {
        self.past
    }

    /// Their shards, epochs and owners, as columns; no owner where another process took the lease.
    pub(super) fn params(&self, leases: &[Lease]) -> Vec<Param> {
        let owners = lock(&self.owners);
        let owner = |lease: &Lease| match owners.get(&lease.shard) {
            Some((epoch, owner)) if *epoch == lease.epoch => escape(owner),
            _ => String::new(),
        };
        let owners = texts(leases.iter().map(owner).collect());
        // An epoch that cannot be kept was never given out.
        let epochs = leases.iter().map(|lease| i64::try_from(lease.epoch.0).unwrap_or(-1)).collect();
        vec![numbers(shards_of(leases)), bigs(epochs), owners]
    }

    /// Takes in what the rows of the shards said that this process asked for: the latest end of a lease among them.
    pub(super) fn saw(&self, expires_at: Option<i64>) {
        lock(&self.former).see(expires_at, Instant::now());
    }

    /// This process took shards.
    pub(super) fn took(&self, leases: &[Lease], owner: &str, by: Prolongation) {
        let taken = leases.iter().map(|lease| (lease.shard, (lease.epoch, owner.to_owned())));
        lock(&self.owners).extend(taken);
        self.prolonged(by);
        lock(&self.former).end(by.ttl);
    }

    /// For how long the owner from before the newest acquire may still act.
    pub(super) fn former_owner(&self) -> Duration {
        let until = lock(&self.former).acts_until;
        let left =
            until.map_or(std::time::Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
        // Rounded up: a millisecond too long does no harm.
        Duration::from_millis(u64::try_from(left.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX))
    }

    /// How a commit that is sent now prolongs the leases; `None` while seven eighths of them are left. That is sooner
    /// than a renewal would, which waits for the rows that commits lock.
    pub(super) fn prolongation(&self) -> Option<Prolongation> {
        let newest = (*lock(&self.newest))?;
        let is_due = newest.sent_at.elapsed() > newest.ttl.to_std() / 8;
        is_due.then(|| Prolongation::now(newest.ttl))
    }

    /// A transaction went through that prolonged the leases.
    pub(super) fn prolonged(&self, by: Prolongation) {
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

/// Which of the leases does not hold any more.
pub(super) async fn first_lost(lane: &Lane, mode: Mode, leases: &[Lease]) -> Failure {
    let look = "SELECT shard, epoch FROM shards WHERE shard = ANY($1) AND owner IS NOT NULL";
    let rows = match lane.run(mode, &[Query::new(look, vec![numbers(shards_of(leases))])]).await {
        Ok(mut answers) => answers.pop().unwrap_or_default(),
        Err(stopped) => return stopped.into(),
    };
    let held: Vec<_> = rows.iter().map(lease_of).collect();
    match leases.iter().find(|lease| !held.contains(lease)) {
        Some(lost) => Failure::Fenced(lost.shard),
        // Its row is as it was: the database is on another history since it was taken.
        None => Failure::Fenced(leases.first().map_or(ShardId(0), |lease| lease.shard)),
    }
}

pub(super) fn lease_of(row: &Row) -> Lease {
    let (shard, epoch): (i32, i64) = (row.get(0), row.get(1));
    Lease { shard: ShardId(u16::try_from(shard).unwrap_or(u16::MAX)), epoch: Epoch(epoch.cast_unsigned()) }
}

/// A length of time on the database's clock.
pub(super) fn micros(ttl: Duration) -> Param {
    big(i64::try_from(ttl.as_millis().saturating_mul(1_000)).unwrap_or(i64::MAX / 4))
}
