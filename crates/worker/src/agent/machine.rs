//! What an agent stands on: its supervisor's socket, the network, the clock, and how the machine is.
//!
//! There is one machine in the product, the [`Host`]. A simulation has another, on which no time passes
//! but its own and no byte leaves the process.

use std::fmt::Debug;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;

use proto::v1::Health;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::transport::{Channel, Endpoint, Error};

use super::health::Probe;
use super::supervisor::{self, ConnectError};
use crate::clock::{BootMillis, boot_millis};
use crate::config::AgentConfig;

/// A connection, of whatever kind.
pub(crate) type BoxedStream = Box<dyn Stream>;
pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Tells how a machine is on which so many executions run.
pub(crate) type BoxedProbe = Box<dyn FnMut(u32) -> Health + Send>;

/// Bytes in both directions.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// What an agent needs of the machine that it runs on.
pub(crate) trait Machine: Debug + Send + Sync {
    /// A connection to the supervisor of the worker's folder, which is started if there is none.
    fn supervisor<'a>(&'a self, config: &'a AgentConfig) -> BoxFuture<'a, Result<BoxedStream, ConnectError>>;

    /// A connection to a server.
    fn connect<'a>(&'a self, endpoint: &'a Endpoint) -> BoxFuture<'a, Result<Channel, Error>>;

    /// A connection to a server that is made, and made again, when it is used.
    fn connect_lazily(&self, endpoint: &Endpoint) -> Channel;

    /// What the supervisor's clock shows; leases are counted on it.
    fn boot_millis(&self) -> BootMillis;

    /// Who tells how the machine is, with its disk at `dir`.
    fn probe(&self, dir: &Path) -> BoxedProbe;
}

/// The machine that the process runs on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Host;

impl Machine for Host {
    fn supervisor<'a>(&'a self, config: &'a AgentConfig) -> BoxFuture<'a, Result<BoxedStream, ConnectError>> {
        Box::pin(async move { Ok(Box::new(supervisor::reach(config).await?) as BoxedStream) })
    }

    fn connect<'a>(&'a self, endpoint: &'a Endpoint) -> BoxFuture<'a, Result<Channel, Error>> {
        Box::pin(endpoint.connect())
    }

    fn connect_lazily(&self, endpoint: &Endpoint) -> Channel {
        endpoint.connect_lazy()
    }

    fn boot_millis(&self) -> BootMillis {
        boot_millis()
    }

    fn probe(&self, dir: &Path) -> BoxedProbe {
        let mut probe = Probe::new(dir);
        Box::new(move |running| probe.sample(running))
    }
}
