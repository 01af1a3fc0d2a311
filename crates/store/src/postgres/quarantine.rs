//! Quarantine: rows that cannot be decoded are moved away with their bytes, so that the rest of the store keeps
//! working.
//!
//! A row is moved only by a caller that can be sure that no engine has it in memory. Rows of the history and registered
//! objects are moved by any query that finds them; live rows only by the owner of their shard during a load. A row is
//! deleted only in the same transaction that copies it.

use model::Timestamp;
use tokio_postgres::Row;

use super::connection::{Lane, Mode, Query};
use super::error::Failure;
use super::guard::clock;
use super::param::{self, Param, big, text};
use crate::codec::DecodeError;
use crate::query::Quarantined;
use crate::rows::{Fields, Table};

/// Column of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Key {
    Id(u128),
    Number(i64),
    Text(String),
}

impl Key {
    fn param(&self) -> Param {
        match self {
            Self::Id(bits) => param::id(*bits),
            Self::Number(number) => big(*number),
            Self::Text(of) => text(of),
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Id(bits) => format!("{bits:032x}"),
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

/// Row that could not be decoded.
#[derive(Debug, Clone)]
pub(super) struct DamagedRow {
    pub(super) table: Table,
    pub(super) key: Vec<Key>,
    pub(super) reason: String,
}

impl DamagedRow {
    pub(super) fn new(table: Table, key: Vec<Key>, damage: &DecodeError) -> Self {
        Self { table, key, reason: damage.to_string() }
    }

    fn shown_key(&self) -> String {
        self.key.iter().map(Key::show).collect::<Vec<_>>().join(" ")
    }

    /// Returns the table and the key in readable form.
    pub(super) fn place(&self) -> String {
        format!("`{}` of table `{}`", self.shown_key(), self.table.name())
    }

    /// Returns whether an engine may have the row in memory.
    pub(super) fn is_live(&self) -> bool {
        matches!(
            self.table,
            Table::Jobs
                | Table::Executions
                | Table::Schedules
                | Table::Backfills
                | Table::Keys
                | Table::Workflows
                | Table::WorkflowHeads
                | Table::Services
                | Table::Runs
                | Table::ElementBatches
                | Table::Steps
                | Table::RunKeys
        )
    }

    /// Logs a row that cannot be decoded and is not quarantined.
    pub(super) fn log_damage(&self) {
        let (table, key) = (self.table.name(), self.shown_key());
        tracing::error!(table, key, error = self.reason, "cannot read a row");
    }
}

impl std::fmt::Display for DamagedRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the row `{}` of `{}` cannot be read: {}", self.shown_key(), self.table.name(), self.reason)
    }
}

/// Moves the rows into the quarantine. Rows that no longer exist are skipped.
pub(super) async fn move_to_quarantine(
    lane: &Lane,
    mode: Mode,
    damaged: &[DamagedRow],
) -> Result<(), Failure> {
    for row in damaged {
        row.log_damage();
        lane.run(mode, &moves(row)).await?;
    }
    Ok(())
}

fn moves(row: &DamagedRow) -> Vec<Query> {
    let table = row.table.name();
    let is_row = |from: usize| {
        let is = |(n, column): (usize, &&str)| format!("t.{column} = ${n}");
        (from..).zip(row.table.key()).map(is).collect::<Vec<_>>().join(" AND ")
    };
    let key = || row.key.iter().map(Key::param);
    let (rest, all) = match row.table.companion() {
        Some((rest, shared)) => {
            let same = shared.iter().map(|column| format!("h.{column} = t.{column}"));
            let same = same.collect::<Vec<_>>().join(" AND ");
            (format!(" LEFT JOIN {rest} h ON {same}"), "to_jsonb(t)::TEXT || to_jsonb(h)::TEXT")
        }
        None => (String::new(), "to_jsonb(t)::TEXT"),
    };
    let copied = vec![text(table), text(&row.shown_key()), text(&row.reason)];
    let mut queries = vec![Query::new(
        format!(
            "INSERT INTO quarantine (at, origin, key, reason, columns)
             SELECT {}, $1, $2, $3, coalesce({all}, to_jsonb(t)::TEXT) FROM {table} t{rest} WHERE {}",
            clock!(),
            is_row(4),
        ),
        copied.into_iter().chain(key()).collect(),
    )];
    if matches!(row.table, Table::Jobs | Table::JobsEnded) {
        queries.push(Query::new(
            format!(
                "INSERT INTO job_counts (part, namespace, status, count)
                 SELECT -1, t.namespace, t.status, -1 FROM {table} t WHERE {}
                 ON CONFLICT (part, namespace, status) DO UPDATE SET count = job_counts.count - 1",
                is_row(1),
            ),
            key().collect(),
        ));
    }
    if let Some((rest, shared)) = row.table.companion() {
        let (these, those) = (shared.join(", "), format!("t.{}", shared.join(", t.")));
        let delete = format!(
            "DELETE FROM {rest} WHERE ({these}) IN (SELECT {those} FROM {table} t WHERE {})",
            is_row(1)
        );
        queries.push(Query::new(delete, key().collect()));
    }
    queries.push(Query::new(format!("DELETE FROM {table} AS t WHERE {}", is_row(1)), key().collect()));
    queries
}

/// Selects the quarantined rows, newest first.
pub(super) fn list(limit: usize) -> Query {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    Query::new(
        "SELECT origin, key, reason, at FROM quarantine ORDER BY at DESC, origin, key LIMIT $1",
        vec![big(limit)],
    )
}

/// Decodes a row of [`list`].
pub(super) fn quarantined(row: &Row) -> Result<Quarantined, DecodeError> {
    Ok(Quarantined {
        table: row.text(0, "origin")?.into_owned(),
        key: row.text(1, "key")?.into_owned(),
        reason: row.text(2, "reason")?.into_owned(),
        at: Timestamp::from_micros(row.number(3, "at")?),
    })
}
