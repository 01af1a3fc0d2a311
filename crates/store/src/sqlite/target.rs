//! A new database as the target of a copy from another store.
//!
//! The database is written under a temporary name, without a WAL, and synced once at the end. An interrupted copy
//! leaves nothing that a server could open.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, params_from_iter};

use super::error::Failure;
use super::file::{self, Lock, sibling_path};
use super::partial::Partial;
use super::position::PositionFile;
use super::schema;
use super::source::{Rows, Stopped, value};
use crate::copy::{Cell, CopyError, Page, Table};

/// Database with its tables, to be filled.
#[derive(Debug)]
pub(crate) struct Target {
    rows: Rows,
    partial: Partial,
    path: PathBuf,
    /// Engine time of the source in microseconds; the source stores it with its shards.
    now: i64,
    /// Prevents the start of a server at the final path of the copy.
    _lock: Lock,
}

impl Target {
    /// Creates a store for `path`, where no store may exist. `now` is the engine time of the source, in microseconds.
    pub(crate) fn begin(path: &Path, now: i64) -> Result<Self, CopyError> {
        let written = |source| CopyError::Write { path: path.to_owned(), source };
        file::create_folder(path).map_err(CopyError::Target)?;
        let lock = Lock::take(path).map_err(CopyError::Target)?;
        for there in [
            path.to_owned(),
            file::wal_path(path),
            sibling_path(path, "-journal"),
            PositionFile::path_of(path),
        ] {
            if there.symlink_metadata().is_ok() {
                return Err(CopyError::Exists { path: there });
            }
        }
        let partial = Partial::begin(path).map_err(written)?;
        let connection = open(partial.path());
        let connection = connection.map_err(|failure| {
            CopyError::Target(failure.into_store_error(super::error::Phase::Change, path))
        })?;
        Ok(Self {
            rows: Rows::of(connection, partial.path()),
            partial,
            path: path.to_owned(),
            now,
            _lock: lock,
        })
    }

    /// Writes rows of a table, in the format of the source.
    pub(crate) async fn put(&self, table: &'static Table, rows: Vec<Vec<Cell>>) -> Result<(), CopyError> {
        let now = self.now;
        self.rows
            .ask(move |connection| put(connection, table, rows, now))
            .await
            .map_err(CopyError::from_target)
    }

    /// Returns rows after `after` in key order: at most `rows`, and little more than `bytes` bytes.
    pub(crate) async fn page(
        &self,
        table: &'static Table,
        after: Option<Vec<Cell>>,
        rows: usize,
        bytes: usize,
    ) -> Result<Page, CopyError> {
        self.rows.page(table, after, rows, bytes).await.map_err(CopyError::from_target)
    }

    /// Renames the copy to its final name, durably. From then on a server can open it.
    pub(crate) fn finish(self) -> Result<(), CopyError> {
        let Self { rows, partial, path, _lock, .. } = self;
        drop(rows);
        match partial.finish(&path) {
            Ok(_bytes) => Ok(()),
            Err(source) => Err(CopyError::Write { path, source }),
        }
    }
}

/// Creates the tables, without the initial rows of a new store.
fn open(path: &Path) -> Result<Connection, Failure> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    // The data is useful only when it is complete; it is synced then.
    connection.execute_batch(
        "PRAGMA mmap_size = 0; PRAGMA trusted_schema = OFF; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;",
    )?;
    schema::migrate(&connection, 0, 1)?;
    connection.execute_batch("DELETE FROM meta; DELETE FROM shards;")?;
    Ok(connection)
}

fn put(
    connection: &Connection,
    table: &'static Table,
    rows: Vec<Vec<Cell>>,
    now: i64,
) -> Result<(), Stopped> {
    let columns = columns(connection, table)?;
    let names: Vec<_> = columns.iter().map(|&index| table.columns[index].name).collect();
    let fixed = fixed(table, now);
    let all: Vec<_> = names.iter().copied().chain(fixed.iter().map(|(name, _)| *name)).collect();
    let places = names.iter().map(|_| "?".to_owned()).chain(fixed.iter().map(|(_, value)| value.to_string()));
    let places: Vec<_> = places.collect();
    let sql = format!("INSERT INTO {} ({}) VALUES ({})", table.name, all.join(", "), places.join(", "));
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let written = insert(connection, table, &columns, &sql, rows);
    connection.execute_batch(if written.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
    Ok(written?)
}

fn insert(
    connection: &Connection,
    table: &'static Table,
    columns: &[usize],
    sql: &str,
    rows: Vec<Vec<Cell>>,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(sql)?;
    for row in rows {
        let row = table.row_from_target(row);
        let values = columns.iter().map(|&index| value(table.columns[index].kind, &row[index]));
        statement.execute(params_from_iter(values))?;
    }
    Ok(())
}

/// Returns the columns of the table that this store has, without those that only the database needs.
fn columns(connection: &Connection, table: &'static Table) -> rusqlite::Result<Vec<usize>> {
    let mut statement = connection.prepare_cached("SELECT name FROM pragma_table_info(?1)")?;
    let ours =
        statement.query_map([table.name], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?;
    let is_ours = |index: &usize| ours.iter().any(|name| name == table.columns[*index].name);
    Ok((0..table.columns.len()).filter(is_ours).collect())
}

/// Returns the columns that only this store has, with their values.
fn fixed(table: &Table, now: i64) -> Vec<(&'static str, i64)> {
    match table.name {
        "meta" => vec![("now", now)],
        "shards" => vec![("expires_at", 0)],
        _ => Vec::new(),
    }
}
