//! Folding, retention and queries of statistics; see [`crate::statistics`].
//!
//! A fold reads first and changes later, in a second transaction. The counter `meta.folds` makes the second one fail
//! if another server folded in between; it is advanced last, because every commit locks its row.

use model::Timestamp;
use model::statistics::{Resolution, SubjectKind};
use tokio_postgres::Row;

use super::PostgresStore;
use super::connection::Query;
use super::error::GUARD;
use super::param::{Param, big, bigs, blobs, escape, ids, int, ints, text, texts};
use super::quarantine::DamagedRow;
use super::rows::key_of;
use crate::StoreError;
use crate::codec::{ChunkKey, DecodeError, open_counted};
use crate::rows::{self, Fields as _, Table};
use crate::statistics::{Fold, PENDING_MAX, Series, StatisticsQuery, TRIM_MAX};

impl PostgresStore {
    /// Adds pending counts to the series, in two transactions.
    pub(super) async fn fold(&self) -> Result<u64, StoreError> {
        let (mut fold, folded, folds) = loop {
            let (fold, folded, folds, damaged) = self.ask(&pending_queries(), read_pending).await?;
            if damaged.is_empty() {
                break (fold, folded, folds);
            }
            self.move_to_quarantine(&damaged).await?;
        };
        if folded.is_empty() {
            return Ok(0);
        }
        let keys: Vec<ChunkKey> = fold.keys().cloned().collect();
        let stored = self.ask(&[chunks_query(&keys)], read_chunks).await?;
        let mut damaged = Vec::new();
        for (key, sealed, row) in stored {
            if let Err(damage) = fold.add_stored(&key, &sealed) {
                damaged.push(DamagedRow::new(Table::Statistics, row, &damage));
            }
        }
        // Before the new content of a damaged chunk replaces its bytes.
        if !damaged.is_empty() {
            self.move_to_quarantine(&damaged).await?;
        }
        let count = folded.len() as u64;
        match self.queries.run(self.write(), &fold_queries(fold, folded, folds)).await {
            Ok(_) => Ok(count),
            // Another server folded the same rows.
            Err(stopped) if stopped.failure.state() == Some(GUARD) => Ok(0),
            Err(stopped) => Err(self.judge_change(stopped)),
        }
    }

    /// Deletes chunks whose retention is over. Returns their number.
    pub(super) async fn trim_series(&self, now: Timestamp) -> Result<u64, StoreError> {
        let mut deleted = 0;
        for resolution in Resolution::ALL {
            let before = now - resolution.retention() - resolution.chunk();
            let kinds = SubjectKind::ALL.iter().map(|kind| i32::from(kind.code())).collect();
            let query = Query::new(
                "WITH gone AS (
                     DELETE FROM statistics WHERE ctid = ANY(ARRAY(
                         SELECT ctid FROM statistics
                         WHERE resolution = $1 AND kind = ANY($2) AND chunk < $3 LIMIT $4))
                     RETURNING 1
                 )
                 SELECT count(*) FROM gone",
                vec![
                    int(resolution.code().into()),
                    ints(kinds),
                    big(before.as_micros()),
                    big(TRIM_MAX as i64),
                ],
            );
            deleted += self.deleted(&[query]).await?;
        }
        Ok(deleted)
    }

    /// Returns the requested series.
    pub(super) async fn series(&self, query: &StatisticsQuery) -> Result<Series, StoreError> {
        loop {
            let read = |answers: &[Vec<Row>]| read_series(answers, query);
            let (series, damaged) = self.ask(&series_queries(query), read).await?;
            if damaged.is_empty() {
                return Ok(series);
            }
            self.move_to_quarantine(&damaged).await?;
        }
    }
}

fn pending_queries() -> [Query; 2] {
    [
        Query::new("SELECT folds FROM meta", Vec::new()),
        Query::new(
            "SELECT id, at, payload FROM statistics_pending ORDER BY id LIMIT $1",
            vec![big(PENDING_MAX as i64)],
        ),
    ]
}

type Pending = (Fold, Vec<uuid::Uuid>, i64, Vec<DamagedRow>);

fn read_pending(answers: &[Vec<Row>]) -> Result<Pending, DecodeError> {
    let folds = answers[0].first().map_or(Ok(0), |row| row.number(0, "folds"))?;
    let (mut fold, mut folded, mut damaged) = (Fold::default(), Vec::new(), Vec::new());
    for row in &answers[1] {
        let at = Timestamp::from_micros(row.number(1, "at")?);
        match row.bytes(2, "payload").and_then(|sealed| open_counted(at, sealed)) {
            Ok(statistics) => {
                fold.add(at, &statistics);
                folded.push(uuid::Uuid::from_u128(row.bits(0, "id")?));
            }
            Err(damage) => {
                let key = key_of(Table::StatisticsPending, row)?;
                damaged.push(DamagedRow::new(Table::StatisticsPending, key, &damage));
            }
        }
    }
    Ok((fold, folded, folds, damaged))
}

/// Returns the columns of a key as parameters, one array for each column.
fn key_params(keys: &[ChunkKey]) -> Vec<Param> {
    vec![
        ints(keys.iter().map(|key| i32::from(key.resolution.code())).collect()),
        ints(keys.iter().map(|key| i32::from(key.kind)).collect()),
        bigs(keys.iter().map(|key| key.chunk.as_micros()).collect()),
        texts(keys.iter().map(|key| escape(&key.namespace)).collect()),
        texts(keys.iter().map(|key| escape(&key.name)).collect()),
    ]
}

fn chunks_query(keys: &[ChunkKey]) -> Query {
    Query::new(
        "SELECT s.resolution, s.kind, s.chunk, s.namespace, s.name, s.points
         FROM unnest($1, $2, $3, $4, $5) AS k (resolution, kind, chunk, namespace, name)
         JOIN statistics s ON s.resolution = k.resolution AND s.kind = k.kind AND s.chunk = k.chunk
             AND s.namespace = k.namespace AND s.name = k.name",
        key_params(keys),
    )
}

type Stored = (ChunkKey, Vec<u8>, Vec<super::quarantine::Key>);

fn read_chunks(answers: &[Vec<Row>]) -> Result<Vec<Stored>, DecodeError> {
    let chunk = |row: &Row| {
        Ok((rows::chunk_key(row)?, row.bytes(5, "points")?.to_vec(), key_of(Table::Statistics, row)?))
    };
    answers[0].iter().map(chunk).collect()
}

fn fold_queries(fold: Fold, folded: Vec<uuid::Uuid>, folds: i64) -> [Query; 3] {
    let (keys, points): (Vec<_>, Vec<_>) = fold.into_rows().unzip();
    let mut params = key_params(&keys);
    params.push(blobs(points));
    [
        Query::new("DELETE FROM statistics_pending WHERE id = ANY($1)", vec![ids(folded)]),
        Query::new(
            "INSERT INTO statistics (resolution, kind, chunk, namespace, name, points)
             SELECT * FROM unnest($1, $2, $3, $4, $5, $6)
             ON CONFLICT (resolution, kind, chunk, namespace, name) DO UPDATE SET points = excluded.points",
            params,
        ),
        Query::new(
            "WITH counted AS (UPDATE meta SET folds = folds + 1 WHERE folds = $1 RETURNING 1)
             SELECT 1 / (CASE WHEN count(*) = 1 THEN 1 ELSE 0 END) FROM counted",
            vec![big(folds)],
        ),
    ]
}

fn series_queries(query: &StatisticsQuery) -> [Query; 2] {
    let (namespace, name) = query.columns();
    let mut params = vec![
        int(query.resolution.code().into()),
        int(query.kind().into()),
        bigs(query.chunks().map(Timestamp::as_micros).collect()),
    ];
    params.extend(namespace.iter().chain(&name).map(|column| text(column)));
    // A separate statement for each form, so that each has its best plan.
    let sql = match (&namespace, &name) {
        (None, _) => {
            "SELECT resolution, kind, chunk, namespace, name, points FROM statistics
             WHERE resolution = $1 AND kind = $2 AND chunk = ANY($3)"
        }
        (Some(_), None) => {
            "SELECT resolution, kind, chunk, namespace, name, points FROM statistics
             WHERE resolution = $1 AND kind = $2 AND chunk = ANY($3) AND namespace = $4"
        }
        (Some(_), Some(_)) => {
            "SELECT resolution, kind, chunk, namespace, name, points FROM statistics
             WHERE resolution = $1 AND kind = $2 AND chunk = ANY($3) AND namespace = $4 AND name = $5"
        }
    };
    let pending = Query::new("SELECT id, at, payload FROM statistics_pending", Vec::new());
    [Query::new(sql, params), pending]
}

fn read_series(
    answers: &[Vec<Row>],
    query: &StatisticsQuery,
) -> Result<(Series, Vec<DamagedRow>), DecodeError> {
    let (mut series, mut damaged) = (Series::new(), Vec::new());
    for row in &answers[0] {
        let key = rows::chunk_key(row)?;
        if let Err(damage) = query.add_chunk(&mut series, &key, row.bytes(5, "points")?) {
            damaged.push(DamagedRow::new(Table::Statistics, key_of(Table::Statistics, row)?, &damage));
        }
    }
    for row in &answers[1] {
        let at = Timestamp::from_micros(row.number(1, "at")?);
        match row.bytes(2, "payload").and_then(|sealed| open_counted(at, sealed)) {
            Ok(statistics) => query.add_pending(&mut series, at, &statistics),
            Err(damage) => {
                let key = key_of(Table::StatisticsPending, row)?;
                damaged.push(DamagedRow::new(Table::StatisticsPending, key, &damage));
            }
        }
    }
    Ok((series, damaged))
}
