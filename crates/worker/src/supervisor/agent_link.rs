//! The supervisor's end of the socket to its agent.
//!
//! Nothing here waits: what the agent does not take stays in a bounded buffer, and more is put there
//! only when that is nearly empty. What is to be said is not queued as messages: it is read off
//! the executions when there is room, so a slow agent costs no memory and hears the newest state.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use crate::link::{self, Answer, Request, ToAgent, ToSupervisor};

/// Nothing is added to a buffer that holds more.
const OUT_FULL: usize = 1 << 20;

/// A connected agent.
#[derive(Debug)]
pub(super) struct AgentLink {
    socket: UnixStream,
    input: Vec<u8>,
    out: Vec<u8>,
    /// How much of `out` is written.
    written: usize,
    /// Whether we wait for the socket to take more.
    pub(super) blocked: bool,
    /// Whether it has asked for what is held; before that it wants no reports.
    pub(super) synced: bool,
    /// Which opening of the log lane is served, if one is.
    pub(super) logs: Option<u64>,
}

impl AgentLink {
    /// Takes a connection, if it comes from our own user or root.
    pub(super) fn accept(socket: UnixStream) -> io::Result<Self> {
        let peer = rustix::net::sockopt::socket_peercred(&socket)?;
        if !peer.uid.is_root() && peer.uid != rustix::process::geteuid() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            input: Vec::new(),
            out: Vec::new(),
            written: 0,
            blocked: false,
            synced: false,
            logs: None,
        })
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Reads what is there.
    ///
    /// # Errors
    /// If the agent is gone or makes no sense.
    pub(super) fn receive(&mut self) -> io::Result<Vec<Request>> {
        let mut buffer = vec![0; 64 << 10];
        // Not until there is nothing left: others want their turn too.
        for _ in 0..16 {
            match self.socket.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => self.input.extend_from_slice(&buffer[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let (mut at, mut requests) = (0, Vec::new());
        while let Some(message) =
            link::read_frame::<ToSupervisor>(&self.input, &mut at).map_err(io::Error::other)?
        {
            // None: of a newer agent, and not for us.
            requests.extend(message.body);
        }
        self.input.drain(..at);
        Ok(requests)
    }

    /// Whether there is room to say more.
    pub(super) fn has_room(&self) -> bool {
        self.out.len() - self.written < OUT_FULL
    }

    pub(super) fn say(&mut self, answer: Answer) {
        link::write_frame(&mut self.out, &ToAgent::from(answer));
    }

    /// Writes as much as the socket takes; returns whether something is left.
    ///
    /// # Errors
    /// If the agent is gone.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        while self.written < self.out.len() {
            match self.socket.write(&self.out[self.written..]) {
                Ok(len) => self.written += len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(false)
    }
}
