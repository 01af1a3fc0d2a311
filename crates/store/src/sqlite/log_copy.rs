//! Copies of damaged logs.
//!
//! SQLite writes over what it does not read of a log, and that may be the only copy of commits, and the evidence of
//! what damaged them. So a log is copied before a store is opened without a part of it: to `belfry.db-wal.damaged`, and
//! to `belfry.db-wal.damaged.2` and so on where there are earlier ones.
//!
//! # Always true
//! - A copy is never written over, and is durable before SQLite sees the log.
//! - A store whose damaged log cannot be copied is not opened.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::file::{self, beside};
use crate::StoreError;

/// Copies that are kept. More of them would fill the volume.
const COPIES_MAX: u32 = 100;
/// Bytes that are compared at once.
const CHUNK: usize = 1 << 16;

/// Copies the log of a database, unless it is empty or was copied before.
///
/// # Errors
/// [`StoreError::Unavailable`] if the copy cannot be made.
pub(super) fn keep(database: &Path) -> Result<(), StoreError> {
    let log = file::log_of(database);
    match copy(database, &log) {
        Ok(None) => Ok(()),
        Ok(Some(copy)) => {
            tracing::warn!(copy = %copy.display(), "damaged log kept");
            file::sync_folder(database)
        }
        Err(error) => Err(StoreError::Unavailable {
            source: format!("cannot keep a copy of the damaged log `{}`: {error}", log.display()).into(),
        }),
    }
}

/// Where the new copy is, if there is one.
fn copy(database: &Path, log: &Path) -> io::Result<Option<PathBuf>> {
    let mut source = match File::open(log) {
        Ok(source) => source,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if source.metadata()?.len() == 0 {
        return Ok(None);
    }
    for number in 1..=COPIES_MAX {
        let path = match number {
            1 => beside(database, "-wal.damaged"),
            _ => beside(database, &format!("-wal.damaged.{number}")),
        };
        match file::create_beside(database, &path) {
            Ok(mut copy) => {
                let copied = io::copy(&mut source, &mut copy).and_then(|_| copy.sync_all());
                // Half a copy says nothing.
                return copied.map(|()| Some(path.clone())).inspect_err(|_| drop(fs::remove_file(&path)));
            }
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Err(_) if is_same(log, &path)? => return Ok(None),
            Err(_) => {}
        }
    }
    Err(io::Error::other(format!("there are {COPIES_MAX} copies of earlier ones: move them elsewhere")))
}

fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut left, mut right) = (vec![0; CHUNK], vec![0; CHUNK]);
    loop {
        let read = one.read(&mut left)?;
        if read == 0 {
            return Ok(true);
        }
        other.read_exact(&mut right[..read])?;
        if left[..read] != right[..read] {
            return Ok(false);
        }
    }
}
