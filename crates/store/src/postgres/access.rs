//! [`Access`] for PostgreSQL.

use async_trait::async_trait;
use tokio_postgres::Row;

use super::PostgresStore;
use super::connection::Query;
use super::param::{big, bigs, escape, texts};
use super::rows::Decoded;
use crate::codec::{DecodeError, entry_checksum};
use crate::rows::{self, ACCESS_CHANGES, Table};
use crate::{Access, AccessRow, AccessRows, StoreError};

#[async_trait]
impl Access for PostgresStore {
    async fn access(&self, since: u64) -> Result<AccessRows, StoreError> {
        let query = Query::new(ACCESS_CHANGES, vec![big(since.cast_signed())]);
        let changes = self.ask_all(&[query], |answers| changes(&answers[0])).await?;
        Ok(AccessRows::from_changes(changes))
    }

    async fn change_access(&self, expected: u64, next: u64, rows: &[AccessRow]) -> Result<bool, StoreError> {
        let answers = self.change(&[change(expected, next, rows)]).await?;
        Ok(answers.first().is_some_and(|rows| !rows.is_empty()))
    }

    async fn delete_access(&self, rows: &[AccessRow]) -> Result<(), StoreError> {
        self.change(&[delete(rows)]).await.map(drop)
    }
}

fn changes(answer: &[Row]) -> Result<Decoded<(u64, Option<AccessRow>)>, DecodeError> {
    let mut sorted = Decoded::default();
    sorted.take(Table::Access, answer, rows::access_change)?;
    Ok(sorted)
}

/// Writes rows as version `next` if the version is `expected`; returns a row if it was. Another change waits for the row of `meta`, and
/// then finds a newer version.
fn change(expected: u64, next: u64, rows: &[AccessRow]) -> Query {
    let checksum = |row: &AccessRow| i64::from(entry_checksum(&row.kind, &row.key, &row.body));
    let mut params = columns(rows);
    params.push(bigs(rows.iter().map(checksum).collect()));
    params.extend([big(expected.cast_signed()), big(next.cast_signed())]);
    Query::new(
        "WITH advanced AS (
             UPDATE meta SET access_version = $6 WHERE access_version = $5
             RETURNING access_version
         ), written AS (
             INSERT INTO access (kind, key, version, body, checksum)
             SELECT u.kind, u.key, advanced.access_version, u.body, u.checksum
             FROM unnest($1, $2, $3, $4) AS u (kind, key, body, checksum), advanced
             ON CONFLICT (kind, key) DO UPDATE
             SET version = excluded.version, body = excluded.body, checksum = excluded.checksum
         )
         SELECT access_version FROM advanced",
        params,
    )
}

/// Deletes rows that have not changed.
fn delete(rows: &[AccessRow]) -> Query {
    Query::new(
        "DELETE FROM access t USING unnest($1, $2, $3) AS u (kind, key, body)
         WHERE t.kind = u.kind AND t.key = u.key AND t.body = u.body",
        columns(rows),
    )
}

fn columns(rows: &[AccessRow]) -> Vec<super::param::Param> {
    let column = |of: fn(&AccessRow) -> &str| texts(rows.iter().map(|row| escape(of(row))).collect());
    vec![column(|row| &row.kind), column(|row| &row.key), column(|row| &row.body)]
}
