//! Sockets of tasks, and the transfer of their connections to the agent.
//!
//! Every folder of an execution contains a socket, its *door*. The supervisor listens on it but serves no requests:
//! it passes each open connection to the agent. So a task that calls while no agent is connected waits, and a task
//! whose agent fails during a request repeats the request. A reused folder keeps its socket, so for most executions
//! the only cost is to watch the socket.
//!
//! Connections are sent to the agent's socket in datagrams, together with their execution. Only one is sent at a
//! time: if the agent accepts no more, the connection is kept, and no further one is accepted until the agent does.

use std::collections::HashMap;
use std::fs;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, lchown};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};

use model::{ExecutionId, Fence};
use prost::Message as _;
use rustix::cmsg_space;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, sendmsg_addr};

use super::Supervisor;
use super::poller::{Alarm, Token};
use crate::clock::{BootMillis, boot_millis};
use crate::layout::Layout;
use crate::link::Call;

/// Delay before a connection is sent again to an agent that accepted none, in milliseconds.
const CALL_RETRY: BootMillis = 20;

/// A socket in the folder of an execution.
#[derive(Debug)]
pub(super) struct TaskSocket {
    path: PathBuf,
    listener: UnixListener,
    /// Device and inode of the socket file.
    file: (u64, u64),
}

impl TaskSocket {
    /// Creates the socket in a folder that the task cannot access yet, so that nothing can be put in its place.
    pub(super) fn open(path: PathBuf, owner: Option<(u32, u32)>) -> io::Result<Self> {
        let listener = UnixListener::bind(&path)?;
        listener.set_nonblocking(true)?;
        if let Some((uid, gid)) = owner {
            lchown(&path, Some(uid), Some(gid))?;
        }
        let metadata = fs::symlink_metadata(&path)?;
        Ok(Self { path, listener, file: (metadata.dev(), metadata.ino()) })
    }

    /// Path of the socket, as passed to the task.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether this socket is the file at `path`.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        fs::symlink_metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == self.file)
    }

    /// Closes pending connections, which belong to an ended execution.
    pub(super) fn clear(&self) {
        while self.listener.accept().is_ok() {}
    }

    fn socket(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// Connections on their way to the agent.
#[derive(Debug)]
pub(super) struct Calls {
    socket: UnixDatagram,
    agent: SocketAddrUnix,
    /// A connection that the agent has not accepted yet.
    held_back: Option<(OwnedFd, Vec<u8>)>,
    /// Watched sockets, with their executions.
    doors: HashMap<Token, ExecutionId>,
    /// Sockets with pending connections that are not watched until the agent accepts connections again.
    paused: Vec<Token>,
}

impl Calls {
    pub(super) fn new(layout: &Layout) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        let agent = SocketAddrUnix::new(layout.calls())?;
        Ok(Self { socket, agent, held_back: None, doors: HashMap::new(), paused: Vec::new() })
    }

    fn send(&self, connection: BorrowedFd<'_>, call: &[u8]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files = [connection];
        control.push(SendAncillaryMessage::ScmRights(&files));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg_addr(&self.socket, &self.agent, &[IoSlice::new(call)], &mut control, flags)?;
        Ok(())
    }

    /// Sends the kept connection, if there is one; returns whether none is left.
    fn flush(&mut self) -> bool {
        if let Some((connection, call)) = self.held_back.take()
            && self.send(connection.as_fd(), &call).is_err()
        {
            self.held_back = Some((connection, call));
        }
        self.held_back.is_none()
    }
}

impl Supervisor {
    /// Starts to accept connections of a task.
    pub(super) fn watch_task_socket(&mut self, id: ExecutionId) {
        let token = self.next_token;
        let Some(door) = self.task_socket_of(id) else { return };
        if let Err(error) = self.poller.watch(door.socket(), token) {
            return tracing::error!(execution_id = %id, %error, "cannot watch the socket of a task");
        }
        self.next_token += 1;
        self.calls.doors.insert(token, id);
        if let Some(task) = self.tasks.get_mut(&id) {
            task.task_socket = Some(token);
        }
    }

    /// Stops accepting connections of a task that has ended.
    pub(super) fn close_task_socket(&mut self, id: ExecutionId) {
        let Some(token) = self.tasks.get_mut(&id).and_then(|task| task.task_socket.take()) else { return };
        self.calls.doors.remove(&token);
        if let Some(door) = self.task_socket_of(id) {
            self.poller.unwatch(door.socket());
            door.clear();
        }
    }

    /// Accepts a connection if the token belongs to the socket of a task; returns whether it does.
    pub(super) fn accept_call(&mut self, token: Token) -> bool {
        let Some(&id) = self.calls.doors.get(&token) else { return false };
        let Some(task) = self.tasks.get(&id) else { return true };
        let fence = Fence(task.order.assignment.fence);
        let Some(door) = self.task_socket_of(id) else { return true };
        if self.calls.held_back.is_some() {
            self.poller.unwatch(door.socket());
            self.calls.paused.push(token);
            return true;
        }
        // One at a time, so that others have their turn; further connections are reported again.
        match door.listener.accept() {
            Ok((connection, _)) => self.forward_call(id, fence, connection.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => tracing::warn!(execution_id = %id, %error, "cannot accept a call of a task"),
        }
        true
    }

    fn forward_call(&mut self, id: ExecutionId, fence: Fence, connection: OwnedFd) {
        let call = Call { execution_id: id.to_string(), fence: fence.0 }.encode_to_vec();
        self.calls.held_back = Some((connection, call));
        self.retry_calls();
    }

    /// Sends the kept connection again, and watches the paused sockets once the agent accepts connections.
    pub(super) fn retry_calls(&mut self) {
        if !self.calls.flush() {
            return self.poller.alarm(boot_millis() + CALL_RETRY, Alarm::Calls);
        }
        for token in std::mem::take(&mut self.calls.paused) {
            let Some(&id) = self.calls.doors.get(&token) else { continue };
            let Some(door) = self.task_socket_of(id) else { continue };
            if let Err(error) = self.poller.watch(door.socket(), token) {
                tracing::error!(execution_id = %id, %error, "cannot watch the socket of a task");
            }
        }
    }

    fn task_socket_of(&self, id: ExecutionId) -> Option<&TaskSocket> {
        self.tasks.get(&id)?.folder.task_socket.as_ref()
    }
}
