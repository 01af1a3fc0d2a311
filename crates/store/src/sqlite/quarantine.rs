//! Quarantine: rows that cannot be decoded are moved away with their bytes, so that the rest of the store keeps
//! working.
//!
//! A query that finds such a row records it as [`DamagedRow`]; the writer moves the row. A row is deleted only in the same
//! transaction that copies it.

use model::Timestamp;
use rusqlite::types::{ToSql, ToSqlOutput, Value, ValueRef};

use rusqlite::{Connection, params, params_from_iter};
use sha2::{Digest, Sha256};

use super::commit::write_counters;
use super::error::Failure;
use super::statements::Statements;
use crate::batch::Counters;
use crate::command::Cell;
pub(super) use crate::command::DamagedRow;
use crate::query::Quarantined;
use crate::rows::Table;

fn key_condition(table: Table) -> String {
    let equals = |(n, column)| format!("{column} = ?{n}");
    (1..).zip(table.key()).map(equals).collect::<Vec<_>>().join(" AND ")
}

impl DamagedRow {
    pub(super) fn new(table: Table, key: Vec<Value>, reason: impl ToString) -> Self {
        let key = key.iter().map(|value| Cell::from(ValueRef::from(value))).collect();
        Self { table, key, reason: reason.to_string(), content: None }
    }

    pub(super) fn shown_key(&self) -> String {
        self.key.iter().map(show).collect::<Vec<_>>().join(" ")
    }

    /// Returns the table and the key in readable form.
    pub(super) fn place(&self) -> String {
        format!("`{}` of table `{}`", self.shown_key(), self.table.name())
    }

    /// Logs a row that cannot be decoded and is not quarantined.
    pub(super) fn log_damage(&self) {
        let (table, key) = (self.table.name(), self.shown_key());
        tracing::error!(table, key, error = self.reason, "cannot read a row");
    }
}

impl From<ValueRef<'_>> for Cell {
    fn from(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(number) => Self::Integer(number),
            ValueRef::Real(number) => Self::Real(number),
            ValueRef::Text(bytes) => Self::Text(bytes.to_vec()),
            ValueRef::Blob(bytes) => Self::Blob(bytes.to_vec()),
        }
    }
}

impl ToSql for Cell {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Integer(number) => ValueRef::Integer(*number),
            Self::Real(number) => ValueRef::Real(*number),
            Self::Text(bytes) => ValueRef::Text(bytes),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// Returns a column of a key in readable form; bytes as hexadecimal.
pub(super) fn show(cell: &Cell) -> String {
    match cell {
        Cell::Null => "NULL".into(),
        Cell::Integer(number) => number.to_string(),
        Cell::Real(number) => number.to_string(),
        Cell::Text(text) => String::from_utf8_lossy(text).into_owned(),
        Cell::Blob(bytes) => hex(bytes),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the columns of a quarantined row as JSON, with bytes in the format of PostgreSQL.
#[cfg(feature = "postgres")]
pub(crate) fn readable_cells(columns: &[u8]) -> String {
    let shown = |bytes: &[u8]| format!("\\x{}", hex(bytes)).into();
    let cells: serde_json::Map<String, serde_json::Value> = match postcard::from_bytes(columns) {
        Ok::<Vec<(String, Cell)>, _>(cells) => cells
            .into_iter()
            .map(|(name, cell)| {
                let value = match cell {
                    Cell::Null => serde_json::Value::Null,
                    Cell::Integer(number) => number.into(),
                    Cell::Real(number) => number.into(),
                    Cell::Text(bytes) => String::from_utf8(bytes)
                        .map_or_else(|error| shown(error.as_bytes()), serde_json::Value::String),
                    Cell::Blob(bytes) => shown(&bytes),
                };
                (name, value)
            })
            .collect(),
        // Unknown content is kept as it is, so that nothing is lost.
        Err(_) => std::iter::once(("columns".to_owned(), shown(columns))).collect(),
    };
    serde_json::Value::Object(cells).to_string()
}

/// Returns the columns of a row in the format of this store, from the output of [`readable_cells`].
#[cfg(feature = "postgres")]
pub(crate) fn cells_of_readable(text: &str) -> Vec<u8> {
    let cell = |value| match value {
        serde_json::Value::Null => Cell::Null,
        serde_json::Value::Number(number) => match number.as_i64() {
            Some(number) => Cell::Integer(number),
            None => Cell::Real(number.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(text) => match text.strip_prefix("\\x").and_then(bytes_of_hex) {
            Some(bytes) => Cell::Blob(bytes),
            None => Cell::Text(text.into_bytes()),
        },
        other => Cell::Text(other.to_string().into_bytes()),
    };
    let cells: Vec<(String, Cell)> = match serde_json::from_str(text) {
        Ok(serde_json::Value::Object(cells)) => {
            cells.into_iter().map(|(name, value)| (name, cell(value))).collect()
        }
        // Unknown content is kept as it is, so that nothing is lost.
        _ => vec![("columns".into(), Cell::Text(text.as_bytes().to_vec()))],
    };
    postcard::to_stdvec(&cells).expect("cells are plain data")
}

#[cfg(feature = "postgres")]
fn bytes_of_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok().filter(|_| pair.len() == 2))
        .collect()
}

/// Moves the rows into the quarantine. Rows that no longer exist, or that have other content, are skipped.
pub(super) fn move_to_quarantine(
    connection: &Connection,
    statements: &mut Statements<'_>,
    damaged: &[DamagedRow],
    now: Timestamp,
) -> Result<(), Failure> {
    let mut counters = Counters::default();
    for row in damaged {
        let Some(cells) = copy(connection, row)? else { continue };
        let bytes = postcard::to_stdvec(&cells).map_err(|error| Failure::Broken(error.to_string()))?;
        if row.content.is_some_and(|content| content != content_hash(&bytes)) {
            continue;
        }
        if matches!(row.table, Table::Jobs | Table::JobsEnded) {
            uncount(&cells, &mut counters);
        }
        row.log_damage();
        let key = row.shown_key();
        statements.quarantine.execute(params![row.table.name(), key, row.reason, now.as_micros(), bytes])?;
        let (table, key_condition) = (row.table.name(), key_condition(row.table));
        if let Some((rest, shared)) = row.table.companion() {
            let shared = shared.join(", ");
            let delete = format!(
                "DELETE FROM {rest} WHERE ({shared}) IN (SELECT {shared} FROM {table} WHERE {key_condition})"
            );
            connection.execute(&delete, params_from_iter(&row.key))?;
        }
        connection
            .execute(&format!("DELETE FROM {table} WHERE {key_condition}"), params_from_iter(&row.key))?;
    }
    write_counters(statements, counters.changes())
}

/// Adds the hash of its content to each row, so that a replica moves only a row that is damaged in the same way. Rows that
/// no longer exist are left out.
pub(super) fn with_content(
    connection: &Connection,
    rows: Vec<DamagedRow>,
) -> Result<Vec<DamagedRow>, Failure> {
    let mut found = Vec::new();
    for row in rows {
        if let Some(cells) = copy(connection, &row)? {
            let bytes = postcard::to_stdvec(&cells).map_err(|error| Failure::Broken(error.to_string()))?;
            found.push(DamagedRow { content: Some(content_hash(&bytes)), ..row });
        }
    }
    Ok(found)
}

fn content_hash(cells: &[u8]) -> [u8; 32] {
    Sha256::digest(cells).into()
}

fn copy(connection: &Connection, row: &DamagedRow) -> Result<Option<Vec<(String, Cell)>>, Failure> {
    let using = |(rest, shared): (&str, &[&str])| format!(" LEFT JOIN {rest} USING ({})", shared.join(", "));
    let rest = row.table.companion().map(using).unwrap_or_default();
    let select = format!("SELECT * FROM {}{rest} WHERE {}", row.table.name(), key_condition(row.table));
    let mut statement = connection.prepare(&select)?;
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let mut rows = statement.query(params_from_iter(&row.key))?;
    let Some(found) = rows.next()? else { return Ok(None) };
    let cells = names
        .into_iter()
        .enumerate()
        .map(|(index, name)| Ok((name, Cell::from(found.get_ref(index)?))))
        .collect::<rusqlite::Result<_>>()?;
    Ok(Some(cells))
}

/// Subtracts the job from the count of the status in its column.
fn uncount(cells: &[(String, Cell)], counters: &mut Counters) {
    let column = |wanted: &str| cells.iter().find(|(name, _)| name == wanted).map(|(_, cell)| cell);
    if let (Some(Cell::Text(namespace)), Some(Cell::Integer(status))) =
        (column("namespace"), column("status"))
        && let (Ok(namespace), Ok(status)) = (str::from_utf8(namespace), u8::try_from(*status))
    {
        counters.add(namespace, status, -1);
    }
}

/// Returns the quarantined rows, newest first.
pub(super) fn list(connection: &Connection, limit: usize) -> Result<Vec<Quarantined>, Failure> {
    let mut statement = connection
        .prepare_cached("SELECT origin, key, reason, at FROM quarantine ORDER BY place DESC LIMIT ?1")?;
    let rows = statement.query_map([i64::try_from(limit).unwrap_or(i64::MAX)], |row| {
        Ok(Quarantined {
            table: row.get(0)?,
            key: row.get(1)?,
            reason: row.get(2)?,
            at: Timestamp::from_micros(row.get(3)?),
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
