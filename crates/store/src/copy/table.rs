//! The copied tables, and the conversion of each column from one store to the other.
//!
//! Both stores have the same tables with the same names, so each table is listed once. "Source" and "target" are those
//! of a copy into a database; a copy out of a database uses the same columns in the other direction. A [`Cell`] is a
//! value in the format of the database. So the rows of the copy can be compared with the converted rows of the source.

use std::borrow::Cow;

use model::JobId;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::codec::{DecodeError, open_events, seal_events};
use crate::rows::Fields;
use crate::sqlite::{cells_of_readable, readable_cells};

/// Value during a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Cell {
    Absent,
    Number(i64),
    Id(u128),
    Text(String),
    Bytes(Vec<u8>),
}

impl Cell {
    /// Returns the approximate size in bytes.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Absent | Self::Number(_) | Self::Id(_) => 16,
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    /// Adds the value to a hash, so that different rows never produce the same input.
    pub(super) fn hash_into(&self, hash: &mut Sha256) {
        let (tag, bytes): (u8, Cow<'_, [u8]>) = match self {
            Self::Absent => (0, Cow::Borrowed(&[])),
            Self::Number(number) => (1, Cow::Owned(number.to_be_bytes().to_vec())),
            Self::Id(bits) => (2, Cow::Owned(bits.to_be_bytes().to_vec())),
            Self::Text(text) => (3, Cow::Borrowed(text.as_bytes())),
            Self::Bytes(bytes) => (4, Cow::Borrowed(bytes)),
        };
        hash.update([tag]);
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(&bytes);
    }
}

/// Type of a column; distinguishes types whose format differs between the stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Id,
    /// Part of a key: the backfill, or empty in the source and zero in the target if there is none.
    Backfill,
    Small,
    Big,
    /// Integer in the source, boolean in the target.
    Flag,
    Text,
    Bytes,
    /// Only in the target: the shard of the ID in the source's column.
    Shard,
    /// Events; the checksum covers their position in the source and their time in the target.
    Events,
    /// Quarantined rows: encoded in the source, JSON in the target.
    QuarantinedColumns,
}

/// Column of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Expression for the column in the source.
    pub(crate) origin: &'static str,
}

/// Table; the columns of its key come first, and both stores read it in their order.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) key: usize,
    pub(crate) columns: &'static [Column],
    /// Columns of the target that are equal in all rows, with their values.
    pub(crate) fixed: &'static [(&'static str, &'static str)],
}

const fn column(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, origin: name }
}

const fn id(name: &'static str) -> Column {
    column(name, Kind::Id)
}

const fn small(name: &'static str) -> Column {
    column(name, Kind::Small)
}

const fn big(name: &'static str) -> Column {
    column(name, Kind::Big)
}

const fn text(name: &'static str) -> Column {
    column(name, Kind::Text)
}

const fn bytes(name: &'static str) -> Column {
    column(name, Kind::Bytes)
}

const fn shard_of(origin: &'static str) -> Column {
    Column { name: "shard", kind: Kind::Shard, origin }
}

const fn table(name: &'static str, key: usize, columns: &'static [Column]) -> Table {
    Table { name, key, columns, fixed: &[] }
}

/// All copied tables, in this order. The shards come last, because no server can own a shard before.
pub(crate) static TABLES: [Table; 45] = [
    table(
        "meta",
        1,
        &[
            small("id"),
            small("shards"),
            big("next_event"),
            big("checked_at"),
            big("access_version"),
            big("alert_version"),
        ],
    ),
    table("jobs", 1, JOBS),
    // Ended rows belong to no shard.
    table("jobs_ended", 1, JOBS.split_at(JOBS.len() - 1).0),
    table("labels", 3, &[text("key"), text("value"), id("job")]),
    table("executions", 1, EXECUTIONS),
    table("executions_ended", 1, EXECUTIONS.split_at(EXECUTIONS.len() - 1).0),
    table("keys", 1, &[id("key"), id("body"), id("job"), big("expires_at"), shard_of("job")]),
    // The part of the retention belongs to no shard either; only the sum of the parts is meaningful.
    Table {
        fixed: &[("part", "-1")],
        ..table("job_counts", 2, &[text("namespace"), small("status"), big("count")])
    },
    table("checkpoints", 1, CHECKPOINTS),
    table("workers", 1, &[id("id"), bytes("record")]),
    table("queues", 1, &[text("name"), bytes("record")]),
    table("namespaces", 1, &[text("name"), bytes("record")]),
    table("events", 1, &[big("first"), big("count"), big("at"), column("payload", Kind::Events)]),
    table("access", 2, &[text("kind"), text("key"), big("version"), text("body"), big("checksum")]),
    table("alerts", 2, &[text("kind"), text("key"), text("body"), big("checksum")]),
    table("audit", 1, AUDIT),
    table(
        "audit_chain",
        1,
        &[small("id"), big("last_sequence"), bytes("last_hash"), big("cut_sequence"), bytes("cut_hash")],
    ),
    table("artifacts", 3, ARTIFACTS),
    table("schedules", 1, SCHEDULES),
    table("schedule_heads", 1, &[id("id"), bytes("head")]),
    table("schedule_labels", 3, &[text("key"), text("value"), id("schedule")]),
    table("ledger", 5, LEDGER),
    table("backfills", 1, BACKFILLS),
    table("backfill_heads", 1, &[id("id"), bytes("head")]),
    table("calendars", 2, &[text("namespace"), text("name"), bytes("record")]),
    table("workflows", 1, WORKFLOWS),
    table("workflow_heads", 2, &[id("id"), big("generation"), bytes("head")]),
    table("workflow_labels", 3, &[text("key"), text("value"), id("workflow")]),
    table("services", 1, SERVICES),
    table("service_heads", 1, &[id("id"), bytes("head")]),
    table("service_labels", 3, &[text("key"), text("value"), id("service")]),
    table("runs", 1, RUNS),
    table("run_heads", 1, &[id("id"), id("definition"), bytes("head")]),
    table("run_definitions", 1, &[id("hash"), bytes("body")]),
    table("steps", 3, STEPS),
    table("element_batches", 3, &[id("run"), big("step"), big("first"), bytes("batch")]),
    table("artifact_pins", 3, &[id("run"), text("name"), text("sha256")]),
    table("runs_deleted", 1, &[id("run"), id("definition")]),
    table("run_keys", 1, &[id("key"), id("body"), id("run"), big("expires_at"), shard_of("run")]),
    table("statistics_pending", 1, &[id("id"), big("at"), bytes("payload")]),
    table("statistics", 5, STATISTICS),
    table("failure_groups", 2, FAILURE_GROUPS),
    table("secrets", 1, &[text("name"), bytes("secret")]),
    table("quarantine", 3, QUARANTINE),
    Table { fixed: &[("expires_at", "0")], ..table("shards", 1, SHARDS) },
];

const AUDIT: &[Column] = &[
    big("sequence"),
    big("at"),
    text("namespace"),
    text("actor"),
    text("action"),
    text("verb"),
    text("resource"),
    text("object"),
    text("outcome"),
    text("body"),
    bytes("hash"),
];

const STATISTICS: &[Column] =
    &[small("resolution"), small("kind"), big("chunk"), text("namespace"), text("name"), bytes("points")];

const FAILURE_GROUPS: &[Column] =
    &[text("namespace"), big("id"), big("last_at"), bytes("record"), bytes("mark")];

const JOBS: &[Column] = &[
    id("id"),
    small("status"),
    id("worker"),
    big("expires_at"),
    text("namespace"),
    text("owner"),
    text("queue"),
    text("name"),
    bytes("state"),
    bytes("history"),
    bytes("head"),
    id("schedule"),
    id("backfill"),
    id("run"),
    id("service"),
    shard_of("id"),
];

const EXECUTIONS: &[Column] = &[
    id("id"),
    id("job"),
    big("number"),
    big("fence"),
    id("worker"),
    small("status"),
    text("namespace"),
    text("job_name"),
    bytes("rest"),
    shard_of("job"),
];

const CHECKPOINTS: &[Column] =
    &[id("job"), big("version"), text("content_type"), big("saved_at"), bytes("data")];

const ARTIFACTS: &[Column] = &[
    text("namespace"),
    text("name"),
    big("created_at"),
    text("sha256"),
    big("size_bytes"),
    text("created_by"),
];

const SCHEDULES: &[Column] = &[
    id("id"),
    small("status"),
    big("next_at"),
    text("namespace"),
    text("name"),
    text("owner"),
    bytes("state"),
    shard_of("id"),
];

const LEDGER: &[Column] = &[
    big("first"),
    id("schedule"),
    big("generation"),
    small("cause"),
    column("backfill", Kind::Backfill),
    big("last"),
    big("count"),
    small("outcome"),
    id("job"),
    big("decided_at"),
    text("namespace"),
    bytes("rest"),
];

const BACKFILLS: &[Column] = &[
    id("id"),
    id("schedule"),
    small("status"),
    big("finished_at"),
    text("namespace"),
    bytes("state"),
    shard_of("id"),
];

const WORKFLOWS: &[Column] = &[
    id("id"),
    big("generation"),
    text("namespace"),
    text("name"),
    text("owner"),
    bytes("state"),
    shard_of("id"),
];

const SERVICES: &[Column] =
    &[id("id"), text("namespace"), text("name"), text("owner"), bytes("state"), shard_of("id")];

const RUNS: &[Column] = &[
    id("id"),
    small("status"),
    id("workflow"),
    id("caller"),
    id("schedule"),
    id("backfill"),
    text("namespace"),
    text("name"),
    big("expires_at"),
    bytes("state"),
    shard_of("id"),
];

const STEPS: &[Column] =
    &[id("run"), big("list"), big("number"), small("status"), bytes("state"), shard_of("run")];

const QUARANTINE: &[Column] =
    &[big("at"), text("origin"), text("key"), text("reason"), column("columns", Kind::QuarantinedColumns)];

/// Fences are derived from epochs, so the epochs are copied. Engine time is stored once in the source, and for each
/// shard in the target.
const SHARDS: &[Column] = &[
    small("shard"),
    big("epoch"),
    Column { name: "now", kind: Kind::Big, origin: "(SELECT m.now FROM meta m)" },
    column("tail_lost", Kind::Flag),
];

impl Table {
    /// Returns the table of this name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        TABLES.iter().find(|table| table.name == name)
    }

    /// Returns the names of the key columns, separated by commas.
    pub(crate) fn key_columns(&self) -> String {
        self.columns[..self.key].iter().map(|column| column.name).collect::<Vec<_>>().join(", ")
    }

    /// Converts a row of the source into the format of the target.
    pub(crate) fn row_of_source(&self, row: &impl Fields) -> Result<Vec<Cell>, DecodeError> {
        let cell = |(index, column): (usize, &Column)| match column.kind {
            Kind::Backfill => Ok(Cell::Id(row.backfill_key(index, column.name)?.unwrap_or(0))),
            Kind::Shard => {
                let id = JobId::from_bits(row.bits(index, column.origin)?);
                Ok(Cell::Number(id.shard().0.into()))
            }
            Kind::Events => {
                let (first, at): (i64, i64) = (row.number(0, "first")?, row.number(2, "at")?);
                Ok(Cell::Bytes(reseal(first, at, row.bytes(index, column.name)?)))
            }
            Kind::QuarantinedColumns => Ok(Cell::Text(readable_cells(row.bytes(index, column.name)?))),
            _ => kept(row, index, column),
        };
        self.columns.iter().enumerate().map(cell).collect()
    }

    /// Converts a row of the database into the format of the embedded store.
    pub(crate) fn row_from_target(&self, mut row: Vec<Cell>) -> Vec<Cell> {
        for index in 0..self.columns.len() {
            let made = match (self.columns[index].kind, &row[index]) {
                (Kind::Events, Cell::Bytes(sealed)) => {
                    let (first, at) = (number(&row[0]), number(&row[2]));
                    Cell::Bytes(reseal(at, first, sealed))
                }
                (Kind::QuarantinedColumns, Cell::Text(text)) => Cell::Bytes(cells_of_readable(text)),
                _ => continue,
            };
            row[index] = made;
        }
        row
    }

    /// Returns a row of the database after [`Self::row_from_target`] and [`Self::row_of_source`]: the same
    /// content, in a normalized encoding.
    pub(crate) fn normalized(&self, mut row: Vec<Cell>) -> Vec<Cell> {
        for index in 0..self.columns.len() {
            let made = match (self.columns[index].kind, &row[index]) {
                (Kind::Events, Cell::Bytes(sealed)) => {
                    let at = number(&row[2]);
                    Cell::Bytes(reseal(at, at, sealed))
                }
                (Kind::QuarantinedColumns, Cell::Text(text)) => {
                    Cell::Text(readable_cells(&cells_of_readable(text)))
                }
                _ => continue,
            };
            row[index] = made;
        }
        row
    }

    /// Decodes a row of the target.
    pub(crate) fn row_of_target(&self, row: &impl Fields) -> Result<Vec<Cell>, DecodeError> {
        self.columns.iter().enumerate().map(|(index, column)| kept(row, index, column)).collect()
    }
}

/// Decodes a column in the format of the target.
fn kept(row: &impl Fields, index: usize, column: &Column) -> Result<Cell, DecodeError> {
    let name = column.name;
    let cell = match column.kind {
        Kind::Id | Kind::Backfill => row.optional_bits(index, name)?.map(Cell::Id),
        Kind::Small | Kind::Big | Kind::Flag | Kind::Shard => {
            row.optional_integer(index, name)?.map(Cell::Number)
        }
        Kind::Text | Kind::QuarantinedColumns => {
            row.optional_text(index, name)?.map(|text| Cell::Text(text.into_owned()))
        }
        Kind::Bytes | Kind::Events => {
            row.optional_bytes(index, name)?.map(|bytes| Cell::Bytes(bytes.to_vec()))
        }
    };
    Ok(cell.unwrap_or(Cell::Absent))
}

/// Replaces the checksum of events for `from` by one for `to`. Events that cannot be decoded are copied unchanged: the
/// server that reads them from the copy quarantines them, as it would have done with the source.
fn reseal(from: i64, to: i64, sealed: &[u8]) -> Vec<u8> {
    match open_events(from.cast_unsigned(), sealed) {
        Ok(events) => seal_events(to.cast_unsigned(), &events),
        Err(_) => sealed.to_vec(),
    }
}

fn number(cell: &Cell) -> i64 {
    match cell {
        Cell::Number(number) => *number,
        _ => 0,
    }
}
