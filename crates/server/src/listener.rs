//! Accepts connections and serves HTTP/1 and HTTP/2 on them.
//!
//! This is `axum::serve` with limits. A connection that sends its headers too slowly, or does not answer pings, is
//! closed. There are at most [`CONNECTIONS_MAX`] connections, and one address gets at most as many as are free.
//!
//! The first byte of a connection shows whether [another server](crate::peers) has connected; each connection waits for
//! it in its own task. Connections of servers that fail authentication get only a refusal.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::Request;
use axum::{Extension, Router};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::members::Members;
use crate::peers::{self, FromServer};

/// Most concurrent connections; further ones wait in the kernel's backlog.
const CONNECTIONS_MAX: usize = 20_000;
/// Longest wait for the first byte of a client, for its TLS handshake, and for the headers of a request.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of headers in a request.
const HEADER_BYTES_MAX: u32 = 32 * 1024;
/// Most concurrent streams of one HTTP/2 connection.
const STREAMS_MAX: u32 = 1_000;
/// Interval of pings on an HTTP/2 connection, and longest wait for the answer.
const PING_INTERVAL: Duration = Duration::from_secs(15);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// Flow-control windows in bytes: most unacknowledged data of a stream, and of a connection.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;

/// Source of connections: a TCP port, or a simulated network.
pub trait Listener: Send + 'static {
    /// A connection, as a stream of bytes.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// Accepts the next connection.
    ///
    /// # Errors
    /// If no connection can be accepted now. The caller retries after a pause.
    fn accept(&mut self) -> impl Future<Output = io::Result<Self::Stream>> + Send;

    /// Waits for the first bytes of a connection, without consuming them. Returns their number; 0 if the connection
    /// ended.
    ///
    /// # Errors
    /// If the connection failed.
    fn peek(stream: &mut Self::Stream, first: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send;

    /// Returns the address of the peer, if the network has addresses.
    fn peer(_stream: &Self::Stream) -> Option<IpAddr> {
        None
    }
}

/// The address that a request came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    /// The other end of the connection: a client, or the proxy in front of this server.
    Connection(IpAddr),
    /// The client of the server that forwarded the request.
    Forwarded(IpAddr),
}

impl Peer {
    pub(crate) fn address(self) -> IpAddr {
        match self {
            Self::Connection(address) | Self::Forwarded(address) => address,
        }
    }
}

/// Returns the part of an address that identifies one client: an IPv6 host can choose any address of its /64.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if !v6.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)))
        }
        address => address,
    }
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn accept(&mut self) -> io::Result<TcpStream> {
        let (stream, _peer) = Self::accept(self).await?;
        // Low latency rather than few packets: replies are small, and clients wait for each of them.
        let _nodelay = stream.set_nodelay(true);
        Ok(stream)
    }

    async fn peek(stream: &mut TcpStream, first: &mut [u8]) -> io::Result<usize> {
        stream.peek(first).await
    }

    fn peer(stream: &TcpStream) -> Option<IpAddr> {
        stream.peer_addr().ok().map(|address| address.ip())
    }
}

/// HTTP services for the kinds of connections.
pub(crate) struct Routers {
    /// For clients, workers and servers of the store.
    pub(crate) main: Router,
    /// For peers that connect like a server but are not in the cluster.
    pub(crate) unauthenticated_peers: Router,
}

/// Serves `apps` until `stop`; then lets open requests finish for `grace` at most.
pub(crate) async fn serve<L: Listener>(
    mut listener: L,
    Routers { main: for_all, unauthenticated_peers: for_strangers }: Routers,
    members: Members,
    stop: CancellationToken,
    grace: Duration,
) {
    let door = Arc::new(Dispatcher {
        acceptor: members.identity().acceptor(),
        for_servers: HttpService { builder: builder(), app: for_all.clone().layer(Extension(FromServer)) },
        // One request at a time; its answer ends the connection.
        unauthenticated_peers: HttpService { builder: builder().http1_only(), app: for_strangers },
        main: HttpService { builder: builder(), app: for_all },
        members,
        stop: stop.clone(),
    });
    let (connections, shares) = (Arc::new(Semaphore::new(CONNECTIONS_MAX)), ConnectionCounts::default());
    let graceful = GracefulShutdown::new();
    let (open, cut_off) = (TaskTracker::new(), CancellationToken::new());
    while let Some(stream) = accept(&mut listener, &stop).await {
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { break };
        let address = L::peer(&stream).map(network);
        let Some(share) = shares.take(address, connections.available_permits()) else {
            tracing::debug!(?address, "closed a connection: its address has reached its limit");
            continue;
        };
        let (door, watcher, cut_off) = (Arc::clone(&door), graceful.watcher(), cut_off.clone());
        open.spawn(async move {
            let _taken = (permit, share);
            tokio::select! {
                () = door.dispatch::<L>(stream, watcher) => {}
                () = cut_off.cancelled() => {}
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(grace, graceful.shutdown()).await.is_err() {
        tracing::info!("closing requests that did not end within the grace period");
    }
    cut_off.cancel();
    open.close();
    open.wait().await;
}

/// Number of open connections of each address. A client needs no token to open one, so no other limit applies.
#[derive(Clone, Default)]
struct ConnectionCounts(Arc<Mutex<HashMap<IpAddr, usize>>>);

impl ConnectionCounts {
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a connection of this address; `None` if the address has as many as are `free`. So a single address gets
    /// at most half of all connections, and a new address always gets one.
    fn take(&self, address: Option<IpAddr>, free: usize) -> Option<ConnectionCount> {
        if let Some(address) = address {
            let mut all = self.lock();
            let count = all.entry(address).or_default();
            if *count > free {
                return None;
            }
            *count += 1;
        }
        Some(ConnectionCount { of: self.clone(), address })
    }
}

/// A connection that is counted for its address until this is dropped.
struct ConnectionCount {
    of: ConnectionCounts,
    address: Option<IpAddr>,
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        let Some(address) = self.address else { return };
        let mut all = self.of.lock();
        if let Some(count) = all.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                all.remove(&address);
            }
        }
    }
}

/// Dispatches connections to the service for their kind.
struct Dispatcher {
    acceptor: TlsAcceptor,
    for_servers: HttpService,
    unauthenticated_peers: HttpService,
    main: HttpService,
    members: Members,
    stop: CancellationToken,
}

impl Dispatcher {
    /// Serves a connection until it ends.
    async fn dispatch<L: Listener>(&self, mut stream: L::Stream, watcher: Watcher) {
        let peer = L::peer(&stream);
        let first = tokio::select! {
            first = first_byte::<L>(&mut stream) => first,
            // The client has not sent a request.
            () = self.stop.cancelled() => None,
        };
        match first {
            Some(peers::TLS_HANDSHAKE) => self.serve_peer(stream, peer, watcher).await,
            Some(_) => self.main.serve(stream, peer, watcher).await,
            None => {}
        }
    }

    async fn serve_peer<S>(&self, stream: S, peer: Option<IpAddr>, watcher: Watcher)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let accepted = peers::accept(&self.acceptor, stream, |key| self.members.find(key));
        let accepted = tokio::select! {
            accepted = tokio::time::timeout(HEADERS_TIMEOUT, accepted) => accepted,
            () = self.stop.cancelled() => return,
        };
        let address = peer.map(tracing::field::display);
        match accepted {
            Ok(Ok((stream, Ok(server)))) => {
                tracing::debug!(server = server.name, server_id = %server.id, "another server connected");
                self.for_servers.serve(stream, peer, watcher).await;
            }
            Ok(Ok((stream, Err(stranger)))) => {
                tracing::warn!(address, error = %stranger, "refused a connection of an unauthenticated server");
                self.unauthenticated_peers.serve(stream, peer, watcher).await;
            }
            // A client that speaks TLS by mistake is no reason for a warning.
            Ok(Err(error)) => tracing::debug!(address, error = %error, "TLS handshake failed"),
            Err(_) => tracing::debug!(address, "TLS handshake timed out"),
        }
    }
}

/// An HTTP service, and the protocols of its connections.
struct HttpService {
    builder: Builder<TokioExecutor>,
    app: Router,
}

impl HttpService {
    async fn serve<S>(&self, stream: S, peer: Option<IpAddr>, watcher: Watcher)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let noted = self.app.clone().map_request(move |mut request: Request<Incoming>| {
            if let Some(address) = peer {
                request.extensions_mut().insert(Peer::Connection(address));
            }
            request
        });
        let service = TowerToHyperService::new(noted);
        let connection = self.builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        if let Err(error) = watcher.watch(connection.into_owned()).await {
            tracing::debug!(error = %error, "connection ended");
        }
    }
}

/// Returns the first byte of a connection; `None` if the connection ends or nothing arrives before the timeout.
async fn first_byte<L: Listener>(stream: &mut L::Stream) -> Option<u8> {
    let mut first = [0];
    match tokio::time::timeout(HEADERS_TIMEOUT, L::peek(stream, &mut first)).await {
        Ok(Ok(1)) => Some(first[0]),
        _ => None,
    }
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS_TIMEOUT).max_buf_size(64 * 1024);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_BYTES_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

/// Returns the next connection; `None` when the server stops.
async fn accept<L: Listener>(listener: &mut L, stop: &CancellationToken) -> Option<L::Stream> {
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return None,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok(stream) => return Some(stream),
            Err(error) => {
                // Probably out of file descriptors: other connections will free some soon.
                tracing::warn!(error = %error, "cannot accept a connection; retrying");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// Returns both ends of a connection.
    async fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (theirs, ours) = tokio::join!(TcpStream::connect(address), listener.accept());
        (theirs.unwrap(), ours.unwrap().0)
    }

    #[tokio::test]
    async fn the_first_byte_is_read_without_consuming_it() {
        let (mut theirs, mut ours) = connection().await;
        theirs.write_all(b"GET").await.unwrap();
        for _ in 0..2 {
            assert_eq!(first_byte::<TcpListener>(&mut ours).await, Some(b'G'));
        }
        let (theirs, mut ours) = connection().await;
        drop(theirs);
        assert_eq!(first_byte::<TcpListener>(&mut ours).await, None);
    }

    #[test]
    fn one_address_cannot_take_all_connections() {
        const MAX: usize = 100;
        let (shares, mut open) = (ConnectionCounts::default(), Vec::new());
        let mut connect = |last: u8| {
            let address = IpAddr::from([10, 0, 0, last]);
            // As in `serve`: the connection itself is no longer free.
            let share = shares.take(Some(address), MAX - open.len() - 1);
            let is_taken = share.is_some();
            open.extend(share);
            is_taken
        };
        assert_eq!((0..MAX).filter(|_| connect(1)).count(), MAX / 2);
        assert_eq!((0..MAX).filter(|_| connect(2)).count(), MAX / 4);
        assert!((3..=8).all(&mut connect), "new addresses get one");
        open.clear();
        assert!(shares.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_connection_times_out() {
        let (_theirs, mut ours) = connection().await;
        let begun = tokio::time::Instant::now();
        assert_eq!(first_byte::<TcpListener>(&mut ours).await, None);
        assert_eq!(begun.elapsed(), HEADERS_TIMEOUT);
    }
}
