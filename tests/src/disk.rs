//! A small disk that a test fills.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A small file system of its own; gone with its value.
#[derive(Debug)]
pub struct SmallDisk {
    at: PathBuf,
    _folder: TempDir,
}

impl SmallDisk {
    /// A disk of this size (`96m`).
    ///
    /// # Errors
    /// Why there is none, where the rights to mount one are missing.
    pub fn mount(size: &str) -> Result<Self, String> {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        // Tasks of another user have their folders on it.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("its rights can be set");
        let at = folder.path().join("disk");
        fs::create_dir(&at).expect("a folder can be made in an empty one");
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "belfry-test"])
            .arg(&at)
            .output();
        match output {
            Ok(output) if output.status.success() => Ok(Self { at, _folder: folder }),
            other => Err(format!("a full disk needs the right to mount a tmpfs (root): {other:?}")),
        }
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Writes until not a byte is left.
    pub fn fill(&self) {
        let mut options = File::options();
        let mut file = options.create(true).append(true).open(self.filler()).expect("a file can be made");
        for size in [1 << 20, 4096, 1] {
            let chunk = vec![0_u8; size];
            while file.write_all(&chunk).is_ok() {}
        }
    }

    /// Keeps the disk full until the returned value is dropped: bytes that are freed are taken at once.
    pub fn keep_full(&self) -> Filling {
        self.fill();
        let (sender, stop) = std::sync::mpsc::channel();
        let filler = self.filler();
        let thread = std::thread::spawn(move || {
            let mut file = File::options().append(true).open(filler).expect("the filler is there");
            let pause = std::time::Duration::from_millis(1);
            while stop.recv_timeout(pause) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                while file.write_all(&[0; 512]).is_ok() {}
            }
        });
        Filling { stop: Some(sender), thread: Some(thread) }
    }

    /// Writes until so many bytes are left.
    pub fn fill_but(&self, left: u64) {
        self.fill();
        let filler = File::options().write(true).open(self.filler()).expect("the filler is there");
        let filled = filler.metadata().expect("it can be looked at").len();
        filler.set_len(filled.saturating_sub(left)).expect("it can be cut");
    }

    /// Gives the space back.
    pub fn clear(&self) {
        // Where it was never filled there is nothing to remove.
        let _ = fs::remove_file(self.filler());
    }

    fn filler(&self) -> PathBuf {
        self.at.join("filler")
    }
}

/// A thread that writes to a disk as soon as a byte of it is free.
#[derive(Debug)]
pub struct Filling {
    stop: Option<std::sync::mpsc::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.stop = None;
        // Whatever it met, nothing is written any more.
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let status = Command::new("umount").arg("--lazy").arg(&self.at).status();
        assert!(status.is_ok_and(|s| s.success()), "the small disk stays mounted at {}", self.at.display());
    }
}
