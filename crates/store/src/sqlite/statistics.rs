//! Folding, retention and queries of statistics and of failure groups; see [`crate::statistics`] and
//! [`crate::failures`].
//!
//! A fold runs in the writer's transaction: it reads the pending rows and the rows that they change, and writes both.
//! Damaged rows are moved to the quarantine first. A query reads the stored rows and the pending ones in one snapshot.
//! The failures of a commit are in the same pending row as its statistics.

use model::Timestamp;
use model::failures::FailureGroup;
use model::statistics::{CommitStatistics, Resolution, SubjectKind};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::error::Failure;
use super::quarantine::{self, DamagedRow};
use super::rows::key_of;
use super::statements::Statements;
use crate::codec::{ChunkKey, DecodeError, open_counted};
use crate::failures::{FailureQuery, GROUPS_KEPT, GROUPS_KEPT_IN_TOTAL, GroupFold, KEPT, LISTED_MAX};
use crate::rows::{self, Fields as _, Table, chunk_key};
use crate::statistics::{Fold, PENDING_MAX, Series, StatisticsQuery, TRIM_MAX};

/// Adds pending counts to the series. Returns the number of added rows; 0 means that none is left.
///
/// Damaged rows are quarantined here: a fold depends on no row in the memory of an engine.
pub(super) fn fold(
    connection: &Connection,
    statements: &mut Statements<'_>,
    now: Timestamp,
) -> Result<u64, Failure> {
    let pending: Vec<(Vec<u8>, i64, Vec<u8>)> = statements
        .statistics_pending
        .query_map([PENDING_MAX], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<rusqlite::Result<_>>()?;
    let (mut fold, mut groups) = (Fold::default(), GroupFold::default());
    let (mut damaged, mut folded) = (Vec::new(), 0);
    for (id, at, payload) in pending {
        let at = Timestamp::from_micros(at);
        match open_counted(at, &payload) {
            Ok(statistics) => {
                fold.add(at, &statistics);
                groups.add(at, statistics.failures);
                statements.statistics_delete.execute([id])?;
            }
            Err(damage) => {
                damaged.push(DamagedRow::new(Table::StatisticsPending, vec![Value::Blob(id)], &damage));
            }
        }
        folded += 1;
    }
    let keys: Vec<ChunkKey> = fold.keys().cloned().collect();
    for key in keys {
        let columns =
            params![key.resolution.code(), key.kind, key.chunk.as_micros(), &*key.namespace, &*key.name];
        let stored =
            statements.statistics_chunk.query_row(columns, |row| row.get::<_, Vec<u8>>(0)).optional()?;
        if let Some(damage) = stored.and_then(|sealed| fold.add_stored(&key, &sealed).err()) {
            damaged.push(DamagedRow::new(Table::Statistics, key_values(&key), &damage));
        }
    }
    for key in groups.keys() {
        let found = params![&*key.namespace, key.stored_id()];
        let mut found = statements.failure_group.query(found)?;
        match found.next()?.map(rows::failure_group) {
            Some(Ok(group)) => groups.add_stored(group),
            Some(Err(damage)) => {
                let key = vec![key.namespace.to_string().into(), key.stored_id().into()];
                damaged.push(DamagedRow::new(Table::FailureGroups, key, &damage));
            }
            None => {}
        }
    }
    for namespace in groups.namespaces() {
        let size = statements.failure_groups_of.query_row([&*namespace], |row| row.get(0))?;
        groups.set_size(namespace, size);
    }
    // Before the new content of a damaged row replaces its bytes.
    if !damaged.is_empty() {
        quarantine::move_to_quarantine(connection, statements, &damaged, now)?;
    }
    for (key, sealed) in fold.into_rows() {
        statements.statistics_put.execute(params![
            key.resolution.code(),
            key.kind,
            key.chunk.as_micros(),
            &*key.namespace,
            &*key.name,
            sealed
        ])?;
    }
    for (key, last_at, record) in groups.into_rows() {
        let columns = params![&*key.namespace, key.stored_id(), last_at.as_micros(), record];
        statements.failure_group_put.execute(columns)?;
    }
    Ok(folded)
}

fn key_values(key: &ChunkKey) -> Vec<Value> {
    vec![
        i64::from(key.resolution.code()).into(),
        i64::from(key.kind).into(),
        key.chunk.as_micros().into(),
        key.namespace.to_string().into(),
        key.name.to_string().into(),
    ]
}

/// Deletes chunks whose retention is over, a bounded number of each kind. Returns their number.
pub(super) fn trim(statements: &mut Statements<'_>, now: Timestamp) -> Result<u64, Failure> {
    let mut deleted = 0;
    for resolution in Resolution::ALL {
        let before = now - resolution.retention() - resolution.chunk();
        for kind in SubjectKind::ALL {
            let old = params![resolution.code(), kind.code(), before.as_micros(), TRIM_MAX];
            deleted += statements.statistics_trim.execute(old)? as u64;
        }
    }
    let old = params![(now - KEPT).as_micros(), TRIM_MAX];
    deleted += statements.failure_groups_trim.execute(old)? as u64;
    let surplus = params![GROUPS_KEPT, GROUPS_KEPT_IN_TOTAL, TRIM_MAX];
    deleted += statements.failure_groups_make_room.execute(surplus)? as u64;
    Ok(deleted)
}

/// Sets or removes the mark of a failure group. Returns the number of changed groups: 0 or 1.
pub(super) fn mark_failures(
    statements: &mut Statements<'_>,
    namespace: &str,
    id: u64,
    sealed: Option<&[u8]>,
) -> Result<u64, Failure> {
    Ok(statements.failure_group_mark.execute(params![namespace, id.cast_signed(), sealed])? as u64)
}

/// Returns the requested failure groups, and the rows that could not be decoded.
pub(super) fn failures(
    connection: &Connection,
    query: &FailureQuery,
) -> Result<(Vec<FailureGroup>, Vec<DamagedRow>), Failure> {
    let (mut groups, mut damaged) = (GroupFold::default(), Vec::new());
    // A separate statement for each form, so that each has its best plan.
    let mut stored = connection.prepare_cached(match query.namespace {
        Some(_) => {
            "SELECT namespace, id, record, mark FROM failure_groups WHERE namespace = ?2
             ORDER BY last_at DESC LIMIT ?1"
        }
        None => "SELECT namespace, id, record, mark FROM failure_groups ORDER BY last_at DESC LIMIT ?1",
    })?;
    let mut found = match &query.namespace {
        Some(namespace) => stored.query(params![LISTED_MAX, &**namespace])?,
        None => stored.query([LISTED_MAX])?,
    };
    while let Some(row) = found.next()? {
        match rows::failure_group(row) {
            Ok(group) => groups.add_stored(group),
            Err(damage) => {
                damaged.push(DamagedRow::new(
                    Table::FailureGroups,
                    key_of(Table::FailureGroups, row)?,
                    &damage,
                ));
            }
        }
    }
    for_each_pending(connection, &mut damaged, |at, statistics| {
        groups.add(at, query.of_namespace(statistics.failures));
    })?;
    Ok((groups.into_groups(), damaged))
}

/// Calls a function with what each commit counted and no fold has added yet.
fn for_each_pending(
    connection: &Connection,
    damaged: &mut Vec<DamagedRow>,
    mut add: impl FnMut(Timestamp, CommitStatistics),
) -> Result<(), Failure> {
    let mut pending = connection.prepare_cached("SELECT id, at, payload FROM statistics_pending")?;
    let mut found = pending.query([])?;
    while let Some(row) = found.next()? {
        let at = Timestamp::from_micros(row.get(1)?);
        let sealed = row.get_ref(2)?.as_blob().map_err(|error| DecodeError::decode("payload", error))?;
        match open_counted(at, sealed) {
            Ok(statistics) => add(at, statistics),
            Err(damage) => {
                damaged.push(DamagedRow::new(Table::StatisticsPending, vec![row.get(0)?], &damage));
            }
        }
    }
    Ok(())
}

/// Returns the requested series, and the rows that could not be decoded.
pub(super) fn series(
    connection: &Connection,
    query: &StatisticsQuery,
) -> Result<(Series, Vec<DamagedRow>), Failure> {
    let (mut series, mut damaged) = (Series::new(), Vec::new());
    let (namespace, name) = query.columns();
    let mut chunks = connection.prepare_cached(
        "SELECT resolution, kind, chunk, namespace, name, points FROM statistics
         WHERE resolution = ?1 AND kind = ?2 AND chunk = ?3
           AND (?4 IS NULL OR namespace = ?4) AND (?5 IS NULL OR name = ?5)",
    )?;
    let mut one = connection.prepare_cached(
        "SELECT resolution, kind, chunk, namespace, name, points FROM statistics
         WHERE resolution = ?1 AND kind = ?2 AND chunk = ?3 AND namespace = ?4 AND name = ?5",
    )?;
    for chunk in query.chunks() {
        let (resolution, kind, start) = (query.resolution.code(), query.kind(), chunk.as_micros());
        let columns = params![resolution, kind, start, namespace.as_deref(), name.as_deref()];
        let mut found = if name.is_some() { one.query(columns)? } else { chunks.query(columns)? };
        while let Some(row) = found.next()? {
            let mut add = || query.add_chunk(&mut series, &chunk_key(row)?, row.bytes(5, "points")?);
            if let Err(damage) = add() {
                damaged.push(DamagedRow::new(Table::Statistics, key_of(Table::Statistics, row)?, &damage));
            }
        }
    }
    for_each_pending(connection, &mut damaged, |at, statistics| {
        query.add_pending(&mut series, at, &statistics);
    })?;
    Ok((series, damaged))
}
