//! Who owns which shard, on the database's clock.
//!
//! Every commit locks the rows of its shards and finds its epochs and its owner in them, so that an acquire of
//! another server either comes before it, and the commit is refused, or finds the rows locked and takes
//! nothing: its owner still commits. This is also what makes a lost connection
//! harmless: a shard is taken again, under a higher epoch, only when no commit is under way any more.
//!
//! A commit also [prolongs](Guard::prolongation) the lease when an eighth of it is over: a renewal would wait for the
//! rows that commits lock, and a commit that is slower than the lease must not end the leadership.
//!
//! # The database's clock
//! A lease ends on it, so a clock that is set forward ends leases early; their owner finds out at its next renewal.
//! Until then two servers may take themselves for the leader. Only one of them can commit, and the new one knows
//! [how long](FormerLease) the other may go on renewing leases of workers: it counts, on its own clock, since when the
//! lease in the table has been the same. One that is set back leaves a lease valid for as long as
//! the step, but no longer than [`LEASE_MAX`]: [`acquire`] bounds a lease that ends later.
//!
//! Whoever locks rows of several shards locks them in the order of the shards: servers ask for shards at the very moment
//! in which another one gives them away, and two that wait for each other are only parted after a second.
//!
//! # A past that is not ours
//! A database that was restored from a backup, or whose standby took over without the last commits,
//! has forgotten epochs that were given out. Its system identifier is another one then (it is another server), or
//! its timeline (a standby was promoted, or the log was played up to some moment), or the number of the table (a dump
//! was read into it). A commit under a lease of another history is refused; the next acquire takes an epoch beyond all
//! that can have been given out, and notes that a tail may be lost until that is dealt with. A copy of the disk tells
//! nothing of this kind: who brings one back [says so](note_restored).
//! The feed goes on at a place beyond all that were told: who follows it at one of the forgotten places
//! misses nothing. Who follows the changelog may have read rows that are forgotten, so a number is left out
//! there, and what stands behind it is not for them; it begins anew for others.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use model::id::Epoch;
use model::record::Lease;
use model::{Duration, ShardId, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use super::connection::{Lane, Mode, Query, Stopped};
use super::error::{Failure, GUARD, describe};
use super::param::{Param, big, bigs, escape, ints, text, texts};
use crate::{EPOCH_LEAP, EVENT_LEAP, LEASE_MAX};

/// The database's clock in microseconds; it does not stand still in a transaction that waits.
macro_rules! clock {
    () => {
        "(extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT"
    };
}
pub(super) use clock;

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

// `before` is as it was before this statement: a shard whose last owner wrote no changelog is noticed by it.
macro_rules! take {
    ($lost:expr, $system:expr, $timeline:expr) => {
        concat!(
            "WITH taken AS (
            UPDATE shards SET owner = $2, expires_at = ",
            clock!(),
            " + $3,
                epoch = CASE WHEN ",
            $lost,
            " THEN (epoch / $4 + 1) * $4 ELSE epoch + 1 END,
                tail_lost = tail_lost OR ",
            $lost,
            ", system = ",
            $system,
            ", timeline = ",
            $timeline,
            ", logged = now
            WHERE shard = ANY($1) AND (owner IS NULL OR expires_at <= ",
            clock!(),
            ") RETURNING shard, epoch
            ), jumped AS (
                UPDATE meta SET commits = commits + 2, next_event = next_event
                    + CASE WHEN EXISTS (SELECT 1 FROM taken WHERE epoch % $4 = 0) THEN $5 ELSE 0 END
                WHERE id = 0 AND EXISTS (
                    SELECT 1 FROM taken t, shards before
                    WHERE before.shard = t.shard AND (t.epoch % $4 = 0 OR before.now > before.logged)
                ) RETURNING commits, next_event
            ), begun_anew AS (
                INSERT INTO changelog (number, epoch, at, first_event, next_event, touched)
                SELECT commits, (SELECT max(epoch) FROM taken), ",
            clock!(),
            ", next_event, next_event, ''::BYTEA FROM jumped RETURNING 1
            )
            SELECT shard, epoch FROM taken"
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
                tracing::warn!(error = reason, "commits that a fail-over loses will not be noticed");
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

    const fn leases_take(self) -> &'static str {
        match self {
            Self::Told => take!(
                // Without a number where an older release took them.
                concat!(
                    "coalesce(timeline NOT IN (",
                    promotion!(),
                    ", ",
                    timeline!(),
                    ") OR system <> ",
                    system!(),
                    ", FALSE)"
                ),
                system!(),
                timeline!()
            ),
            Self::Untold => take!("FALSE", "system", "timeline"),
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

impl Guard {
    pub(super) fn new(past: Past) -> Self {
        Self { past, owners: Mutex::default(), newest: Mutex::default(), former: Mutex::default() }
    }

    /// Locks the rows of the leases until the transaction ends; an error with state [`GUARD`] unless all hold.
    pub(super) fn hold(&self, leases: &[Lease]) -> Query {
        let mut params = self.params(leases);
        params.push(big(leases.len() as i64));
        Query::new(self.past.leases_hold(), params)
    }

    /// Their shards, epochs and owners, as columns; no owner where another process took the lease.
    fn params(&self, leases: &[Lease]) -> Vec<Param> {
        let owners = lock(&self.owners);
        let owner = |lease: &Lease| match owners.get(&lease.shard) {
            Some((epoch, owner)) if *epoch == lease.epoch => escape(owner),
            _ => String::new(),
        };
        let [shards, epochs] = lease_params(leases);
        let owners = texts(leases.iter().map(owner).collect());
        vec![shards, epochs, owners]
    }

    fn took(&self, leases: &[Lease], owner: &str) {
        let mut owners = lock(&self.owners);
        owners.extend(leases.iter().map(|lease| (lease.shard, (lease.epoch, owner.to_owned()))));
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
        is_due.then(|| Prolongation { sent_at: Instant::now(), ..newest })
    }

    /// A transaction went through that prolonged the leases.
    pub(super) fn prolonged(&self, by: Prolongation) {
        *lock(&self.newest) = Some(by);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lease_params(leases: &[Lease]) -> [Param; 2] {
    // An epoch that cannot be kept was never given out.
    let epochs = leases.iter().map(|lease| i64::try_from(lease.epoch.0).unwrap_or(-1)).collect();
    [numbers(shards_of(leases)), bigs(epochs)]
}

fn shards_of(leases: &[Lease]) -> impl Iterator<Item = ShardId> {
    leases.iter().map(|lease| lease.shard)
}

fn numbers(shards: impl Iterator<Item = ShardId>) -> Param {
    ints(shards.map(|shard| i32::from(shard.0)).collect())
}

/// Locks the rows of these in their order.
fn lock_rows(shards: impl Iterator<Item = ShardId>) -> Query {
    let lock = "SELECT shard FROM shards WHERE shard = ANY($1) ORDER BY shard FOR UPDATE";
    Query::new(lock, vec![numbers(shards)])
}

/// The same; an error with state [`SqlState::LOCK_NOT_AVAILABLE`] if one of them is locked. Answers with the end of the
/// lease of each that has an owner.
fn lock_rows_at_once(shards: &[ShardId]) -> Query {
    let lock = "SELECT CASE WHEN owner IS NOT NULL THEN expires_at END FROM shards
        WHERE shard = ANY($1) ORDER BY shard FOR UPDATE NOWAIT";
    Query::new(lock, vec![numbers(shards.iter().copied())])
}

/// Shortens leases that end later than any can: the clock was set back since they were granted.
///
/// They are bounded by the longest lease and not by that of the server that asks: their owner may have a longer one.
fn bound_leases(shards: &[ShardId]) -> Query {
    Query::new(
        concat!(
            "UPDATE shards SET expires_at = ",
            clock!(),
            " + $2 WHERE shard = ANY($1) AND owner IS NOT NULL AND expires_at > ",
            clock!(),
            " + $2"
        ),
        vec![numbers(shards.iter().copied()), micros(LEASE_MAX)],
    )
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

fn lease_of(row: &Row) -> Lease {
    let (shard, epoch): (i32, i64) = (row.get(0), row.get(1));
    Lease { shard: ShardId(u16::try_from(shard).unwrap_or(u16::MAX)), epoch: Epoch(epoch.cast_unsigned()) }
}

fn leap() -> Param {
    big(EVENT_LEAP.cast_signed())
}

/// A length of time on the database's clock.
pub(super) fn micros(ttl: Duration) -> Param {
    big(i64::try_from(ttl.as_millis().saturating_mul(1_000)).unwrap_or(i64::MAX / 4))
}

/// Takes every shard that is free, or whose lease ran out; none at all while one of them is locked by a commit or by
/// another server that asks.
pub(super) async fn acquire(
    lane: &Lane,
    mode: Mode,
    guard: &Guard,
    shards: &[ShardId],
    owner: &str,
    ttl: Duration,
) -> Result<Vec<Lease>, Failure> {
    let by = Prolongation { ttl, sent_at: Instant::now() };
    let queries = [
        // What comes next sees what the commits before left behind.
        lock_rows_at_once(shards),
        bound_leases(shards),
        Query::new(
            guard.past.leases_take(),
            vec![numbers(shards.iter().copied()), text(owner), micros(ttl), big(EPOCH_LEAP), leap()],
        ),
    ];
    let answers = match lane.run(mode, &queries).await {
        Err(Stopped { at: Some(0), failure }) if failure.state() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
            return Ok(Vec::new());
        }
        answers => answers?,
    };
    let ends = answers.first().into_iter().flatten().filter_map(|row| row.get::<_, Option<i64>>(0));
    lock(&guard.former).see(ends.max(), Instant::now());
    let mut leases: Vec<_> = answers.last().into_iter().flatten().map(lease_of).collect();
    let place = |lease: &Lease| shards.iter().position(|shard| *shard == lease.shard);
    leases.sort_by_key(place);
    if !leases.is_empty() {
        guard.took(&leases, owner);
        guard.prolonged(by);
        lock(&guard.former).end(ttl);
    }
    Ok(leases)
}

/// Prolongs all of them, or none.
pub(super) async fn renew(
    lane: &Lane,
    mode: Mode,
    guard: &Guard,
    leases: &[Lease],
    ttl: Duration,
) -> Result<(), Failure> {
    let by = Prolongation { ttl, sent_at: Instant::now() };
    let queries = [
        guard.hold(leases),
        Query::new(
            concat!("UPDATE shards SET expires_at = ", clock!(), " + $2 WHERE shard = ANY($1)"),
            vec![numbers(shards_of(leases)), micros(ttl)],
        ),
    ];
    match lane.run(mode, &queries).await {
        Ok(_) => {
            guard.prolonged(by);
            Ok(())
        }
        Err(Stopped { at: Some(0), failure }) if failure.state() == Some(GUARD) => {
            Err(first_lost(lane, mode, leases).await)
        }
        Err(stopped) => Err(stopped.into()),
    }
}

/// Gives back those that were not taken over meanwhile.
pub(super) async fn release(lane: &Lane, mode: Mode, guard: &Guard, leases: &[Lease]) -> Result<(), Failure> {
    let give = Query::new(
        "UPDATE shards s SET owner = NULL FROM unnest($1, $2, $3) AS l (shard, epoch, owner)
         WHERE s.shard = l.shard AND s.epoch = l.epoch AND (l.owner = '' OR s.owner = l.owner)",
        guard.params(leases),
    );
    lane.run(mode, &[lock_rows(shards_of(leases)), give]).await?;
    Ok(())
}

/// Notes that the database is an earlier state than one that was there: what an acquire does that finds another history.
pub(super) fn note_restored(shards: u16) -> [Query; 3] {
    [
        lock_rows((0..shards).map(ShardId)),
        Query::new(
            "UPDATE shards SET owner = NULL, epoch = (epoch / $1 + 1) * $1, tail_lost = TRUE, logged = now",
            vec![big(EPOCH_LEAP)],
        ),
        Query::new(
            concat!(
                "WITH leapt AS (
                    UPDATE meta SET commits = commits + 2, next_event = next_event + $1 WHERE id = 0
                    RETURNING commits, next_event
                )
                INSERT INTO changelog (number, epoch, at, first_event, next_event, touched)
                SELECT commits, (SELECT max(epoch) FROM shards), ",
                clock!(),
                ", next_event, next_event, ''::BYTEA FROM leapt"
            ),
            vec![leap()],
        ),
    ]
}

/// Sets engine time back.
pub(super) fn reset_clock(shards: u16, now: Timestamp) -> [Query; 2] {
    let reset = "UPDATE shards SET now = $1, logged = LEAST(logged, $1) WHERE now > $1";
    [lock_rows((0..shards).map(ShardId)), Query::new(reset, vec![big(now.as_micros())])]
}

/// The shards of these whose last commits the database may have forgotten.
pub(super) fn lost_tails_query(leases: &[Lease]) -> Query {
    Query::new(
        "SELECT shard, epoch FROM shards WHERE shard = ANY($1) AND tail_lost ORDER BY shard",
        vec![numbers(shards_of(leases))],
    )
}

/// The answer to [`lost_tails_query`].
pub(super) fn lost_tails(answer: &[Row]) -> Vec<ShardId> {
    answer.iter().map(|row| lease_of(row).shard).collect()
}

/// Notes that the lost tails of these shards were dealt with, as far as the leases hold.
pub(super) fn forget_lost_tails(guard: &Guard, leases: &[Lease]) -> [Query; 2] {
    let forget = "UPDATE shards s SET tail_lost = FALSE FROM unnest($1, $2, $3) AS l (shard, epoch, owner)
         WHERE s.shard = l.shard AND s.epoch = l.epoch AND s.owner IS NOT NULL
            AND (l.owner = '' OR s.owner = l.owner)";
    [lock_rows(shards_of(leases)), Query::new(forget, guard.params(leases))]
}
