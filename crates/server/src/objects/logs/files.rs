//! Files of logs: their paths, and how they are written, completed and read.
//!
//! All functions block; callers run them on blocking threads.
//!
//! # Invariants
//! - A log is in one file at a time: `.log` while it grows, then `.done` or an object.
//! - A file contains the frames from offset 0 on, or a header with a later first offset, and the frames from there on
//!   ([`Place`]). Each reader reads the header of the file that it has opened, because a rotation replaces the file.
//! - Only [`Inner::examine`] shortens a file, and only by a torn end.

use std::fs::File;
use std::io::{BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use model::{ExecutionId, limits};
use object_store::path::Path as Key;
use proto::logframe;

use super::{Appended, Inner, Log, LogLimit, LogSize, LogWrite};
use crate::objects::{ObjectError, io, sync_dir};
use crate::private_files::make_private_dir;

/// Factor between the largest size of a log and that of its output: the rest is for the headers of frames.
const FRAMED: u64 = 4;
/// Extension of the new file of a log during its rotation.
pub(super) const ROTATION: &str = "new";

/// Where the frames of a log are in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Place {
    /// Offset of the first frame in the file.
    first: u64,
}

impl Place {
    /// First bytes of a file whose first offset is not 0. No frame begins with them.
    const MAGIC: [u8; 8] = *b"BELFRYL1";
    /// Size of the header: the magic, and the first offset in little endian.
    pub(super) const HEADER: u64 = 16;

    pub(super) fn from_first(first: u64) -> Self {
        Self { first }
    }

    /// Parses the first [`Self::HEADER`] bytes of a file.
    pub(super) fn of(start: &[u8]) -> Self {
        let offset = start.strip_prefix(&Self::MAGIC).and_then(|rest| rest.first_chunk::<8>());
        Self { first: offset.map_or(0, |bytes| u64::from_le_bytes(*bytes)) }
    }

    fn read(file: &File) -> std::io::Result<Self> {
        let mut start = [0; Self::HEADER as usize];
        match file.read_exact_at(&mut start, 0) {
            Ok(()) => Ok(Self::of(&start)),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    fn header(self) -> Vec<u8> {
        if self.first == 0 { Vec::new() } else { [Self::MAGIC, self.first.to_le_bytes()].concat() }
    }

    fn header_len(self) -> u64 {
        if self.first == 0 { 0 } else { Self::HEADER }
    }

    /// Returns the position in the file of an offset, which must not be below the first one.
    pub(super) fn position(self, offset: u64) -> u64 {
        self.header_len() + (offset - self.first)
    }

    /// Returns the size of a log whose file has this length.
    pub(super) fn size(self, len: u64, complete: bool) -> LogSize {
        let end = self.first + len.saturating_sub(self.header_len());
        LogSize { first: self.first, end, complete }
    }
}

impl Inner {
    pub(super) fn live_file(&self, execution: ExecutionId) -> PathBuf {
        self.live.join(folder(execution)).join(format!("{execution}.log"))
    }

    pub(super) fn done_file(&self, execution: ExecutionId) -> PathBuf {
        self.live.join(folder(execution)).join(format!("{execution}.done"))
    }

    /// Returns whether every future leader can read the written bytes. A single server always can; otherwise the log
    /// must be complete and in a shared folder.
    fn is_shared_or_final(&self, complete: bool) -> bool {
        let in_folder = self.backend.file(&key(ExecutionId::from_bits(0))).is_some();
        !self.shared || (complete && in_folder)
    }

    /// Returns the size of a log on disk. Truncates a torn end, as a power failure leaves it.
    pub(super) fn examine(&self, execution: ExecutionId) -> Result<LogSize, ObjectError> {
        let live = self.live_file(execution);
        match std::fs::read(&live) {
            Ok(bytes) => {
                if let Some(object) = self.backend.file(&key(execution))
                    && let Some(size) = size_of_file(&object)?
                {
                    // Another server has continued and completed this log.
                    std::fs::remove_file(&live).map_err(io("remove", &live))?;
                    return Ok(size);
                }
                let place = Place::of(&bytes);
                let header = usize::try_from(place.header_len()).unwrap_or_default();
                let whole = place.header_len() + whole_frames(&bytes[header..]);
                if whole < bytes.len() as u64 {
                    let cut = File::options().write(true).open(&live).and_then(|f| f.set_len(whole));
                    cut.map_err(io("truncate", &live))?;
                }
                return Ok(place.size(whole, false));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(io("read", live)(error)),
        }
        for file in
            [Some(self.done_file(execution)), self.backend.file(&key(execution))].into_iter().flatten()
        {
            if let Some(size) = size_of_file(&file)? {
                return Ok(size);
            }
        }
        Ok(LogSize::default())
    }

    pub(super) fn write(
        &self,
        log: &Log,
        execution: ExecutionId,
        new: &LogWrite,
    ) -> Result<Appended, ObjectError> {
        let LogWrite { offset, frames, end, limit } = new;
        let size = *log.size.borrow();
        let kept = |end, complete| if self.is_shared_or_final(complete) { end } else { 0 };
        let as_it_is = Appended { offset: size.end, new_bytes: 0, kept: kept(size.end, size.complete) };
        let is_lost = *offset > size.end
            && matches!(limit, LogLimit::Rotated { first_offset, .. } if first_offset == offset);
        if size.complete || (*offset > size.end && !is_lost) {
            return Ok(as_it_is);
        }
        let known = usize::try_from(size.end.saturating_sub(*offset)).unwrap_or(usize::MAX).min(frames.len());
        let fresh = &frames[known..];
        if whole_frames(frames) != frames.len() as u64 || whole_frames(fresh) != fresh.len() as u64 {
            return Err(ObjectError::Malformed { execution, offset: *offset });
        }
        let start = if is_lost { *offset } else { size.end };
        let bytes = start + fresh.len() as u64;
        if let LogLimit::Fixed { max_bytes } = limit
            && let limit = FRAMED * max_bytes.min(&limits::LOG_SIZE_MAX.0)
            && bytes > limit
        {
            let object = format!("the log of execution `{execution}`");
            return Err(ObjectError::TooLarge { object, limit });
        }
        // An end below the current size belongs to a chunk that is resent.
        let complete = *end && bytes == offset + frames.len() as u64;
        if fresh.is_empty() && !complete {
            return Ok(as_it_is);
        }
        let written = if is_lost {
            self.restart(execution, start)
        } else {
            self.rotate_if_large(execution, size, bytes, *limit)
        };
        let written = written.and_then(|first| {
            let at = Place::from_first(first).position(start);
            self.write_file(execution, at, fresh, complete)?;
            Ok(LogSize { first, end: bytes, complete })
        });
        match written {
            Ok(size) => log.size.send_replace(size),
            Err(error) => {
                // It may have failed at any step: the size on disk counts from here on.
                log.announce_if_new(self.examine(execution).unwrap_or(size));
                return Err(error);
            }
        };
        Ok(Appended { offset: bytes, new_bytes: fresh.len() as u64, kept: kept(bytes, complete) })
    }

    /// Replaces the file of a log by an empty one that begins at `first`.
    fn restart(&self, execution: ExecutionId, first: u64) -> Result<u64, ObjectError> {
        let live = self.live_file(execution);
        make_private_dir(&self.live.join(folder(execution))).map_err(io("create the folder of", &live))?;
        self.replace(&live, Place { first }, None)?;
        Ok(first)
    }

    /// Removes the oldest bytes of a rotated log if it would be too large with its new `end`. Returns its first offset.
    fn rotate_if_large(
        &self,
        execution: ExecutionId,
        size: LogSize,
        end: u64,
        limit: LogLimit,
    ) -> Result<u64, ObjectError> {
        let LogLimit::Rotated { max_bytes, .. } = limit else { return Ok(size.first) };
        let max = max_bytes.clamp(limits::LOG_SIZE_MIN.0, limits::LOG_SIZE_MAX.0);
        if end - size.first <= max || size.end == size.first {
            return Ok(size.first);
        }
        let live = self.live_file(execution);
        let file = File::open(&live).map_err(io("open", &live))?;
        let place = Place::from_first(size.first);
        let mut rest = BufReader::with_capacity(256 * 1024, file);
        rest.seek(SeekFrom::Start(place.header_len())).map_err(io("read", &live))?;
        let first = skip_frames(&mut rest, size.first, end - max / 2, size.end).map_err(io("read", &live))?;
        self.replace(&live, Place { first }, Some(rest))?;
        Ok(first)
    }

    /// Replaces the file of a log by one that begins at `place` and contains these frames.
    fn replace(&self, live: &Path, place: Place, frames: Option<BufReader<File>>) -> Result<(), ObjectError> {
        let path = live.with_extension(ROTATION);
        let write = || {
            let mut file = File::create(&path)?;
            file.write_all(&place.header())?;
            if let Some(mut frames) = frames {
                std::io::copy(&mut frames, &mut file)?;
            }
            // Durable before the rename: after a power failure, the file must not be empty.
            file.sync_data()?;
            std::fs::rename(&path, live)
        };
        write().map_err(|error| {
            std::fs::remove_file(&path).ok();
            io("rotate", live)(error)
        })
    }

    fn write_file(
        &self,
        execution: ExecutionId,
        at: u64,
        fresh: &[u8],
        complete: bool,
    ) -> Result<(), ObjectError> {
        let path = self.live_file(execution);
        let mut options = File::options();
        options.write(true).create(true).truncate(false);
        let file = match options.open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                make_private_dir(&self.live.join(folder(execution)))
                    .map_err(io("create the folder of", &path))?;
                options.open(&path)
            }
            opened => opened,
        };
        let file = file.map_err(io("open", &path))?;
        // At its offset, not at the end: this overwrites the partial write of a failed attempt.
        file.write_all_at(fresh, at).map_err(io("write", &path))?;
        if complete {
            file.sync_data().map_err(io("sync", &path))?;
            self.complete(execution, &path)?;
        }
        Ok(())
    }

    /// Moves a complete log to its object or to the upload queue.
    fn complete(&self, execution: ExecutionId, live: &Path) -> Result<(), ObjectError> {
        let Some(object) = self.backend.file(&key(execution)) else {
            let done = self.done_file(execution);
            std::fs::rename(live, &done).map_err(io("rename", live))?;
            sync_dir(done.parent().unwrap_or(&self.live))?;
            self.finished(execution);
            return Ok(());
        };
        let folder = object.parent().unwrap_or(&self.live);
        match std::fs::rename(live, &object) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                make_private_dir(folder).map_err(io("create", folder))?;
                std::fs::rename(live, &object).map_err(io("rename", live))?;
            }
            Err(error) if error.kind() == std::io::ErrorKind::CrossesDevices => move_across(live, &object)?,
            renamed => renamed.map_err(io("rename", live))?,
        }
        sync_dir(folder)
    }

    pub(super) fn finished(&self, execution: ExecutionId) {
        // The queue is closed only if no task uploads, as with a folder; the next start lists the files again.
        let _gone = self.finished.send(execution);
    }

    /// Reads a range of a log from a local file, as far as it was not removed; `None` if the log is in no local file (any
    /// more). Returns the offset of the first byte too.
    pub(super) fn read_local(
        &self,
        execution: ExecutionId,
        range: std::ops::Range<u64>,
    ) -> Result<Option<(u64, Bytes)>, ObjectError> {
        let object = self.backend.file(&key(execution));
        // In the order of a log's life: a log that is moved meanwhile is found at its next path.
        for path in
            [Some(self.live_file(execution)), Some(self.done_file(execution)), object].into_iter().flatten()
        {
            let file = match File::open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(io("open", path)(error)),
            };
            let place = Place::read(&file).map_err(io("read", &path))?;
            let (mut begin, mut end) = (range.start, range.end);
            if begin < place.first {
                // Rotated since the caller read its size.
                let whole = place.size(file.metadata().map_err(io("read", &path))?.len(), false);
                begin = place.first;
                end = whole.end.min(begin + (range.end - range.start));
            }
            let mut bytes = vec![0; usize::try_from(end - begin).unwrap_or_default()];
            file.read_exact_at(&mut bytes, place.position(begin)).map_err(io("read", &path))?;
            return Ok(Some((begin, bytes.into())));
        }
        Ok(None)
    }

    /// Returns complete logs that wait for upload.
    pub(super) fn done_files(&self) -> Result<Vec<ExecutionId>, ObjectError> {
        let mut found = Vec::new();
        for folder in std::fs::read_dir(&self.live).map_err(io("list", &self.live))? {
            let folder = folder.map_err(io("list", &self.live))?.path();
            if !folder.is_dir() {
                continue;
            }
            for entry in std::fs::read_dir(&folder).map_err(io("list", &folder))? {
                let name = entry.map_err(io("list", &folder))?.file_name();
                let id = name.to_str().and_then(|name| name.strip_suffix(".done"));
                found.extend(id.and_then(|id| id.parse::<ExecutionId>().ok()));
            }
        }
        Ok(found)
    }
}

/// Returns the size of a complete log in a file; `None` if the file does not exist.
fn size_of_file(path: &Path) -> Result<Option<LogSize>, ObjectError> {
    let examine = || -> std::io::Result<LogSize> {
        let file = File::open(path)?;
        Ok(Place::read(&file)?.size(file.metadata()?.len(), true))
    };
    match examine() {
        Ok(size) => Ok(Some(size)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io("examine", path)(error)),
    }
}

/// Skips frames from offset `at` on, until `target` is reached. Returns the offset of the next frame, at most `end`.
fn skip_frames(file: &mut BufReader<File>, mut at: u64, target: u64, end: u64) -> std::io::Result<u64> {
    let mut header = [0; logframe::HEADER];
    while at < target.min(end) {
        file.read_exact(&mut header)?;
        let len = logframe::data_len(&header).ok_or(std::io::ErrorKind::InvalidData)?;
        file.seek_relative(i64::try_from(len).unwrap_or(i64::MAX))?;
        at += (logframe::HEADER + len) as u64;
    }
    Ok(at)
}

/// Returns the folder of a log: one of 256, so that no folder becomes too large.
fn folder(execution: ExecutionId) -> String {
    let bits = execution.to_bits();
    // These bits are random for each millisecond, and count up within it.
    format!("{:02x}", ((bits >> 16) ^ (bits >> 40)) & 0xff)
}

pub(super) fn key(execution: ExecutionId) -> Key {
    Key::from_iter(["logs".to_owned(), folder(execution), format!("{execution}.log")])
}

/// Returns the length of the whole frames at the start; bytes after a malformed frame count as torn.
fn whole_frames(bytes: &[u8]) -> u64 {
    match logframe::whole_prefix(bytes) {
        Ok(whole) => whole as u64,
        Err(corrupt) => corrupt.at as u64,
    }
}

fn move_across(from: &Path, to: &Path) -> Result<(), ObjectError> {
    let part = to.with_extension("part");
    std::fs::copy(from, &part).map_err(io("copy to", &part))?;
    File::open(&part).and_then(|f| f.sync_all()).map_err(io("sync", &part))?;
    std::fs::rename(&part, to).map_err(io("rename", &part))?;
    std::fs::remove_file(from).map_err(io("remove", from))
}
