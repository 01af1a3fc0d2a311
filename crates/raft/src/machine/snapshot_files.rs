//! Copies of a machine that are sent to other servers, and their installation.
//!
//! A received file is installed in steps that a crash may interrupt anywhere:
//!
//! 1. The file is complete, verified and durable as `complete-INDEX`. Before, it is `incoming`, and `offer` tells what it will
//!    be. Both survive a restart, so a transfer continues where it was interrupted.
//! 2. The marker `install` names it, durably.
//! 3. openraft removes the log that the snapshot replaces.
//! 4. The machine takes the file.
//! 5. The marker is removed.
//!
//! At the next start, [`Folder::interrupted`] finds the marker, and the node finishes the installation before it opens the
//! log for openraft.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use sha2::{Digest, Sha256};
use store::pace::Pace;

const INCOMING: &str = "incoming";
const OFFER: &str = "offer";
const MARKER: &str = "install";
const NEW_MARKER: &str = "install.new";

/// The folder of copies that are sent or received.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Creates the folder; removes what an earlier process has left, unless it is received or installed.
    pub(crate) fn open(path: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&path)?;
        let folder = Self(path);
        let installing = folder.interrupted()?;
        for entry in fs::read_dir(&folder.0)? {
            let path = entry?.path();
            let is_needed =
                installing.as_ref().is_some_and(|file| *file == path || folder.0.join(MARKER) == path);
            if !is_needed && path != folder.incoming() && path != folder.offer() {
                fs::remove_file(&path)?;
            }
        }
        Ok(folder)
    }

    /// Returns the path of a copy that is sent.
    pub(crate) fn outgoing(&self, number: u64) -> PathBuf {
        self.0.join(format!("outgoing-{number}"))
    }

    /// Returns the path of the copy that another server sends.
    pub(crate) fn incoming(&self) -> PathBuf {
        self.0.join(INCOMING)
    }

    /// Returns the path of the description of that copy.
    pub(crate) fn offer(&self) -> PathBuf {
        self.0.join(OFFER)
    }

    /// Returns the path of a complete copy, up to the entry with this index.
    pub(crate) fn complete(&self, index: u64) -> PathBuf {
        self.0.join(format!("complete-{index}"))
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

/// Reads a file with a pace. Blocks.
pub(crate) fn summarize(path: &Path, mut pace: Pace) -> io::Result<Summary> {
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
        std::thread::sleep(pace.spend(read as u64, Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_received_and_marked_files_survive_a_restart() {
        let place = tempfile::tempdir().unwrap();
        let open = || Folder::open(place.path().join("snapshots")).unwrap();
        let folder = open();
        let (file, other) = (folder.complete(7), folder.outgoing(1));
        for path in [&file, &other, &folder.incoming(), &folder.offer()] {
            fs::write(path, "copy").unwrap();
        }
        folder.mark(&file).unwrap();
        assert_eq!(open().interrupted().unwrap(), Some(file.clone()));
        assert!(file.exists() && !other.exists());
        open().installed().unwrap();
        assert_eq!(open().interrupted().unwrap(), None);
        assert!(!file.exists() && folder.incoming().exists() && folder.offer().exists());
    }
}
