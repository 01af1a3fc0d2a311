//! How far the store had come, kept beside the database, so that a loss of commits is noticed.
//!
//! SQLite ends its log at the first frame that is not as it should be. It cannot tell a power cut, which tears
//! the end of the log, from damage in the middle, a log that was removed, or a database that an older copy took the
//! place of. So a file of its own keeps the *position* of the newest durable batch: the place of the next event, and
//! the engine time. Both stand in the table `meta` too, and never go back. A database that has not come as far as this
//! file says has lost commits that were acknowledged, and is not opened.
//!
//! # Why a torn end of the log is never taken for damage
//! The file is written after the sync of the log and is not synced itself. Whatever of it reaches the disk, it was
//! true before it was written: what it names was durable. So it may lag behind and never runs ahead.
//! - After the end of a process it is exact: what was written is in the system's memory.
//! - After a power cut it may be as old as the system lets changed pages be (30 s on Linux as a rule), or as the
//!   start of the store, where it is synced. Less damage is noticed then, and no sound store is refused.
//! - It is one line within one sector. If that is torn all the same, its checksum tells, and it counts for nothing.
//!
//! For damage that is older than a file that lags behind there is a second rule, in [`Log`]: only so many
//! transactions are ever written and not synced. Where more than [`UNSYNCED_MAX`] whole ones lie behind the
//! place at which the log breaks off, that place was synced long before.
//!
//! # A log and a database that do not belong together
//! A log has the pages that changed since it began, and SQLite lays them over any database below it. So the file keeps
//! the *base* too: the position up to which all is in the database alone, without its log. It moves when a log begins
//! anew, for that happens once all of it is in the database, and synced. A database that alone does not reach
//! the base of its log is an older one. The two together are no state that ever was, and the log is not read then.
//!
//! # What is not noticed
//! Only batches, a restore and a reset clock move the position. A loss of nothing but leases, tokens, names of
//! artifacts and housekeeping is not noticed: a counter of those would be one more page in each of their commits.
//!
//! # Cost
//! A write of 93 bytes into the system's memory for each sync, and no sync but at the start.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension};

use super::error::Phase;
use super::file::{self, beside};
use crate::StoreError;

/// More transactions than are ever written and not synced: those that wait for the syncer, those that it syncs, and
/// those of a start.
const UNSYNCED_MAX: u64 = 64;

/// How far a store has come. Only batches move it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Position {
    pub(super) next_event: u64,
    /// Engine time of the newest batch, in microseconds.
    pub(super) now: i64,
}

impl Position {
    /// `None` where the database has no tables of ours.
    pub(super) fn of(connection: &Connection) -> rusqlite::Result<Option<Self>> {
        let is_ours = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'meta'";
        if connection.query_row(is_ours, [], |_| Ok(())).optional()?.is_none() {
            return Ok(None);
        }
        let row = |row: &rusqlite::Row<'_>| Ok(Self { next_event: row.get(0)?, now: row.get(1)? });
        connection.query_row("SELECT next_event, now FROM meta", [], row).optional()
    }
}

/// What is kept of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Kept {
    /// Behind the newest durable batch.
    pub(super) newest: Position,
    /// Up to which all is in the database without its log.
    pub(super) base: Position,
}

impl Kept {
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
        // Earlier versions kept the newest alone.
        Some(Self { newest, base: position().unwrap_or_default() })
    }
}

/// A line with its checksum.
fn sealed(line: &str) -> String {
    format!("{line} {:08x}\n", crc32fast::hash(line.as_bytes()))
}

/// The file that keeps the position of a store.
#[derive(Debug)]
pub(super) struct Mark {
    database: PathBuf,
    path: PathBuf,
    kept: Mutex<(Kept, Option<File>)>,
}

impl Mark {
    pub(super) fn path_of(database: &Path) -> PathBuf {
        beside(database, ".position")
    }

    /// What is kept beside a database; `None` where there is no file, or a damaged one.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if it is there and cannot be read.
    pub(super) fn read(database: &Path) -> Result<Option<Kept>, StoreError> {
        let path = Self::path_of(database);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(file::unavailable(&path, &error)),
        };
        let kept = std::str::from_utf8(&bytes).ok().and_then(Kept::parse);
        if kept.is_none() {
            tracing::warn!(path = %path.display(), "the position file of the store is damaged");
        }
        Ok(kept)
    }

    /// Keeps the position of an open store from now on; synced once. What it says must be durable already.
    pub(super) fn keep(database: &Path, from: Kept) -> Self {
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

    /// What was synced last.
    pub(super) fn advance(&self, to: Kept) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let next = Kept { newest: kept.0.newest.max(to.newest), base: kept.0.base.max(to.base) };
        if next == kept.0 {
            return;
        }
        kept.0 = next;
        // Where it cannot be written, the one that is there stays true. On a full volume it is tried again.
        let _ = self.write(&mut kept.1, next);
    }

    fn write<'f>(&self, file: &'f mut Option<File>, kept: Kept) -> io::Result<&'f File> {
        #[cfg(test)]
        super::tests::torture::note_write(&self.path, kept.line().as_bytes());
        let open = match file.take() {
            Some(open) => open,
            None => file::open_beside(&self.database, &self.path)?,
        };
        let open = file.insert(open);
        open.write_all_at(kept.line().as_bytes(), 0)?;
        Ok(open)
    }
}

/// Commits that are not there any more.
#[derive(Debug)]
pub(super) struct Loss {
    pub(super) reason: String,
    /// The log belongs to another state of the database. Read with this one, it would damage it.
    pub(super) log_is_foreign: bool,
}

impl Loss {
    pub(super) fn into_error(self, database: &Path) -> StoreError {
        StoreError::LostCommits { path: database.to_owned(), reason: self.reason }
    }
}

/// Looks whether a database is what it was. Changes nothing, and comes before SQLite may change anything.
///
/// # Errors
/// [`StoreError::Missing`]; and where something cannot be read, what that means: it is not known then whether commits
/// are lost, and a migration would write over the traces.
pub(super) fn verify(database: &Path) -> Result<Option<Loss>, StoreError> {
    let length = |path: &Path| std::fs::metadata(path).map_or(0, |meta| meta.len());
    let (mark, log) = (Mark::path_of(database), file::log_of(database));
    if length(database) == 0 {
        // SQLite would remove the log of a database that is not there.
        let trace = [mark, log].into_iter().find(|trace| length(trace) > 0);
        let missing = |trace| StoreError::Missing { path: database.to_owned(), trace };
        return trace.map_or(Ok(None), |trace| Err(missing(trace)));
    }
    let has_log = length(&log) > 0;
    let log = Log::read(&log).map_err(|error| file::unavailable(&log, &error))?;
    let kept = Mark::read(database)?;
    if let Some(kept) = kept.filter(|kept| has_log && is_below(database, kept.base))
        // A log that ends before the newest one began is an older one, of the same age as the database.
        && read_position(database)?.is_some_and(|found| found > kept.base)
    {
        let reason = format!("its log does not belong to it: that begins at event {}", kept.base.next_event);
        return Ok(Some(Loss { reason, log_is_foreign: true }));
    }
    let lost = |reason| Ok(Some(Loss { reason, log_is_foreign: false }));
    if let Some(log) = log.as_ref().filter(|log| log.behind > UNSYNCED_MAX) {
        return lost(log.describe());
    }
    let Some(kept) = kept else { return Ok(None) };
    let Some(found) = read_position(database)?.filter(|found| *found < kept.newest) else { return Ok(None) };
    let log = log.filter(|log| log.behind > 0).map_or(String::new(), |log| format!("; {}", log.describe()));
    lost(describe_loss(found, kept.newest) + &log)
}

/// Whether a database alone, without its log, has not come as far as `base`.
fn is_below(database: &Path, base: Position) -> bool {
    let found = file::open_without_log(database).and_then(|connection| Ok(Position::of(&connection)?));
    // While its log was being moved it may have been no database at all. That says nothing.
    found.is_ok_and(|found| found.unwrap_or_default() < base)
}

/// The position of a database with its log; `None` where a full volume leaves no room to read it.
fn read_position(database: &Path) -> Result<Option<Position>, StoreError> {
    // One that only reads neither moves the log nor removes it.
    let found = file::open_reader(database).and_then(|connection| Ok(Position::of(&connection)?));
    match found.map_err(|failure| failure.into_store_error(Phase::Change, database)) {
        Ok(found) => Ok(Some(found.unwrap_or_default())),
        // The one that writes can wait for the reserve, and compares again.
        Err(StoreError::Full) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Says what is missing.
pub(super) fn describe_loss(found: Position, kept: Position) -> String {
    format!("it ends before event {}, and had come to event {}", found.next_event, kept.next_event)
}

/// What can be told of SQLite's log without SQLite (<https://www.sqlite.org/walformat.html>).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Log {
    /// The frame at which it breaks off, from 1: the first that is damaged, or was never written.
    pub(super) broken_at: u64,
    /// Transactions of the same log that are whole and lie behind that frame.
    pub(super) behind: u64,
}

const LOG_HEADER: usize = 32;
const FRAME_HEADER: usize = 24;

impl Log {
    /// `None` where there is no log, or its head is damaged: what is in it is unknown then.
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
            // Each checksum goes on from the one before, and that is kept in the frame before: so a frame behind a
            // damaged one can still be told from what was there before it.
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
            "its log is damaged at frame {}, and {} transactions lie behind that",
            self.broken_at, self.behind
        )
    }
}

/// Fills `bytes`; false if the file ends before.
fn read_whole(file: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// The four bytes at `at`.
fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_be_bytes(word)
}

fn pair(bytes: &[u8], at: usize) -> (u32, u32) {
    (word(bytes, at), word(bytes, at + 4))
}

/// The checksum of a log, whose head says in which order the bytes of its words are taken.
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
    fn what_is_kept_is_read_as_it_was_written_and_nothing_else_is() {
        let newest = Position { next_event: 42, now: -7 };
        let kept = Kept { newest, base: Position { next_event: 41, now: -8 } };
        assert_eq!(Kept::parse(&kept.line()), Some(kept));
        assert_eq!(kept.line().len(), 93);
        assert_eq!(Kept::parse(&kept.line().replace("42", "43")), None);
        assert_eq!(Kept::parse(""), None);
        let of_an_earlier_version = sealed("00000000000000000042 -0000000000000000007");
        assert_eq!(Kept::parse(&of_an_earlier_version), Some(Kept { newest, ..Kept::default() }));
    }
}
