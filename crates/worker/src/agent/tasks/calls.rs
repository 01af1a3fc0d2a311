//! Connections of tasks, which the supervisor passes to the agent with their execution id and fence.

use std::collections::HashMap;
use std::fs;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use prost::Message as _;
use rustix::cmsg_space;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::task::JoinSet;

use super::{Caller, Upstream, http};
use crate::layout::Layout;
use crate::link::Call;

/// Maximum number of concurrent connections of all executions.
pub(super) const CONNECTIONS_MAX: usize = 256;
/// Maximum number of concurrent connections of one execution: it may wait for changes of all services that it requires,
/// and call beside that.
const CONNECTIONS_OF_ONE_MAX: usize = 2 * model::limits::REQUIRED_SERVICES_MAX;
/// Maximum size of a [`Call`] message in bytes; it contains an id and a number.
const CALL_BYTES: usize = 256;

/// Serves the tasks of the folder until the future is dropped.
pub(in super::super) async fn serve(layout: Layout, upstream: Upstream) {
    let socket = match listen(&layout) {
        Ok(socket) => socket,
        Err(error) => {
            tracing::error!(%error, "cannot create the socket for calls of tasks; tasks cannot call the agent");
            return std::future::pending().await;
        }
    };
    let mut connections = JoinSet::new();
    let open = OpenConnections::default();
    loop {
        // Connections beyond the limit wait in their sockets.
        while connections.len() >= CONNECTIONS_MAX {
            connections.join_next().await;
        }
        while connections.try_join_next().is_some() {}
        match next(&socket).await {
            Ok(Some((call, connection))) => {
                let upstream = upstream.clone();
                let caller = Caller { execution_id: call.execution_id.into(), fence: call.fence };
                let place = open.take_slot(&caller.execution_id);
                connections.spawn(async move {
                    http::serve(connection, caller, upstream, place.is_some()).await;
                    drop(place);
                });
            }
            Ok(None) => {}
            Err(error) => {
                tracing::error!(%error, "cannot receive a call of a task; retrying");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

/// Opens the datagram socket for calls, which only the agent's user can access.
fn listen(layout: &Layout) -> io::Result<UnixDatagram> {
    let path = layout.calls();
    let absent = |error: io::Error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) };
    // Removes the socket of an earlier agent. Connections that were sent to it are dropped, and their tasks repeat
    // the request.
    fs::remove_file(&path).or_else(absent)?;
    let socket = UnixDatagram::bind(&path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
    Ok(socket)
}

/// Receives the next call; `None` for an invalid message.
async fn next(socket: &UnixDatagram) -> io::Result<Option<(Call, UnixStream)>> {
    let (bytes, connection) = socket.async_io(Interest::READABLE, || receive(socket)).await?;
    let call = Call::decode(bytes.as_slice()).ok();
    Ok(call.zip(connection).map(|(call, connection)| (call, UnixStream::from(connection))))
}

fn receive(socket: &UnixDatagram) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = vec![0; CALL_BYTES];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?;
    bytes.truncate(received.bytes);
    let mut files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    Ok((bytes, files.next().and_then(|mut files| files.next())))
}

/// Number of open connections of each execution.
#[derive(Debug, Clone, Default)]
struct OpenConnections(Arc<Mutex<HashMap<Arc<str>, usize>>>);

/// An open connection; frees its slot when dropped.
struct ConnectionSlot {
    open: OpenConnections,
    execution_id: Arc<str>,
}

impl OpenConnections {
    /// Takes a slot for one more connection; `None` if the execution has reached its limit.
    fn take_slot(&self, execution_id: &Arc<str>) -> Option<ConnectionSlot> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(Arc::clone(execution_id)).or_default();
        if *count >= CONNECTIONS_OF_ONE_MAX {
            return None;
        }
        *count += 1;
        Some(ConnectionSlot { open: self.clone(), execution_id: Arc::clone(execution_id) })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut open = self.open.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.execution_id) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.execution_id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_one_execution_are_limited_and_freed() {
        let open = OpenConnections::default();
        let (one, other): (Arc<str>, Arc<str>) = ("one".into(), "other".into());
        let mut places: Vec<_> = (0..CONNECTIONS_OF_ONE_MAX).map(|_| open.take_slot(&one).unwrap()).collect();
        assert!(open.take_slot(&one).is_none());
        assert!(open.take_slot(&other).is_some());
        places.pop();
        assert!(open.take_slot(&one).is_some());
        drop(places);
        assert!(open.0.lock().unwrap().is_empty());
    }
}
