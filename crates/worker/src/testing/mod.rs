//! A worker without processes: the real agent over the supervisor's core, for simulations.
//!
//! [`run`] is a machine that is switched on. On it the product's agent speaks its own protocol to a
//! supervisor over bytes in memory, and gRPC to servers over the roads of a [`World`]; what it reads of
//! the clock is the world's. The supervisor ([`model`]) is the product's core over its journal; only the tasks are none:
//! a [`Plan`] says what comes of each.
//!
//! Dropping the future of [`run`] is a power cut. What was written to the [`Disk`] is there again after it.

mod disk;
mod model;
mod wire;

use std::fmt;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use ::model::{ExecutionId, Fence, JobId, JobSpec, WorkerId};
use hyper_util::rt::TokioIo;
use proto::v1::Health;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::sync::{Notify, mpsc};
use tonic::transport::{Channel, Endpoint, Error, Uri};

pub use disk::Disk;

use crate::agent::machine::{BoxFuture, BoxedProbe, BoxedStream, Machine};
use crate::agent::supervisor::ConnectError;
use crate::config::AgentConfig;

/// Bytes in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection through a world.
pub type Road = Box<dyn Stream>;
/// A road that is being built.
pub type Approach = Pin<Box<dyn Future<Output = io::Result<Road>> + Send>>;

/// Bytes between an agent and its supervisor that may be under way.
const LINK_BYTES: usize = 1 << 20;

/// What surrounds a modelled machine, and writes down what happens on it.
pub trait World: Send + Sync + 'static {
    /// Milliseconds that have passed in the world; the clock that leases are counted on.
    fn millis(&self) -> u64;

    /// A road to a server.
    fn connect(&self, host: String, port: u16) -> Approach;

    /// What comes of a task.
    fn plan(&self, task: &Task) -> Plan;

    /// A number of milliseconds, drawn between these two, both included.
    fn draw(&self, least: u64, most: u64) -> u64;

    /// Something happened to a task, or is about to.
    fn saw(&self, execution: ExecutionId, step: Step);
}

/// A task that is about to be started.
#[derive(Debug, Clone)]
pub struct Task {
    /// Of which execution.
    pub execution: ExecutionId,
    /// Of which job.
    pub job: JobId,
    /// Under which fence.
    pub fence: Fence,
    /// What the job is.
    pub spec: Arc<JobSpec>,
}

/// What comes of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// It runs for so long and ends with this exit code.
    Run {
        /// In milliseconds.
        millis: u64,
        /// The code.
        exit: i32,
    },
    /// It is not taken.
    Refuse,
    /// It cannot be started.
    StartFail,
}

/// What happens to a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Its assignment came.
    Heard {
        /// Under which fence.
        fence: Fence,
    },
    /// It started.
    Started {
        /// For which job.
        job: JobId,
        /// Under which fence.
        fence: Fence,
    },
    /// It was frozen.
    Halted,
    /// It was thawed.
    Resumed,
    /// It ended by itself.
    Ended {
        /// With this code.
        exit: i32,
    },
    /// It was killed.
    Killed,
}

/// A machine that is switched on, until it is dropped: an agent, a supervisor, tasks.
///
/// Each time that `restart` is notified its agent is killed, and another one started.
///
/// # Panics
/// If the configuration cannot work.
pub async fn run(
    world: Arc<dyn World>,
    id: WorkerId,
    disk: Disk,
    config: AgentConfig,
    restart: Arc<Notify>,
) -> std::convert::Infallible {
    let (connections, accepted) = mpsc::unbounded_channel();
    let machine = Arc::new(Simulated { world: Arc::clone(&world), connections });
    let slots = config.capacity.slots as usize;
    let supervisor = model::Supervisor::new(world, id, slots, disk).run(accepted);
    let agents = async {
        loop {
            let machine = Arc::clone(&machine) as Arc<dyn Machine>;
            let agent = crate::agent::run_on(machine, config.clone(), restart.notified());
            Box::pin(agent).await.expect("its servers and its token are well formed");
        }
    };
    tokio::select! {
        biased;
        never = supervisor => never,
        never = agents => never,
    }
}

/// A machine of a world.
struct Simulated {
    world: Arc<dyn World>,
    connections: mpsc::UnboundedSender<DuplexStream>,
}

impl fmt::Debug for Simulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulated").finish_non_exhaustive()
    }
}

impl Simulated {
    fn roads(
        &self,
    ) -> impl tower::Service<
        Uri,
        Response = TokioIo<Road>,
        Error = io::Error,
        Future = impl Future<Output = io::Result<TokioIo<Road>>> + Send + use<>,
    > + Send
    + use<> {
        let world = Arc::clone(&self.world);
        tower::service_fn(move |uri: Uri| {
            let host = uri.host().unwrap_or_default().to_owned();
            let road = world.connect(host, uri.port_u16().unwrap_or(80));
            async move { road.await.map(TokioIo::new) }
        })
    }
}

impl Machine for Simulated {
    fn supervisor<'a>(&'a self, _: &'a AgentConfig) -> BoxFuture<'a, Result<BoxedStream, ConnectError>> {
        let (ours, theirs) = tokio::io::duplex(LINK_BYTES);
        let sent = self.connections.send(theirs);
        Box::pin(async move {
            sent.map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
            Ok(Box::new(ours) as BoxedStream)
        })
    }

    fn connect<'a>(&'a self, endpoint: &'a Endpoint) -> BoxFuture<'a, Result<Channel, Error>> {
        Box::pin(endpoint.connect_with_connector(self.roads()))
    }

    fn connect_lazily(&self, endpoint: &Endpoint) -> Channel {
        endpoint.connect_with_connector_lazy(self.roads())
    }

    fn boot_millis(&self) -> u64 {
        self.world.millis()
    }

    fn probe(&self, _: &Path) -> BoxedProbe {
        Box::new(|running| Health {
            memory_available_bytes: 1 << 40,
            disk_available_bytes: 1 << 40,
            running,
            ..Health::default()
        })
    }
}
