//! The supervisor's side of the socket to its agent.
//!
//! No operation here blocks. Unsent data stays in a bounded buffer, and is added only while the buffer is nearly
//! empty. Messages are not queued: they are created from the executions when there is space. So a slow agent costs no
//! memory and receives the newest state.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use model::ExecutionId;

use crate::link::{self, Answer, Request, ToAgent, ToSupervisor};

/// Buffer size in bytes from which no message is added.
const OUT_FULL: usize = 1 << 20;

/// A connected agent.
#[derive(Debug)]
pub(super) struct AgentLink {
    socket: UnixStream,
    input: Vec<u8>,
    out: Vec<u8>,
    /// Number of bytes of `out` that are written.
    written: usize,
    /// Whether the socket accepts no more data at present.
    pub(super) blocked: bool,
    /// Whether the agent has requested the holdings; no reports are sent before that.
    pub(super) synced: bool,
    /// Generation of the agent's log connection, if it is open.
    pub(super) logs: Option<u64>,
    /// Executions to send as watched or as no longer watched; `None` if the agent runs no health checks.
    pub(super) watches: Option<VecDeque<ExecutionId>>,
}

impl AgentLink {
    /// Accepts a connection if the peer runs as our own user or as root.
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
            watches: None,
        })
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Reads and decodes the available messages.
    ///
    /// # Errors
    /// If the connection is closed or a message is malformed.
    pub(super) fn receive(&mut self) -> io::Result<Vec<Request>> {
        let mut buffer = vec![0; 64 << 10];
        // Bounded, so that a busy agent does not starve other work.
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
            // `None` is a message type of a newer agent; skipped.
            requests.extend(message.body);
        }
        self.input.drain(..at);
        Ok(requests)
    }

    /// Returns whether messages may be added to the buffer.
    pub(super) fn has_room(&self) -> bool {
        self.out.len() - self.written < OUT_FULL
    }

    pub(super) fn send_to_agent(&mut self, answer: Answer) {
        link::write_frame(&mut self.out, &ToAgent::from(answer));
    }

    /// Writes as much as the socket accepts; returns whether data is left.
    ///
    /// # Errors
    /// If the connection is closed.
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
