//! Folding, retention and queries of statistics; see [`crate::statistics`].
//!
//! A fold reads first and changes later, in a second transaction. The counter `meta.folds` makes the second one fail
//! if another server folded in between; it is advanced last, because every commit locks its row.

use std::sync::Arc;

use model::Timestamp;
use model::failures::{FailureGroup, FailureGroupId, FailureMark};
use model::statistics::{CommitStatistics, Resolution, SubjectKind};
use tokio_postgres::Row;

use super::PostgresStore;
use super::connection::Query;
use super::error::GUARD;
use super::param::{Param, big, bigs, blobs, escape, ids, int, ints, optional_bytes, text, texts};
use super::quarantine::DamagedRow;
use super::rows::key_of;
use crate::StoreError;
use crate::codec::{ChunkKey, DecodeError, open_counted, seal_mark};
use crate::failures::{
    FailureQuery, GROUPS_KEPT, GROUPS_KEPT_IN_TOTAL, GroupFold, GroupKey, KEPT, LISTED_MAX,
};
use crate::rows::{self, Fields as _, Table};
use crate::statistics::{Fold, PENDING_MAX, Series, StatisticsQuery, TRIM_MAX};

impl PostgresStore {
    /// Adds pending counts to the series, in two transactions.
    pub(super) async fn fold(&self) -> Result<u64, StoreError> {
        let Pending { mut fold, mut groups, folded, folds, .. } = loop {
            let pending = self.ask(&pending_queries(), read_pending).await?;
            if pending.damaged.is_empty() {
                break pending;
            }
            self.move_to_quarantine(&pending.damaged).await?;
        };
        if folded.is_empty() {
            return Ok(0);
        }
        let keys: Vec<ChunkKey> = fold.keys().cloned().collect();
        let stored = self.ask(&[chunks_query(&keys)], read_chunks).await?;
        let mut damaged = self.read_groups(&mut groups).await?;
        for (key, sealed, row) in stored {
            if let Err(damage) = fold.add_stored(&key, &sealed) {
                damaged.push(DamagedRow::new(Table::Statistics, row, &damage));
            }
        }
        // Before the new content of a damaged row replaces its bytes.
        if !damaged.is_empty() {
            self.move_to_quarantine(&damaged).await?;
        }
        let count = folded.len() as u64;
        match self.queries.run(self.write(), &fold_queries(fold, groups, folded, folds)).await {
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
        let old = Query::new(
            "WITH gone AS (
                 DELETE FROM failure_groups WHERE ctid = ANY(ARRAY(
                     SELECT ctid FROM failure_groups WHERE last_at < $1 LIMIT $2))
                 -- A fold may have changed the row since.
                 AND last_at < $1
                 RETURNING 1
             )
             SELECT count(*) FROM gone",
            vec![big((now - KEPT).as_micros()), big(TRIM_MAX as i64)],
        );
        let surplus = Query::new(
            "WITH placed AS (
                 SELECT namespace, id, last_at, mark IS NULL AS is_unmarked,
                        row_number() OVER (PARTITION BY namespace ORDER BY mark IS NULL, last_at DESC) AS place,
                        row_number() OVER (ORDER BY mark IS NULL, last_at DESC) AS place_in_total
                 FROM failure_groups
             ), gone AS (
                 DELETE FROM failure_groups g USING (
                     SELECT namespace, id, last_at FROM placed
                     WHERE is_unmarked AND (place > $1 OR place_in_total > $2) LIMIT $3) p
                 WHERE g.namespace = p.namespace AND g.id = p.id
                     -- A fold or a user may have changed the row since.
                     AND g.last_at = p.last_at AND g.mark IS NULL
                 RETURNING 1
             )
             SELECT count(*) FROM gone",
            vec![big(GROUPS_KEPT), big(GROUPS_KEPT_IN_TOTAL), big(TRIM_MAX as i64)],
        );
        Ok(deleted + self.deleted(&[old]).await? + self.deleted(&[surplus]).await?)
    }

    /// Adds the stored groups of a fold, and the sizes of their namespaces. Returns the damaged rows.
    async fn read_groups(&self, groups: &mut GroupFold) -> Result<Vec<DamagedRow>, StoreError> {
        let keys: Vec<GroupKey> = groups.keys().into_iter().collect();
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let queries = [groups_query(&keys), sizes_query(groups)];
        let (stored, damaged, sizes) = self
            .ask(&queries, |answers| {
                let (stored, damaged) = read_stored_groups(&answers[0])?;
                let size = |row: &Row| Ok((row.text(0, "namespace")?.into(), row.number(1, "count")?));
                let sizes: Vec<(Arc<str>, u64)> =
                    answers[1].iter().map(size).collect::<Result<_, DecodeError>>()?;
                Ok((stored, damaged, sizes))
            })
            .await?;
        stored.into_iter().for_each(|group| groups.add_stored(group));
        sizes.into_iter().for_each(|(namespace, size)| groups.set_size(namespace, size));
        Ok(damaged)
    }

    /// Sets or removes the mark of a failure group. Returns whether the group exists.
    pub(super) async fn set_mark(
        &self,
        namespace: &str,
        id: FailureGroupId,
        mark: Option<&FailureMark>,
    ) -> Result<bool, StoreError> {
        let sealed = mark.map(|mark| seal_mark(namespace, id, mark));
        let query = Query::new(
            "WITH marked AS (
                 UPDATE failure_groups SET mark = $3 WHERE namespace = $1 AND id = $2 RETURNING 1
             )
             SELECT count(*) FROM marked",
            vec![text(namespace), big(id.0.cast_signed()), optional_bytes(sealed)],
        );
        Ok(self.deleted(&[query]).await? > 0)
    }

    /// Returns the requested failure groups.
    pub(super) async fn groups(&self, query: &FailureQuery) -> Result<Vec<FailureGroup>, StoreError> {
        loop {
            let read = |answers: &[Vec<Row>]| {
                let (stored, mut damaged) = read_stored_groups(&answers[0])?;
                let mut groups = GroupFold::default();
                stored.into_iter().for_each(|group| groups.add_stored(group));
                for_each_pending(&answers[1], &mut damaged, |at, statistics| {
                    groups.add(at, query.of_namespace(statistics.failures));
                })?;
                Ok((groups.into_groups(), damaged))
            };
            let (groups, damaged) =
                self.ask(&[listed_groups_query(query), all_pending_query()], read).await?;
            if damaged.is_empty() {
                return Ok(groups);
            }
            self.move_to_quarantine(&damaged).await?;
        }
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

/// What commits counted, and the rows that have it.
#[derive(Default)]
struct Pending {
    fold: Fold,
    groups: GroupFold,
    folded: Vec<uuid::Uuid>,
    /// Number of folds so far.
    folds: i64,
    damaged: Vec<DamagedRow>,
}

fn read_pending(answers: &[Vec<Row>]) -> Result<Pending, DecodeError> {
    let folds = answers[0].first().map_or(Ok(0), |row| row.number(0, "folds"))?;
    let mut pending = Pending { folds, ..Pending::default() };
    for row in &answers[1] {
        let at = Timestamp::from_micros(row.number(1, "at")?);
        match row.bytes(2, "payload").and_then(|sealed| open_counted(at, sealed)) {
            Ok(statistics) => {
                pending.fold.add(at, &statistics);
                pending.groups.add(at, statistics.failures);
                pending.folded.push(uuid::Uuid::from_u128(row.bits(0, "id")?));
            }
            Err(damage) => {
                let key = key_of(Table::StatisticsPending, row)?;
                pending.damaged.push(DamagedRow::new(Table::StatisticsPending, key, &damage));
            }
        }
    }
    Ok(pending)
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

fn groups_query(keys: &[GroupKey]) -> Query {
    Query::new(
        "SELECT g.namespace, g.id, g.record, g.mark
         FROM unnest($1, $2) AS k (namespace, id)
         JOIN failure_groups g ON g.namespace = k.namespace AND g.id = k.id",
        vec![
            texts(keys.iter().map(|key| escape(&key.namespace)).collect()),
            bigs(keys.iter().map(GroupKey::stored_id).collect()),
        ],
    )
}

fn sizes_query(groups: &GroupFold) -> Query {
    let namespaces = groups.namespaces().iter().map(|namespace| escape(namespace)).collect();
    Query::new(
        "SELECT namespace, count(*) FROM failure_groups WHERE namespace = ANY($1) GROUP BY namespace",
        vec![texts(namespaces)],
    )
}

fn listed_groups_query(query: &FailureQuery) -> Query {
    match &query.namespace {
        Some(namespace) => Query::new(
            "SELECT namespace, id, record, mark FROM failure_groups WHERE namespace = $2
             ORDER BY last_at DESC LIMIT $1",
            vec![big(LISTED_MAX as i64), text(namespace)],
        ),
        None => Query::new(
            "SELECT namespace, id, record, mark FROM failure_groups ORDER BY last_at DESC LIMIT $1",
            vec![big(LISTED_MAX as i64)],
        ),
    }
}

fn read_stored_groups(rows: &[Row]) -> Result<(Vec<FailureGroup>, Vec<DamagedRow>), DecodeError> {
    let (mut groups, mut damaged) = (Vec::new(), Vec::new());
    for row in rows {
        match rows::failure_group(row) {
            Ok(group) => groups.push(group),
            Err(damage) => {
                let key = key_of(Table::FailureGroups, row)?;
                damaged.push(DamagedRow::new(Table::FailureGroups, key, &damage));
            }
        }
    }
    Ok((groups, damaged))
}

fn all_pending_query() -> Query {
    Query::new("SELECT id, at, payload FROM statistics_pending", Vec::new())
}

/// Calls a function with what each commit counted and no fold has added yet.
fn for_each_pending(
    rows: &[Row],
    damaged: &mut Vec<DamagedRow>,
    mut add: impl FnMut(Timestamp, CommitStatistics),
) -> Result<(), DecodeError> {
    for row in rows {
        let at = Timestamp::from_micros(row.number(1, "at")?);
        match row.bytes(2, "payload").and_then(|sealed| open_counted(at, sealed)) {
            Ok(statistics) => add(at, statistics),
            Err(damage) => {
                let key = key_of(Table::StatisticsPending, row)?;
                damaged.push(DamagedRow::new(Table::StatisticsPending, key, &damage));
            }
        }
    }
    Ok(())
}

fn fold_queries(fold: Fold, groups: GroupFold, folded: Vec<uuid::Uuid>, folds: i64) -> [Query; 4] {
    let (keys, points): (Vec<_>, Vec<_>) = fold.into_rows().unzip();
    let mut params = key_params(&keys);
    params.push(blobs(points));
    let (mut namespaces, mut group_ids, mut last_at, mut records) = (vec![], vec![], vec![], vec![]);
    for (key, at, record) in groups.into_rows() {
        namespaces.push(escape(&key.namespace));
        group_ids.push(key.stored_id());
        last_at.push(at.as_micros());
        records.push(record);
    }
    [
        Query::new("DELETE FROM statistics_pending WHERE id = ANY($1)", vec![ids(folded)]),
        Query::new(
            "INSERT INTO statistics (resolution, kind, chunk, namespace, name, points)
             SELECT * FROM unnest($1, $2, $3, $4, $5, $6)
             ON CONFLICT (resolution, kind, chunk, namespace, name) DO UPDATE SET points = excluded.points",
            params,
        ),
        Query::new(
            "INSERT INTO failure_groups (namespace, id, last_at, record)
             SELECT * FROM unnest($1, $2, $3, $4)
             ON CONFLICT (namespace, id) DO UPDATE SET last_at = excluded.last_at, record = excluded.record",
            vec![texts(namespaces), bigs(group_ids), bigs(last_at), blobs(records)],
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
    [Query::new(sql, params), all_pending_query()]
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
    for_each_pending(&answers[1], &mut damaged, |at, statistics| {
        query.add_pending(&mut series, at, &statistics);
    })?;
    Ok((series, damaged))
}
