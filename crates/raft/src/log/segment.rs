//! A segment: a file with consecutive records.
//!
//! ```text
//!  offset  bytes
//!       0      8  "BLFRLOG1"
//!       8      2  format: 1
//!      10      2  zero
//!      12      4  CRC-32 of everything below, up to the first record
//!      16     16  cluster
//!      32      8  index of the first record
//!      40     25  log id of the record before it, in an earlier segment or purged
//!      65      9  index of the first record of the segment before, with a byte that says whether there was one
//!      74      4  salt of the checksums
//!      78     50  zero
//!     128         records
//! ```
//!
//! The header is durable before the file gets its name. A segment is durable before the next one is created, so only the
//! last segment can have a torn tail. The offsets of the records are kept in memory; for a segment from before the start
//! of the process they are found when it is read for the first time.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::error::{Failure, OpenError, ReadError};
use super::record::{HEADER_BYTES, Header, Record, padded};
use crate::codec::{OPTIONAL_LOG_ID_BYTES, Take, put_optional_log_id};
use crate::disk::{Disk, DiskFile};
use crate::types::LogId;

const MAGIC: &[u8; 8] = b"BLFRLOG1";
const FORMAT: u16 = 1;
/// Bytes before the part that the checksum covers.
const UNCHECKED: usize = 16;
/// Offset of the first record.
pub(super) const FIRST_RECORD: u64 = 128;
const PREAMBLE_BYTES: usize = 128;
const _: () = assert!(UNCHECKED + 16 + 8 + OPTIONAL_LOG_ID_BYTES + 9 + 4 <= PREAMBLE_BYTES);
/// Bytes that a scan reads at once.
const WINDOW_BYTES: usize = 1024 * 1024;

/// Returns the name of the segment that begins with the entry `first`.
pub(super) fn name_of(first: u64) -> String {
    format!("{first:020}.log")
}

/// Returns the index of the first entry of a segment, from its name; `None` for other files.
pub(super) fn first_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log").filter(|digits| digits.len() == 20)?;
    digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// What the start of a segment says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Preamble {
    pub(super) cluster: u128,
    pub(super) first: u64,
    pub(super) previous: Option<LogId>,
    pub(super) previous_segment: Option<u64>,
    pub(super) salt: u32,
}

impl Preamble {
    /// Returns the bytes and their checksum, with which the chain of the records starts.
    pub(super) fn encode(&self) -> (Vec<u8>, u32) {
        let mut bytes = Vec::with_capacity(PREAMBLE_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(FORMAT.to_le_bytes());
        bytes.extend([0; 6]);
        bytes.extend(self.cluster.to_le_bytes());
        bytes.extend(self.first.to_le_bytes());
        put_optional_log_id(self.previous.as_ref(), &mut bytes);
        bytes.push(u8::from(self.previous_segment.is_some()));
        bytes.extend(self.previous_segment.unwrap_or_default().to_le_bytes());
        bytes.extend(self.salt.to_le_bytes());
        bytes.resize(PREAMBLE_BYTES, 0);
        let checksum = crc32fast::hash(&bytes[UNCHECKED..]);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        (bytes, checksum)
    }

    fn parse(bytes: &[u8; PREAMBLE_BYTES]) -> Option<(Self, u32)> {
        let mut take = Take(&bytes[12..]);
        let checksum = take.u32()?;
        let (cluster, first, previous) = (take.u128()?, take.u64()?, take.optional_log_id()?);
        let (has_previous_segment, previous_segment) = (take.u8()? == 1, take.u64()?);
        let previous_segment = has_previous_segment.then_some(previous_segment);
        let preamble = Self { cluster, first, previous, previous_segment, salt: take.u32()? };
        let is_known = bytes.starts_with(MAGIC) && bytes[8..12] == [1, 0, 0, 0];
        let is_valid = is_known && checksum == crc32fast::hash(&bytes[UNCHECKED..]);
        is_valid.then_some((preamble, checksum))
    }
}

/// A segment on the disk. Threads read it while the log thread appends.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) preamble: Preamble,
    /// Checksum of the preamble.
    pub(super) checksum: u32,
    /// Offsets of the records; `None` until they are needed.
    offsets: Mutex<Option<Vec<u32>>>,
}

/// The valid records at the start of a segment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Scan {
    pub(super) offsets: Vec<u32>,
    /// Where the next record belongs.
    pub(super) end: u64,
    /// Checksum of the last record.
    pub(super) checksum: u32,
    pub(super) last: Option<LogId>,
}

/// What follows the valid records of a segment.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Tail {
    /// Only zeros.
    Clean,
    /// A record that was being written when the power went; no sync had covered it.
    Torn,
    /// A record that had been synced: a later one says so.
    Damaged,
}

impl Segment {
    /// Takes a file whose preamble is durable.
    pub(super) fn new(path: PathBuf, file: Arc<dyn DiskFile>, preamble: Preamble, checksum: u32) -> Self {
        Self { path, file, preamble, checksum, offsets: Mutex::new(Some(Vec::new())) }
    }

    /// Opens an existing segment and verifies its preamble.
    pub(super) fn open(disk: &dyn Disk, first: u64, cluster: u128) -> Result<Self, OpenError> {
        let name = name_of(first);
        let path = disk.path_of(&name);
        let file = disk.open(&name).map_err(Failure::of("open", path.clone()))?;
        let mut bytes = [0; PREAMBLE_BYTES];
        file.read_at(&mut bytes, 0).map_err(Failure::of("read", path.clone()))?;
        let format = u16::from_le_bytes([bytes[8], bytes[9]]);
        if bytes.starts_with(MAGIC) && format > FORMAT {
            return Err(OpenError::TooNew { path, found: format, known: FORMAT });
        }
        match Preamble::parse(&bytes) {
            Some((preamble, _)) if preamble.cluster != cluster => {
                Err(OpenError::OtherCluster { path, expected: cluster, found: preamble.cluster })
            }
            Some((preamble, checksum)) if preamble.first == first => {
                Ok(Self { path, file, preamble, checksum, offsets: Mutex::new(None) })
            }
            _ => {
                let problem = format!("expected the header of the segment that begins with entry {first}");
                Err(OpenError::Damaged { path, offset: 0, problem })
            }
        }
    }

    pub(super) fn first(&self) -> u64 {
        self.preamble.first
    }

    /// Reads all records up to the first one that is not valid.
    pub(super) fn scan(&self) -> Result<Scan, Failure> {
        self.scan_file().map_err(Failure::of("read", self.path.clone()))
    }

    fn scan_file(&self) -> io::Result<Scan> {
        let mut window = Window::new(&*self.file)?;
        let mut scan = Scan { end: FIRST_RECORD, checksum: self.checksum, ..Scan::default() };
        let mut index = self.first();
        while let Some(header) = window.header_at(scan.end)? {
            let follows = header.previous == scan.checksum && header.id.index == index;
            let record = window.bytes_at(scan.end, header.length)?;
            if !follows || record.len() < header.length || !header.verifies(self.preamble.salt, record) {
                break;
            }
            scan.offsets.push(offset_of(scan.end));
            scan.end += padded(header.length) as u64;
            scan.checksum = header.checksum;
            scan.last = Some(header.id);
            index += 1;
        }
        Ok(scan)
    }

    /// Judges what follows the valid records, which end at `end`.
    pub(super) fn tail(&self, end: u64) -> Result<Tail, Failure> {
        self.judge_tail(end).map_err(Failure::of("read", self.path.clone()))
    }

    fn judge_tail(&self, end: u64) -> io::Result<Tail> {
        let mut window = Window::new(&*self.file)?;
        let (mut at, mut tail) = (end, Tail::Clean);
        loop {
            let word = window.bytes_at(at, 8)?;
            if word.is_empty() {
                return Ok(tail);
            }
            // Nearly all of the segment.
            if word.iter().all(|byte| *byte == 0) {
                at += 8;
                continue;
            }
            tail = Tail::Torn;
            let header = Header::parse(window.bytes_at(at, HEADER_BYTES)?);
            if let Some(header) = header.filter(|header| (end + 1..=at).contains(&header.durable)) {
                let record = window.bytes_at(at, header.length)?;
                if record.len() == header.length && header.verifies(self.preamble.salt, record) {
                    return Ok(Tail::Damaged);
                }
            }
            at += 8;
        }
    }

    /// Sets the offsets that a scan has found.
    pub(super) fn set_offsets(&self, offsets: Vec<u32>) {
        *self.lock() = Some(offsets);
    }

    /// Adds the offset of a record that was written after all others.
    pub(super) fn push_offset(&self, offset: u64) {
        self.lock().get_or_insert_default().push(offset_of(offset));
    }

    /// Forgets the offsets of the records from `index` on.
    pub(super) fn truncate(&self, index: u64) {
        if let Some(offsets) = &mut *self.lock() {
            offsets.truncate(usize::try_from(index - self.first()).unwrap_or(usize::MAX));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Vec<u32>>> {
        self.offsets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the offset of the record of an entry.
    pub(super) fn offset(&self, index: u64) -> Result<u64, ReadError> {
        if self.lock().is_none() {
            let scan = self.scan()?;
            self.lock().get_or_insert(scan.offsets);
        }
        let offsets = self.lock();
        let offsets = offsets.as_deref().unwrap_or_default();
        let at = usize::try_from(index - self.first()).ok();
        match at.and_then(|at| offsets.get(at)) {
            Some(offset) => Ok(u64::from(*offset)),
            // The caller asks only for entries that were appended, so the scan has met damage.
            None => {
                let offset = offsets.last().map_or(FIRST_RECORD, |last| u64::from(*last));
                Err(ReadError::Damaged { path: self.path.clone(), offset, index })
            }
        }
    }

    /// Returns log id, checksum and end of the record of an entry.
    pub(super) fn header(&self, index: u64) -> Result<(LogId, u32, u64), ReadError> {
        let offset = self.offset(index)?;
        let header = Window::new(&*self.file).and_then(|mut window| window.header_at(offset));
        let header = header.map_err(Failure::of("read", self.path.clone()))?;
        match header.filter(|header| header.id.index == index) {
            Some(header) => Ok((header.id, header.checksum, offset + padded(header.length) as u64)),
            None => Err(ReadError::Damaged { path: self.path.clone(), offset, index }),
        }
    }

    /// Reads the records of entries into `records`, until these have `bytes_max` bytes or more.
    pub(super) fn read(
        &self,
        entries: Range<u64>,
        bytes_max: usize,
        records: &mut Vec<Record>,
    ) -> Result<(), ReadError> {
        let mut window = Window::new(&*self.file).map_err(Failure::of("read", self.path.clone()))?;
        let mut bytes: usize = records.iter().map(Record::encoded_len).sum();
        for index in entries {
            if bytes >= bytes_max {
                break;
            }
            let offset = self.offset(index)?;
            let record = self
                .read_record(&mut window, offset, index)
                .map_err(Failure::of("read", self.path.clone()))?
                .ok_or_else(|| ReadError::Damaged { path: self.path.clone(), offset, index })?;
            bytes += record.encoded_len();
            records.push(record);
        }
        Ok(())
    }

    fn read_record(&self, window: &mut Window<'_>, offset: u64, index: u64) -> io::Result<Option<Record>> {
        let Some(header) = window.header_at(offset)?.filter(|header| header.id.index == index) else {
            return Ok(None);
        };
        let bytes = window.bytes_at(offset, header.length)?;
        let is_valid = bytes.len() == header.length && header.verifies(self.preamble.salt, bytes);
        Ok(is_valid.then(|| Record {
            id: header.id,
            kind: header.kind,
            payload: Arc::from(&bytes[HEADER_BYTES..]),
        }))
    }
}

fn offset_of(offset: u64) -> u32 {
    u32::try_from(offset).expect("a segment is shorter than 4 GiB: the log thread begins a new one before")
}

/// Reads a file from front to back, a large piece at a time.
struct Window<'a> {
    file: &'a dyn DiskFile,
    bytes: Vec<u8>,
    start: u64,
    /// Bytes to read at once.
    piece: usize,
}

impl<'a> Window<'a> {
    fn new(file: &'a dyn DiskFile) -> io::Result<Self> {
        let length = usize::try_from(file.length()?).unwrap_or(usize::MAX);
        Ok(Self { file, bytes: Vec::new(), start: 0, piece: length.min(WINDOW_BYTES) })
    }

    /// Returns the bytes at an offset; fewer than `length` at the end of the file.
    fn bytes_at(&mut self, offset: u64, length: usize) -> io::Result<&[u8]> {
        let skipped = offset.checked_sub(self.start).and_then(|skipped| usize::try_from(skipped).ok());
        let mut skipped = skipped.unwrap_or(usize::MAX);
        if skipped.saturating_add(length) > self.bytes.len() {
            self.bytes.resize(length.max(self.piece), 0);
            let read = self.file.read_at(&mut self.bytes, offset)?;
            self.bytes.truncate(read);
            (self.start, skipped) = (offset, 0);
        }
        let end = (skipped + length).min(self.bytes.len());
        Ok(&self.bytes[skipped..end])
    }

    fn header_at(&mut self, offset: u64) -> io::Result<Option<Header>> {
        Ok(Header::parse(self.bytes_at(offset, HEADER_BYTES)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::log_id;
    use crate::types::NodeId;

    #[test]
    fn names_of_segments_are_recognized() {
        assert_eq!(first_of(&name_of(0)), Some(0));
        assert_eq!(first_of(&name_of(u64::MAX)), Some(u64::MAX));
        for other in ["spare", "0.log", "+0000000000000000001.log", "99999999999999999999.log", "state.new"] {
            assert_eq!(first_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_preamble_keeps_its_values() {
        for previous in [None, Some(log_id(1, NodeId(2), 3))] {
            let previous_segment = previous.map(|id| id.index);
            let preamble = Preamble { cluster: 7, first: 8, previous, previous_segment, salt: 9 };
            let (bytes, checksum) = preamble.encode();
            let bytes: [u8; PREAMBLE_BYTES] = bytes.try_into().unwrap();
            assert_eq!(Preamble::parse(&bytes), Some((preamble, checksum)));
            for at in 0..PREAMBLE_BYTES {
                let mut damaged = bytes;
                damaged[at] ^= 4;
                assert_eq!(Preamble::parse(&damaged), None, "byte {at}");
            }
        }
    }
}
