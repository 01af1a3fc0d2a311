//! The supervisor's end of the fuse.
//!
//! It is told how far the lease goes, without ever waiting; whom it guards it reads from a table that we write
//! ([`guards`]). A fuse that died, or that reads nothing any more, is replaced.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::clock::BootMillis;
use crate::fuse::FROZE;
#[cfg(doc)]
use crate::fuse::guards;

/// A fuse with this much unread does not work any more.
const BACKLOG_MAX: usize = 4 << 10;

/// A running fuse.
#[derive(Debug)]
pub(super) struct FuseLink {
    socket: UnixStream,
    child: Child,
    out: Vec<u8>,
}

impl FuseLink {
    /// Starts one that guards who stands in `table`.
    pub(super) fn start(program: &Path, table: OwnedFd) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let child = Command::new(program)
            .arg("fuse")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(table))
            .spawn()?;
        Ok(Self { socket: ours, child, out: Vec::new() })
    }

    pub(super) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(0)
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The lease goes until then.
    pub(super) fn tell_lease(&mut self, until: BootMillis) {
        self.out.extend_from_slice(&until.to_le_bytes());
    }

    /// Writes what was collected, as far as the fuse takes it now.
    ///
    /// # Errors
    /// If this fuse is no good any more.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while !self.out.is_empty() {
            match self.socket.write(&self.out) {
                Ok(len) => drop(self.out.drain(..len)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.out.len() > BACKLOG_MAX { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }

    /// Whether it says that it has frozen its tasks.
    ///
    /// # Errors
    /// If it is gone.
    pub(super) fn hear(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 64];
        match self.socket.read(&mut buffer) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => Ok(buffer[..len].contains(&FROZE)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes sure that it does nothing any more. It is reaped with the other children.
    pub(super) fn kill(mut self) {
        // Before its socket closes, or it would take that for the supervisor's end and kill the tasks.
        self.child.kill().ok();
    }
}
