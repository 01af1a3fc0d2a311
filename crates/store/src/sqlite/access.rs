//! [`Access`] for SQLite.

use async_trait::async_trait;
use rusqlite::{Connection, params};

use super::SqliteStore;
use super::error::Failure;
use super::rows::Decoded;
use super::statements::Statements;
use crate::codec::entry_checksum;
use crate::command::Update;
use crate::rows::{self, ACCESS_CHANGES, Table};
use crate::{Access, AccessRow, AccessRows, StoreError};

#[async_trait]
impl Access for SqliteStore {
    async fn access(&self, since: u64) -> Result<AccessRows, StoreError> {
        let changes = self.ask_all(move |connection| changes(connection, since)).await?;
        Ok(AccessRows::from_changes(changes))
    }

    async fn change_access(&self, expected: u64, next: u64, rows: &[AccessRow]) -> Result<bool, StoreError> {
        let change = Update::ChangeAccess { expected, next, rows: rows.to_vec() };
        Ok(self.writer.changed(change).await? > 0)
    }

    async fn delete_access(&self, rows: &[AccessRow]) -> Result<(), StoreError> {
        self.writer.done(Update::DeleteAccess(rows.to_vec())).await
    }
}

fn changes(connection: &Connection, since: u64) -> Result<Decoded<(u64, Option<AccessRow>)>, Failure> {
    let mut statement = connection.prepare_cached(ACCESS_CHANGES)?;
    let mut found = statement.query([since])?;
    let mut sorted = Decoded::default();
    while let Some(row) = found.next()? {
        sorted.push(Table::Access, row, rows::access_change(row))?;
    }
    Ok(sorted)
}

/// Writes rows as version `next` if the version is `expected`. Returns how often the version advanced: 0 or 1.
pub(super) fn change(
    statements: &mut Statements<'_>,
    expected: u64,
    next: u64,
    rows: &[AccessRow],
) -> Result<u64, Failure> {
    if statements.access_advance.execute([expected, next])? == 0 {
        return Ok(0);
    }
    for AccessRow { kind, key, body } in rows {
        let checksum = entry_checksum(kind, key, body);
        statements.access_put.execute(params![kind, key, next, body, checksum])?;
    }
    Ok(1)
}

/// Deletes rows that have not changed.
pub(super) fn delete(statements: &mut Statements<'_>, rows: &[AccessRow]) -> Result<(), Failure> {
    for AccessRow { kind, key, body } in rows {
        statements.access_delete.execute([kind, key, body])?;
    }
    Ok(())
}
