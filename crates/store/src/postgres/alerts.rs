//! [`Alerts`] for PostgreSQL.

use async_trait::async_trait;
use tokio_postgres::Row;

use super::PostgresStore;
use super::connection::Query;
use super::param::{Param, big, bigs, escape, texts};
use super::rows::Decoded;
use crate::codec::{DecodeError, entry_checksum};
use crate::rows::{self, ALERTS, Table};
use crate::{AlertChange, AlertRow, AlertRows, Alerts, StoreError};

#[async_trait]
impl Alerts for PostgresStore {
    async fn alerts(&self) -> Result<AlertRows, StoreError> {
        let rows = self.ask_all(&[Query::new(ALERTS, Vec::new())], |answers| all(&answers[0])).await?;
        Ok(AlertRows::from_answer(rows))
    }

    async fn change_alerts(
        &self,
        expected: u64,
        next: u64,
        changes: &[AlertChange],
    ) -> Result<bool, StoreError> {
        let answers = self.change(&[change(expected, next, changes)]).await?;
        Ok(answers.first().is_some_and(|rows| !rows.is_empty()))
    }
}

fn all(answer: &[Row]) -> Result<Decoded<(u64, Option<AlertRow>)>, DecodeError> {
    let mut sorted = Decoded::default();
    sorted.take(Table::Alerts, answer, rows::alert_or_version)?;
    Ok(sorted)
}

/// Applies the changes as version `next` if the version is `expected`; returns a row if it did. Another change waits for the
/// row of `meta`, and then finds a newer version.
fn change(expected: u64, next: u64, changes: &[AlertChange]) -> Query {
    let put: Vec<(&AlertChange, &str)> =
        changes.iter().filter_map(|change| Some((change, change.body.as_deref()?))).collect();
    let checksum =
        |(change, body): &(&AlertChange, &str)| i64::from(entry_checksum(&change.kind, &change.key, body));
    let column = |of: fn(&(&AlertChange, &str)) -> String| -> Param { texts(put.iter().map(of).collect()) };
    let deleted = || changes.iter().filter(|change| change.body.is_none());
    let params = vec![
        column(|(change, _)| escape(&change.kind)),
        column(|(change, _)| escape(&change.key)),
        column(|(_, body)| escape(body)),
        bigs(put.iter().map(checksum).collect()),
        texts(deleted().map(|change| escape(&change.kind)).collect()),
        texts(deleted().map(|change| escape(&change.key)).collect()),
        big(expected.cast_signed()),
        big(next.cast_signed()),
    ];
    Query::new(
        "WITH advanced AS (
             UPDATE meta SET alert_version = $8 WHERE alert_version = $7
             RETURNING alert_version
         ), written AS (
             INSERT INTO alerts (kind, key, body, checksum)
             SELECT u.kind, u.key, u.body, u.checksum
             FROM unnest($1, $2, $3, $4) AS u (kind, key, body, checksum), advanced
             ON CONFLICT (kind, key) DO UPDATE SET body = excluded.body, checksum = excluded.checksum
         ), deleted AS (
             DELETE FROM alerts t USING unnest($5, $6) AS u (kind, key), advanced
             WHERE t.kind = u.kind AND t.key = u.key
         )
         SELECT alert_version FROM advanced",
        params,
    )
}
