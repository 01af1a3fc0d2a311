//! Records of the running `belfry dev` servers of a user.
//!
//! Each server writes a file with its address and its data directory, and holds a lock on it (`flock`). A record
//! without a lock is stale: its server was killed. The directory is `$XDG_RUNTIME_DIR/belfry/dev`, or `dev-running` in
//! the user's data directory; only the user can read it.

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

/// Record of this process. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct Record {
    path: PathBuf,
    /// The open file holds the lock while the server runs.
    file: File,
}

impl Record {
    /// Writes the record of a server. The name must be unique among the servers of the user.
    pub(crate) fn write(
        sources: &Sources,
        address: SocketAddr,
        data_dir: &Path,
        name: &str,
    ) -> std::io::Result<Self> {
        let folder =
            folder(sources).ok_or_else(|| std::io::Error::other("cannot find the home directory"))?;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let data_dir = std::path::absolute(data_dir)?;
        let content = serde_json::to_vec(&Content { address, data_dir })?;
        let path = folder.join(format!("{name}.json"));
        // Locked before the rename, so that no other process removes the file as stale.
        let partial = folder.join(format!("{name}.partial"));
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        file.write_all(&content)?;
        std::fs::rename(&partial, &path)?;
        Ok(Self { path, file })
    }

    /// Drops the record and leaves its file, as a killed process does.
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
        // A file that cannot be removed is stale, because it has no lock.
        let _removed = std::fs::remove_file(&self.path);
        let _unlocked = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

/// Returns the running servers of the user, sorted by data directory. Removes stale records.
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
