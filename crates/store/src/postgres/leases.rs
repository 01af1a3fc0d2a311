//! Who owns which shard, on the database's clock.
//!
//! Every commit locks the rows of its shards and finds its epochs in them, so that an acquire of
//! another server either comes before it, and the commit is refused, or waits until it is through.
//! This is also what makes a lost connection harmless: whoever takes the shards again raises their
//! epochs, and with that waits for, or refuses, a commit that the server may still have at hand.
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

use model::id::Epoch;
use model::record::Lease;
use model::{Duration, ShardId};
use tokio_postgres::Row;

use super::connection::{Lane, Mode, Query, Stopped};
use super::error::{Failure, GUARD, describe};
use super::param::{Param, big, bigs, ints, text};
use crate::{EPOCH_LEAP, EVENT_LEAP};

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
            "SELECT 1 / (CASE WHEN count(*) = $3 THEN 1 ELSE 0 END) FROM (
                SELECT shards.shard FROM shards, unnest($1, $2) AS l (shard, epoch)
                WHERE shards.shard = l.shard AND shards.epoch = l.epoch AND shards.owner IS NOT NULL",
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

    /// Locks the rows of `$1` until the transaction ends; an error unless all `$3` have the epochs `$2`
    /// and an owner, and are on this history.
    pub(super) const fn leases_hold(self) -> &'static str {
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

/// The values of [`Past::leases_hold`].
pub(super) fn lease_params(leases: &[Lease]) -> Result<Vec<Param>, Failure> {
    // An epoch that cannot be kept was never given out.
    let epochs = leases.iter().map(|lease| i64::try_from(lease.epoch.0).unwrap_or(-1)).collect();
    Ok(vec![numbers(shards_of(leases)), bigs(epochs), big(leases.len() as i64)])
}

fn shards_of(leases: &[Lease]) -> impl Iterator<Item = ShardId> {
    leases.iter().map(|lease| lease.shard)
}

fn numbers(shards: impl Iterator<Item = ShardId>) -> Param {
    ints(shards.map(|shard| i32::from(shard.0)).collect())
}

/// Locks the rows of these in their order.
fn lock(shards: impl Iterator<Item = ShardId>) -> Query {
    let lock = "SELECT shard FROM shards WHERE shard = ANY($1) ORDER BY shard FOR UPDATE";
    Query::new(lock, vec![numbers(shards)])
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

/// Takes every shard that is free, or whose lease ran out.
pub(super) async fn acquire(
    lane: &Lane,
    mode: Mode,
    past: Past,
    shards: &[ShardId],
    owner: &str,
    ttl: Duration,
) -> Result<Vec<Lease>, Failure> {
    let queries = [
        // Whoever waits here waits for commits; what comes next sees what these left behind.
        lock(shards.iter().copied()),
        Query::new(
            past.leases_take(),
            vec![numbers(shards.iter().copied()), text(owner), micros(ttl), big(EPOCH_LEAP), leap()],
        ),
    ];
    let answers = lane.run(mode, &queries).await?;
    let mut leases: Vec<_> = answers.iter().skip(1).flatten().map(lease_of).collect();
    let place = |lease: &Lease| shards.iter().position(|shard| *shard == lease.shard);
    leases.sort_by_key(place);
    Ok(leases)
}

/// Prolongs all of them, or none.
pub(super) async fn renew(
    lane: &Lane,
    mode: Mode,
    past: Past,
    leases: &[Lease],
    ttl: Duration,
) -> Result<(), Failure> {
    let queries = [
        Query::new(past.leases_hold(), lease_params(leases)?),
        Query::new(
            concat!("UPDATE shards SET expires_at = ", clock!(), " + $2 WHERE shard = ANY($1)"),
            vec![numbers(shards_of(leases)), micros(ttl)],
        ),
    ];
    match lane.run(mode, &queries).await {
        Ok(_) => Ok(()),
        Err(Stopped { at: Some(0), failure }) if failure.state() == Some(GUARD) => {
            Err(first_lost(lane, mode, leases).await)
        }
        Err(stopped) => Err(stopped.into()),
    }
}

/// Gives back those that were not taken over meanwhile.
pub(super) async fn release(lane: &Lane, mode: Mode, leases: &[Lease]) -> Result<(), Failure> {
    let mut params = lease_params(leases)?;
    params.truncate(2);
    let give = Query::new(
        "UPDATE shards s SET owner = NULL FROM unnest($1, $2) AS l (shard, epoch)
         WHERE s.shard = l.shard AND s.epoch = l.epoch",
        params,
    );
    lane.run(mode, &[lock(shards_of(leases)), give]).await?;
    Ok(())
}

/// Notes that the database is an earlier state than one that was there: what an acquire does that finds another history.
pub(super) fn note_restored(shards: u16) -> [Query; 3] {
    [
        lock((0..shards).map(ShardId)),
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
pub(super) fn forget_lost_tails(leases: &[Lease]) -> Result<[Query; 2], Failure> {
    let mut params = lease_params(leases)?;
    params.truncate(2);
    let forget = "UPDATE shards s SET tail_lost = FALSE FROM unnest($1, $2) AS l (shard, epoch)
         WHERE s.shard = l.shard AND s.epoch = l.epoch AND s.owner IS NOT NULL";
    Ok([lock(shards_of(leases)), Query::new(forget, params)])
}
