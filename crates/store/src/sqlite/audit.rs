//! [`Audit`] for SQLite.

use async_trait::async_trait;
use model::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::error::Failure;
use super::rows::Decoded;
use super::statements::Statements;
use super::{SqliteStore, lists};
use crate::audit::{AuditChain, AuditFilter, AuditLink, AuditRow};
use crate::command::Update;
use crate::query::{Page, Paged};
use crate::rows::{self, AUDIT_CHAIN_COLUMNS, AUDIT_COLUMNS, Table};
use crate::{Audit, StoreError};

/// Maximum number of rows that one transaction deletes.
pub(super) const TRIM_ROWS: usize = 1_000;

#[async_trait]
impl Audit for SqliteStore {
    async fn audit_chain(&self) -> Result<AuditChain, StoreError> {
        self.readers.read(chain).await
    }

    async fn append_audit(&self, expected: &AuditLink, rows: &[AuditRow]) -> Result<bool, StoreError> {
        let append = Update::AppendAudit { expected: *expected, rows: rows.to_vec() };
        Ok(self.writer.changed(append).await? > 0)
    }

    async fn audit_after(&self, after: u64, limit: usize) -> Result<Vec<AuditRow>, StoreError> {
        self.ask_all(move |connection| rows_after(connection, after, limit)).await
    }

    async fn audit(&self, filter: &AuditFilter, page: Page<u64>) -> Result<Paged<AuditRow>, StoreError> {
        let filter = filter.clone();
        self.ask_page(move |connection| lists::audit(connection, &filter, page)).await
    }

    async fn trim_audit(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        self.writer.changed(Update::TrimAudit { before, limit: limit.min(TRIM_ROWS) }).await
    }
}

fn chain(connection: &Connection) -> Result<AuditChain, Failure> {
    let sql = format!("SELECT {AUDIT_CHAIN_COLUMNS} FROM audit_chain t");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut found = statement.query([])?;
    match found.next()? {
        Some(row) => Ok(rows::audit_chain(row)?),
        None => Ok(AuditChain::default()),
    }
}

fn rows_after(connection: &Connection, after: u64, limit: usize) -> Result<Decoded<AuditRow>, Failure> {
    let sql =
        format!("SELECT {AUDIT_COLUMNS} FROM audit t WHERE t.sequence > ?1 ORDER BY t.sequence LIMIT ?2");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut found = statement.query(params![after, i64::try_from(limit).unwrap_or(i64::MAX)])?;
    let mut sorted = Decoded::default();
    while let Some(row) = found.next()? {
        sorted.push(Table::Audit, row, rows::audit(row))?;
    }
    Ok(sorted)
}

/// Appends rows if the last link is the expected one. Returns their number, or 0.
pub(super) fn append(
    statements: &mut Statements<'_>,
    expected: &AuditLink,
    rows: &[AuditRow],
) -> Result<u64, Failure> {
    let Some(last) = rows.last().map(|row| row.link) else { return Ok(0) };
    let advance = params![expected.sequence, expected.hash, last.sequence, last.hash];
    if statements.audit_advance.execute(advance)? == 0 {
        return Ok(0);
    }
    for row in rows {
        statements.audit_insert.execute(params![
            row.link.sequence,
            row.at.as_micros(),
            row.namespace,
            row.actor,
            row.action,
            row.verb,
            row.resource,
            row.object,
            row.outcome,
            row.body,
            row.link.hash,
        ])?;
    }
    Ok(rows.len() as u64)
}

/// Deletes the oldest rows up to the first one that is new enough, and notes the last deleted one.
pub(super) fn trim(statements: &mut Statements<'_>, before: Timestamp, limit: usize) -> Result<u64, Failure> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let cut: Option<i64> = statements
        .audit_cut
        .query_row(params![before.as_micros(), limit], |row| row.get(0))
        .optional()?
        .flatten();
    let Some(cut) = cut else { return Ok(0) };
    statements.audit_note_cut.execute([cut])?;
    Ok(statements.audit_delete.execute([cut])? as u64)
}
