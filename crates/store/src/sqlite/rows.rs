//! Reading of SQLite rows, and handling of rows that cannot be decoded.

use std::borrow::Cow;

use rusqlite::Row;
use rusqlite::types::{Value, ValueRef};

use super::quarantine::Damaged;
use crate::codec::Damage;
use crate::rows::{Fields, Table};

/// Returns the error for a column with the wrong type or size.
pub(super) fn misfit(column: &'static str) -> impl Fn(rusqlite::types::FromSqlError) -> Damage {
    move |error| Damage::decode(column, error)
}

fn value<'r>(row: &'r Row<'_>, index: usize, column: &'static str) -> Result<ValueRef<'r>, Damage> {
    row.get_ref(index).map_err(|error| Damage::decode(column, error))
}

fn id_bits(column: &'static str, bytes: &[u8]) -> Result<u128, Damage> {
    let bits = bytes.try_into().map_err(|_| Damage::Short { column, len: bytes.len() })?;
    Ok(u128::from_be_bytes(bits))
}

impl Fields for Row<'_> {
    fn bytes(&self, index: usize, column: &'static str) -> Result<&[u8], Damage> {
        value(self, index, column)?.as_blob().map_err(misfit(column))
    }

    fn text(&self, index: usize, column: &'static str) -> Result<Cow<'_, str>, Damage> {
        value(self, index, column)?.as_str().map(Cow::Borrowed).map_err(misfit(column))
    }

    #[cfg(feature = "postgres")]
    fn optional_text(&self, index: usize, column: &'static str) -> Result<Option<Cow<'_, str>>, Damage> {
        let found = value(self, index, column)?.as_str_or_null().map_err(misfit(column))?;
        Ok(found.map(Cow::Borrowed))
    }

    fn optional_integer(&self, index: usize, column: &'static str) -> Result<Option<i64>, Damage> {
        value(self, index, column)?.as_i64_or_null().map_err(misfit(column))
    }

    fn optional_bits(&self, index: usize, column: &'static str) -> Result<Option<u128>, Damage> {
        match value(self, index, column)? {
            ValueRef::Null => Ok(None),
            value => id_bits(column, value.as_blob().map_err(misfit(column))?).map(Some),
        }
    }

    /// Empty if the entry belongs to no backfill.
    fn backfill_key(&self, index: usize, column: &'static str) -> Result<Option<u128>, Damage> {
        match self.bytes(index, column)? {
            [] => Ok(None),
            bytes => id_bits(column, bytes).map(Some),
        }
    }
}

/// Returns the key of a row, whose first columns are the key.
pub(super) fn key_of(table: Table, row: &Row<'_>) -> rusqlite::Result<Vec<Value>> {
    (0..table.key().len()).map(|index| row.get(index)).collect()
}

/// Rows that can be decoded, and rows that cannot.
#[derive(Debug)]
pub(super) struct Sorted<T> {
    pub(super) good: Vec<T>,
    pub(super) damaged: Vec<Damaged>,
}

impl<T> Default for Sorted<T> {
    fn default() -> Self {
        Self { good: Vec::new(), damaged: Vec::new() }
    }
}

impl<T> Sorted<T> {
    /// Adds a row, with the key in its first columns.
    pub(super) fn push(
        &mut self,
        table: Table,
        row: &Row<'_>,
        decoded: Result<T, Damage>,
    ) -> rusqlite::Result<()> {
        match decoded {
            Ok(item) => self.good.push(item),
            Err(damage) => {
                self.damaged.push(Damaged::new(table, key_of(table, row)?, &damage));
            }
        }
        Ok(())
    }
}
