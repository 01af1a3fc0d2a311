//! The changelog of commits, for standbys.
//!
//! Each commit writes a row, in the statement that assigns its positions in the feed, and so under the lock that orders
//! commits: a reader that has seen a row has seen all earlier ones. Each row has the number after that of the previous
//! row, and starts in the feed where the previous one ended. If this does not hold, a commit is missing in the
//! changelog: a server of an older release made it, or it belongs to a history that the database has lost
//! ([`leases`](super::leases) then skips a number).
//!
//! The changelog is [trimmed](Changelog::trim) periodically. The row before the first recent row stays, so that a
//! standby at that position can continue after any idle time. Deleted rows may stay on disk, for example because of a
//! backup; so trimming starts where the last one ended, and does not scan them again.

use std::sync::atomic::Ordering;

use async_trait::async_trait;
use model::changelog::{ChangelogPage, ChangelogPosition, LiveKey, ReloadedRows};
use model::id::Epoch;
use model::record::LiveRow;
use model::{Duration, Timestamp};
use tokio::sync::mpsc::Sender;
use tokio_postgres::Row;

use super::connection::{Mode, Query};
use super::guard::{clock, micros};
use super::param::big;
use super::quarantine::DamagedRow;
use super::{PostgresStore, live_rows, load};
use crate::changelog::Changelog;
use crate::codec::{DecodeError, open_touched};
use crate::rows::Fields;
use crate::{Loaded, StoreError};

/// Maximum number of commits that are read at a time. Each may name thousands of rows.
const COMMITS: usize = 256;
/// Minimum age of rows that are trimmed.
const AGE_MAX: Duration = Duration::from_secs(60);
/// Maximum number of rows that one statement examines.
const TRIMMED_AT_ONCE: i64 = 20_000;

#[async_trait]
impl Changelog for PostgresStore {
    async fn end(&self) -> Result<ChangelogPosition, StoreError> {
        let newest = "SELECT number, epoch FROM changelog ORDER BY number DESC LIMIT 1";
        let read = |answers: &[Vec<Row>]| answers[0].first().map(place).transpose();
        let end = self.ask(&[Query::new(newest, Vec::new())], read).await?;
        end.ok_or_else(|| StoreError::Unavailable { source: "the changelog has lost its newest row".into() })
    }

    async fn since(&self, place: ChangelogPosition) -> Result<Option<ChangelogPage>, StoreError> {
        let Ok(number) = i64::try_from(place.commit) else { return Ok(None) };
        let queries = [
            Query::new(
                "SELECT number, epoch, first_event, next_event, touched FROM changelog
                 WHERE number >= $1 ORDER BY number LIMIT $2",
                // The first row is the one at the position.
                vec![big(number), big(1 + COMMITS as i64)],
            ),
            Query::new(
                "SELECT m.commits, m.next_event, coalesce((SELECT max(now) FROM shards), 0),
                    EXISTS (SELECT 1 FROM shards WHERE now > logged)
                 FROM meta m",
                Vec::new(),
            ),
        ];
        let read = |answers: &[Vec<Row>]| {
            Ok(changes_since(place, &answers[0], &answers[1]).unwrap_or_else(|damage| {
                let commit = place.commit;
                tracing::warn!(commit, error = %damage, "cannot read the changelog; all live rows will be read again");
                None
            }))
        };
        self.ask(&queries, read).await
    }

    async fn preload(&self, rows: Sender<Vec<LiveRow>>) -> Result<Loaded, StoreError> {
        self.trust.check()?;
        let mode = Mode::Read { limit: load::PAGE_LIMIT };
        let loaded = load::preload(&self.queries, mode, self.shards, &rows).await;
        let outcome = loaded.map_err(|failure| self.judge_query(failure))?;
        outcome.damaged.iter().for_each(DamagedRow::log_damage);
        Ok(outcome.loaded)
    }

    async fn trim(&self) -> Result<(), StoreError> {
        loop {
            let low = self.trimmed_below.load(Ordering::Relaxed);
            let answers = self.change(&[trim(low)]).await?;
            let Some(row) = answers[0].first() else { return Ok(()) };
            let (left, gone): (Option<i64>, i64) = (row.get(0), row.get(1));
            self.trimmed_below.fetch_max(left.unwrap_or(low), Ordering::Relaxed);
            if gone + 1 < TRIMMED_AT_ONCE {
                return Ok(());
            }
        }
    }

    async fn live_rows(&self, keys: &[LiveKey]) -> Result<ReloadedRows, StoreError> {
        self.trust.check()?;
        let mode = Mode::Read { limit: load::PAGE_LIMIT };
        let found = live_rows::live_rows(&self.queries, mode, keys).await;
        found.map_err(|failure| self.judge_query(failure))
    }
}

fn place(row: &Row) -> Result<ChangelogPosition, DecodeError> {
    Ok(ChangelogPosition { commit: row.number(0, "number")?, epoch: Epoch(row.number(1, "epoch")?) })
}

/// Decodes the rows from `from` on. `None` unless they are consecutive and reach the newest commit in `stand`.
fn changes_since(
    from: ChangelogPosition,
    rows: &[Row],
    stand: &[Row],
) -> Result<Option<ChangelogPage>, DecodeError> {
    let (Some((first, behind)), Some(stand)) = (rows.split_first(), stand.first()) else { return Ok(None) };
    if place(first)? != from || stand.get(3) {
        return Ok(None);
    }
    let (mut end, mut next_event) = (from, first.number::<i64>(3, "next_event")?);
    let mut touched = Vec::new();
    for row in behind {
        let next = place(row)?;
        if next.commit != end.commit + 1 || row.number::<i64>(2, "first_event")? != next_event {
            return Ok(None);
        }
        touched.extend(open_touched(next.epoch, row.bytes(4, "touched")?)?);
        (end, next_event) = (next, row.number(3, "next_event")?);
    }
    let newest: u64 = stand.number(0, "commits")?;
    let whole = end.commit == newest && next_event == stand.number::<i64>(1, "next_event")?;
    // Rows beyond the limit of one read are left for the next one.
    if !whole && (behind.len() < COMMITS || end.commit >= newest) {
        return Ok(None);
    }
    let now = Timestamp::from_micros(stand.number(2, "now")?);
    Ok(Some(ChangelogPage { touched, end, whole, now }))
}

/// Deletes the oldest of the old rows, from `low` on; below `low` there are none. Returns the number of the oldest row
/// that is left, if it is known, and the number of deleted rows.
fn trim(low: i64) -> Query {
    Query::new(
        concat!(
            "WITH left_ AS (
                SELECT max(number) AS number FROM (
                    SELECT number, at FROM changelog WHERE number >= $1 ORDER BY number LIMIT $2) AS oldest
                WHERE at < (SELECT ",
            clock!(),
            " - $3)
            ), gone AS (
                DELETE FROM changelog WHERE number >= $1 AND number < (SELECT number FROM left_) RETURNING 1
            )
            SELECT (SELECT number FROM left_), (SELECT count(*) FROM gone)"
        ),
        vec![big(low), big(TRIMMED_AT_ONCE), micros(AGE_MAX)],
    )
}
