//! Records of the `belfry dev` servers of a user that run.
//!
//! Each server keeps a file with its address and its data folder, and holds a lock on it. A record without a lock was
//! left behind by a server that was killed. The folder is `$XDG_RUNTIME_DIR/belfry/dev`, or `dev-running` in the user's
//! data folder; only the user can read it.

use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use super::Dev;
use crate::settings::Sources;

#[derive(Serialize, Deserialize)]
struct Content {
    address: SocketAddr,
    data_dir: PathBuf,
}

/// The record of this process; dropping it removes it.
#[derive(Debug)]
pub(crate) struct Record {
    path: PathBuf,
    /// Its lock says that the server runs.
    file: File,
}

impl Record {
    /// Writes the record of a server, under a name that no other one of the user has.
    pub(crate) fn write(
        sources: &Sources,
        address: SocketAddr,
        data_dir: &Path,
        name: &str,
    ) -> std::io::Result<Self> {
        let folder = folder(sources).ok_or_else(|| std::io::Error::other("there is no home folder"))?;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let data_dir = std::path::absolute(data_dir)?;
        let content = serde_json::to_vec(&Content { address, data_dir })?;
        let path = folder.join(format!("{name}.json"));
        // Locked before it is renamed into place, so that no other process removes it as stale.
        let partial = folder.join(format!("{name}.partial"));
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        file.write_all(&content)?;
        std::fs::rename(&partial, &path)?;
        Ok(Self { path, file })
    }

    /// Ends as a process does that is killed.
    #[cfg(test)]
    pub(super) fn leave_behind(self) {
        let kept = std::fs::read(&self.path).unwrap();
        let path = self.path.clone();
        drop(self);
        std::fs::write(path, kept).unwrap();
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // If it stays, it has no lock.
        let _removed = std::fs::remove_file(&self.path);
        let _unlocked = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

/// The servers of the user that run, in the order of their data folders.
pub(super) fn all(sources: &Sources) -> Vec<Dev> {
    let Some(entries) = folder(sources).and_then(|folder| std::fs::read_dir(folder).ok()) else {
        return Vec::new();
    };
    let mut all: Vec<_> = entries.filter_map(|entry| read(&entry.ok()?.path())).collect();
    all.sort_by(|a, b| a.token_file.cmp(&b.token_file));
    all
}

fn read(path: &Path) -> Option<Dev> {
    if path.extension()? != "json" {
        return None;
    }
    let file = File::open(path).ok()?;
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
        let _removed = std::fs::remove_file(path);
        return None;
    }
    let content: Content = serde_json::from_reader(file).ok()?;
    Some(Dev { url: format!("http://{}", content.address), token_file: content.data_dir.join("admin-token") })
}

fn folder(sources: &Sources) -> Option<PathBuf> {
    match sources.variable("XDG_RUNTIME_DIR") {
        Some(dir) if Path::new(dir).is_absolute() => Some(Path::new(dir).join("belfry/dev")),
        _ => sources.user_data().map(|data| data.join("dev-running")),
    }
}
