//! A TCP proxy that simulates a bad network: silent in one or both directions, slow, or unreachable.
//!
//! Data in a silent direction is kept, and delivered when the direction works again, as TCP retransmission
//! would do. A connection that is opened meanwhile is accepted and stays silent. The proxy needs no special
//! permissions.
//!
//! [`Proxy::set`] changes the [`Conditions`] of all connections at once; [`Proxy::break_all`] closes the
//! current ones. A delay applies to each chunk in its direction, so the order of the data never changes.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Maximum number of pending chunks in one direction of one connection.
const ON_THE_WAY: usize = 256;

/// Current behaviour of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Conditions {
    /// Whether data from the client is held back.
    pub up_cut: bool,
    /// Whether data to the client is held back.
    pub down_cut: bool,
    /// Whether connections are closed immediately.
    pub refuses: bool,
    /// Delay in each direction.
    pub delay: Duration,
}

impl Conditions {
    /// Holds back all data, in both directions.
    pub const CUT: Self = Self { up_cut: true, down_cut: true, refuses: false, delay: Duration::ZERO };
    /// Closes all connections, and refuses new ones.
    pub const REFUSED: Self = Self { up_cut: false, down_cut: false, refuses: true, delay: Duration::ZERO };
}

/// State that all connections of a proxy share.
#[derive(Debug, Clone, Copy, Default)]
struct ProxyState {
    weather: Conditions,
    /// Number of times that all connections were closed.
    breaks: u64,
    /// Target address; `None` until it is known.
    target: Option<SocketAddr>,
}

/// A proxy in front of one address.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    sky: watch::Sender<ProxyState>,
    task: tokio::task::JoinHandle<()>,
}

/// One direction of a connection.
#[derive(Debug, Clone, Copy)]
enum Way {
    Up,
    Down,
}

impl Way {
    fn is_cut(self, weather: &Conditions) -> bool {
        match self {
            Self::Up => weather.up_cut,
            Self::Down => weather.down_cut,
        }
    }
}

impl Proxy {
    /// Starts a proxy for `target` on a free port of `host`.
    pub async fn start(host: &str, target: SocketAddr) -> Self {
        Self::leading_to(host, Some(target)).await
    }

    /// Starts a proxy whose target is [set](Self::set_target) later.
    pub async fn start_without_target(host: &str) -> Self {
        Self::leading_to(host, None).await
    }

    async fn leading_to(host: &str, target: Option<SocketAddr>) -> Self {
        let listener = TcpListener::bind((host, 0)).await.expect("cannot bind a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let (sky, now) = watch::channel(ProxyState { target, ..ProxyState::default() });
        let task = tokio::spawn(async move {
            // Accepting fails if the connection has been closed, or if no file descriptor is free.
            loop {
                if let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, now.clone()));
                }
            }
        });
        Self { address, sky, task }
    }

    /// Returns the address on which the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the HTTP URL of the proxy.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the behaviour of the network.
    pub fn set(&self, weather: Conditions) {
        self.sky.send_modify(|now| {
            now.weather = weather;
            now.breaks += u64::from(weather.refuses);
        });
    }

    /// Sets the target of new connections.
    pub fn set_target(&self, target: SocketAddr) {
        self.sky.send_modify(|now| now.target = Some(target));
    }

    /// Closes all current connections.
    pub fn break_all(&self) {
        self.sky.send_modify(|now| now.breaks += 1);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.break_all();
    }
}

async fn serve(here: TcpStream, mut sky: watch::Receiver<ProxyState>) {
    let ProxyState { weather, breaks, target } = *sky.borrow_and_update();
    let Some(target) = target.filter(|_| !weather.refuses) else { return };
    // If the server is down, the connection is closed.
    let Ok(there) = TcpStream::connect(target).await else { return };
    let ((here_read, here_write), (there_read, there_write)) = (here.into_split(), there.into_split());
    let up = carry(here_read, there_write, Way::Up, sky.clone());
    let down = carry(there_read, here_write, Way::Down, sky.clone());
    tokio::select! {
        () = async { tokio::join!(up, down); } => {}
        _ = sky.wait_for(|now| now.breaks != breaks) => {}
    }
}

/// Copies one direction, each chunk after its delay.
async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    way: Way,
    mut sky: watch::Receiver<ProxyState>,
) {
    let (sender, mut chunks) = mpsc::channel::<(Instant, Vec<u8>)>(ON_THE_WAY);
    let now = sky.clone();
    let read = async move {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            let due = Instant::now() + now.borrow().weather.delay;
            if sender.send((due, buffer[..count].to_vec())).await.is_err() {
                return;
            }
        }
    };
    let write = async move {
        while let Some((due, chunk)) = chunks.recv().await {
            tokio::time::sleep_until(due).await;
            let passes = sky.wait_for(|now| !way.is_cut(&now.weather)).await.is_ok();
            if !passes || to.write_all(&chunk).await.is_err() {
                return;
            }
        }
        // One direction of the connection has ended; the other one may continue.
        let _ = to.shutdown().await;
    };
    tokio::join!(read, write);
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.split();
                    tokio::io::copy(&mut read, &mut write).await
                });
            }
        });
        address
    }

    async fn say(stream: &mut TcpStream, word: &[u8; 4]) -> Option<[u8; 4]> {
        stream.write_all(word).await.ok()?;
        let mut answer = [0; 4];
        let heard = tokio::time::timeout(Duration::from_millis(200), stream.read_exact(&mut answer)).await;
        heard.ok()?.ok().map(|_| answer)
    }

    /// F4, F5.
    #[tokio::test]
    async fn a_cut_connection_is_silent_and_delivers_its_data_when_restored() {
        let proxy = Proxy::start("127.0.0.1", echo().await).await;
        for cut in [
            Conditions::CUT,
            Conditions { down_cut: false, ..Conditions::CUT },
            Conditions { up_cut: false, ..Conditions::CUT },
        ] {
            let mut stream = TcpStream::connect(proxy.address).await.unwrap();
            assert_eq!(say(&mut stream, b"ping").await, Some(*b"ping"));
            proxy.set(cut);
            assert_eq!(say(&mut stream, b"pong").await, None, "{cut:?}");
            proxy.set(Conditions::default());
            let mut answer = [0; 4];
            stream.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"pong");
        }
    }

    /// F5.
    #[tokio::test]
    async fn a_delay_applies_to_each_chunk_and_a_break_closes_every_connection() {
        let proxy = Proxy::start("127.0.0.1", echo().await).await;
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        proxy.set(Conditions { delay: Duration::from_millis(40), ..Conditions::default() });
        let begun = Instant::now();
        assert_eq!(say(&mut stream, b"slow").await, Some(*b"slow"));
        assert!(begun.elapsed() >= Duration::from_millis(80), "{:?}", begun.elapsed());
        proxy.break_all();
        assert_eq!(stream.read(&mut [0; 4]).await.unwrap_or(0), 0);
    }
}
