//! Reading of SQLite rows, and handling of rows that cannot be decoded.

use std::borrow::Cow;

use rusqlite::Row;
use rusqlite::types::{Value, ValueRef};

use super::quarantine::DamagedRow;
use crate::codec::DecodeError;
use crate::rows::{Fields, Table};

/// Returns the error for a column with the wrong type or size.
pub(super) fn invalid_column(column: &'static str) -> impl Fn(rusqlite::types::FromSqlError) -> DecodeError {
    move |error| DecodeError::decode(column, error)
}

fn value<'r>(row: &'r Row<'_>, index: usize, column: &'static str) -> Result<ValueRef<'r>, DecodeError> {
    row.get_ref(index).map_err(|error| DecodeError::decode(column, error))
}

fn id_bits(column: &'static str, bytes: &[u8]) -> Result<u128, DecodeError> {
    let bits = bytes.try_into().map_err(|_| DecodeError::Short { column, len: bytes.len() })?;
    Ok(u128::from_be_bytes(bits))
}

impl Fields for Row<'_> {
    fn bytes(&self, index: usize, column: &'static str) -> Result<&[u8], DecodeError> {
        value(self, index, column)?.as_blob().map_err(invalid_column(column))
    }

    fn optional_bytes(&self, index: usize, column: &'static str) -> Result<Option<&[u8]>, DecodeError> {
        value(self, index, column)?.as_blob_or_null().map_err(invalid_column(column))
    }

    fn text(&self, index: usize, column: &'static str) -> Result<Cow<'_, str>, DecodeError> {
        value(self, index, column)?.as_str().map(Cow::Borrowed).map_err(invalid_column(column))
    }

    fn optional_text(&self, index: usize, column: &'static str) -> Result<Option<Cow<'_, str>>, DecodeError> {
        let found = value(self, index, column)?.as_str_or_null().map_err(invalid_column(column))?;
        Ok(found.map(Cow::Borrowed))
    }

    fn optional_integer(&self, index: usize, column: &'static str) -> Result<Option<i64>, DecodeError> {
        value(self, index, column)?.as_i64_or_null().map_err(invalid_column(column))
    }

    fn optional_bits(&self, index: usize, column: &'static str) -> Result<Option<u128>, DecodeError> {
        match value(self, index, column)? {
            ValueRef::Null => Ok(None),
            value => id_bits(column, value.as_blob().map_err(invalid_column(column))?).map(Some),
        }
    }

    /// Empty if the entry belongs to no backfill.
    fn backfill_key(&self, index: usize, column: &'static str) -> Result<Option<u128>, DecodeError> {
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
pub(super) struct Decoded<T> {
    pub(super) good: Vec<T>,
    pub(super) damaged: Vec<DamagedRow>,
}

impl<T> Default for Decoded<T> {
    fn default() -> Self {
        Self { good: Vec::new(), damaged: Vec::new() }
    }
}

impl<T> Decoded<T> {
    /// Adds a row, with the key in its first columns.
    pub(super) fn push(
        &mut self,
        table: Table,
        row: &Row<'_>,
        decoded: Result<T, DecodeError>,
    ) -> rusqlite::Result<()> {
        match decoded {
            Ok(item) => self.good.push(item),
            Err(damage) => {
                self.damaged.push(DamagedRow::new(table, key_of(table, row)?, &damage));
            }
        }
        Ok(())
    }
}
