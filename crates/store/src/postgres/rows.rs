//! Reading of PostgreSQL rows, and handling of rows that cannot be decoded.

use std::borrow::Cow;
use std::error::Error;

use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};
use uuid::Uuid;

use super::param::unescape;
use super::quarantine::{DamagedRow, Key};
use crate::codec::DecodeError;
use crate::rows::{Fields, Table};

/// Integer of any size.
struct Integer(i64);

impl<'a> FromSql<'a> for Integer {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(match *kind {
            Type::INT2 => i16::from_sql(kind, raw)?.into(),
            Type::INT4 => i32::from_sql(kind, raw)?.into(),
            _ => i64::from_sql(kind, raw)?,
        }))
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::INT2 | Type::INT4 | Type::INT8)
    }
}

fn invalid_column(column: &'static str) -> impl Fn(tokio_postgres::Error) -> DecodeError {
    move |error| DecodeError::decode(column, error)
}

impl Fields for Row {
    fn bytes(&self, index: usize, column: &'static str) -> Result<&[u8], DecodeError> {
        self.try_get(index).map_err(invalid_column(column))
    }

    fn optional_bytes(&self, index: usize, column: &'static str) -> Result<Option<&[u8]>, DecodeError> {
        self.try_get(index).map_err(invalid_column(column))
    }

    fn text(&self, index: usize, column: &'static str) -> Result<Cow<'_, str>, DecodeError> {
        self.try_get(index).map(unescape).map_err(invalid_column(column))
    }

    fn optional_text(&self, index: usize, column: &'static str) -> Result<Option<Cow<'_, str>>, DecodeError> {
        let found: Option<&str> = self.try_get(index).map_err(invalid_column(column))?;
        Ok(found.map(unescape))
    }

    fn optional_integer(&self, index: usize, column: &'static str) -> Result<Option<i64>, DecodeError> {
        let found: Option<Integer> = self.try_get(index).map_err(invalid_column(column))?;
        Ok(found.map(|Integer(number)| number))
    }

    fn optional_bits(&self, index: usize, column: &'static str) -> Result<Option<u128>, DecodeError> {
        let found: Option<Uuid> = self.try_get(index).map_err(invalid_column(column))?;
        Ok(found.map(|id| id.as_u128()))
    }

    /// Zero if the entry belongs to no backfill: a key column is never NULL.
    fn backfill_key(&self, index: usize, column: &'static str) -> Result<Option<u128>, DecodeError> {
        Ok(Some(self.bits(index, column)?).filter(|bits| *bits != 0))
    }
}

/// Returns the key of a row, whose first columns are the key.
pub(super) fn key_of(table: Table, row: &Row) -> Result<Vec<Key>, DecodeError> {
    let part = |(index, column): (usize, &&'static str)| match *row.columns()[index].type_() {
        Type::UUID => row.bits(index, column).map(Key::Id),
        Type::TEXT => row.text(index, column).map(|text| Key::Text(text.into_owned())),
        _ => row.number(index, column).map(Key::Number),
    };
    table.key().iter().enumerate().map(part).collect()
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
    /// Adds rows whose first columns are their keys.
    pub(super) fn take(
        &mut self,
        table: Table,
        rows: &[Row],
        mut decode: impl FnMut(&Row) -> Result<T, DecodeError>,
    ) -> Result<(), DecodeError> {
        for row in rows {
            match decode(row) {
                Ok(item) => self.good.push(item),
                Err(damage) => self.damaged.push(DamagedRow::new(table, key_of(table, row)?, &damage)),
            }
        }
        Ok(())
    }
}
