//! The sockets through which tasks call, and how their calls get to the agent.
//!
//! Every folder of an execution has a socket in it, its *door*. The supervisor listens there and serves
//! nothing: whoever comes is handed on, the open connection itself, to the agent. So a task that calls
//! while no agent is there waits at the door, and one that was being answered calls again. A lent folder
//! keeps its door from one execution to the next, so most executions cost nothing here but a watch.
//!
//! Connections go to the agent's socket as datagrams with the connection and the execution that it is of.
//! One at a time: where the agent takes no more, one is held back and the doors stay shut until it does.

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

/// Until an agent that takes no calls is tried again.
const CALL_RETRY: BootMillis = 20;

/// A socket in the folder of an execution.
#[derive(Debug)]
pub(super) struct Door {
    path: PathBuf,
    listener: UnixListener,
    /// The file, by device and number.
    file: (u64, u64),
}

impl Door {
    /// Makes the socket in a folder that is still ours alone, so nobody can put anything else in its place.
    pub(super) fn open(path: PathBuf, owner: Option<(u32, u32)>) -> io::Result<Self> {
        let listener = UnixListener::bind(&path)?;
        listener.set_nonblocking(true)?;
        if let Some((uid, gid)) = owner {
            lchown(&path, Some(uid), Some(gid))?;
        }
        let metadata = fs::symlink_metadata(&path)?;
        Ok(Self { path, listener, file: (metadata.dev(), metadata.ino()) })
    }

    /// Where tasks call.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this is what lies at `path`.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        fs::symlink_metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == self.file)
    }

    /// Sends those away who still stand there: they came for an execution that is over.
    pub(super) fn clear(&self) {
        while self.listener.accept().is_ok() {}
    }

    fn socket(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// Calls on their way to the agent.
#[derive(Debug)]
pub(super) struct Calls {
    socket: UnixDatagram,
    agent: SocketAddrUnix,
    /// One that the agent did not take yet.
    held_back: Option<(OwnedFd, Vec<u8>)>,
    /// Doors that are watched, and whose.
    doors: HashMap<Token, ExecutionId>,
    /// Doors where somebody stands, and that are shut until the agent takes calls again.
    shut: Vec<Token>,
}

impl Calls {
    pub(super) fn new(layout: &Layout) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        let agent = SocketAddrUnix::new(layout.calls())?;
        Ok(Self { socket, agent, held_back: None, doors: HashMap::new(), shut: Vec::new() })
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

    /// Whether nothing is held back (any more).
    fn is_clear(&mut self) -> bool {
        if let Some((connection, call)) = self.held_back.take()
            && self.send(connection.as_fd(), &call).is_err()
        {
            self.held_back = Some((connection, call));
        }
        self.held_back.is_none()
    }
}

impl Supervisor {
    /// From now on a task is heard.
    pub(super) fn open_door(&mut self, id: ExecutionId) {
        let token = self.next_token;
        let Some(door) = self.door_of(id) else { return };
        if let Err(error) = self.poller.watch(door.socket(), token) {
            return tracing::error!(execution_id = %id, %error, "cannot watch a task's socket");
        }
        self.next_token += 1;
        self.calls.doors.insert(token, id);
        if let Some(task) = self.tasks.get_mut(&id) {
            task.door = Some(token);
        }
    }

    /// A task has ended and is heard no more.
    pub(super) fn close_door(&mut self, id: ExecutionId) {
        let Some(token) = self.tasks.get_mut(&id).and_then(|task| task.door.take()) else { return };
        self.calls.doors.remove(&token);
        if let Some(door) = self.door_of(id) {
            self.poller.unwatch(door.socket());
            door.clear();
        }
    }

    /// Whether it was a door where somebody came; then it is answered.
    pub(super) fn answer_door(&mut self, token: Token) -> bool {
        let Some(&id) = self.calls.doors.get(&token) else { return false };
        let Some(task) = self.tasks.get(&id) else { return true };
        let fence = Fence(task.order.assignment.fence);
        let Some(door) = self.door_of(id) else { return true };
        if self.calls.held_back.is_some() {
            self.poller.unwatch(door.socket());
            self.calls.shut.push(token);
            return true;
        }
        // One at a time: others have their turn, and whoever else stands there is reported again.
        match door.listener.accept() {
            Ok((connection, _)) => self.hand_on(id, fence, connection.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => tracing::warn!(execution_id = %id, %error, "cannot accept a call of a task"),
        }
        true
    }

    fn hand_on(&mut self, id: ExecutionId, fence: Fence, connection: OwnedFd) {
        let call = Call { execution_id: id.to_string(), fence: fence.0 }.encode_to_vec();
        self.calls.held_back = Some((connection, call));
        self.retry_calls();
    }

    /// The agent may take calls again.
    pub(super) fn retry_calls(&mut self) {
        if !self.calls.is_clear() {
            return self.poller.alarm(boot_millis() + CALL_RETRY, Alarm::Calls);
        }
        for token in std::mem::take(&mut self.calls.shut) {
            let Some(&id) = self.calls.doors.get(&token) else { continue };
            let Some(door) = self.door_of(id) else { continue };
            if let Err(error) = self.poller.watch(door.socket(), token) {
                tracing::error!(execution_id = %id, %error, "cannot watch a task's socket");
            }
        }
    }

    fn door_of(&self, id: ExecutionId) -> Option<&Door> {
        self.tasks.get(&id)?.folder.door.as_ref()
    }
}
