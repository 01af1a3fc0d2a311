//! [`Leases`] on the rows of `shards`, on the database's clock.
//!
//! Every commit locks the rows of its shards and finds its epochs and its owner in them ([`guard`](super::guard)), so
//! that an acquire of another server either comes before it, and the commit is refused, or finds the rows locked and
//! takes nothing: its owner still commits. This is also what makes a lost connection harmless: a shard is taken again,
//! under a higher epoch, only when no commit is in flight any more.
//!
//! A commit also [prolongs](super::guard::Guard::prolongation) the lease when an eighth of it is over: a renewal would
//! wait for the rows that commits lock, and a commit that is slower than the lease must not end the leadership.
//!
//! # The database's clock
//! A lease ends on it, so a clock that is set forward ends leases early; their owner finds out at its next renewal.
//! Until then two servers may take themselves for the leader. Only one of them can commit, and the new one knows
//! [how long](super::guard::Guard::former_owner) the other may go on renewing leases of workers: it counts, on its own
//! clock, since when the lease in the table has been the same. A clock that is set back leaves a lease valid for as
//! long as the step, but no longer than [`LEASE_MAX`]: [`bound_leases`] shortens a lease that ends later.
//!
//! Whoever locks rows of several shards locks them in the order of the shards: servers ask for shards at the very moment
//! in which another one gives them away, and two that wait for each other are only parted after a second.
//!
//! # After commits were lost
//! Where the database is on another history than the last owner of a shard ([`Past`]), the next acquire takes an epoch
//! beyond all that can have been given out, and notes that a tail may be lost until that is dealt with. A copy of the
//! disk has the same history: who brings one back [says so](note_restored).
//! The feed continues at a place beyond all that were told: who follows it at one of the forgotten places
//! misses nothing. Who follows the changelog may have read rows that are forgotten, so a number is left out
//! there, and what stands behind it is not for them; it begins anew for others.

use async_trait::async_trait;
use model::record::Lease;
use model::{Duration, ShardId, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use super::connection::{Mode, Query, Stopped};
use super::error::{Failure, GUARD};
use super::guard::{
    Guard, Past, Prolongation, clock, first_lost, lease_of, micros, numbers, promotion, shards_of, system,
    timeline,
};
use super::param::{Param, big, text};
use super::{PostgresStore, settings};
use crate::leases::{EPOCH_LEAP, EVENT_LEAP, LEASE_MAX};
use crate::{Leases, StoreError};

#[async_trait]
impl Leases for PostgresStore {
    fn shards(&self) -> u16 {
        self.shards
    }

    async fn acquire(
        &self,
        shards: &[ShardId],
        owner: &str,
        ttl: Duration,
    ) -> Result<Vec<Lease>, StoreError> {
        self.trust.check()?;
        let taken = self.take(shards, owner, ttl).await.map_err(|failure| self.judge_change(failure))?;
        // Another server may have become the primary since this was looked at, or somebody has changed its settings.
        if !taken.is_empty()
            && let Err(unfit) = self.check_server_of_leases().await
        {
            self.release(&taken).await?;
            return Err(unfit);
        }
        Ok(taken)
    }

    fn former_owner(&self) -> Duration {
        self.guard.former_owner()
    }

    async fn renew(&self, leases: &[Lease], ttl: Duration) -> Result<(), StoreError> {
        self.trust.check()?;
        self.prolong(leases, ttl).await.map_err(|failure| self.judge_change(failure))
    }

    fn is_exclusive(&self) -> bool {
        false
    }

    async fn release(&self, leases: &[Lease]) -> Result<(), StoreError> {
        let give = Query::new(
            "UPDATE shards s SET owner = NULL FROM unnest($1, $2, $3) AS l (shard, epoch, owner)
             WHERE s.shard = l.shard AND s.epoch = l.epoch AND (l.owner = '' OR s.owner = l.owner)",
            self.guard.params(leases),
        );
        let released = self.leases.run(self.write(), &[lock_rows(shards_of(leases)), give]).await;
        released.map(drop).map_err(|stopped| self.judge_change(stopped))
    }

    async fn lost_tails(&self, leases: &[Lease]) -> Result<Vec<ShardId>, StoreError> {
        let lost = |answers: &[Vec<Row>]| Ok(answers[0].iter().map(|row| lease_of(row).shard).collect());
        self.ask(&[lost_tails(leases)], lost).await
    }

    async fn tails_reconciled(&self, leases: &[Lease]) -> Result<(), StoreError> {
        self.change(&forget_lost_tails(&self.guard, leases)).await.map(drop)
    }

    async fn note_restored(&self) -> Result<(), StoreError> {
        self.change_members(&note_restored(self.shards)).await.map(drop)
    }

    async fn clock(&self) -> Result<Option<Timestamp>, StoreError> {
        let query = Query::new(concat!("SELECT ", clock!()), Vec::new());
        let read = |answers: &[Vec<Row>]| {
            let micros: Option<i64> = answers[0].first().map(|row| row.get(0));
            Ok(micros.map(Timestamp::from_micros))
        };
        self.ask(&[query], read).await
    }

    async fn reset_clock(&self, now: Timestamp) -> Result<(), StoreError> {
        self.change_members(&reset_clock(self.shards, now)).await.map(drop)
    }
}

impl PostgresStore {
    /// Takes every shard that is free, or whose lease ran out; none at all while one of them is locked by a commit or by
    /// another server that asks.
    async fn take(&self, shards: &[ShardId], owner: &str, ttl: Duration) -> Result<Vec<Lease>, Failure> {
        let by = Prolongation::now(ttl);
        let queries = [
            // What comes next sees what the commits before left behind.
            lock_rows_at_once(shards),
            bound_leases(shards),
            Query::new(
                take(self.guard.past()),
                vec![numbers(shards.iter().copied()), text(owner), micros(ttl), big(EPOCH_LEAP), leap()],
            ),
        ];
        let answers = match self.leases.run(self.write(), &queries).await {
            Err(Stopped { at: Some(0), failure })
                if failure.state() == Some(&SqlState::LOCK_NOT_AVAILABLE) =>
            {
                return Ok(Vec::new());
            }
            answers => answers?,
        };
        let ends = answers.first().into_iter().flatten().filter_map(|row| row.get::<_, Option<i64>>(0));
        self.guard.saw(ends.max());
        let mut leases: Vec<_> = answers.last().into_iter().flatten().map(lease_of).collect();
        leases.sort_by_key(|lease| shards.iter().position(|shard| *shard == lease.shard));
        if !leases.is_empty() {
            self.guard.took(&leases, owner, by);
        }
        Ok(leases)
    }

    /// Prolongs all of them, or none.
    async fn prolong(&self, leases: &[Lease], ttl: Duration) -> Result<(), Failure> {
        let by = Prolongation::now(ttl);
        // A renewal that waits for longer than it is worth must not keep the next one from the rows.
        let mode = Mode::Write { limit: self.options.change_limit.min(ttl) };
        let queries = [
            self.guard.hold(leases),
            Query::new(
                concat!("UPDATE shards SET expires_at = ", clock!(), " + $2 WHERE shard = ANY($1)"),
                vec![numbers(shards_of(leases)), micros(ttl)],
            ),
        ];
        match self.leases.run(mode, &queries).await {
            Ok(_) => {
                self.guard.prolonged(by);
                Ok(())
            }
            Err(Stopped { at: Some(0), failure }) if failure.state() == Some(GUARD) => {
                Err(first_lost(&self.leases, mode, leases).await)
            }
            Err(stopped) => Err(stopped.into()),
        }
    }

    async fn check_server_of_leases(&self) -> Result<(), StoreError> {
        let answers = self.leases.run(self.write(), &[settings::query()]).await;
        self.check_server(&answers.map_err(|stopped| self.judge_change(stopped))?[0])
    }
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

/// Takes shards: `$1` for the owner `$2` and the time `$3`, with `$4` and `$5` as how far epochs and the feed leap.
const fn take(past: Past) -> &'static str {
    match past {
        Past::Told => take!(
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
        Past::Untold => take!("FALSE", "system", "timeline"),
    }
}

fn leap() -> Param {
    big(EVENT_LEAP.cast_signed())
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

/// Notes that the database is an earlier state than one that was there: what an acquire does that finds another history.
fn note_restored(shards: u16) -> [Query; 3] {
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
fn reset_clock(shards: u16, now: Timestamp) -> [Query; 2] {
    let reset = "UPDATE shards SET now = $1, logged = LEAST(logged, $1) WHERE now > $1";
    [lock_rows((0..shards).map(ShardId)), Query::new(reset, vec![big(now.as_micros())])]
}

/// The shards of these whose last commits the database may have forgotten.
fn lost_tails(leases: &[Lease]) -> Query {
    let look = "SELECT shard, epoch FROM shards WHERE shard = ANY($1) AND tail_lost ORDER BY shard";
    Query::new(look, vec![numbers(shards_of(leases))])
}

/// Notes that the lost tails of these shards were dealt with, as far as the leases hold.
fn forget_lost_tails(guard: &Guard, leases: &[Lease]) -> [Query; 2] {
    let forget = "UPDATE shards s SET tail_lost = FALSE FROM unnest($1, $2, $3) AS l (shard, epoch, owner)
         WHERE s.shard = l.shard AND s.epoch = l.epoch AND s.owner IS NOT NULL
            AND (l.owner = '' OR s.owner = l.owner)";
    [lock_rows(shards_of(leases)), Query::new(forget, guard.params(leases))]
}
