//! A small disk that a test can fill.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A small tmpfs, unmounted when dropped.
#[derive(Debug)]
pub struct SmallDisk {
    at: PathBuf,
    _folder: TempDir,
}

impl SmallDisk {
    /// Mounts a disk of this size, such as `96m`.
    ///
    /// # Errors
    /// Returns the reason if the process may not mount a file system.
    pub fn mount(size: &str) -> Result<Self, String> {
        let folder = tempfile::tempdir().expect("cannot create a temporary folder");
        // Tasks that run as another user have their folders on the disk.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("permissions can be set");
        let at = folder.path().join("disk");
        fs::create_dir(&at).expect("cannot create the mount point");
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "belfry-test"])
            .arg(&at)
            .output();
        match output {
            Ok(output) if output.status.success() => Ok(Self { at, _folder: folder }),
            other => Err(format!("a full disk requires the permission to mount a tmpfs (root): {other:?}")),
        }
    }

    /// Returns the mount point.
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Fills the disk to the last byte.
    pub fn fill(&self) {
        let mut options = File::options();
        let mut file = options.create(true).append(true).open(self.filler()).expect("cannot open it");
        for size in [1 << 20, 4096, 1] {
            let chunk = vec![0_u8; size];
            while file.write_all(&chunk).is_ok() {}
        }
    }

    /// Keeps the disk full until the returned value is dropped: freed bytes are filled immediately.
    pub fn keep_full(&self) -> Filling {
        self.fill();
        let (sender, stop) = std::sync::mpsc::channel();
        let filler = self.filler();
        let thread = std::thread::spawn(move || {
            let mut file = File::options().append(true).open(filler).expect("the filler exists");
            let pause = std::time::Duration::from_millis(1);
            while stop.recv_timeout(pause) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                while file.write_all(&[0; 512]).is_ok() {}
            }
        });
        Filling { stop: Some(sender), thread: Some(thread) }
    }

    /// Fills the disk except for `left` bytes.
    pub fn fill_but(&self, left: u64) {
        self.fill();
        let filler = File::options().write(true).open(self.filler()).expect("the filler exists");
        let filled = filler.metadata().expect("cannot read the filler's metadata").len();
        filler.set_len(filled.saturating_sub(left)).expect("cannot truncate the filler");
    }

    /// Frees the space.
    pub fn clear(&self) {
        // The filler does not exist if the disk was never filled.
        let _ = fs::remove_file(self.filler());
    }

    fn filler(&self) -> PathBuf {
        self.at.join("filler")
    }
}

/// A thread that fills a disk as soon as a byte of it is free; stops when dropped.
#[derive(Debug)]
pub struct Filling {
    stop: Option<std::sync::mpsc::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.stop = None;
        // The result is irrelevant: the thread has stopped writing.
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let status = Command::new("umount").arg("--lazy").arg(&self.at).status();
        assert!(status.is_ok_and(|s| s.success()), "cannot unmount the small disk at {}", self.at.display());
    }
}
