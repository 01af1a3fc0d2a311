//! Copies of a machine that are sent to other servers, and their installation.
//!
//! A received file is installed in steps that a crash may interrupt anywhere:
//!
//! 1. The file is complete, verified and durable as `incoming-NODE`.
//! 2. The marker `install` names it, durably.
//! 3. openraft removes the log that the snapshot replaces.
//! 4. The machine takes the file.
//! 5. The marker is removed.
//!
//! At the next start, [`Folder::interrupted`] finds the marker, and the node finishes the installation before it opens the
//! log for openraft.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::Machine;
use crate::types::NodeId;

const MARKER: &str = "install";
const NEW_MARKER: &str = "install.new";

/// A snapshot as openraft passes it on.
pub enum SnapshotData<M> {
    /// The machine itself; it is copied when it is sent.
    Live(Arc<M>),
    /// A received copy.
    File(PathBuf),
}

impl<M: Machine> fmt::Debug for SnapshotData<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Live(_) => f.write_str("Live"),
            Self::File(path) => write!(f, "File({})", path.display()),
        }
    }
}

/// The folder of copies that are sent or received.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Creates the folder; removes what an earlier process has left, unless it is being installed.
    pub(crate) fn open(path: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&path)?;
        let folder = Self(path);
        let installing = folder.interrupted()?;
        for entry in fs::read_dir(&folder.0)? {
            let path = entry?.path();
            let is_needed =
                installing.as_ref().is_some_and(|file| *file == path || folder.0.join(MARKER) == path);
            if !is_needed {
                fs::remove_file(&path)?;
            }
        }
        Ok(folder)
    }

    /// Returns the path of a copy that is sent.
    pub(crate) fn outgoing(&self, name: &str) -> PathBuf {
        self.0.join(format!("outgoing-{name}"))
    }

    /// Returns the path of a copy that another server sends.
    pub(crate) fn incoming(&self, from: NodeId) -> PathBuf {
        self.0.join(format!("incoming-{from}"))
    }

    /// Notes durably that a file is to be installed.
    pub(crate) fn mark(&self, file: &Path) -> io::Result<()> {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let new = self.0.join(NEW_MARKER);
        let mut marker = File::create(&new)?;
        marker.write_all(name.as_bytes())?;
        marker.sync_all()?;
        fs::rename(new, self.0.join(MARKER))?;
        self.sync()
    }

    /// Removes the marker, after the installation or when the file is not needed.
    pub(crate) fn installed(&self) -> io::Result<()> {
        match fs::remove_file(self.0.join(MARKER)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => self.sync(),
        }
    }

    /// Returns the file whose installation was interrupted. The machine may have taken it already.
    pub(crate) fn interrupted(&self) -> io::Result<Option<PathBuf>> {
        match fs::read_to_string(self.0.join(MARKER)) {
            Ok(name) => Ok(Some(self.0.join(name))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }
}

/// Length and checksum of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) bytes: u64,
    pub(crate) sha256: [u8; 32],
}

/// Reads a file. Blocks.
pub(crate) fn summarize(path: &Path) -> io::Result<Summary> {
    let mut file = File::open(path)?;
    let (mut hasher, mut bytes) = (Sha256::new(), 0);
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(Summary { bytes, sha256: hasher.finalize().into() });
        }
        hasher.update(&buffer[..read]);
        bytes += read as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_marked_file_survives_a_restart() {
        let place = tempfile::tempdir().unwrap();
        let open = || Folder::open(place.path().join("snapshots")).unwrap();
        let folder = open();
        let (file, other) = (folder.incoming(NodeId(1)), folder.outgoing("other"));
        fs::write(&file, "copy").unwrap();
        fs::write(&other, "copy").unwrap();
        folder.mark(&file).unwrap();
        assert_eq!(open().interrupted().unwrap(), Some(file.clone()));
        assert!(file.exists() && !other.exists());
        open().installed().unwrap();
        assert_eq!(open().interrupted().unwrap(), None);
        assert!(!file.exists());
    }
}
