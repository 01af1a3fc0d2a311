//! [`Alerts`] for SQLite.

use async_trait::async_trait;
use rusqlite::{Connection, params};

use super::SqliteStore;
use super::error::Failure;
use super::rows::Decoded;
use super::statements::Statements;
use crate::codec::entry_checksum;
use crate::command::Update;
use crate::rows::{self, ALERTS, Table};
use crate::{AlertChange, AlertRow, AlertRows, Alerts, StoreError};

#[async_trait]
impl Alerts for SqliteStore {
    async fn alerts(&self) -> Result<AlertRows, StoreError> {
        self.ask_all(all).await.map(AlertRows::from_answer)
    }

    async fn change_alerts(
        &self,
        expected: u64,
        next: u64,
        changes: &[AlertChange],
    ) -> Result<bool, StoreError> {
        let change = Update::ChangeAlerts { expected, next, changes: changes.to_vec() };
        Ok(self.writer.changed(change).await? > 0)
    }
}

fn all(connection: &Connection) -> Result<Decoded<(u64, Option<AlertRow>)>, Failure> {
    let mut statement = connection.prepare_cached(ALERTS)?;
    let mut found = statement.query([])?;
    let mut sorted = Decoded::default();
    while let Some(row) = found.next()? {
        sorted.push(Table::Alerts, row, rows::alert_or_version(row))?;
    }
    Ok(sorted)
}

/// Applies the changes as version `next` if the version is `expected`. Returns how often the version advanced: 0 or 1.
pub(super) fn change(
    statements: &mut Statements<'_>,
    expected: u64,
    next: u64,
    changes: &[AlertChange],
) -> Result<u64, Failure> {
    if statements.alerts_advance.execute([expected, next])? == 0 {
        return Ok(0);
    }
    for AlertChange { kind, key, body } in changes {
        match body {
            Some(body) => {
                statements.alert_put.execute(params![kind, key, body, entry_checksum(kind, key, body)])?;
            }
            None => {
                statements.alert_delete.execute([kind, key])?;
            }
        }
    }
    Ok(1)
}
