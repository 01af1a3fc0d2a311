//! Address under which other machines reach the tasks of the worker.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::net::{UdpSocket, lookup_host};
use tokio::time::timeout;
use tonic::transport::Uri;

/// Maximum time to resolve the name of a server.
const RESOLVE_MAX: Duration = Duration::from_secs(2);

/// Returns the local IP address of connections to the server at `url`; empty if it is unknown.
///
/// The address is the result of a routing decision of the system. No packet is sent.
pub(super) async fn local_address(url: &str) -> String {
    let Ok(Some(address)) = timeout(RESOLVE_MAX, find(url)).await else { return String::new() };
    address.ip().to_string()
}

async fn find(url: &str) -> Option<SocketAddr> {
    let uri = url.parse::<Uri>().ok()?;
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
    // The port has no effect on the route.
    for server in lookup_host((host, uri.port_u16().unwrap_or(443))).await.ok()? {
        let any = match server {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let Ok(socket) = UdpSocket::bind(any).await else { continue };
        if socket.connect(server).await.is_ok() {
            return socket.local_addr().ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_on_this_machine_is_reached_from_the_loopback_address() {
        assert_eq!(local_address("http://127.0.0.1:9").await, "127.0.0.1");
        let local = local_address("https://localhost").await.parse::<std::net::IpAddr>().unwrap();
        assert!(local.is_loopback(), "{local}");
    }

    #[tokio::test]
    async fn the_address_is_empty_if_it_is_unknown() {
        assert_eq!(local_address("http://").await, "");
        assert_eq!(local_address("http://no-such-host.invalid:1").await, "");
    }
}
