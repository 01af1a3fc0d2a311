//! Folding and retention of statistics; see [`crate::statistics`].

use model::Timestamp;
use model::statistics::{Resolution, SubjectKind};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::error::Failure;
use super::quarantine::{self, DamagedRow};
use super::rows::key_of;
use super::statements::Statements;
use crate::codec::{ChunkKey, DecodeError, open_counted};
use crate::rows::{Fields as _, Table, chunk_key};
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
    let (mut fold, mut damaged, mut folded) = (Fold::default(), Vec::new(), 0);
    for (id, at, payload) in pending {
        let at = Timestamp::from_micros(at);
        match open_counted(at, &payload) {
            Ok(statistics) => {
                fold.add(at, &statistics);
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
    // Before the new content of a damaged chunk replaces its bytes.
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
    Ok(deleted)
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
    let mut pending = connection.prepare_cached("SELECT id, at, payload FROM statistics_pending")?;
    let mut found = pending.query([])?;
    while let Some(row) = found.next()? {
        let at = Timestamp::from_micros(row.get(1)?);
        let sealed = row.get_ref(2)?.as_blob().map_err(|error| DecodeError::decode("payload", error))?;
        match open_counted(at, sealed) {
            Ok(statistics) => query.add_pending(&mut series, at, &statistics),
            Err(damage) => {
                damaged.push(DamagedRow::new(Table::StatisticsPending, vec![row.get(0)?], &damage));
            }
        }
    }
    Ok((series, damaged))
}
