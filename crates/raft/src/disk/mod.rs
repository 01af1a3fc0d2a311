//! The files of the log, behind a trait.
//!
//! [`RealDisk`] is a folder. In tests, `SimDisk` keeps the files in memory, loses what was not synced when its power is
//! cut, and can fail or stop at every operation.
//!
//! The contract is that of a POSIX file system without any journal. A write and a change of the length are durable after
//! [`DiskFile::sync`]. A new name, a rename and a removal are durable after [`Disk::sync_folder`]. Before that, each of
//! them may survive a power cut or not, in any combination, and of a write any sectors.

mod real;
#[cfg(test)]
pub(crate) mod sim;

use std::fmt::Debug;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

pub(crate) use real::RealDisk;

/// A folder with files.
pub(crate) trait Disk: Debug + Send + Sync {
    /// Returns the names of all files, in no particular order.
    fn names(&self) -> io::Result<Vec<String>>;
    /// Opens an existing file.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Creates an empty file; replaces an existing one.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Gives a file another name; replaces the file that has it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes all changes of names durable.
    fn sync_folder(&self) -> io::Result<()>;
    /// Returns the bytes that files can still grow by.
    fn available_bytes(&self) -> io::Result<u64>;
    /// Returns the path of a file, for messages.
    fn path_of(&self, name: &str) -> PathBuf;
}

/// An open file. Reads and writes have explicit positions, so threads can share it.
pub(crate) trait DiskFile: Debug + Send + Sync {
    /// Returns the length in bytes.
    fn length(&self) -> io::Result<u64>;
    /// Reads until `bytes` is full or the file ends; returns the number of bytes read.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all bytes. The file grows if needed.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Cuts the file off.
    fn cut(&self, length: u64) -> io::Result<()>;
    /// Extends the file with zeros, whose space is allocated where the file system can do that. Does not cut it off.
    fn allocate(&self, length: u64) -> io::Result<()>;
    /// Makes contents and length durable.
    fn sync(&self) -> io::Result<()>;
}
