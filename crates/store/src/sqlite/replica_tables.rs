//! The tables that only a replica has.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::error::Failure;

/// Creates the tables if they are missing.
pub(super) fn create(connection: &Connection) -> Result<(), Failure> {
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS raft_state (
             id INTEGER PRIMARY KEY CHECK (id = 0),
             applied BLOB,
             membership_at BLOB,
             membership BLOB NOT NULL,
             unreleased INTEGER NOT NULL
         ) STRICT;
         INSERT OR IGNORE INTO raft_state VALUES (0, NULL, NULL, x'', 0);
         CREATE TABLE IF NOT EXISTS refused_commands (
             log_index INTEGER NOT NULL,
             number INTEGER NOT NULL,
             reason TEXT NOT NULL,
             entry BLOB NOT NULL,
             PRIMARY KEY (log_index, number)
         ) STRICT, WITHOUT ROWID;
         CREATE TABLE IF NOT EXISTS servers_draining (server BLOB PRIMARY KEY) STRICT, WITHOUT ROWID;",
    )?;
    Ok(())
}

/// Returns whether a store is a replica.
pub(super) fn exist(connection: &Connection) -> rusqlite::Result<bool> {
    let found = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'raft_state'";
    Ok(connection.query_row(found, [], |_| Ok(())).optional()?.is_some())
}

/// Makes the copy of a replica a store without a log. Does nothing for other stores.
pub(super) fn detach(path: &Path) -> Result<(), Failure> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    if exist(&connection)? {
        connection.execute_batch(
            "BEGIN;
             DROP TABLE raft_state; DROP TABLE refused_commands; DROP TABLE servers_draining;
             UPDATE shards SET owner = NULL;
             COMMIT;",
        )?;
    }
    Ok(())
}
