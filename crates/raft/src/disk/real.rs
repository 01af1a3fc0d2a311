//! A real folder.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, fallocate, fstatvfs};
use rustix::io::Errno;

use super::{Disk, DiskFile};

/// A folder of the file system. It is locked while it is open, because two processes that append to one log would
/// destroy it.
#[derive(Debug)]
pub(crate) struct RealDisk {
    folder: PathBuf,
    /// For the lock, and to sync the names.
    handle: File,
}

impl RealDisk {
    /// Opens a folder. A missing one is created, with access for the owner only.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if the folder is already open, in this process or another.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        if !folder.exists() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            if let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                File::open(parent)?.sync_all()?;
            }
        }
        let handle = File::open(folder)?;
        match handle.try_lock() {
            Ok(()) => Ok(Self { folder: folder.to_owned(), handle }),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn open_file(&self, name: &str, options: &mut OpenOptions) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(RealFile(options.read(true).write(true).open(self.path_of(name))?)))
    }
}

impl Disk for RealDisk {
    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            // Every name that the log gives is valid UTF-8; other files are none of its own.
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.open_file(name, &mut OpenOptions::new())
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.open_file(name, OpenOptions::new().create(true).truncate(true).mode(0o600))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path_of(from), self.path_of(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path_of(name))
    }

    fn sync_folder(&self) -> io::Result<()> {
        self.handle.sync_all()
    }

    fn available_bytes(&self) -> io::Result<u64> {
        let volume = fstatvfs(&self.handle)?;
        Ok(volume.f_bavail.saturating_mul(volume.f_frsize))
    }

    fn path_of(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

#[derive(Debug)]
struct RealFile(File);

impl DiskFile for RealFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, mut bytes: &mut [u8], mut offset: u64) -> io::Result<usize> {
        let mut total = 0;
        while !bytes.is_empty() {
            match self.0.read_at(bytes, offset) {
                Ok(0) => break,
                Ok(read) => {
                    bytes = &mut bytes[read..];
                    offset += read as u64;
                    total += read;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(total)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        let now = self.length()?;
        if now >= length {
            return Ok(());
        }
        match fallocate(&self.0, FallocateFlags::empty(), now, length - now) {
            // The space is then allocated by each write, which may meet a full volume.
            Err(Errno::OPNOTSUPP) => self.0.set_len(length),
            allocated => Ok(allocated?),
        }
    }

    /// A preallocated file keeps its length, so `fdatasync` writes no inode for most appends.
    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_open_only_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/log");
        let disk = RealDisk::open(&path).unwrap();
        assert_eq!(RealDisk::open(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(disk);
        RealDisk::open(&path).unwrap();
    }

    #[test]
    fn files_are_read_beyond_their_end_and_grow_with_zeros() {
        let folder = tempfile::tempdir().unwrap();
        let disk = RealDisk::open(folder.path()).unwrap();
        let file = disk.create("a").unwrap();
        file.write_at(b"abc", 2).unwrap();
        file.allocate(8).unwrap();
        file.allocate(1).unwrap();
        let mut bytes = [9; 10];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 8);
        assert_eq!(&bytes, b"\0\0abc\0\0\0\x09\x09");
        file.cut(3).unwrap();
        disk.rename("a", "b").unwrap();
        assert_eq!((disk.names().unwrap(), file.length().unwrap()), (vec!["b".to_owned()], 3));
        assert!(disk.available_bytes().unwrap() > 0);
        disk.remove("b").unwrap();
        disk.sync_folder().unwrap();
        assert_eq!(disk.open("b").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
