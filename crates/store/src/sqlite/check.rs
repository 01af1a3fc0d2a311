//! Check and backup of a whole store, also while a server uses it.
//!
//! A start reads only the live rows, so damage in the history or in index pages can stay unnoticed for long. A check
//! reads everything: SQLite verifies each page, and each row is decoded with its checksum.
//!
//! Check and backup only read, in one transaction. So a running server continues, and a stopped one may start: the file
//! lock is held only until the transaction has begun. The WAL grows as long as the transaction lasts, because it cannot
//! restart.

use std::error::Error as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use model::Timestamp;
use rusqlite::backup::{Backup as Copying, StepResult};
use rusqlite::{Connection, OpenFlags, Row};

use super::error::{Failure, Phase};
use super::file::{self, Lock};
use super::partial::Partial;
use super::position::{self, Log, Loss};
use super::quarantine::DamagedRow;
use super::rows::key_of;
use super::views::DefinitionCache;
use super::{replica_tables, schema};
use crate::StoreError;
use crate::codec::{Context, DecodeError, open_counted, open_events, open_points};
use crate::pace::Pace;
use crate::rows::{
    self, AUDIT_COLUMNS, BACKFILL_COLUMNS, BACKFILL_REST, CALENDAR_COLUMNS, CHECKPOINT_COLUMNS,
    ELEMENTS_COLUMNS, ENTRY_COLUMNS, EXECUTION_COLUMNS, Fields, JOB_COLUMNS, KEY_COLUMNS, LEDGER_COLUMNS,
    RUN_COLUMNS, RUN_REST, SCHEDULE_COLUMNS, SCHEDULE_REST, SERVICE_COLUMNS, SERVICE_REST, STEP_COLUMNS,
    Table, WORKFLOW_COLUMNS, WORKFLOW_HEAD_COLUMNS, WORKFLOW_REST,
};

/// Maximum number of reported problems.
const PROBLEMS_MAX: usize = 100;
/// Pause between two attempts of a backup step that is locked out.
const BUSY_PAUSE: Duration = Duration::from_millis(50);
/// Pages of a step of a copy with a pace: 1 MiB.
const PAGES_OF_STEP: i32 = 256;

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckReport {
    /// Number of decoded rows.
    pub rows: u64,
    /// Number of rows in the quarantine.
    pub quarantined_rows: u64,
    /// Whether a server has the store open.
    pub is_in_use: bool,
    /// Problems, each with its location; at most 100.
    pub problems: Vec<String>,
}

impl CheckReport {
    fn add(&mut self, problem: impl FnOnce() -> String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem());
        }
    }
}

/// Error of a backup.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message says it")]
pub enum BackupError {
    #[error("there is no store at `{}`", path.display())]
    NoStore { path: PathBuf },
    #[error("cannot write a backup to `{}`: it already exists", path.display())]
    Exists { path: PathBuf },
    #[error("the store cannot be read")]
    Store(#[source] StoreError),
    #[error("cannot write `{}`", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the copy at `{}` is damaged: {problem}", path.display())]
    Damaged { path: PathBuf, problem: String },
}

impl BackupError {
    /// Returns the next step for the operator.
    pub fn help(&self) -> &'static str {
        match self {
            Self::NoStore { .. } => "pass the data directory of the server, or its `belfry.db`",
            Self::Exists { .. } => "choose a path that does not exist: a backup never overwrites a file",
            Self::Store(error) => error.help(),
            Self::Write { .. } => "make sure that the directory exists, is writable and has space",
            Self::Damaged { .. } => {
                "the store itself is damaged: run `belfry store check`, and keep the backups that you have"
            }
        }
    }
}

/// Result of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backup {
    /// Size of the backup file.
    pub bytes: u64,
    /// Number of rows.
    pub rows: u64,
}

/// Checks the whole store at `path`, whether or not a server has it open. Changes nothing.
///
/// # Errors
/// If there is nothing to check: [`StoreError::Missing`], [`StoreError::TooNew`], [`StoreError::Unavailable`], or a
/// file that is not a database. Any other error is reported as a problem in the result.
pub fn check(path: &Path) -> Result<CheckReport, StoreError> {
    let mut checked = CheckReport::default();
    match check_all(path, &mut checked) {
        // The problems found so far are more useful than the error that ended the check.
        Err(error) if !checked.problems.is_empty() => {
            let cause = error.source().map_or(String::new(), |cause| format!(": {cause}"));
            checked.problems.push(format!("the check ended early: {error}{cause}"));
            Ok(checked)
        }
        ended => ended.map(|()| checked),
    }
}

fn check_all(path: &Path, checked: &mut CheckReport) -> Result<(), StoreError> {
    let snapshot = Snapshot::take(path)?;
    checked.is_in_use = snapshot.is_in_use;
    if let Some(loss) = &snapshot.loss {
        checked.add(|| format!("commits are lost: {}", loss.reason));
    }
    check_connection(&snapshot.connection, checked)
        .map_err(|failure| failure.into_store_error(Phase::Change, path))
}

/// A snapshot of a store for reading. A server may continue or start meanwhile.
pub(super) struct Snapshot {
    /// Connection with an open read transaction.
    connection: Connection,
    is_in_use: bool,
    loss: Option<Loss>,
    /// Lock that prevents writes while the database is read without its WAL.
    _lock: Option<Lock>,
}

impl Snapshot {
    pub(super) fn take(path: &Path) -> Result<Self, StoreError> {
        let (mut lock, is_served) = lock_of(path)?;
        let loss = if is_served { None } else { verify(path)? };
        let connection = if loss.as_ref().is_some_and(|loss| loss.log_is_foreign) {
            file::open_without_wal(path)
        } else {
            file::open_reader(path).and_then(|connection| {
                // A transaction takes its snapshot when it reads its first row.
                connection.execute_batch("BEGIN; SELECT count(*) FROM sqlite_schema;")?;
                lock = None;
                Ok(connection)
            })
        };
        let connection = connection.map_err(|failure| failure.into_store_error(Phase::Change, path))?;
        Ok(Self { connection, is_in_use: is_served, loss, _lock: lock })
    }
}

/// Returns the lock of a store that no server has open, and whether a server has it open. A backup was never open, so
/// it has no lock file; it may be on a read-only volume.
fn lock_of(path: &Path) -> Result<(Option<Lock>, bool), StoreError> {
    if !Lock::path_of(path).exists() {
        return Ok((None, false));
    }
    match Lock::take(path) {
        Ok(lock) => Ok((Some(lock), false)),
        Err(StoreError::InUse { .. }) => Ok((None, true)),
        Err(error) => Err(error),
    }
}

fn verify(path: &Path) -> Result<Option<Loss>, StoreError> {
    let loss = position::verify(path)?;
    // A WAL may break off where a power cut tore it. That is no damage, because no commit there was acknowledged.
    let log = file::wal_path(path);
    let log = Log::read(&log).map_err(|error| file::unavailable(&log, &error))?;
    if let Some(log) = log.filter(|log| log.behind > 0 && loss.is_none()) {
        tracing::info!(wal = log.describe(), "ignoring the end of the WAL, which was not durable");
    }
    Ok(loss)
}

/// Checks everything that a connection sees. The connection should be in a transaction.
fn check_connection(connection: &Connection, checked: &mut CheckReport) -> Result<(), Failure> {
    let version = schema::version(connection)?;
    let mut pages = connection.prepare(&format!("PRAGMA integrity_check({PROBLEMS_MAX})"))?;
    let mut found = pages.query([])?;
    while let Some(row) = found.next()? {
        let said: String = row.get(0)?;
        if said != "ok" {
            checked.add(|| format!("database file: {said}"));
        }
    }
    if version != schema::VERSION {
        // The server that migrates the store checks the rows of another version.
        return Ok(());
    }
    checked.quarantined_rows =
        connection.query_row("SELECT count(*) FROM quarantine", [], |row| row.get(0))?;
    let mut pins = DefinitionCache::new(connection);
    for (table, columns, rest) in ROWS {
        read(connection, &mut pins, *table, columns, rest, checked)?;
    }
    pins.check()
}

/// Tables whose rows have Belfry's checksums or types, with the columns that the decoder needs and the source of the
/// rest.
const ROWS: &[(Table, &str, &str)] = &[
    (Table::Jobs, JOB_COLUMNS, "t.history"),
    (Table::JobsEnded, JOB_COLUMNS, "t.history"),
    (Table::Executions, EXECUTION_COLUMNS, ""),
    (Table::ExecutionsEnded, EXECUTION_COLUMNS, ""),
    (Table::Keys, KEY_COLUMNS, ""),
    (Table::Checkpoints, CHECKPOINT_COLUMNS, ""),
    (Table::Workers, "t.id, t.record", ""),
    (Table::Queues, "t.name, t.record", ""),
    (Table::Namespaces, "t.name, t.record", ""),
    (Table::Events, "t.first, t.payload", ""),
    (Table::Access, ENTRY_COLUMNS, ""),
    (Table::Alerts, ENTRY_COLUMNS, ""),
    (Table::Audit, AUDIT_COLUMNS, ""),
    (Table::Schedules, SCHEDULE_COLUMNS, SCHEDULE_REST),
    (Table::Ledger, LEDGER_COLUMNS, ""),
    (Table::Backfills, BACKFILL_COLUMNS, BACKFILL_REST),
    (Table::Calendars, CALENDAR_COLUMNS, ""),
    (Table::Workflows, WORKFLOW_COLUMNS, WORKFLOW_REST),
    (Table::WorkflowHeads, WORKFLOW_HEAD_COLUMNS, ""),
    (Table::Services, SERVICE_COLUMNS, SERVICE_REST),
    (Table::Runs, RUN_COLUMNS, RUN_REST),
    (Table::ElementBatches, ELEMENTS_COLUMNS, ""),
    (Table::Steps, STEP_COLUMNS, ""),
    (Table::RunKeys, "t.key, t.body, t.run, t.expires_at", ""),
    (Table::Statistics, "t.resolution, t.kind, t.chunk, t.namespace, t.name, t.points", ""),
    (Table::StatisticsPending, "t.id, t.at, t.payload", ""),
    (Table::FailureGroups, "t.namespace, t.id, t.record, t.mark", ""),
];

fn read(
    connection: &Connection,
    pins: &mut DefinitionCache<'_>,
    table: Table,
    columns: &str,
    rest: &str,
    checked: &mut CheckReport,
) -> Result<(), Failure> {
    let (also, join) = if rest.starts_with("t.") { (format!(", {rest}"), "") } else { (String::new(), rest) };
    let name = table.name();
    let mut statement = connection.prepare(&format!("SELECT {columns}{also} FROM {name} t {join}"))?;
    let mut found = statement.query([])?;
    loop {
        let row = match found.next() {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(()),
            // Rows after a damaged page of the table cannot be reached.
            Err(error) => {
                checked.add(|| format!("table `{name}`: {error}"));
                return Ok(());
            }
        };
        checked.rows += 1;
        if let Err(damage) = decode(table, row, pins) {
            let row = DamagedRow::new(table, key_of(table, row).unwrap_or_default(), &damage);
            checked.add(|| format!("table `{name}`, row `{}`: {damage}", row.shown_key()));
        }
    }
}

fn decode(table: Table, row: &Row<'_>, pins: &mut DefinitionCache<'_>) -> Result<(), DecodeError> {
    match table {
        Table::Jobs | Table::JobsEnded => rows::job_with_history(row).map(drop),
        Table::Executions | Table::ExecutionsEnded => rows::execution(row).map(drop),
        Table::Keys => rows::key(row).map(drop),
        Table::Checkpoints => rows::checkpoint(row).map(drop),
        Table::Workers => {
            rows::record::<model::record::WorkerRecord>(Context::of(row.bits(0, "id")?), row).map(drop)
        }
        Table::Queues => {
            rows::record::<model::record::QueueRecord>(Context::of_text(&row.text(0, "name")?), row).map(drop)
        }
        Table::Namespaces => {
            rows::record::<model::record::NamespaceRecord>(Context::of_text(&row.text(0, "name")?), row)
                .map(drop)
        }
        Table::Events => open_events(row.number(0, "first")?, row.bytes(1, "payload")?).map(drop),
        Table::Access => rows::access(row).map(drop),
        Table::Alerts => rows::alert(row).map(drop),
        Table::Audit => rows::audit(row).map(drop),
        Table::Schedules => rows::schedule(row).map(drop),
        Table::Ledger => rows::ledger(row).map(drop),
        Table::Backfills => rows::backfill(row).map(drop),
        Table::Calendars => rows::calendar(row).map(drop),
        Table::Workflows => rows::workflow(row).map(drop),
        Table::WorkflowHeads => rows::workflow_version(row).map(drop),
        Table::Services => rows::service(row).map(drop),
        Table::Runs => rows::run(row, |hash| pins.pinned(hash)).map(drop),
        Table::ElementBatches => rows::elements(row).map(drop),
        Table::Steps => rows::step(row).map(drop),
        Table::RunKeys => rows::run_key(row).map(drop),
        Table::Statistics => open_points(&rows::chunk_key(row)?, row.bytes(5, "points")?).map(drop),
        Table::StatisticsPending => {
            let at = Timestamp::from_micros(row.number(1, "at")?);
            open_counted(at, row.bytes(2, "payload")?).map(drop)
        }
        Table::FailureGroups => rows::failure_group(row).map(drop),
    }
}

/// Copies the store at `from` into the new file `to`, whether or not a server has it open. The copy is one complete
/// snapshot, synced and checked, and has no log: a copy of a replica is an embedded store. If the backup fails, there is no
/// file at `to`.
///
/// # Errors
/// [`BackupError`].
pub fn backup(from: &Path, to: &Path) -> Result<Backup, BackupError> {
    let snapshot = snapshot_of(from, to)?;
    copy_checked(snapshot, from, to, replica_tables::detach)
}

/// As [`backup`], of a store that no server may have open, for a copy that continues in its place. A copy of a replica is a
/// replica.
///
/// # Errors
/// [`BackupError`], with [`StoreError::InUse`] if a server has the store open.
pub fn backup_stopped(from: &Path, to: &Path) -> Result<Backup, BackupError> {
    let snapshot = snapshot_of(from, to)?;
    if snapshot.is_in_use {
        return Err(BackupError::Store(StoreError::InUse { path: from.to_owned() }));
    }
    copy_checked(snapshot, from, to, |_| Ok(()))
}

fn snapshot_of(from: &Path, to: &Path) -> Result<Snapshot, BackupError> {
    if fs::metadata(from).is_err() {
        return Err(BackupError::NoStore { path: from.to_owned() });
    }
    if fs::symlink_metadata(to).is_ok() {
        return Err(BackupError::Exists { path: to.to_owned() });
    }
    Snapshot::take(from).map_err(BackupError::Store)
}

fn copy_checked(
    snapshot: Snapshot,
    from: &Path,
    to: &Path,
    change: impl FnOnce(&Path) -> Result<(), Failure>,
) -> Result<Backup, BackupError> {
    if let Some(loss) = snapshot.loss {
        return Err(BackupError::Store(loss.into_error(from)));
    }
    let written = |source| BackupError::Write { path: to.to_owned(), source };
    let partial = Partial::begin(to).map_err(written)?;
    let mut checked = CheckReport::default();
    let judge =
        |failure: Failure| BackupError::Store(failure.into_store_error(Phase::Change, partial.path()));
    copy(&snapshot.connection, partial.path(), None)?;
    change(partial.path()).map_err(judge)?;
    let connection = file::open_reader(partial.path()).map_err(judge)?;
    check_connection(&connection, &mut checked).map_err(judge)?;
    drop(connection);
    if let Some(problem) = checked.problems.into_iter().next() {
        return Err(BackupError::Damaged { path: partial.path().to_owned(), problem });
    }
    let bytes = partial.finish(to).map_err(written)?;
    Ok(Backup { bytes, rows: checked.rows })
}

/// Copies one snapshot of the store at `from` into the new file `to`, without a check of its rows. The copy is synced.
///
/// The WAL of `from` grows until the copy ends.
pub(super) fn copy_file(from: &Path, to: &Path, pace: Pace) -> Result<(), StoreError> {
    let unavailable = |source| StoreError::Unavailable { source };
    let judge = |failure: Failure| failure.into_store_error(Phase::Change, from);
    let connection = file::open_reader(from).map_err(judge)?;
    // A transaction takes its snapshot when it reads its first row. Without one, a change would begin the copy again.
    let begun = connection.execute_batch("BEGIN; SELECT count(*) FROM sqlite_schema;");
    begun.map_err(|error| judge(error.into()))?;
    let partial = Partial::begin(to).map_err(|error| unavailable(error.into()))?;
    copy(&connection, partial.path(), Some(pace)).map_err(|error| unavailable(error.into()))?;
    partial.finish(to).map_err(|error| unavailable(error.into()))?;
    Ok(())
}

/// Copies what `source` sees, all at once or with a pace.
fn copy(source: &Connection, to: &Path, mut pace: Option<Pace>) -> Result<(), BackupError> {
    let of_copy = |error: rusqlite::Error| {
        let full = error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull);
        let source = if full { io::ErrorKind::StorageFull.into() } else { io::Error::other(error) };
        BackupError::Write { path: to.to_owned(), source }
    };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut copy = Connection::open_with_flags(to, flags).map_err(of_copy)?;
    let copying = Copying::new(source, &mut copy).map_err(of_copy)?;
    let page: u64 = source.query_row("PRAGMA page_size", [], |row| row.get(0)).map_err(of_copy)?;
    let pages = if pace.is_some() { PAGES_OF_STEP } else { -1 };
    loop {
        match copying.step(pages).map_err(of_copy)? {
            StepResult::Done => break,
            StepResult::More => {
                let bytes = page * u64::from(pages.unsigned_abs());
                std::thread::sleep(
                    pace.as_mut().map_or(Duration::ZERO, |pace| pace.spend(bytes, Instant::now())),
                );
            }
            _ => std::thread::sleep(BUSY_PAUSE),
        }
    }
    drop(copying);
    // The backup is a single file, without a WAL.
    let mode = |row: &Row<'_>| row.get::<_, String>(0);
    copy.query_row("PRAGMA journal_mode = DELETE", [], mode).map_err(of_copy)?;
    Ok(())
}
