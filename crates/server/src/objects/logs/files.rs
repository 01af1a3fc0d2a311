//! Files of logs: their paths, and how they are written, completed and read.
//!
//! All functions block; callers run them on blocking threads.
//!
//! # Invariants
//! - A log is in one file at a time: `.log` while it grows, then `.done` or an object.
//! - Only [`Inner::examine`] shortens a file, and only by a torn end.

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use model::{ExecutionId, limits};
use object_store::path::Path as Key;
use proto::logframe;

use super::{Appended, Inner, Log, LogSize};
use crate::config::make_private_dir;
use crate::objects::{ObjectError, io, sync_dir};

/// Largest size of a log in bytes, including frame headers. Workers stop at [`limits::LOG_BYTES_MAX`] bytes of output;
/// the rest is for headers.
const LOG_BYTES_MAX: u64 = 4 * limits::LOG_BYTES_MAX;

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
                    && let Ok(meta) = std::fs::metadata(&object)
                {
                    // Another server has continued and completed this log.
                    std::fs::remove_file(&live).map_err(io("remove", &live))?;
                    return Ok(LogSize { bytes: meta.len(), complete: true });
                }
                let whole = whole_frames(&bytes);
                if whole < bytes.len() as u64 {
                    let cut = std::fs::File::options().write(true).open(&live).and_then(|f| f.set_len(whole));
                    cut.map_err(io("truncate", &live))?;
                }
                return Ok(LogSize { bytes: whole, complete: false });
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(io("read", live)(error)),
        }
        for file in
            [Some(self.done_file(execution)), self.backend.file(&key(execution))].into_iter().flatten()
        {
            match std::fs::metadata(&file) {
                Ok(meta) => return Ok(LogSize { bytes: meta.len(), complete: true }),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(io("examine", file)(error)),
            }
        }
        Ok(LogSize::default())
    }

    pub(super) fn write(
        &self,
        log: &Log,
        execution: ExecutionId,
        offset: u64,
        frames: &[u8],
        end: bool,
    ) -> Result<Appended, ObjectError> {
        let size = *log.size.borrow();
        let kept = |bytes, complete| if self.is_shared_or_final(complete) { bytes } else { 0 };
        let as_it_is = Appended { offset: size.bytes, new_bytes: 0, kept: kept(size.bytes, size.complete) };
        if size.complete || offset > size.bytes {
            return Ok(as_it_is);
        }
        let known = usize::try_from(size.bytes - offset).unwrap_or(usize::MAX).min(frames.len());
        let fresh = &frames[known..];
        if whole_frames(frames) != frames.len() as u64 || whole_frames(fresh) != fresh.len() as u64 {
            return Err(ObjectError::Malformed { execution, offset });
        }
        let bytes = size.bytes + fresh.len() as u64;
        if bytes > LOG_BYTES_MAX {
            return Err(ObjectError::TooLarge {
                object: format!("the log of execution `{execution}`"),
                limit: LOG_BYTES_MAX,
            });
        }
        // An end below the current size belongs to a chunk that is resent.
        let complete = end && bytes == offset + frames.len() as u64;
        if fresh.is_empty() && !complete {
            return Ok(as_it_is);
        }
        if let Err(error) = self.write_file(execution, size.bytes, fresh, complete) {
            // It may have failed at any step: the size on disk counts from here on.
            log.announce_if_new(self.examine(execution).unwrap_or(size));
            return Err(error);
        }
        log.size.send_replace(LogSize { bytes, complete });
        Ok(Appended { offset: bytes, new_bytes: fresh.len() as u64, kept: kept(bytes, complete) })
    }

    fn write_file(
        &self,
        execution: ExecutionId,
        at: u64,
        fresh: &[u8],
        complete: bool,
    ) -> Result<(), ObjectError> {
        let path = self.live_file(execution);
        let mut options = std::fs::File::options();
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

    /// Reads a range of a log from a local file; `None` if the log is in no local file (any more).
    pub(super) fn read_local(
        &self,
        execution: ExecutionId,
        range: std::ops::Range<u64>,
    ) -> Result<Option<Bytes>, ObjectError> {
        let object = self.backend.file(&key(execution));
        // In the order of a log's life: a log that is moved meanwhile is found at its next path.
        for path in
            [Some(self.live_file(execution)), Some(self.done_file(execution)), object].into_iter().flatten()
        {
            let file = match std::fs::File::open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(io("open", path)(error)),
            };
            let mut bytes = vec![0; usize::try_from(range.end - range.start).unwrap_or_default()];
            file.read_exact_at(&mut bytes, range.start).map_err(io("read", &path))?;
            return Ok(Some(bytes.into()));
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
    std::fs::File::open(&part).and_then(|f| f.sync_all()).map_err(io("sync", &part))?;
    std::fs::rename(&part, to).map_err(io("rename", &part))?;
    std::fs::remove_file(from).map_err(io("remove", from))
}
