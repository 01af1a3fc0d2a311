//! Copies a store from the embedded store into a PostgreSQL database, and back.
//!
//! ```text
//! source (SQLite, owned, only read)                 target (PostgreSQL)
//!   is it there, closed, of this version?             is it empty, or a copy of this source begun earlier?
//!   a table, a chunk in the order of its key    ──>   one transaction: its rows, and how far the copy is
//!   …                                                 …
//!   a hash of each table                        <=>   a hash of each table
//!                                                     the copy is finished: servers may start on it
//! ```
//!
//! - [`copy`] is the flow, and [`copy_back`] that of the other direction. `table`: what is copied, and how a value of
//!   one store becomes one of the other.
//! - `Source` and `Target` stand beside their stores. Files (logs, artifacts) are no part of a store.
//!
//! # Always true of a copy into a database
//! - The source is owned as a server owns it, and nothing in it is changed.
//! - A copy that ended at any moment goes on behind its last durable chunk.
//! - No server works on a target that is not finished: it is refused when it opens it, and finds no shard
//!   that it could own.
//! - A target is finished only after every table of it was read back and found to be the same.
//! - Rows that the source could not read are the same bytes in the target, to be set aside there.
//!
//! # Cost
//! Memory for two chunks (some 10 MB each). Each row is read twice from either side and written once; a chunk
//! is read while the one before it is written.

mod back;
mod error;
mod table;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;

use sha2::{Digest as _, Sha256};

pub use back::copy_back;
pub use error::CopyError;
pub(crate) use error::Obstacle;
pub(crate) use table::{Cell, Column, Kind, TABLES, Table};

use crate::postgres::{self, Begun, Position, Target};
use crate::sqlite::Source;

/// The most bytes of a chunk, but for its last row.
const CHUNK_BYTES: usize = 8 << 20;

/// How often a copy looks anew where it stands. One that was killed leaves one chunk on its way at most;
/// whoever comes in between more often is alive.
const OVERTAKEN_MAX: u32 = 2;

/// How a copy is made.
#[derive(Debug, Clone)]
pub struct Options {
    /// How the target is opened. Its number of shards is that of the source.
    pub target: postgres::Options,
    /// The most rows of a transaction.
    pub chunk_rows: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { target: postgres::Options::default(), chunk_rows: 4_096 }
    }
}

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Rows go over.
    Copying,
    /// Both sides are read and compared.
    Verifying,
}

/// How far a copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub phase: Phase,
    /// With which table.
    pub table: &'static str,
    /// The rows of all tables that this was done with, in earlier attempts too.
    pub rows: u64,
    /// How many there are.
    pub of: u64,
}

/// A table as one side has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    /// How many rows.
    pub rows: u64,
    /// SHA-256 over all rows in the order of their keys, in the form that the target keeps.
    pub sha256: [u8; 32],
}

impl Digest {
    /// The hash in hexadecimal.
    pub fn hex(&self) -> String {
        self.sha256.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A table that was read on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verified {
    /// Its name.
    pub table: &'static str,
    /// In the source.
    pub source: Digest,
    /// In the target.
    pub target: Digest,
}

impl Verified {
    /// Whether both sides have the same.
    pub fn is_same(&self) -> bool {
        self.source == self.target
    }
}

/// What a copy did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Rows that were there from an earlier attempt.
    pub found: u64,
    /// Rows that went over in this one.
    pub copied: u64,
    /// Every table.
    pub tables: Vec<Verified>,
}

/// Some rows in the order of the key.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) rows: Vec<Vec<Cell>>,
    /// Whether there may be some behind them.
    pub(crate) more: bool,
}

impl Page {
    /// Behind what the next page begins, if there is one.
    fn next(&self, table: &Table) -> Option<Vec<Cell>> {
        self.rows.last().filter(|_| self.more).map(|row| row[..table.key].to_vec())
    }
}

/// Copies the store in the file `from` into the database at `to`, or goes on with a copy that was begun.
///
/// `observe` is told after each chunk and each page. Dropping the future is safe at any moment, and so is
/// the end of the process; the next call goes on. Needs a tokio runtime with time and I/O enabled.
///
/// # Errors
/// [`CopyError`]; it says what to do. After all but [`CopyError::Differs`] the same call can be made again.
pub async fn copy(
    from: &Path,
    to: &str,
    options: Options,
    observe: &mut (dyn FnMut(Progress) + Send),
) -> Result<Report, CopyError> {
    let source = Source::open(from)?;
    let target = Target::open(to, options.target).await?;
    let identity = identity(&source).await?;
    let mut of = 0;
    for table in &TABLES {
        of += source.count(table).await?;
    }
    let mut copying = Copying { source, target, chunk_rows: options.chunk_rows.max(1), of, observe };
    let (mut found, mut overtaken) = (None, 0);
    let end = loop {
        let begun = begin(&copying.target, from, &identity).await;
        let end = match begun {
            Ok(begun) => {
                found.get_or_insert(begun.rows);
                copying.rows(begun).await
            }
            Err(error) => Err(error),
        };
        match end {
            Err(CopyError::Overtaken) if overtaken < OVERTAKEN_MAX => overtaken += 1,
            end => break end?,
        }
    };
    let found = found.unwrap_or_default();
    let tables = copying.verify().await?;
    if let Some(differs) = tables.iter().find(|verified| !verified.is_same()) {
        return Err(CopyError::Differs { table: differs.table, tables });
    }
    copying.target.finish(&end).await?;
    Ok(Report { found, copied: end.rows - found, tables })
}

/// Where the copy goes on, from the beginning if there was none.
async fn begin(target: &Target, from: &Path, identity: &[u8]) -> Result<Position, CopyError> {
    match target.begun().await? {
        Some(Begun { source, finished: true, .. }) => Err(CopyError::Finished { origin: source }),
        Some(begun) if begun.identity == identity => Ok(begun.position),
        Some(Begun { source, .. }) => Err(CopyError::OtherSource { origin: source }),
        None => match target.obstacle().await? {
            Some(obstacle) => Err(obstacle.into()),
            None => {
                let path = std::path::absolute(from).unwrap_or_else(|_| from.to_owned());
                target.begin(&path.display().to_string(), identity).await
            }
        },
    }
}

/// What tells one store from another, and from itself after a server ran on it: servers sign with secrets
/// of the store, and whoever takes a shard raises its epoch.
async fn identity(source: &Source) -> Result<Vec<u8>, CopyError> {
    let mut hash = Sha256::new();
    for table in TABLES.iter().filter(|table| matches!(table.name, "meta" | "shards" | "secrets")) {
        let page = source.page(table, None, usize::MAX, usize::MAX).await?;
        page.rows.iter().flatten().for_each(|cell| cell.hash_into(&mut hash));
    }
    Ok(hash.finalize().to_vec())
}

struct Copying<'a> {
    source: Source,
    target: Target,
    chunk_rows: usize,
    of: u64,
    observe: &'a mut (dyn FnMut(Progress) + Send),
}

impl fmt::Debug for Copying<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Copying").field("source", &self.source).field("target", &self.target).finish()
    }
}

impl Copying<'_> {
    /// Copies what lies behind `position`; answers with the end.
    async fn rows(&mut self, mut position: Position) -> Result<Position, CopyError> {
        let start = TABLES.iter().position(|table| table.name == position.table.name).unwrap_or(0);
        for table in &TABLES[start..] {
            let after =
                Some(&position.after).filter(|key| table.name == position.table.name && !key.is_empty());
            let mut page = self.chunk(table, after.cloned()).await?;
            while !page.rows.is_empty() {
                let next = page.next(table);
                let reading = async {
                    match next {
                        Some(after) => self.chunk(table, Some(after)).await,
                        None => Ok(Page::default()),
                    }
                };
                let writing = self.target.put(&position, table, page.rows);
                let (read, written) = tokio::join!(reading, writing);
                position = written?;
                page = read?;
                let (phase, rows, of) = (Phase::Copying, position.rows, self.of);
                (self.observe)(Progress { phase, table: table.name, rows, of });
            }
        }
        Ok(position)
    }

    async fn chunk(&self, table: &'static Table, after: Option<Vec<Cell>>) -> Result<Page, CopyError> {
        self.source.page(table, after, self.chunk_rows, CHUNK_BYTES).await
    }

    /// Reads every table on both sides.
    async fn verify(&mut self) -> Result<Vec<Verified>, CopyError> {
        let Self { source, target, chunk_rows, of, observe } = self;
        let (mut all, mut before) = (Vec::with_capacity(TABLES.len()), 0);
        for table in &TABLES {
            let mut tell = |rows| {
                observe(Progress {
                    phase: Phase::Verifying,
                    table: table.name,
                    rows: before + rows,
                    of: *of,
                });
            };
            tell(0);
            let (source, target) = tokio::try_join!(
                source_digest(source, table, *chunk_rows, tell),
                target_digest(target, table)
            )?;
            before += source.rows;
            all.push(Verified { table: table.name, source, target });
        }
        Ok(all)
    }
}

async fn source_digest(
    source: &Source,
    table: &'static Table,
    rows: usize,
    mut tell: impl FnMut(u64),
) -> Result<Digest, CopyError> {
    let (mut digest, mut after) = (Digesting::default(), None);
    loop {
        let page = source.page(table, after, rows, CHUNK_BYTES).await?;
        digest.take(&page);
        tell(digest.rows);
        after = page.next(table);
        if after.is_none() {
            return Ok(digest.end());
        }
    }
}

async fn target_digest(target: &Target, table: &'static Table) -> Result<Digest, CopyError> {
    let (mut digest, mut after) = (Digesting::default(), None);
    loop {
        let page = target.page(table, after.as_deref()).await?;
        digest.take(&page);
        after = page.next(table);
        if after.is_none() {
            return Ok(digest.end());
        }
    }
}

#[derive(Default)]
struct Digesting {
    rows: u64,
    hash: Sha256,
}

impl Digesting {
    fn take(&mut self, page: &Page) {
        self.rows += page.rows.len() as u64;
        page.rows.iter().flatten().for_each(|cell| cell.hash_into(&mut self.hash));
    }

    fn end(self) -> Digest {
        Digest { rows: self.rows, sha256: self.hash.finalize().into() }
    }
}
