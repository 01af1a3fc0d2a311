//! Columns back into records.

use model::{ExecutionId, JobId, WorkerId};
use rusqlite::Row;
use rusqlite::types::{Value, ValueRef};

use super::codec::{
    Damage, ExecutionColumns, StateColumns, open_execution, open_head, open_history, open_state,
};
use super::quarantine::{Damaged, Table};
use crate::query::{ExecutionRow, JobRow};

/// The columns that [`job`] reads, in its order.
pub(super) const JOB_COLUMNS: &str = "t.id, t.status, t.worker, t.expires_at, t.state, t.head";
/// The columns that [`execution`] reads, in its order.
pub(super) const EXECUTION_COLUMNS: &str =
    "t.id, t.job, t.number, t.fence, t.worker, t.status, t.namespace, t.job_name, t.rest";

/// Any of a row's columns that has the wrong type or size.
pub(super) fn misfit(column: &'static str) -> impl Fn(rusqlite::types::FromSqlError) -> Damage {
    move |error| Damage::decode(column, error)
}

fn bytes<'r>(row: &'r Row<'_>, index: usize, column: &'static str) -> Result<&'r [u8], Damage> {
    value(row, index, column)?.as_blob().map_err(misfit(column))
}

fn value<'r>(row: &'r Row<'_>, index: usize, column: &'static str) -> Result<ValueRef<'r>, Damage> {
    row.get_ref(index).map_err(|error| Damage::decode(column, error))
}

/// An id's bits from 16 bytes.
pub(super) fn id_bits(row: &Row<'_>, index: usize, column: &'static str) -> Result<u128, Damage> {
    let bytes = bytes(row, index, column)?;
    let bits = bytes.try_into().map_err(|_| Damage::Short { column, len: bytes.len() })?;
    Ok(u128::from_be_bytes(bits))
}

fn number<T: TryFrom<i64>>(row: &Row<'_>, index: usize, column: &'static str) -> Result<T, Damage> {
    let found = value(row, index, column)?.as_i64().map_err(misfit(column))?;
    T::try_from(found).map_err(|_| Damage::Value { column, what: "number of its kind", found })
}

fn text<'r>(row: &'r Row<'_>, index: usize, column: &'static str) -> Result<&'r str, Damage> {
    value(row, index, column)?.as_str().map_err(misfit(column))
}

/// The columns by which states are searched, from those of [`JOB_COLUMNS`].
pub(super) fn state_columns(row: &Row<'_>) -> Result<StateColumns, Damage> {
    let worker = match value(row, 2, "worker")? {
        ValueRef::Null => None,
        _ => Some(id_bits(row, 2, "worker")?.to_be_bytes()),
    };
    let expires_at = value(row, 3, "expires_at")?.as_i64_or_null().map_err(misfit("expires_at"))?;
    Ok(StateColumns { status: number(row, 1, "status")?, worker, expires_at })
}

/// A job without its history.
pub(super) fn job(row: &Row<'_>) -> Result<JobRow, Damage> {
    let id = JobId::from_bits(id_bits(row, 0, "id")?);
    let state = open_state(id, &state_columns(row)?, bytes(row, 4, "state")?)?;
    let (body, retry_of) = open_head(id, bytes(row, 5, "head")?)?;
    Ok(JobRow { id, body: body.into(), retry_of, state })
}

/// A job with its history, which stands behind [`JOB_COLUMNS`].
pub(super) fn job_with_history(row: &Row<'_>) -> Result<JobRow, Damage> {
    let mut job = job(row)?;
    job.state.history = open_history(job.id, bytes(row, 6, "history")?)?;
    Ok(job)
}

/// An execution.
pub(super) fn execution(row: &Row<'_>) -> Result<ExecutionRow, Damage> {
    let columns = ExecutionColumns {
        id: ExecutionId::from_bits(id_bits(row, 0, "id")?),
        job: JobId::from_bits(id_bits(row, 1, "job")?),
        number: number(row, 2, "number")?,
        fence: number(row, 3, "fence")?,
        worker: WorkerId::from_bits(id_bits(row, 4, "worker")?),
        status: number(row, 5, "status")?,
    };
    let record = open_execution(&columns, bytes(row, 8, "rest")?)?;
    Ok(ExecutionRow {
        record,
        namespace: text(row, 6, "namespace")?.into(),
        job_name: text(row, 7, "job_name")?.into(),
    })
}

/// Sorts rows into those that can be read and those that cannot.
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
    /// Takes the row in, under the key in its first column.
    pub(super) fn push(
        &mut self,
        table: Table,
        row: &Row<'_>,
        decoded: Result<T, Damage>,
    ) -> rusqlite::Result<()> {
        match decoded {
            Ok(item) => self.good.push(item),
            Err(damage) => {
                let key: Value = row.get(0)?;
                self.damaged.push(Damaged::new(table, key, &damage));
            }
        }
        Ok(())
    }
}
