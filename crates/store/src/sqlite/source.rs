//! A closed store as the source of a copy: owned like by a server, but only read.
//!
//! [`Rows`] reads the rows of any Belfry database, so the written copy is read in the same way.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use model::Duration;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::error::{Failure, Phase};
use super::file::{self, Lock};
use super::{position, replica_tables, schema};
use crate::StoreError;
use crate::copy::{Cell, CopyError, Kind, Page, Table};

/// No limit, for the conversion of errors: no query here is interrupted.
const UNLIMITED: Phase = Phase::Query { limit: Duration::ZERO };

/// Store file that no other process has open.
#[derive(Debug)]
pub(crate) struct Source {
    /// In a transaction from the first query on, so that all pages come from one snapshot.
    rows: Rows,
    _lock: Lock,
}

/// Access to the rows of a database, outside the threads of the async runtime.
#[derive(Debug)]
pub(super) struct Rows {
    connection: Arc<Mutex<Connection>>,
    path: PathBuf,
}

impl Source {
    /// Takes sole ownership of the file at `path`, like a server.
    pub(crate) fn open(path: &Path) -> Result<Self, CopyError> {
        if !path.is_file() {
            return Err(CopyError::NoSource { path: path.to_owned() });
        }
        let lock = Lock::take(path).map_err(CopyError::Source)?;
        // A copy of a store that lost commits would look complete, without any evidence of the loss.
        if let Some(loss) = position::verify(path).map_err(CopyError::Source)? {
            return Err(CopyError::Source(loss.into_error(path)));
        }
        let judge = |failure: Failure| CopyError::Source(failure.into_store_error(UNLIMITED, path));
        let connection = file::open_reader(path).map_err(judge)?;
        let found = schema::version(&connection).map_err(judge)?;
        if replica_tables::exist(&connection).map_err(|error| judge(error.into()))? {
            // Its last changes may be in its log only.
            return Err(CopyError::Source(StoreError::Replica { path: path.to_owned() }));
        }
        if found != schema::VERSION {
            return Err(CopyError::OldSource { found, expected: schema::VERSION });
        }
        connection.execute_batch("BEGIN").map_err(|error| judge(error.into()))?;
        Ok(Self { rows: Rows::of(connection, path), _lock: lock })
    }

    /// Returns the number of rows of a table.
    pub(crate) async fn count(&self, table: &'static Table) -> Result<u64, CopyError> {
        let count = move |connection: &Connection| {
            let sql = format!("SELECT count(*) FROM {}", table.name);
            Ok(connection.query_row(&sql, [], |row| row.get(0))?)
        };
        self.rows.ask(count).await.map_err(CopyError::from_source)
    }

    /// Returns rows after `after` in key order: at most `rows`, and little more than `bytes` bytes.
    pub(crate) async fn page(
        &self,
        table: &'static Table,
        after: Option<Vec<Cell>>,
        rows: usize,
        bytes: usize,
    ) -> Result<Page, CopyError> {
        self.rows.page(table, after, rows, bytes).await.map_err(CopyError::from_source)
    }
}

/// Error while a database was read or written.
#[derive(Debug)]
pub(crate) enum RowsError {
    Row(CopyError),
    Store(StoreError),
}

impl Rows {
    pub(super) fn of(connection: Connection, path: &Path) -> Self {
        Self { connection: Arc::new(Mutex::new(connection)), path: path.to_owned() }
    }

    /// Returns rows after `after`, as [`Source::page`] does.
    pub(super) async fn page(
        &self,
        table: &'static Table,
        after: Option<Vec<Cell>>,
        rows: usize,
        bytes: usize,
    ) -> Result<Page, RowsError> {
        self.ask(move |connection| page(connection, table, after.as_deref(), rows, bytes)).await
    }

    /// Runs `work` on the database.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, Stopped> + Send + 'static,
    ) -> Result<T, RowsError> {
        let connection = Arc::clone(&self.connection);
        let asked = tokio::task::spawn_blocking(move || {
            query(&connection.lock().unwrap_or_else(PoisonError::into_inner))
        });
        let answer = asked
            .await
            .map_err(|error| Stopped::Sqlite(Failure::Broken(format!("its thread ended early: {error}"))));
        answer.and_then(|answer| answer).map_err(|stopped| match stopped {
            Stopped::Row(error) => RowsError::Row(error),
            Stopped::Sqlite(failure) => RowsError::Store(failure.into_store_error(UNLIMITED, &self.path)),
        })
    }
}

/// Reason why a read or write stopped.
pub(super) enum Stopped {
    Row(CopyError),
    Sqlite(Failure),
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Self {
        Self::Sqlite(failure)
    }
}

impl From<rusqlite::Error> for Stopped {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error.into())
    }
}

fn page(
    connection: &Connection,
    table: &'static Table,
    after: Option<&[Cell]>,
    rows: usize,
    bytes: usize,
) -> Result<Page, Stopped> {
    let columns = table.columns.iter().map(|column| column.origin).collect::<Vec<_>>().join(", ");
    let key = table.key_columns();
    let behind = match after {
        Some(_) => format!("WHERE ({key}) > ({})", vec!["?"; table.key].join(", ")),
        None => String::new(),
    };
    let sql = format!("SELECT {columns} FROM {} {behind} ORDER BY {key}", table.name);
    let mut statement = connection.prepare_cached(&sql)?;
    let bound = table.columns.iter().zip(after.unwrap_or_default());
    let mut found =
        statement.query(params_from_iter(bound.map(|(column, cell)| value(column.kind, cell))))?;
    let (mut page, mut taken) = (Page::default(), 0);
    while let Some(row) = found.next()? {
        let cells = table.row_of_source(row).map_err(|damage| {
            let shown = (0..table.key)
                .map(|index| row.get_ref(index).map(|key| super::quarantine::show(&key.into())));
            let key = shown.collect::<rusqlite::Result<Vec<_>>>().unwrap_or_default().join(" ");
            Stopped::Row(CopyError::Row { table: table.name, key, reason: damage.to_string() })
        })?;
        taken += cells.iter().map(Cell::size).sum::<usize>();
        page.rows.push(cells);
        if page.rows.len() >= rows || taken >= bytes {
            page.more = true;
            break;
        }
    }
    Ok(page)
}

/// Converts a value into the format of this store.
pub(super) fn value(kind: Kind, cell: &Cell) -> Value {
    match cell {
        Cell::Absent => Value::Null,
        Cell::Number(number) => Value::Integer(*number),
        Cell::Id(0) if kind == Kind::Backfill => Value::Blob(Vec::new()),
        Cell::Id(bits) => Value::Blob(bits.to_be_bytes().to_vec()),
        Cell::Text(text) => Value::Text(text.clone()),
        Cell::Bytes(bytes) => Value::Blob(bytes.clone()),
    }
}
