//! The position file, which detects a loss of commits.
//!
//! SQLite ends its WAL at the first invalid frame. It cannot distinguish a power cut, which tears the end of the WAL,
//! from damage in the middle, a removed WAL, or a database that was replaced by an older copy. So a separate file
//! stores the *position* of the newest durable batch: the position of the next event, and the engine time. Both are
//! also in the table `meta`, and never decrease. A database below the position in this file has lost acknowledged
//! commits, and is not opened.
//!
//! # Why a torn end of the WAL never counts as damage
//! The file is written after the fsync of the WAL and is not synced itself. Its content was durable before it was
//! written. So the file may be older than the database, never newer.
//! - After the end of a process it is exact: its content is in the page cache of the system.
//! - After a power cut it may be as old as the system keeps dirty pages (usually 30 s on Linux), or as the start of the
//!   store, where it is synced. Less damage is then detected, but no intact store is refused.
//! - It is one line within one sector. If it is torn anyway, its checksum does not match and it is ignored.
//!
//! A second rule, in [`Log`], covers damage that is older than an outdated file: the number of transactions that are
//! written but not synced is limited. If more than [`UNSYNCED_MAX`] complete transactions follow the frame at which the
//! WAL breaks off, that frame was synced long before.
//!
//! # A WAL and a database that do not belong together
//! A WAL contains the pages that changed since it started, and SQLite applies them to any database file. So the file
//! also stores the *base*: the position up to which everything is in the database without its WAL. The base changes
//! when a WAL restarts, which happens once all of it is checkpointed and synced. A database that, without its WAL, is
//! below the base is an older copy. Together the two are a state that never existed, so the WAL is not read.
//!
//! # Losses that are not detected
//! Only batches, a restore and a clock reset change the position. A loss of only leases, tokens, artifact names and
//! housekeeping is not detected: a counter of those would add a page to each of their commits.
//!
//! # Cost
//! A write of 93 bytes into the page cache for each fsync of the WAL; the file itself is synced only at the start.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension};

use super::error::Phase;
use super::file::{self, sibling_path};
use crate::StoreError;

/// Upper bound of the transactions that are written but not synced: those that wait for the syncer, those in its
/// current fsync, and those of a start.
const UNSYNCED_MAX: u64 = 64;

/// Progress of a store. Only batches change it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Position {
    pub(super) next_event: u64,
    /// Engine time of the newest batch, in microseconds.
    pub(super) now: i64,
}

impl Position {
    /// Returns the position in a database; `None` if it has no Belfry tables.
    pub(super) fn of(connection: &Connection) -> rusqlite::Result<Option<Self>> {
        let is_ours = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'meta'";
        if connection.query_row(is_ours, [], |_| Ok(())).optional()?.is_none() {
            return Ok(None);
        }
        let row = |row: &rusqlite::Row<'_>| Ok(Self { next_event: row.get(0)?, now: row.get(1)? });
        connection.query_row("SELECT next_event, now FROM meta", [], row).optional()
    }
}

/// Content of the position file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct StoredPositions {
    /// Position after the newest durable batch.
    pub(super) newest: Position,
    /// Position up to which everything is in the database without its WAL.
    pub(super) base: Position,
}

impl StoredPositions {
    fn line(self) -> String {
        let Self { newest, base } = self;
        let (newest, base) = ((newest.next_event, newest.now), (base.next_event, base.now));
        sealed(&format!("{:020} {:+020} {:020} {:+020}", newest.0, newest.1, base.0, base.1))
    }

    fn parse(line: &str) -> Option<Self> {
        let (numbers, _) = line.rsplit_once(' ')?;
        let mut numbers = (sealed(numbers) == line).then(|| numbers.split_ascii_whitespace())?;
        let mut position = || {
            let next_event = numbers.next()?.parse().ok()?;
            Some(Position { next_event, now: numbers.next()?.parse().ok()? })
        };
        let newest = position()?;
        // Earlier versions stored only the newest position.
        Some(Self { newest, base: position().unwrap_or_default() })
    }
}

/// Returns a line with its checksum.
fn sealed(line: &str) -> String {
    format!("{line} {:08x}\n", crc32fast::hash(line.as_bytes()))
}

/// The position file of an open store.
#[derive(Debug)]
pub(super) struct PositionFile {
    database: PathBuf,
    path: PathBuf,
    kept: Mutex<(StoredPositions, Option<File>)>,
}

impl PositionFile {
    pub(super) fn path_of(database: &Path) -> PathBuf {
        sibling_path(database, ".position")
    }

    /// Reads the position file of a database; `None` if it is missing or damaged.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if it exists and cannot be read.
    pub(super) fn read(database: &Path) -> Result<Option<StoredPositions>, StoreError> {
        let path = Self::path_of(database);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(file::unavailable(&path, &error)),
        };
        let kept = std::str::from_utf8(&bytes).ok().and_then(StoredPositions::parse);
        if kept.is_none() {
            tracing::warn!(path = %path.display(), "the position file is damaged: lost commits may not be detected");
        }
        Ok(kept)
    }

    /// Starts to write the position file of an open store, and syncs it once. The position `from` must already be
    /// durable.
    pub(super) fn keep(database: &Path, from: StoredPositions) -> Self {
        let (path, database) = (Self::path_of(database), database.to_owned());
        let mark = Self { database, path, kept: Mutex::new((from, None)) };
        let mut kept = mark.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = mark.write(&mut kept.1, from).and_then(|file| file::sync(file, &mark.path)) {
            let path = mark.path.display();
            tracing::warn!(%path, %error, "cannot write the position file: lost commits may not be detected");
        }
        drop(kept);
        mark
    }

    /// Writes the newest synced position.
    pub(super) fn advance(&self, to: StoredPositions) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let next = StoredPositions { newest: kept.0.newest.max(to.newest), base: kept.0.base.max(to.base) };
        if next == kept.0 {
            return;
        }
        kept.0 = next;
        // If the write fails, the old content stays true. On a full volume, the next call retries.
        let _ = self.write(&mut kept.1, next);
    }

    fn write<'f>(&self, file: &'f mut Option<File>, kept: StoredPositions) -> io::Result<&'f File> {
        #[cfg(test)]
        super::tests::failing_disk::note_write(&self.path, kept.line().as_bytes());
        let open = match file.take() {
            Some(open) => open,
            None => file::open_sibling(&self.database, &self.path)?,
        };
        let open = file.insert(open);
        open.write_all_at(kept.line().as_bytes(), 0)?;
        Ok(open)
    }
}

/// A loss of commits.
#[derive(Debug)]
pub(super) struct Loss {
    pub(super) reason: String,
    /// Whether the WAL belongs to another state of the database. Applying it would damage the database.
    pub(super) log_is_foreign: bool,
}

impl Loss {
    pub(super) fn into_error(self, database: &Path) -> StoreError {
        StoreError::LostCommits { path: database.to_owned(), reason: self.reason }
    }
}

/// Checks that a database has all commits that its position file names. Changes nothing, and runs before SQLite may
/// change anything.
///
/// # Errors
/// [`StoreError::Missing`]; or, if a file cannot be read, the error of that read: whether commits are lost is then
/// unknown, and a migration would overwrite the evidence.
pub(super) fn verify(database: &Path) -> Result<Option<Loss>, StoreError> {
    let length = |path: &Path| std::fs::metadata(path).map_or(0, |meta| meta.len());
    let (mark, log) = (PositionFile::path_of(database), file::wal_path(database));
    if length(database) == 0 {
        // SQLite would remove the WAL of a missing database.
        let trace = [mark, log].into_iter().find(|trace| length(trace) > 0);
        let missing = |trace| StoreError::Missing { path: database.to_owned(), trace };
        return trace.map_or(Ok(None), |trace| Err(missing(trace)));
    }
    let has_log = length(&log) > 0;
    let log = Log::read(&log).map_err(|error| file::unavailable(&log, &error))?;
    let kept = PositionFile::read(database)?;
    if let Some(kept) = kept.filter(|kept| has_log && is_below(database, kept.base))
        // A WAL that ends before the newest one started is an older WAL, of the same age as the database.
        && read_position(database)?.is_some_and(|found| found > kept.base)
    {
        let reason = format!("its WAL does not belong to it: it starts at event {}", kept.base.next_event);
        return Ok(Some(Loss { reason, log_is_foreign: true }));
    }
    let lost = |reason| Ok(Some(Loss { reason, log_is_foreign: false }));
    if let Some(log) = log.as_ref().filter(|log| log.behind > UNSYNCED_MAX) {
        return lost(log.describe());
    }
    let Some(kept) = kept else { return Ok(None) };
    let Some(found) = read_position(database)?.filter(|found| *found < kept.newest) else { return Ok(None) };
    let log = log.filter(|log| log.behind > 0).map_or(String::new(), |log| format!("; {}", log.describe()));
    lost(loss_message(found, kept.newest) + &log)
}

/// Returns whether a database, without its WAL, is below `base`.
fn is_below(database: &Path, base: Position) -> bool {
    let found = file::open_without_wal(database).and_then(|connection| Ok(Position::of(&connection)?));
    // A database may be invalid while a checkpoint is incomplete. That proves no loss.
    found.is_ok_and(|found| found.unwrap_or_default() < base)
}

/// Returns the position of a database with its WAL; `None` if a full volume leaves no space to read it.
fn read_position(database: &Path) -> Result<Option<Position>, StoreError> {
    // A read-only connection neither checkpoints nor removes the WAL.
    let found = file::open_reader(database).and_then(|connection| Ok(Position::of(&connection)?));
    match found.map_err(|failure| failure.into_store_error(Phase::Change, database)) {
        Ok(found) => Ok(Some(found.unwrap_or_default())),
        // The writing connection can release the reserve, and compares again.
        Err(StoreError::Full) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Describes which events are missing.
pub(super) fn loss_message(found: Position, kept: Position) -> String {
    format!("it ends before event {}, but event {} was reached before", found.next_event, kept.next_event)
}

/// Facts about SQLite's WAL, read without SQLite (<https://www.sqlite.org/walformat.html>).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Log {
    /// First frame, from 1, that is damaged or was never written.
    pub(super) broken_at: u64,
    /// Number of complete transactions of the same WAL after that frame.
    pub(super) behind: u64,
}

const LOG_HEADER: usize = 32;
const FRAME_HEADER: usize = 24;

impl Log {
    /// Reads a WAL. `None` if there is none or its header is damaged: its content is then unknown.
    pub(super) fn read(path: &Path) -> io::Result<Option<Self>> {
        match File::open(path) {
            Ok(log) => Self::read_frames(&mut BufReader::with_capacity(1 << 20, log)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read_frames(log: &mut impl Read) -> io::Result<Option<Self>> {
        let mut header = [0; LOG_HEADER];
        if !read_whole(log, &mut header)? {
            return Ok(None);
        }
        let magic = word(&header, 0);
        let sum = Sum { big_endian: magic & 1 == 1 };
        let page = word(&header, 8) as usize;
        if magic & !1 != 0x377f_0682
            || !(512..=65_536).contains(&page)
            || sum.over((0, 0), &header[..24]) != pair(&header, 24)
        {
            return Ok(None);
        }
        let salts = pair(&header, 16);
        let (mut before, mut number, mut broken_at, mut behind) = (pair(&header, 24), 0, None, 0);
        let mut frame = vec![0; FRAME_HEADER + page];
        while read_whole(log, &mut frame)? {
            number += 1;
            let of_this_log = pair(&frame, 8) == salts && word(&frame, 0) != 0;
            let kept = pair(&frame, 16);
            // Each checksum continues from the one before, which the previous frame contains. So a frame after a
            // damaged one can still be verified.
            let whole =
                of_this_log && sum.over(sum.over(before, &frame[..8]), &frame[FRAME_HEADER..]) == kept;
            let ends_a_transaction = word(&frame, 4) != 0;
            if !whole {
                broken_at.get_or_insert(number);
            }
            behind += u64::from(whole && ends_a_transaction && broken_at.is_some());
            before = kept;
        }
        Ok(Some(Self { broken_at: broken_at.unwrap_or(number + 1), behind }))
    }

    pub(super) fn describe(&self) -> String {
        format!(
            "its WAL is damaged at frame {}, and {} complete transactions follow",
            self.broken_at, self.behind
        )
    }
}

/// Fills `bytes`; returns `false` if the file ends before.
fn read_whole(file: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the four bytes at `at` as a number.
fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_be_bytes(word)
}

fn pair(bytes: &[u8], at: usize) -> (u32, u32) {
    (word(bytes, at), word(bytes, at + 4))
}

/// Checksum of a WAL. The header of the WAL defines the byte order.
#[derive(Clone, Copy)]
struct Sum {
    big_endian: bool,
}

impl Sum {
    fn over(self, (mut first, mut second): (u32, u32), bytes: &[u8]) -> (u32, u32) {
        let word = |bytes: &[u8]| if self.big_endian { word(bytes, 0) } else { word(bytes, 0).swap_bytes() };
        for both in bytes.chunks_exact(8) {
            first = first.wrapping_add(word(both)).wrapping_add(second);
            second = second.wrapping_add(word(&both[4..])).wrapping_add(first);
        }
        (first, second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_positions_are_read_unchanged_and_damage_is_rejected() {
        let newest = Position { next_event: 42, now: -7 };
        let kept = StoredPositions { newest, base: Position { next_event: 41, now: -8 } };
        assert_eq!(StoredPositions::parse(&kept.line()), Some(kept));
        assert_eq!(kept.line().len(), 93);
        assert_eq!(StoredPositions::parse(&kept.line().replace("42", "43")), None);
        assert_eq!(StoredPositions::parse(""), None);
        let of_an_earlier_version = sealed("00000000000000000042 -0000000000000000007");
        assert_eq!(
            StoredPositions::parse(&of_an_earlier_version),
            Some(StoredPositions { newest, ..StoredPositions::default() })
        );
    }
}
