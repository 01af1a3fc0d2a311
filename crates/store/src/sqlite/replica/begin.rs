//! Makes the rows of another store the start of a new log.

use std::fs::File;
use std::path::Path;

use rusqlite::{Connection, OpenFlags, params};

use super::position_bytes;
use crate::StoreError;
use crate::command::LogPosition;
use crate::sqlite::error::{Failure, Phase};
use crate::sqlite::{file, replica_tables, schema};

/// Start of a log that continues the rows of another store.
#[derive(Debug, Clone, Copy)]
pub struct LogBegin<'a> {
    /// Position to which the rows belong. The first entry of the log follows it.
    pub at: LogPosition,
    /// Bytes of the membership at this position.
    pub membership: &'a [u8],
    /// Names of secrets that the rows lose: those of the cluster from which they come.
    pub secrets: &'a [&'a str],
}

/// Makes a store the replica at the start of a new log, in place. The file may be an embedded store or the replica of another
/// log, of this or an older version; no other process may use it. Returns its number of shards, when everything is durable.
///
/// The rows stay, but no server owns a shard any more, and none is drained.
///
/// # Errors
/// [`StoreError::TooNew`] if a newer version wrote the file; [`StoreError::Fatal`] if it is damaged or not a Belfry store;
/// [`StoreError::Unavailable`] if it cannot be written.
pub fn begin_log(path: &Path, begin: &LogBegin<'_>) -> Result<u16, StoreError> {
    let shards = convert(path, begin).map_err(|failure| failure.into_store_error(Phase::Change, path))?;
    let synced = File::open(path).and_then(|file| file.sync_all());
    synced.map_err(|error| file::unavailable(path, &error))?;
    Ok(shards)
}

fn convert(path: &Path, begin: &LogBegin<'_>) -> Result<u16, Failure> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.execute_batch("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;")?;
    // One file without a WAL, which can be renamed. It also applies the WAL of the store.
    connection.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get::<_, String>(0))?;
    let found = schema::version(&connection)?;
    if found == 0 {
        return Err(Failure::Broken("it has no tables".to_owned()));
    }
    let shards = connection.query_row("SELECT shards FROM meta", [], |row| row.get(0))?;
    schema::migrate(&connection, found, shards)?;
    let transaction = connection.transaction()?;
    replica_tables::create(&transaction)?;
    let at = position_bytes(begin.at);
    transaction.execute(
        "UPDATE raft_state SET applied = ?1, membership_at = ?1, membership = ?2,
             unreleased = EXISTS (SELECT 1 FROM shards WHERE owner IS NOT NULL)",
        params![at, begin.membership],
    )?;
    transaction.execute_batch(
        "UPDATE shards SET owner = NULL; DELETE FROM refused_commands; DELETE FROM servers_draining;",
    )?;
    for name in begin.secrets {
        transaction.execute("DELETE FROM secrets WHERE name = ?1", [name])?;
    }
    transaction.commit()?;
    Ok(shards)
}
