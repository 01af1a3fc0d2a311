//! [`Leases`] on the table `shards`, on the database's clock.
//!
//! Every commit locks the rows of its shards, and finds its epochs and its owner in them ([`guard`](super::guard)). So
//! an acquire of another server has one of two results. If it comes before the commit, the commit is refused. If it
//! finds the rows locked, it acquires nothing, because the owner still commits. This also makes a lost connection
//! harmless: a shard is acquired again, under a higher epoch, only after no commit is in flight any more.
//!
//! A commit also [extends](super::guard::Guard::lease_extension) the lease when an eighth of it has passed: a separate
//! renewal would wait for the rows that commits lock, and a commit that takes longer than the lease must not end the
//! leadership.
//!
//! # The database's clock
//! A lease ends on this clock, so a clock that is set forward ends leases early; the owner notices it at its next
//! renewal. Until then two servers may act as the leader. Only one of them can commit, and the new one
//! knows [how long](super::guard::Guard::former_owner) the other may still renew worker leases: it measures on its own
//! clock since when the lease in the table has not changed.
//!
//! A clock that is set back extends a lease by the size of the step, but at most to [`LEASE_MAX`]: [`bound_leases`]
//! shortens a lease that ends later.
//!
//! Rows of several shards are always locked in the order of the shards. Servers request shards at the very moment at
//! which another server hands them over, and PostgreSQL resolves a deadlock only after a second.
//!
//! # After a loss of commits
//! If the database is on another history than the last owner of a shard ([`HistoryCheck`]), the next acquire chooses an epoch
//! above all that can have been issued, and records that commits may be lost until they are reconciled. A copy of the
//! disk has the same history: the operator who restores one [records it](mark_restored).
//! The event feed continues at a position above all that were published, so a reader at a lost position misses nothing.
//! A reader of the changelog may have read rows of lost commits; so one number is skipped, and the reader must start
//! again.

use async_trait::async_trait;
use model::record::Lease;
use model::{Duration, ShardId, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use super::connection::{Mode, Query, Stopped};
use super::error::{Failure, GUARD};
use super::guard::{
    Guard, HistoryCheck, LeaseExtension, clock, first_invalid, lease_of, micros, numbers, promotion,
    shards_of, system, timeline,
};
use super::param::{Param, big, text};
use super::{PostgresStore, settings};
use crate::leases::{EPOCH_STEP_AFTER_LOSS, EVENT_GAP_AFTER_LOSS, LEASE_MAX};
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
        // Another server may have become the primary since the last check, or the settings may have changed.
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
        self.extend(leases, ttl).await.map_err(|failure| self.judge_change(failure))
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

    async fn shards_with_lost_commits(&self, leases: &[Lease]) -> Result<Vec<ShardId>, StoreError> {
        let lost = |answers: &[Vec<Row>]| Ok(answers[0].iter().map(|row| lease_of(row).shard).collect());
        self.ask(&[shards_with_lost_commits(leases)], lost).await
    }

    async fn mark_reconciled(&self, leases: &[Lease]) -> Result<(), StoreError> {
        self.change(&forget_lost_tails(&self.guard, leases)).await.map(drop)
    }

    async fn mark_restored(&self) -> Result<(), StoreError> {
        self.change_members(&mark_restored(self.shards)).await.map(drop)
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
    /// Acquires every shard that is free or whose lease has expired; acquires none if a commit or another acquire has
    /// locked one of them.
    async fn take(&self, shards: &[ShardId], owner: &str, ttl: Duration) -> Result<Vec<Lease>, Failure> {
        let by = LeaseExtension::now(ttl);
        let queries = [
            // The next statement sees the results of the commits before it.
            lock_rows_at_once(shards),
            bound_leases(shards),
            Query::new(
                take(self.guard.past()),
                vec![
                    numbers(shards.iter().copied()),
                    text(owner),
                    micros(ttl),
                    big(EPOCH_STEP_AFTER_LOSS),
                    leap(),
                ],
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
        self.guard.record_expiry(ends.max());
        let mut leases: Vec<_> = answers.last().into_iter().flatten().map(lease_of).collect();
        leases.sort_by_key(|lease| shards.iter().position(|shard| *shard == lease.shard));
        if !leases.is_empty() {
            self.guard.record_acquired(&leases, owner, by);
        }
        Ok(leases)
    }

    /// Extends all leases, or none.
    async fn extend(&self, leases: &[Lease], ttl: Duration) -> Result<(), Failure> {
        let by = LeaseExtension::now(ttl);
        // A renewal that waits longer than its lease lasts must not block the next one.
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
                Err(first_invalid(&self.leases, mode, leases).await)
            }
            Err(stopped) => Err(stopped.into()),
        }
    }

    async fn check_server_of_leases(&self) -> Result<(), StoreError> {
        let answers = self.leases.run(self.write(), &[settings::query()]).await;
        self.check_server(&answers.map_err(|stopped| self.judge_change(stopped))?[0])
    }
}

// `before` holds the rows as of before this statement; so it shows whether the last owner of a shard wrote no
// changelog.
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

/// Acquires shards: `$1` for the owner `$2` and the duration `$3`; `$4` and `$5` are the steps by which epochs and the
/// feed skip.
const fn take(past: HistoryCheck) -> &'static str {
    match past {
        HistoryCheck::Supported => take!(
            // The number is missing if a server of an older release acquired the shard.
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
        HistoryCheck::Unsupported => take!("FALSE", "system", "timeline"),
    }
}

fn leap() -> Param {
    big(EVENT_GAP_AFTER_LOSS.cast_signed())
}

/// Locks the rows of these shards in order.
fn lock_rows(shards: impl Iterator<Item = ShardId>) -> Query {
    let lock = "SELECT shard FROM shards WHERE shard = ANY($1) ORDER BY shard FOR UPDATE";
    Query::new(lock, vec![numbers(shards)])
}

/// Locks the rows without waiting; an error with state [`SqlState::LOCK_NOT_AVAILABLE`] if one of them is locked.
/// Returns the end of the lease of each shard that has an owner.
fn lock_rows_at_once(shards: &[ShardId]) -> Query {
    let lock = "SELECT CASE WHEN owner IS NOT NULL THEN expires_at END FROM shards
        WHERE shard = ANY($1) ORDER BY shard FOR UPDATE NOWAIT";
    Query::new(lock, vec![numbers(shards.iter().copied())])
}

/// Shortens leases that end later than any lease can: the clock was set back since they were granted.
///
/// The bound is the maximum lease and not the lease of this server: the owner may have a longer one.
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

/// Records that the database is an earlier state, as an acquire does that finds another history.
fn mark_restored(shards: u16) -> [Query; 3] {
    [
        lock_rows((0..shards).map(ShardId)),
        Query::new(
            "UPDATE shards SET owner = NULL, epoch = (epoch / $1 + 1) * $1, tail_lost = TRUE, logged = now",
            vec![big(EPOCH_STEP_AFTER_LOSS)],
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

/// Sets the engine time back.
fn reset_clock(shards: u16, now: Timestamp) -> [Query; 2] {
    let reset = "UPDATE shards SET now = $1, logged = LEAST(logged, $1) WHERE now > $1";
    [lock_rows((0..shards).map(ShardId)), Query::new(reset, vec![big(now.as_micros())])]
}

/// Selects those of these shards whose last commits the database may have lost.
fn shards_with_lost_commits(leases: &[Lease]) -> Query {
    let look = "SELECT shard, epoch FROM shards WHERE shard = ANY($1) AND tail_lost ORDER BY shard";
    Query::new(look, vec![numbers(shards_of(leases))])
}

/// Records that the lost commits of these shards were reconciled, if the leases are valid.
fn forget_lost_tails(guard: &Guard, leases: &[Lease]) -> [Query; 2] {
    let forget = "UPDATE shards s SET tail_lost = FALSE FROM unnest($1, $2, $3) AS l (shard, epoch, owner)
         WHERE s.shard = l.shard AND s.epoch = l.epoch AND s.owner IS NOT NULL
            AND (l.owner = '' OR s.owner = l.owner)";
    [lock_rows(shards_of(leases)), Query::new(forget, guard.params(leases))]
}
