//! Files with secrets of running executions.
//!
//! They are in a file system in memory (`/dev/shm`), if the machine has one, so no value is written to a disk. Otherwise they are
//! below the worker folder; a warning is logged then. Memory that is swapped out can still reach a disk.
//!
//! ```text
//! /dev/shm/belfry-<worker>-<folder>-<random>/    0711, of the worker's user
//!   exe_…/                                       0700, of the user of the task
//!     secrets/                                   0755: $BELFRY_SECRETS; a container sees this directory only
//!       ca.pem                                   0444
//! ```
//!
//! The files of an execution are removed with its [`SecretFiles`], and those of an earlier supervisor at the start of the next
//! one.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, chown, fchown};
use std::path::{Path, PathBuf};

use model::ExecutionId;
use rustix::fs::statfs;
use rustix::process::geteuid;

use crate::clock::entropy;
use crate::layout::Layout;

/// File system in memory that every user can write to.
const MEMORY: &str = "/dev/shm";
/// Type of a tmpfs; see `statfs(2)`.
const TMPFS_MAGIC: u64 = 0x0102_1994;
/// Name of the directory with the files, in that of the execution.
const FILES: &str = "secrets";

/// Directory for the files of all executions. It is created for the first file.
#[derive(Debug)]
pub(super) struct SecretFolder {
    path: PathBuf,
}

/// Files of one execution; removed on drop.
#[derive(Debug)]
pub(super) struct SecretFiles {
    dir: PathBuf,
    path: PathBuf,
}

impl SecretFolder {
    /// Returns the directory of the worker with this mark, and removes the files of an earlier supervisor.
    pub(super) fn new(mark: &str, layout: &Layout) -> Self {
        Self::among(Path::new(MEMORY), mark, layout)
    }

    fn among(memory: &Path, mark: &str, layout: &Layout) -> Self {
        let prefix = format!("belfry-{mark}-");
        remove_left(memory, &prefix);
        let on_disk = layout.dir.join(FILES);
        fs::remove_dir_all(&on_disk).ok();
        // Other users can create files there too, so the name cannot be guessed.
        let path = match entropy() {
            Ok(random) if is_in_memory(memory) => memory.join(format!("{prefix}{random:016x}")),
            _ => on_disk,
        };
        Self { path }
    }

    /// Writes the files of an execution, as (name, content), for the user with these ids.
    pub(super) fn write(
        &self,
        id: ExecutionId,
        files: &[(&str, &[u8])],
        owner: Option<(u32, u32)>,
    ) -> io::Result<SecretFiles> {
        match DirBuilder::new().mode(0o711).create(&self.path) {
            Ok(()) if !self.path.starts_with(MEMORY) => {
                tracing::warn!(dir = %self.path.display(), "no file system in memory: files with secrets are written to the disk");
            }
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let dir = self.path.join(id.to_string());
        DirBuilder::new().mode(0o700).create(&dir)?;
        // From here on removed if a step fails.
        let written = SecretFiles { path: dir.join(FILES), dir };
        DirBuilder::new().mode(0o755).create(&written.path)?;
        for (name, content) in files {
            let mut file =
                File::options().write(true).create_new(true).mode(0o444).open(written.path.join(name))?;
            file.write_all(content)?;
            if let Some((uid, gid)) = owner {
                fchown(&file, Some(uid), Some(gid))?;
            }
        }
        if let Some((uid, gid)) = owner {
            chown(&written.path, Some(uid), Some(gid))?;
            chown(&written.dir, Some(uid), Some(gid))?;
        }
        Ok(written)
    }
}

impl Drop for SecretFolder {
    fn drop(&mut self) {
        fs::remove_dir(&self.path).ok();
    }
}

impl SecretFiles {
    /// Returns the directory with the files.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SecretFiles {
    fn drop(&mut self) {
        // Follows no symbolic link that a task has placed there.
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            tracing::warn!(dir = %self.dir.display(), %error, "cannot remove the files of secrets");
        }
    }
}

fn is_in_memory(dir: &Path) -> bool {
    statfs(dir).is_ok_and(|found| u64::try_from(found.f_type) == Ok(TMPFS_MAGIC))
}

/// Removes the directories of earlier supervisors of the same worker folder.
fn remove_left(memory: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(memory) else { return };
    for entry in entries.flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix))
            && entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == geteuid().as_raw());
        if is_ours && let Err(error) = fs::remove_dir_all(entry.path()) {
            tracing::warn!(dir = %entry.path().display(), %error, "cannot remove the files of secrets of an earlier supervisor");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn files_exist_for_the_owner_only_until_they_are_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        let folder = SecretFolder::among(dir.path(), "w", &layout);
        let id = ExecutionId::from_bits(7);
        let files = folder.write(id, &[("a", b"one"), ("b", b"two")], None).unwrap();
        assert_eq!(fs::read(files.path().join("b")).unwrap(), b"two");
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&files.dir), mode(&files.path().join("a"))), (0o700, 0o444));
        assert_eq!(mode(&folder.path), 0o711);
        let gone = files.dir.clone();
        drop(files);
        assert!(!gone.exists());
    }

    #[test]
    fn files_of_an_earlier_supervisor_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(&dir.path().join("worker"));
        fs::create_dir(&layout.dir).unwrap();
        for left in ["belfry-w-0123", "belfry-x-0123", "worker/secrets"] {
            fs::create_dir(dir.path().join(left)).unwrap();
            fs::write(dir.path().join(left).join("a"), "one").unwrap();
        }
        SecretFolder::among(dir.path(), "w", &layout);
        assert!(!dir.path().join("belfry-w-0123").exists() && !layout.dir.join(FILES).exists());
        assert!(dir.path().join("belfry-x-0123").exists(), "of another worker");
    }
}
