//! Copies of damaged WALs.
//!
//! SQLite overwrites the part of a WAL that it does not read. That part may be the only copy of commits, and the
//! evidence of the cause of the damage. So a WAL is copied before a store is opened without a part of it: to
//! `belfry.db-wal.damaged`, or to `belfry.db-wal.damaged.2` and so on if there are earlier copies.
//!
//! # Invariants
//! - A copy is never overwritten, and is durable before SQLite opens the WAL.
//! - A store whose damaged WAL cannot be copied is not opened.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::file::{self, sibling_path};
use crate::StoreError;

/// Maximum number of copies; more would fill the volume.
const COPIES_MAX: u32 = 100;
/// Number of bytes that are compared at a time.
const CHUNK: usize = 1 << 16;

/// Copies the WAL of a database, unless it is empty or was copied before.
///
/// # Errors
/// [`StoreError::Unavailable`] if the copy cannot be created.
pub(super) fn keep(database: &Path) -> Result<(), StoreError> {
    let log = file::wal_path(database);
    match copy(database, &log) {
        Ok(None) => Ok(()),
        Ok(Some(copy)) => {
            tracing::warn!(copy = %copy.display(), "copied a damaged WAL");
            file::sync_folder(database)
        }
        Err(error) => Err(StoreError::Unavailable {
            source: format!("cannot copy the damaged WAL `{}`: {error}", log.display()).into(),
        }),
    }
}

/// Returns the path of the new copy, if one was created.
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
            1 => sibling_path(database, "-wal.damaged"),
            _ => sibling_path(database, &format!("-wal.damaged.{number}")),
        };
        match file::create_sibling(database, &path) {
            Ok(mut copy) => {
                let copied = io::copy(&mut source, &mut copy).and_then(|_| copy.sync_all());
                // An incomplete copy is useless.
                return copied.map(|()| Some(path.clone())).inspect_err(|_| drop(fs::remove_file(&path)));
            }
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Err(_) if is_same(log, &path)? => return Ok(None),
            Err(_) => {}
        }
    }
    Err(io::Error::other(format!("there are already {COPIES_MAX} earlier copies: move them elsewhere")))
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
