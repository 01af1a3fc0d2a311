//! Connections between nodes of one process, with faults, for tests.
//!
//! Each direction between two nodes can be delayed, stalled (nothing arrives until it is healed, then everything does) or cut
//! (connections break, and no new one is made).

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::watch;

use super::{BoxStream, Transport};
use crate::types::{NodeId, Peer};

/// Bytes that a direction of a connection holds.
const PIPE_BYTES: usize = 256 * 1024;

/// State of a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Open(Duration),
    Stalled,
    Cut,
}

type Accept = Arc<dyn Fn(BoxStream, NodeId) + Send + Sync>;

#[derive(Default)]
struct State {
    acceptors: HashMap<NodeId, Accept>,
    directions: HashMap<(NodeId, NodeId), watch::Sender<Direction>>,
}

/// A network of nodes in one process. Clones are the same network.
#[derive(Clone, Default)]
pub struct Mesh(Arc<Mutex<State>>);

impl fmt::Debug for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mesh")
    }
}

impl Mesh {
    /// Returns a network without faults.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the transport of a node.
    pub fn transport(&self, node: NodeId) -> Arc<dyn Transport> {
        Arc::new(MeshTransport { mesh: self.clone(), node })
    }

    /// Passes connections to a node from now on to a function.
    pub fn listen(&self, node: NodeId, accept: impl Fn(BoxStream, NodeId) + Send + Sync + 'static) {
        self.state().acceptors.insert(node, Arc::new(accept));
    }

    /// Refuses connections to a node from now on.
    pub fn close(&self, node: NodeId) {
        self.state().acceptors.remove(&node);
    }

    /// Breaks the connections that need this direction, and makes no new one.
    pub fn cut(&self, from: NodeId, to: NodeId) {
        self.set(from, to, Direction::Cut);
    }

    /// Holds everything back in this direction.
    pub fn stall(&self, from: NodeId, to: NodeId) {
        self.set(from, to, Direction::Stalled);
    }

    /// Delays everything in this direction.
    pub fn delay(&self, from: NodeId, to: NodeId, delay: Duration) {
        self.set(from, to, Direction::Open(delay));
    }

    /// Removes all faults of this direction.
    pub fn heal(&self, from: NodeId, to: NodeId) {
        self.set(from, to, Direction::Open(Duration::ZERO));
    }

    /// Cuts a node off from others, in both directions.
    pub fn isolate(&self, node: NodeId, others: &[NodeId]) {
        for other in others.iter().filter(|other| **other != node) {
            self.cut(node, *other);
            self.cut(*other, node);
        }
    }

    /// Removes all faults between a node and others.
    pub fn rejoin(&self, node: NodeId, others: &[NodeId]) {
        for other in others {
            self.heal(node, *other);
            self.heal(*other, node);
        }
    }

    fn set(&self, from: NodeId, to: NodeId, direction: Direction) {
        let mut state = self.state();
        let sender = state.directions.entry((from, to)).or_insert_with(|| watch::Sender::new(direction));
        sender.send_replace(direction);
    }

    fn direction(&self, from: NodeId, to: NodeId) -> watch::Receiver<Direction> {
        let mut state = self.state();
        let open = Direction::Open(Duration::ZERO);
        state.directions.entry((from, to)).or_insert_with(|| watch::Sender::new(open)).subscribe()
    }

    async fn connect(self, from: NodeId, to: NodeId) -> io::Result<BoxStream> {
        let (mut there, mut back) = (self.direction(from, to), self.direction(to, from));
        for direction in [&mut there, &mut back] {
            // The sender lives as long as the mesh.
            let _ = direction.wait_for(|direction| *direction != Direction::Stalled).await;
            if *direction.borrow() == Direction::Cut {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
        }
        let accept = self.state().acceptors.get(&to).cloned();
        let Some(accept) = accept else { return Err(io::ErrorKind::ConnectionRefused.into()) };
        let (near, near_end) = tokio::io::duplex(PIPE_BYTES);
        let (far, far_end) = tokio::io::duplex(PIPE_BYTES);
        tokio::spawn(carry(near_end, far_end, there, back));
        accept(Box::new(far), from);
        Ok(Box::new(near))
    }
}

/// Carries bytes in both directions until one ends or is cut.
async fn carry(
    near: DuplexStream,
    far: DuplexStream,
    there: watch::Receiver<Direction>,
    back: watch::Receiver<Direction>,
) {
    let (near_read, near_write) = tokio::io::split(near);
    let (far_read, far_write) = tokio::io::split(far);
    tokio::select! {
        () = pump(near_read, far_write, there.clone()) => {}
        () = pump(far_read, near_write, back.clone()) => {}
        () = cut(there) => {}
        () = cut(back) => {}
    }
}

async fn cut(mut direction: watch::Receiver<Direction>) {
    if direction.wait_for(|direction| *direction == Direction::Cut).await.is_err() {
        // The mesh was dropped; the connection ends with its nodes.
        std::future::pending().await
    }
}

async fn pump(
    mut from: impl tokio::io::AsyncRead + Unpin,
    mut to: impl tokio::io::AsyncWrite + Unpin,
    mut direction: watch::Receiver<Direction>,
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read) = from.read(&mut buffer).await
        && read > 0
    {
        let Ok(state) =
            direction.wait_for(|direction| *direction != Direction::Stalled).await.map(|state| *state)
        else {
            return;
        };
        if let Direction::Open(delay) = state
            && !delay.is_zero()
        {
            tokio::time::sleep(delay).await;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

struct MeshTransport {
    mesh: Mesh,
    node: NodeId,
}

impl Transport for MeshTransport {
    fn connect(&self, to: NodeId, _: &Peer) -> BoxFuture<'static, io::Result<BoxStream>> {
        self.mesh.clone().connect(self.node, to).boxed()
    }
}
