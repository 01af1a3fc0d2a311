//! Accepts connections and serves them, HTTP/1 and HTTP/2 alike.
//!
//! This is `axum::serve` with bounds: a connection that sends its headers too slowly, or that does
//! not answer pings, is closed; and there are no more than [`CONNECTIONS_MAX`] at a time.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The most connections at a time; further ones wait in the kernel's backlog.
const CONNECTIONS_MAX: usize = 20_000;
/// How long a client may take to send the headers of a request.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(10);
/// The most bytes of headers.
const HEADER_BYTES_MAX: u32 = 32 * 1024;
/// The most streams of one HTTP/2 connection.
const STREAMS_MAX: u32 = 1_000;
/// How often a silent HTTP/2 connection is asked whether it lives, and how long it has to answer.
const PING_INTERVAL: Duration = Duration::from_secs(15);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// How much a stream and a connection may have on the way before they are acknowledged.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;

/// Where connections come from: a port of the machine, or a simulated network.
pub trait Listener: Send + 'static {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// The next connection.
    ///
    /// # Errors
    /// Where none can be had now. It is asked again a moment later.
    fn accept(&mut self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn accept(&mut self) -> io::Result<TcpStream> {
        let (stream, _peer) = Self::accept(self).await?;
        // Latency over packets: replies are small, and each of them is waited for.
        let _nodelay = stream.set_nodelay(true);
        Ok(stream)
    }
}

/// Serves `app` until `stop`; then lets open requests finish for `grace` at most.
pub(crate) async fn serve<L: Listener>(
    mut listener: L,
    app: Router,
    stop: CancellationToken,
    grace: Duration,
) {
    let builder = Arc::new(builder());
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let graceful = GracefulShutdown::new();
    let (open, cut_off) = (TaskTracker::new(), CancellationToken::new());
    while let Some(stream) = accept(&mut listener, &stop).await {
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { break };
        let service = TowerToHyperService::new(app.clone());
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned();
        let connection = graceful.watch(connection);
        let cut_off = cut_off.clone();
        open.spawn(async move {
            let _permit = permit;
            tokio::select! {
                served = connection => {
                    if let Err(error) = served {
                        tracing::debug!(error = %error, "connection ended");
                    }
                }
                () = cut_off.cancelled() => {}
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(grace, graceful.shutdown()).await.is_err() {
        tracing::info!("cutting off requests that did not end in time");
    }
    cut_off.cancel();
    open.close();
    open.wait().await;
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

/// The next connection, or `None` once it is time to stop.
async fn accept<L: Listener>(listener: &mut L, stop: &CancellationToken) -> Option<L::Stream> {
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return None,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok(stream) => return Some(stream),
            Err(error) => {
                // Out of file descriptors, most likely: others will be given back soon.
                tracing::warn!(error = %error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}
