//! Interface of an agent to its environment: the supervisor's socket, the network, the clock, and the machine's
//! health.
//!
//! In production the only implementation is [`Host`]. Simulations have another one with virtual time, whose
//! connections stay inside the process.

use std::fmt::Debug;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;

use proto::v1::Health;
use shim::Probed;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::transport::{Channel, Endpoint, Error};

use super::address::local_address;
use super::health::Probe;
use super::runtimes;
use super::supervisor::{self, ConnectError};
use crate::clock::{BootMillis, boot_millis};
use crate::config::AgentConfig;
use crate::link::Owner;

/// A connection of any kind.
pub(crate) type BoxedStream = Box<dyn Stream>;
pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Measures the health of a machine; the argument is the number of running executions.
pub(crate) type BoxedProbe = Box<dyn FnMut(u32) -> Health + Send>;

/// A bidirectional byte stream.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Operations of the machine that an agent runs on.
pub(crate) trait Machine: Debug + Send + Sync {
    /// Connects to the supervisor of the worker folder, and starts the supervisor if none is running.
    fn supervisor<'a>(&'a self, config: &'a AgentConfig) -> BoxFuture<'a, Result<BoxedStream, ConnectError>>;

    /// Connects to a server.
    fn connect<'a>(&'a self, endpoint: &'a Endpoint) -> BoxFuture<'a, Result<Channel, Error>>;

    /// Returns a connection to a server that is opened, and reopened, on use.
    fn connect_lazily(&self, endpoint: &Endpoint) -> Channel;

    /// Returns the local IP address of connections to the server at `url`; empty if it is unknown.
    fn local_address<'a>(&'a self, url: &'a str) -> BoxFuture<'a, String>;

    /// Returns the time of the supervisor's clock, on which leases are counted.
    fn boot_millis(&self) -> BootMillis;

    /// Returns the runtimes that need more than a shim, and that the machine has.
    fn runtimes<'a>(
        &'a self,
        program: &'a Path,
        engine: Option<&'a str>,
        owner: Option<Owner>,
    ) -> BoxFuture<'a, Probed>;

    /// Removes what ended shims have left.
    fn sweep<'a>(&'a self, program: &'a Path, engine: Option<&'a str>) -> BoxFuture<'a, ()>;

    /// Returns a probe for the health of the machine, with the disk of `dir`.
    fn probe(&self, dir: &Path) -> BoxedProbe;
}

/// The machine that this process runs on.
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

    fn local_address<'a>(&'a self, url: &'a str) -> BoxFuture<'a, String> {
        Box::pin(local_address(url))
    }

    fn boot_millis(&self) -> BootMillis {
        boot_millis()
    }

    fn runtimes<'a>(
        &'a self,
        program: &'a Path,
        engine: Option<&'a str>,
        owner: Option<Owner>,
    ) -> BoxFuture<'a, Probed> {
        Box::pin(runtimes::probe(program, engine, owner))
    }

    fn sweep<'a>(&'a self, program: &'a Path, engine: Option<&'a str>) -> BoxFuture<'a, ()> {
        Box::pin(runtimes::sweep(program, engine))
    }

    fn probe(&self, dir: &Path) -> BoxedProbe {
        let mut probe = Probe::new(dir);
        Box::new(move |running| probe.sample(running))
    }
}
