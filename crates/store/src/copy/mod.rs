//! Copies a store from the embedded store into a PostgreSQL database, and back.
//!
//! ```text
//!  source (SQLite, owned, only read)                 target (PostgreSQL)
//!    check: exists, closed, of this version            check: empty, or an earlier unfinished copy of this source
//!    a chunk of a table, in key order            ──>   one transaction: the rows, and the position of the copy
//!    …                                                 …
//!    a hash of each table                        <=>   a hash of each table
//!                                                      mark the copy as finished: servers may open it
//! ```
//!
//! - [`copy`] copies into a database, and [`copy_back`] out of a database. `table` lists the copied tables, and
//!   converts values between the stores.
//! - `Source` and `Target` are in the modules of their stores. Files (logs, artifacts) are not part of a store.
//!
//! # Invariants of a copy into a database
//! - The source is owned as a server owns it, and nothing in it is changed.
//! - A copy that was interrupted at any moment continues after its last durable chunk.
//! - No server uses an unfinished target: opening it is refused, and it has no shard that could be acquired.
//! - A target is finished only after all its tables were read back and are equal to the source.
//! - Rows that cannot be decoded in the source have the same bytes in the target, and are quarantined there.
//!
//! # Cost
//! Memory for two chunks (some 10 MB each). Each row is read twice on both sides and written once; a chunk is read
//! while the previous one is written.

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

use crate::postgres::{self, Position, StartedCopy, Target};
use crate::sqlite::Source;

/// Maximum number of bytes of a chunk, without its last row.
const CHUNK_BYTES: usize = 8 << 20;

/// Maximum number of times that a copy reads its position again after a conflict. A killed copy leaves at most one
/// chunk in flight, so more conflicts mean that another process is alive.
const OVERTAKEN_MAX: u32 = 2;

/// Options for a copy.
#[derive(Debug, Clone)]
pub struct Options {
    /// Options for opening the target. Its number of shards is always that of the source.
    pub target: postgres::Options,
    /// Maximum number of rows in a transaction.
    pub chunk_rows: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { target: postgres::Options::default(), chunk_rows: 4_096 }
    }
}

/// Phase of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Rows are copied.
    Copying,
    /// Both sides are read and compared.
    Verifying,
}

/// Progress of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Current phase.
    pub phase: Phase,
    /// Current table.
    pub table: &'static str,
    /// Number of processed rows of all tables, including those of earlier attempts.
    pub rows: u64,
    /// Total number of rows.
    pub of: u64,
}

/// Digest of a table on one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    /// Number of rows.
    pub rows: u64,
    /// SHA-256 of all rows in key order, in the format of the target.
    pub sha256: [u8; 32],
}

impl Digest {
    /// Returns the hash in hexadecimal.
    pub fn hex(&self) -> String {
        self.sha256.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Table that was compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verified {
    /// Name of the table.
    pub table: &'static str,
    /// Digest in the source.
    pub source: Digest,
    /// Digest in the target.
    pub target: Digest,
}

impl Verified {
    /// Returns whether both sides are equal.
    pub fn is_same(&self) -> bool {
        self.source == self.target
    }
}

/// Result of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Number of rows that an earlier attempt had copied.
    pub found: u64,
    /// Number of rows that this attempt copied.
    pub copied: u64,
    /// All tables, with their digests.
    pub tables: Vec<Verified>,
}

/// Rows of a table in key order.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) rows: Vec<Vec<Cell>>,
    /// Whether further rows may follow.
    pub(crate) more: bool,
}

impl Page {
    /// Returns the key after which the next page starts, if there is one.
    fn next(&self, table: &Table) -> Option<Vec<Cell>> {
        self.rows.last().filter(|_| self.more).map(|row| row[..table.key].to_vec())
    }
}

/// Copies the store in the file `from` into the database at `to`, or continues a copy that was started before.
///
/// `observe` is called after each chunk and each page. The future may be dropped, and the process may end, at any
/// moment; the next call continues. Needs a tokio runtime with time and I/O enabled.
///
/// # Errors
/// [`CopyError`]; its `help` names the next step. After any error except [`CopyError::Differs`] the same call can be
/// repeated.
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
            Err(CopyError::Conflict) if overtaken < OVERTAKEN_MAX => overtaken += 1,
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

/// Returns the position from which the copy continues; starts a copy if there was none.
async fn begin(target: &Target, from: &Path, identity: &[u8]) -> Result<Position, CopyError> {
    match target.started_copy().await? {
        Some(StartedCopy { source, finished: true, .. }) => Err(CopyError::Finished { origin: source }),
        Some(begun) if begun.identity == identity => Ok(begun.position),
        Some(StartedCopy { source, .. }) => Err(CopyError::OtherSource { origin: source }),
        None => match target.obstacle().await? {
            Some(obstacle) => Err(obstacle.into()),
            None => {
                let path = std::path::absolute(from).unwrap_or_else(|_| from.to_owned());
                target.begin(&path.display().to_string(), identity).await
            }
        },
    }
}

/// Identifies a store, and its state: the secrets of a store are unique to it, and a server that ran on it since has
/// raised the epochs.
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
    /// Copies all rows after `position`; returns the final position.
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

    /// Reads every table on both sides, and compares them.
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
