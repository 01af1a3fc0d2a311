//! Accepts connections and serves HTTP/1 and HTTP/2 on them.
//!
//! This is `axum::serve` with limits. A connection that sends its headers too slowly, or does not answer pings, is
//! closed. There are at most [`CONNECTIONS_MAX`] connections, and one address gets at most as many as are free.
//!
//! The first byte of a connection shows whether it is TLS, and the first message of a TLS handshake whether [another
//! server](crate::peers) has connected or a client. Each connection waits for them in its own task. Connections of servers
//! that fail authentication get only a refusal. So do clients of other machines without TLS, if the server has
//! [a certificate](crate::tls).
//!
//! A [`Door`] says what serves a connection. A member of a Raft cluster opens its port before it can read its store: the
//! members elect a leader over it. Until the door is [open](Door::open), requests get a refusal.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use axum::http::Request;
use axum::{Extension, Router};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use store::cluster::Fingerprint;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::members::Members;
use crate::peers::{self, FromServer, Identity, Proved};
use crate::raft_member::RaftMember;
use crate::tls::ClientTls;

/// Most concurrent connections; further ones wait in the kernel's backlog.
const CONNECTIONS_MAX: usize = 20_000;
/// Longest wait for the first byte of a client, for its TLS handshake with the first byte of its request, and for the headers
/// of a request.
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

    /// Returns whether the connection comes from this machine, so that no network has its bytes.
    fn is_local(_stream: &Self::Stream) -> bool {
        true
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

    fn is_local(stream: &TcpStream) -> bool {
        let (Ok(peer), Ok(own)) = (stream.peer_addr(), stream.local_addr()) else { return false };
        // A packet with the server's own address as its source comes from the same machine.
        peer.ip().to_canonical().is_loopback() || peer.ip() == own.ip()
    }
}

/// HTTP services for the kinds of connections.
pub(crate) struct Routers {
    /// For clients, workers and servers of the store.
    pub(crate) main: Router,
    /// For peers that connect like a server but are not in the cluster.
    pub(crate) unauthenticated_peers: Router,
}

/// TLS of the connections of clients.
pub(crate) struct Secured {
    pub(crate) tls: Arc<ClientTls>,
    /// Serves clients of other machines that connect without TLS; if `None`, they are served like all others.
    pub(crate) plain_from_network: Option<Router>,
}

/// What serves the connections of a server.
pub(crate) struct Door {
    identity: Arc<Identity>,
    /// `None` if this server does not terminate the TLS of clients.
    secured: Option<Secured>,
    /// Serves requests until the door is open.
    starting: Router,
    opened: OnceLock<Opened>,
    /// The Raft store of this server, if it has one.
    raft: OnceLock<Arc<RaftMember>>,
}

struct Opened {
    main: Router,
    for_servers: Router,
    unauthenticated_peers: Router,
    members: Members,
}

impl Door {
    /// Creates the door of a server with this key. `starting` serves requests until the door is open.
    pub(crate) fn new(identity: Arc<Identity>, starting: Router, secured: Option<Secured>) -> Self {
        Self { identity, secured, starting, opened: OnceLock::new(), raft: OnceLock::new() }
    }

    /// Returns the TLS of the connections of clients.
    pub(crate) fn tls(&self) -> Option<&Arc<ClientTls>> {
        self.secured.as_ref().map(|secured| &secured.tls)
    }

    /// Returns the key of the server.
    pub(crate) fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// Serves the connections of other members of the Raft cluster from now on.
    pub(crate) fn add_member(&self, member: Arc<RaftMember>) {
        // A server is one member.
        let _first = self.raft.set(member);
    }

    /// Serves requests from now on.
    pub(crate) fn open(&self, Routers { main, unauthenticated_peers }: Routers, members: Members) {
        let for_servers = main.clone().layer(Extension(FromServer));
        // A server is started once.
        let _first = self.opened.set(Opened { main, for_servers, unauthenticated_peers, members });
    }

    /// Returns the service of a connection without TLS.
    fn plain(&self, is_local: bool) -> Option<&Router> {
        self.secured.as_ref().filter(|_| !is_local)?.plain_from_network.as_ref()
    }

    fn main(&self) -> Router {
        self.opened.get().map_or_else(|| self.starting.clone(), |opened| opened.main.clone())
    }
}

/// When a listener ends.
#[derive(Debug, Clone)]
pub(crate) struct Ends {
    /// Ends the requests of clients.
    pub(crate) requests: CancellationToken,
    /// Cancelled by the listener, when no request is open any more.
    pub(crate) requests_ended: CancellationToken,
    /// Ends everything else: in a Raft cluster, the others still need this server while it hands over.
    pub(crate) connections: CancellationToken,
}

/// Serves the connections of a listener until `ends`. Open requests have `grace` to finish.
pub(crate) async fn serve<L: Listener>(mut listener: L, door: Arc<Door>, ends: Ends, grace: Duration) {
    let cut_off = CancellationToken::new();
    let dispatcher = Arc::new(Dispatcher {
        acceptor: door.identity.acceptor(),
        http: builder(),
        // One request at a time; its answer ends the connection.
        http_of_strangers: builder().http1_only(),
        graceful: Mutex::new(Some(GracefulShutdown::new())),
        open_requests: TaskTracker::new(),
        cut_off: cut_off.clone(),
        ends: ends.clone(),
        door,
    });
    let (connections, shares) = (Arc::new(Semaphore::new(CONNECTIONS_MAX)), ConnectionCounts::default());
    let open = TaskTracker::new();
    let accepting = async {
        while let Some(stream) = accept(&mut listener, &ends.connections).await {
            let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { break };
            let address = L::peer(&stream).map(network);
            let Some(share) = shares.take(address, connections.available_permits()) else {
                tracing::debug!(?address, "closed a connection: its address has reached its limit");
                continue;
            };
            let dispatcher = Arc::clone(&dispatcher);
            open.spawn(async move {
                let _taken = (permit, share);
                dispatcher.dispatch::<L>(stream).await;
            });
        }
        drop(listener);
    };
    let ending = async {
        ends.requests.cancelled().await;
        let graceful = dispatcher.lock().take();
        let finished = async {
            if let Some(graceful) = graceful {
                graceful.shutdown().await;
            }
        };
        if tokio::time::timeout(grace, finished).await.is_err() {
            tracing::info!("closing requests that did not end within the grace period");
        }
        cut_off.cancel();
        dispatcher.open_requests.close();
        dispatcher.open_requests.wait().await;
        ends.requests_ended.cancel();
    };
    tokio::join!(accepting, ending);
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

/// The other end of a TLS connection.
enum Accepted<S> {
    Server(TlsStream<S>, Proved),
    Client(TlsStream<S>),
}

/// Dispatches connections to the service for their kind.
struct Dispatcher {
    door: Arc<Door>,
    acceptor: TlsAcceptor,
    http: Builder<TokioExecutor>,
    http_of_strangers: Builder<TokioExecutor>,
    /// `None` when requests have ended.
    graceful: Mutex<Option<GracefulShutdown>>,
    /// Counts the connections with requests.
    open_requests: TaskTracker,
    /// Ends requests that were not finished in time.
    cut_off: CancellationToken,
    ends: Ends,
}

impl Dispatcher {
    fn lock(&self) -> MutexGuard<'_, Option<GracefulShutdown>> {
        self.graceful.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves a connection until it ends.
    async fn dispatch<L: Listener>(&self, mut stream: L::Stream) {
        let peer = L::peer(&stream);
        let first = tokio::select! {
            first = first_byte::<L>(&mut stream) => first,
            // The client has not sent a request.
            () = self.ends.connections.cancelled() => None,
        };
        match first {
            Some(peers::TLS_HANDSHAKE) => self.serve_tls(stream, peer).await,
            Some(_) => match self.door.plain(L::is_local(&stream)).cloned() {
                Some(refusal) => {
                    let address = peer.map(tracing::field::display);
                    tracing::debug!(address, "refused a connection without TLS");
                    self.serve_http(&self.http, stream, peer, move || refusal.clone()).await;
                }
                None => self.serve_client(stream, peer).await,
            },
            None => {}
        }
    }

    /// Serves the requests of a client.
    async fn serve_client<S>(&self, stream: S, peer: Option<IpAddr>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let door = Arc::clone(&self.door);
        self.serve_http(&self.http, stream, peer, move || door.main()).await;
    }

    /// Serves a connection that begins with a TLS handshake.
    async fn serve_tls<S>(&self, stream: S, peer: Option<IpAddr>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let accepted = tokio::select! {
            accepted = tokio::time::timeout(HEADERS_TIMEOUT, self.handshake(stream)) => accepted,
            () = self.ends.connections.cancelled() => return,
        };
        let address = peer.map(tracing::field::display);
        match accepted {
            Ok(Ok(Accepted::Server(stream, proved))) => self.serve_server(stream, &proved, peer).await,
            Ok(Ok(Accepted::Client(stream))) => self.serve_client(stream, peer).await,
            // A client that speaks TLS by mistake, or does not trust the certificate, is no reason for a warning.
            Ok(Err(error)) => tracing::debug!(address, error = %error, "TLS handshake failed"),
            Err(_) => tracing::debug!(address, "a TLS handshake, or the request after it, timed out"),
        }
    }

    /// Completes the handshake, and waits for the first byte of a client.
    async fn handshake<S>(&self, stream: S) -> io::Result<Accepted<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let begun = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await?;
        match self.door.tls() {
            Some(tls) if !peers::is_server(&begun.client_hello()) => {
                let mut stream = begun.into_stream(tls.config()).await?;
                // As without TLS, a client that sends nothing is closed soon.
                if stream.fill_buf().await?.is_empty() {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the client sent no request"));
                }
                Ok(Accepted::Client(stream))
            }
            _ => {
                let (stream, proved) = peers::accept(&self.acceptor, begun).await?;
                Ok(Accepted::Server(stream, proved))
            }
        }
    }

    /// Serves another server, for the protocol that the handshake has negotiated.
    async fn serve_server<S>(&self, stream: TlsStream<S>, proved: &Proved, peer: Option<IpAddr>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let address = peer.map(tracing::field::display);
        match (proved.protocol, self.door.raft.get()) {
            (Some(protocol), Some(member)) => {
                let serving = member.serve(Box::new(stream), protocol, proved, address);
                self.ends.connections.run_until_cancelled(serving).await;
            }
            (Some(_), None) => {
                tracing::debug!(address, "another server expects a member of a Raft cluster here")
            }
            (None, _) => self.serve_forwarded(stream, proved.key, peer).await,
        }
    }

    /// Serves the forwarded requests of another server with this key.
    async fn serve_forwarded<S>(&self, stream: S, key: Fingerprint, peer: Option<IpAddr>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        // Until then this server leads nothing that could be forwarded to it.
        let Some(opened) = self.door.opened.get() else { return };
        let found = tokio::select! {
            found = opened.members.find(key) => found,
            () = self.ends.connections.cancelled() => return,
        };
        let reason = match found {
            Ok(Some(server)) => {
                tracing::debug!(server = server.name, server_id = %server.id, "another server connected");
                let app = opened.for_servers.clone();
                return self.serve_http(&self.http, stream, peer, move || app.clone()).await;
            }
            Ok(None) => format!("no server of the cluster has the key {key}"),
            Err(error) => format!("cannot read the servers of the cluster: {error}"),
        };
        let address = peer.map(tracing::field::display);
        tracing::warn!(address, error = reason, "refused a connection of an unauthenticated server");
        let app = opened.unauthenticated_peers.clone();
        self.serve_http(&self.http_of_strangers, stream, peer, move || app.clone()).await;
    }

    /// Serves HTTP on a connection. `app` returns the service of each request.
    async fn serve_http<S>(
        &self,
        http: &Builder<TokioExecutor>,
        stream: S,
        peer: Option<IpAddr>,
        app: impl Fn() -> Router + Clone + Send + 'static,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let _open = self.open_requests.token();
        let Some(watcher) = self.lock().as_ref().map(GracefulShutdown::watcher) else { return };
        let service = tower::service_fn(move |mut request: Request<Incoming>| {
            if let Some(address) = peer {
                request.extensions_mut().insert(Peer::Connection(address));
            }
            app().oneshot(request)
        });
        let service = TowerToHyperService::new(service);
        let connection = http.serve_connection_with_upgrades(TokioIo::new(stream), service);
        let served = self.cut_off.run_until_cancelled(watcher.watch(connection.into_owned())).await;
        if let Some(Err(error)) = served {
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

    /// Serves a port with a certificate; returns its address, and a client that trusts it.
    async fn secured_port() -> (std::net::SocketAddr, tokio_rustls::TlsConnector) {
        let folder = tempfile::tempdir().unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        let certificate = certificate.self_signed(&key).unwrap();
        let files = ["server.pem", "server-key.pem"].map(|name| folder.path().join(name));
        std::fs::write(&files[0], certificate.pem()).unwrap();
        std::fs::write(&files[1], key.serialize_pem()).unwrap();
        let mut config = crate::ServerConfig::new(folder.path());
        let [cert_file, key_file] = files;
        config.tls = Some(crate::config::TlsConfig { cert_file, key_file });
        let tls = ClientTls::load(&config).unwrap().unwrap();
        let secured = Secured { tls, plain_from_network: None };
        let door = Arc::new(Door::new(Arc::new(Identity::generate()), Router::new(), Some(secured)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let ends = Ends {
            requests: CancellationToken::new(),
            requests_ended: CancellationToken::new(),
            connections: CancellationToken::new(),
        };
        tokio::spawn(serve(listener, door, ends, Duration::ZERO));
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        (address, tokio_rustls::TlsConnector::from(Arc::new(client)))
    }

    /// Waits until the server closes a connection without an answer.
    async fn until_closed(mut stream: impl AsyncRead + Unpin) {
        let begun = tokio::time::Instant::now();
        let mut answer = Vec::new();
        let closed = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut answer).await;
        assert!(closed.is_err() || answer.is_empty(), "{answer:?}");
        assert!((HEADERS_TIMEOUT..HEADERS_TIMEOUT * 2).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    }

    /// A client that begins a handshake and does not continue takes a connection for 10 s only.
    #[tokio::test(start_paused = true)]
    async fn a_slow_handshake_is_closed() {
        let (address, _) = secured_port().await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        // The header of a message of 512 bytes, and its beginning.
        stream.write_all(&[peers::TLS_HANDSHAKE, 3, 1, 2, 0, 1, 0]).await.unwrap();
        until_closed(stream).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_is_silent_after_its_handshake_is_closed() {
        let (address, client) = secured_port().await;
        let stream = TcpStream::connect(address).await.unwrap();
        let stream = client.connect("localhost".try_into().unwrap(), stream).await.unwrap();
        until_closed(stream).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_connection_times_out() {
        let (_theirs, mut ours) = connection().await;
        let begun = tokio::time::Instant::now();
        assert_eq!(first_byte::<TcpListener>(&mut ours).await, None);
        assert_eq!(begun.elapsed(), HEADERS_TIMEOUT);
    }
}
