//! A proxy in front of a server, on which single connections can be cut.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// A TCP proxy; it ends with the runtime of its test.
pub(crate) struct Proxy {
    address: SocketAddr,
    refuses: Arc<AtomicBool>,
    /// Open connections by the client address that the server sees.
    connections: Arc<Mutex<HashMap<SocketAddr, AbortHandle>>>,
}

impl Proxy {
    /// Starts a proxy in front of the server at `url`.
    pub(crate) fn start(url: &str) -> Self {
        let target: SocketAddr = url.trim_start_matches("http://").parse().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (refuses, connections) = (Arc::<AtomicBool>::default(), Arc::<Mutex<HashMap<_, _>>>::default());
        let proxy = Self { address, refuses: Arc::clone(&refuses), connections: Arc::clone(&connections) };
        let listener = TcpListener::from_std(listener).unwrap();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                if refuses.load(Ordering::SeqCst) {
                    continue;
                }
                let mut server = TcpStream::connect(target).await.unwrap();
                let seen = server.local_addr().unwrap();
                let copying = tokio::spawn(async move {
                    copy_bidirectional(&mut client, &mut server).await.ok();
                });
                connections.lock().unwrap().insert(seen, copying.abort_handle());
            }
        });
        proxy
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Closes new connections at once.
    pub(crate) fn refuse(&self) {
        self.refuses.store(true, Ordering::SeqCst);
    }

    /// Cuts the connection with this client address.
    pub(crate) fn cut(&self, seen: SocketAddr) {
        self.connections.lock().unwrap()[&seen].abort();
    }
}
