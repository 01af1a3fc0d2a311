//! Copies a PostgreSQL database into a new file of the embedded store.
//!
//! The tables are those of a copy into a database. No other process writes the target, a local file. So an interrupted
//! copy removes the file, and the next call starts again.

use std::path::Path;

use super::{
    CHUNK_BYTES, Cell, CopyError, Digest, Digesting, Options, Phase, Progress, Report, TABLES, Table,
    Verified,
};
use crate::postgres;
use crate::sqlite;

/// Copies the store in the database at `from` into the new file `to`.
///
/// `observe` is called after each page of rows. The future may be dropped, and the process may end, at any moment: the
/// file `to` appears only when the copy is complete, verified and synced. Memory: one page of 1,024 rows for each side.
/// Needs a tokio runtime with time and I/O enabled.
///
/// # Errors
/// [`CopyError`]; its `help` names the next step.
pub async fn copy_back(
    from: &str,
    to: &Path,
    options: Options,
    observe: &mut (dyn FnMut(Progress) + Send),
) -> Result<Report, CopyError> {
    let source = postgres::Target::open_source(from, options.target).await?;
    let (epochs, now) = positions_if_unused(&source).await?;
    let target = sqlite::Target::begin(to, now)?;
    let mut of = 0;
    for table in &TABLES {
        of += source.count(table).await.map_err(CopyError::of_source)?;
    }
    let mut copying = Copying { source, target, chunk_rows: options.chunk_rows.max(1), of, observe };
    let copied = copying.rows().await?;
    let tables = copying.verify().await?;
    if positions_if_unused(&copying.source).await?.0 != epochs {
        return Err(CopyError::Changed);
    }
    if let Some(differs) = tables.iter().find(|verified| !verified.is_same()) {
        return Err(CopyError::Differs { table: differs.table, tables });
    }
    copying.target.finish()?;
    Ok(Report { found: 0, copied, tables })
}

/// Returns the epochs of the shards and the engine time; fails if a server uses the database.
async fn positions_if_unused(source: &postgres::Target) -> Result<(Vec<(i32, i64)>, i64), CopyError> {
    if let Some(name) = source.server().await.map_err(CopyError::of_source)? {
        return Err(CopyError::ServedSource { name });
    }
    source.epochs().await.map_err(CopyError::of_source)
}

struct Copying<'a> {
    source: postgres::Target,
    target: sqlite::Target,
    chunk_rows: usize,
    of: u64,
    observe: &'a mut (dyn FnMut(Progress) + Send),
}

impl Copying<'_> {
    /// Copies all tables; returns the number of rows.
    async fn rows(&mut self) -> Result<u64, CopyError> {
        let mut rows = 0;
        for table in &TABLES {
            let mut after: Option<Vec<Cell>> = None;
            loop {
                let page = self.source.page(table, after.as_deref()).await.map_err(CopyError::of_source)?;
                after = page.next(table);
                rows += page.rows.len() as u64;
                self.target.put(table, page.rows).await?;
                (self.observe)(Progress { phase: Phase::Copying, table: table.name, rows, of: self.of });
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(rows)
    }

    /// Reads every table on both sides, and compares them.
    async fn verify(&mut self) -> Result<Vec<Verified>, CopyError> {
        let (mut all, mut rows) = (Vec::with_capacity(TABLES.len()), 0);
        for table in &TABLES {
            let (source, target) = tokio::try_join!(self.source_digest(table), self.target_digest(table))?;
            rows += source.rows;
            (self.observe)(Progress { phase: Phase::Verifying, table: table.name, rows, of: self.of });
            all.push(Verified { table: table.name, source, target });
        }
        Ok(all)
    }

    async fn source_digest(&self, table: &'static Table) -> Result<Digest, CopyError> {
        let (mut digest, mut after) = (Digesting::default(), None);
        loop {
            let mut page = self.source.page(table, after.as_deref()).await.map_err(CopyError::of_source)?;
            after = page.next(table);
            page.rows = page.rows.into_iter().map(|row| table.normalized(row)).collect();
            digest.take(&page);
            if after.is_none() {
                return Ok(digest.end());
            }
        }
    }

    async fn target_digest(&self, table: &'static Table) -> Result<Digest, CopyError> {
        let (mut digest, mut after) = (Digesting::default(), None);
        loop {
            let page = self.target.page(table, after, self.chunk_rows, CHUNK_BYTES).await?;
            digest.take(&page);
            after = page.next(table);
            if after.is_none() {
                return Ok(digest.end());
            }
        }
    }
}
