//! [`Audit`] for PostgreSQL.

use async_trait::async_trait;
use model::Timestamp;
use tokio_postgres::Row;

use super::PostgresStore;
use super::connection::Query;
use super::param::{Param, big, bigs, blobs, bytes, escape, optional_texts, texts};
use super::rows::Decoded;
use crate::audit::{AuditChain, AuditFilter, AuditLink, AuditRow};
use crate::codec::DecodeError;
use crate::lists;
use crate::query::{Page, Paged};
use crate::rows::{self, AUDIT_CHAIN_COLUMNS, AUDIT_COLUMNS, Table};
use crate::{Audit, StoreError};

#[async_trait]
impl Audit for PostgresStore {
    async fn audit_chain(&self) -> Result<AuditChain, StoreError> {
        let query = Query::new(format!("SELECT {AUDIT_CHAIN_COLUMNS} FROM audit_chain t"), Vec::new());
        self.ask(&[query], |answers| answers[0].first().map_or(Ok(AuditChain::default()), rows::audit_chain))
            .await
    }

    async fn append_audit(&self, expected: &AuditLink, rows: &[AuditRow]) -> Result<bool, StoreError> {
        let Some(last) = rows.last() else { return Ok(false) };
        let answers = self.change(&[append(expected, &last.link, rows)]).await?;
        Ok(answers.first().is_some_and(|rows| !rows.is_empty()))
    }

    async fn audit_after(&self, after: u64, limit: usize) -> Result<Vec<AuditRow>, StoreError> {
        let sql =
            format!("SELECT {AUDIT_COLUMNS} FROM audit t WHERE t.sequence > $1 ORDER BY t.sequence LIMIT $2");
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let query = Query::new(sql, vec![big(after.cast_signed()), big(limit)]);
        self.ask_all(&[query], |answers| decoded(&answers[0])).await
    }

    async fn audit(&self, filter: &AuditFilter, page: Page<u64>) -> Result<Paged<AuditRow>, StoreError> {
        self.ask_page(lists::audit(filter, page), rows::audit, |row| row.link.sequence).await
    }

    async fn trim_audit(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        self.deleted(&[trim(before, limit)]).await
    }
}

fn decoded(answer: &[Row]) -> Result<Decoded<AuditRow>, DecodeError> {
    let mut sorted = Decoded::default();
    sorted.take(Table::Audit, answer, rows::audit)?;
    Ok(sorted)
}

/// Appends rows if the last link is the expected one; returns a row if they were appended. Another server waits for the
/// row of `audit_chain`, and then finds a newer link.
fn append(expected: &AuditLink, last: &AuditLink, rows: &[AuditRow]) -> Query {
    let numbers = |of: fn(&AuditRow) -> i64| bigs(rows.iter().map(of).collect());
    let words = |of: fn(&AuditRow) -> &str| texts(rows.iter().map(|row| escape(of(row))).collect());
    let optional = |of: fn(&AuditRow) -> Option<&str>| {
        optional_texts(rows.iter().map(|row| of(row).map(escape)).collect())
    };
    let params: Vec<Param> = vec![
        numbers(|row| row.link.sequence.cast_signed()),
        numbers(|row| row.at.as_micros()),
        optional(|row| row.namespace.as_deref()),
        words(|row| &row.actor),
        words(|row| &row.action),
        words(|row| &row.verb),
        words(|row| &row.resource),
        optional(|row| row.object.as_deref()),
        words(|row| &row.outcome),
        words(|row| &row.body),
        blobs(rows.iter().map(|row| row.link.hash.to_vec()).collect()),
        big(expected.sequence.cast_signed()),
        bytes(expected.hash.to_vec()),
        big(last.sequence.cast_signed()),
        bytes(last.hash.to_vec()),
        bytes(vec![0; 32]),
    ];
    Query::new(
        "WITH advanced AS (
             INSERT INTO audit_chain (id, last_sequence, last_hash, cut_sequence, cut_hash)
             SELECT 0, $14, $15, 0, $16 WHERE $12 = 0 OR EXISTS (SELECT 1 FROM audit_chain)
             ON CONFLICT (id) DO UPDATE
             SET last_sequence = excluded.last_sequence, last_hash = excluded.last_hash
             WHERE audit_chain.last_sequence = $12 AND audit_chain.last_hash = $13
             RETURNING last_sequence
         ), written AS (
             INSERT INTO audit (sequence, at, namespace, actor, action, verb, resource, object, outcome, body, hash)
             SELECT u.* FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
                 AS u (sequence, at, namespace, actor, action, verb, resource, object, outcome, body, hash), advanced
         )
         SELECT last_sequence FROM advanced",
        params,
    )
}

/// Deletes the oldest rows up to the first one that is new enough, and notes the last deleted one.
fn trim(before: Timestamp, limit: usize) -> Query {
    Query::new(
        "WITH oldest AS (
             SELECT sequence, at, hash FROM audit ORDER BY sequence LIMIT $2
         ), cut AS (
             SELECT sequence, hash FROM oldest
             WHERE sequence < coalesce((SELECT min(sequence) FROM oldest WHERE at >= $1), 9223372036854775807)
             ORDER BY sequence DESC LIMIT 1
         ), noted AS (
             UPDATE audit_chain c SET cut_sequence = cut.sequence, cut_hash = cut.hash
             FROM cut WHERE c.cut_sequence < cut.sequence
         ), deleted AS (
             DELETE FROM audit WHERE sequence <= (SELECT sequence FROM cut) RETURNING 1
         )
         SELECT count(*) FROM deleted",
        vec![big(before.as_micros()), big(i64::try_from(limit).unwrap_or(i64::MAX))],
    )
}
