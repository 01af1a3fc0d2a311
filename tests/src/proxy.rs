//! A TCP proxy that can be a bad network: silent in one direction or both, slow, or gone.
//!
//! What a silent direction was given is kept and delivered once it is mended, as TCP would send it
//! again; a connection that is opened meanwhile comes about and stays silent. It needs no rights.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Chunks that are on their way in one direction of one connection.
const ON_THE_WAY: usize = 256;

/// How the network is at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Weather {
    /// Whether nothing comes through from whoever connected.
    pub up_cut: bool,
    /// Whether nothing comes through to whoever connected.
    pub down_cut: bool,
    /// Whether connections are closed at once.
    pub refuses: bool,
    /// How long everything takes, each way.
    pub delay: Duration,
}

impl Weather {
    /// Nothing comes through, either way.
    pub const CUT: Self = Self { up_cut: true, down_cut: true, refuses: false, delay: Duration::ZERO };
    /// Nobody gets in, and whoever was in is thrown out.
    pub const REFUSED: Self = Self { up_cut: false, down_cut: false, refuses: true, delay: Duration::ZERO };
}

/// What all connections of a proxy look at.
#[derive(Debug, Clone, Copy, Default)]
struct Sky {
    weather: Weather,
    /// Counts how often all connections were broken.
    breaks: u64,
    /// Where it leads; nowhere at first if that is not known when it starts.
    target: Option<SocketAddr>,
}

/// A proxy in front of one address.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    sky: watch::Sender<Sky>,
    task: tokio::task::JoinHandle<()>,
}

/// One direction.
#[derive(Debug, Clone, Copy)]
enum Way {
    Up,
    Down,
}

impl Way {
    fn is_cut(self, weather: &Weather) -> bool {
        match self {
            Self::Up => weather.up_cut,
            Self::Down => weather.down_cut,
        }
    }
}

impl Proxy {
    /// Listens on a free port of `host`, for `target`.
    pub async fn start(host: &str, target: SocketAddr) -> Self {
        Self::leading_to(host, Some(target)).await
    }

    /// The same for a target that is [told](Self::lead_to) later.
    pub async fn leading_nowhere(host: &str) -> Self {
        Self::leading_to(host, None).await
    }

    async fn leading_to(host: &str, target: Option<SocketAddr>) -> Self {
        let listener =
            TcpListener::bind((host, 0)).await.expect("an address of this machine has a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let (sky, now) = watch::channel(Sky { target, ..Sky::default() });
        let task = tokio::spawn(async move {
            // Accepting fails for a connection that is gone again, or for want of descriptors.
            loop {
                if let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, now.clone()));
                }
            }
        });
        Self { address, sky, task }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same for who speaks HTTP.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Makes the network so from now on.
    pub fn set(&self, weather: Weather) {
        self.sky.send_modify(|now| {
            now.weather = weather;
            now.breaks += u64::from(weather.refuses);
        });
    }

    /// Leads new connections there.
    pub fn lead_to(&self, target: SocketAddr) {
        self.sky.send_modify(|now| now.target = Some(target));
    }

    /// Breaks every connection that there is.
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

async fn serve(here: TcpStream, mut sky: watch::Receiver<Sky>) {
    let Sky { weather, breaks, target } = *sky.borrow_and_update();
    let Some(target) = target.filter(|_| !weather.refuses) else { return };
    // Nobody listens there while the server is down: whoever connected sees the end of it.
    let Ok(there) = TcpStream::connect(target).await else { return };
    let ((here_read, here_write), (there_read, there_write)) = (here.into_split(), there.into_split());
    let up = carry(here_read, there_write, Way::Up, sky.clone());
    let down = carry(there_read, here_write, Way::Down, sky.clone());
    tokio::select! {
        () = async { tokio::join!(up, down); } => {}
        _ = sky.wait_for(|now| now.breaks != breaks) => {}
    }
}

/// Reads at one end and writes at the other, each chunk after its delay.
async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, way: Way, mut sky: watch::Receiver<Sky>) {
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
        // Half of the connection is over; the other may go on.
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
    async fn a_cut_is_silent_and_what_it_kept_arrives_when_it_is_mended() {
        let proxy = Proxy::start("127.0.0.1", echo().await).await;
        for cut in [
            Weather::CUT,
            Weather { down_cut: false, ..Weather::CUT },
            Weather { up_cut: false, ..Weather::CUT },
        ] {
            let mut stream = TcpStream::connect(proxy.address).await.unwrap();
            assert_eq!(say(&mut stream, b"ping").await, Some(*b"ping"));
            proxy.set(cut);
            assert_eq!(say(&mut stream, b"pong").await, None, "{cut:?}");
            proxy.set(Weather::default());
            let mut answer = [0; 4];
            stream.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"pong");
        }
    }

    /// F5.
    #[tokio::test]
    async fn a_delay_holds_each_chunk_up_and_a_break_ends_every_connection() {
        let proxy = Proxy::start("127.0.0.1", echo().await).await;
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        proxy.set(Weather { delay: Duration::from_millis(40), ..Weather::default() });
        let begun = Instant::now();
        assert_eq!(say(&mut stream, b"slow").await, Some(*b"slow"));
        assert!(begun.elapsed() >= Duration::from_millis(80), "{:?}", begun.elapsed());
        proxy.break_all();
        assert_eq!(stream.read(&mut [0; 4]).await.unwrap_or(0), 0);
    }
}
