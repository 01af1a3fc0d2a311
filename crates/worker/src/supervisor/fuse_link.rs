//! The supervisor's side of the connection to the fuse.
//!
//! The supervisor sends the end of the lease without blocking. The fuse reads the guarded executions from a table
//! that the supervisor writes ([`guards`]). A fuse that has exited, is stopped, or reads nothing is replaced.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::FUSE_RETRY;
use crate::clock::{BootMillis, ClockReading, boot_millis};
#[cfg(doc)]
use crate::fuse::guards;
use crate::fuse::{FROZE, GROUPS_VARIABLE, SINCE};
use crate::process::tree;

/// Number of unread bytes from which a fuse counts as unresponsive.
const BACKLOG_MAX: usize = 4 << 10;

/// A running fuse.
#[derive(Debug)]
pub(super) struct FuseLink {
    socket: UnixStream,
    child: Child,
    started: BootMillis,
    out: Vec<u8>,
    /// Bytes of an incomplete message.
    partial: Vec<u8>,
}

/// Notice of a fuse that it has frozen its tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FreezeNotice {
    /// Time since which tasks are frozen; `None` from a fuse of an older release.
    pub(super) since: Option<ClockReading>,
}

impl FuseLink {
    /// Starts a fuse that guards the executions in `table`, with control groups in `bases`.
    pub(super) fn start(program: &Path, table: OwnedFd, bases: &[PathBuf]) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let child = Command::new(program)
            .arg("fuse")
            .env(
                GROUPS_VARIABLE,
                bases.iter().map(|base| base.as_os_str()).collect::<Vec<_>>().join(OsStr::new("\n")),
            )
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(table))
            .spawn()?;
        Ok(Self { socket: ours, child, started: boot_millis(), out: Vec::new(), partial: Vec::new() })
    }

    /// Returns when a new fuse may be started after this one has exited at `now`. If it exited shortly after its
    /// start, a new one could do the same.
    pub(super) fn next_at(&self, now: BootMillis) -> BootMillis {
        if now >= self.started + FUSE_RETRY { now } else { now + FUSE_RETRY }
    }

    pub(super) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(0)
    }

    /// Returns whether the fuse was stopped by a signal, so that it cannot act.
    pub(super) fn is_stopped(&self) -> bool {
        tree::is_stopped(self.pid())
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Queues a message with the end of the lease.
    pub(super) fn publish_lease(&mut self, until: BootMillis) {
        self.out.extend_from_slice(&until.to_le_bytes());
    }

    /// Writes the queued messages, as far as the fuse accepts them.
    ///
    /// # Errors
    /// If the fuse must be replaced.
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

    /// Reads the notices of the fuse; the time is that of the first notice.
    ///
    /// # Errors
    /// If the connection is closed.
    pub(super) fn receive(&mut self) -> io::Result<Option<FreezeNotice>> {
        let mut buffer = [0; 256];
        let len = match self.socket.read(&mut buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        };
        self.partial.extend_from_slice(&buffer[..len]);
        Ok(decode_notices(&mut self.partial))
    }

    /// Kills it, and returns its process id: it is reaped with the other children.
    pub(super) fn kill(mut self) -> i32 {
        // Before the socket closes; otherwise the fuse would assume that the supervisor has exited, and kill the
        // tasks.
        self.child.kill().ok();
        self.pid()
    }
}

/// Decodes the complete notices at the front of `bytes` and removes them.
fn decode_notices(bytes: &mut Vec<u8>) -> Option<FreezeNotice> {
    let (mut at, mut froze, mut since) = (0, None, None);
    while let Some(kind) = bytes.get(at) {
        match *kind {
            SINCE => {
                // The time and the final byte are read together; a time without it would be lost.
                let Some(words) = bytes.get(at + 1..at + 18) else { break };
                let (words, _) = words.as_chunks::<8>();
                let [boot, asleep] = [words[0], words[1]].map(u64::from_le_bytes);
                since = since.or(Some(ClockReading { boot, suspended: asleep }));
                froze = Some(FreezeNotice { since });
                at += 18;
            }
            FROZE => {
                froze = Some(FreezeNotice { since });
                at += 1;
            }
            // A message of a newer fuse; skipped.
            _ => at += 1,
        }
    }
    bytes.drain(..at);
    froze
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(boot: u64) -> Vec<u8> {
        let words = [boot, 3].map(u64::to_le_bytes).concat();
        [&[SINCE], words.as_slice(), &[FROZE]].concat()
    }

    #[test]
    fn partial_notices_are_reassembled_and_the_first_time_counts() {
        // Bytes of the time that look like messages.
        let time = u64::from_le_bytes([FROZE, SINCE, FROZE, 0, 0, 0, 0, 0]);
        let mut bytes = Vec::new();
        let whole = said(time);
        for byte in &whole[..whole.len() - 1] {
            bytes.push(*byte);
            assert_eq!(decode_notices(&mut bytes), None);
        }
        bytes.push(FROZE);
        assert_eq!(
            decode_notices(&mut bytes),
            Some(FreezeNotice { since: Some(ClockReading { boot: time, suspended: 3 }) })
        );
        bytes.extend([said(70), said(90)].concat());
        assert_eq!(
            decode_notices(&mut bytes),
            Some(FreezeNotice { since: Some(ClockReading { boot: 70, suspended: 3 }) })
        );
        assert_eq!(
            decode_notices(&mut vec![FROZE]),
            Some(FreezeNotice { since: None }),
            "of an older release"
        );
        assert!(bytes.is_empty());
    }
}
