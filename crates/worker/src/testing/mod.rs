//! A simulated worker without processes: the real agent over the real supervisor core.
//!
//! [`run`] simulates a machine that is switched on. The agent of the product runs on it. It uses the real protocols:
//! to a supervisor over bytes in memory, and gRPC to servers over the connections of a [`World`], which also provides
//! the clock. The supervisor ([`model`]) is the core of the product with its journal. Only the tasks are simulated: a
//! [`Plan`] states the result of each.
//!
//! Dropping the future of [`run`] simulates a power cut. A later [`run`] finds the content of the [`Disk`].

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
use shim::Probed;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::sync::{Notify, mpsc};
use tonic::transport::{Channel, Endpoint, Error, Uri};

pub use disk::Disk;

use crate::agent::machine::{BoxFuture, BoxedProbe, BoxedStream, Machine};
use crate::agent::supervisor::ConnectError;
use crate::config::AgentConfig;
use crate::link::Owner;

/// A bidirectional byte stream.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection through a simulated network.
pub type Connection = Box<dyn Stream>;
/// A connection that is being opened.
pub type ConnectFuture = Pin<Box<dyn Future<Output = io::Result<Connection>> + Send>>;

/// Buffer size of the connection between an agent and its supervisor, in bytes per direction.
const LINK_BYTES: usize = 1 << 20;

/// Environment of a simulated machine; also records what happens on it.
pub trait World: Send + Sync + 'static {
    /// Returns the simulated time in milliseconds; leases are counted on this clock.
    fn millis(&self) -> u64;

    /// Opens a connection to a server.
    fn connect(&self, host: String, port: u16) -> ConnectFuture;

    /// Returns the result of a task that is about to start.
    fn plan(&self, task: &Task) -> Plan;

    /// Returns a random number of milliseconds from `least` to `most`, both inclusive.
    fn random_millis(&self, least: u64, most: u64) -> u64;

    /// Records a step of a task, which has just happened or is about to.
    fn record_step(&self, execution: ExecutionId, step: Step);
}

/// A task that is about to start.
#[derive(Debug, Clone)]
pub struct Task {
    /// Id of the execution.
    pub execution: ExecutionId,
    /// Id of the job.
    pub job: JobId,
    /// Fence of the execution.
    pub fence: Fence,
    /// Spec of the job.
    pub spec: Arc<JobSpec>,
}

/// Planned result of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// The task runs for this time and exits with this code.
    Run {
        /// Run time in milliseconds.
        millis: u64,
        /// Exit code.
        exit: i32,
    },
    /// The worker refuses the execution, as on a full disk.
    Refuse,
    /// The program cannot be started.
    StartFail,
}

/// A step in the life of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The supervisor received the assignment.
    Heard {
        /// Fence of the assignment.
        fence: Fence,
    },
    /// The task was started.
    Started {
        /// Id of the job.
        job: JobId,
        /// Fence of the execution.
        fence: Fence,
    },
    /// The task was frozen.
    Halted,
    /// The task was thawed.
    Resumed,
    /// The task exited by itself.
    Ended {
        /// Exit code.
        exit: i32,
    },
    /// The task was killed.
    Killed,
}

/// Runs a simulated machine with an agent, a supervisor and tasks, until the future is dropped.
///
/// Each notification of `restart` kills the agent and starts a new one.
///
/// # Panics
/// If the configuration is invalid.
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
            Box::pin(agent).await.expect("the servers and the token are valid");
        }
    };
    tokio::select! {
        biased;
        never = supervisor => never,
        never = agents => never,
    }
}

/// A machine in a [`World`].
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
    fn connector(
        &self,
    ) -> impl tower::Service<
        Uri,
        Response = TokioIo<Connection>,
        Error = io::Error,
        Future = impl Future<Output = io::Result<TokioIo<Connection>>> + Send + use<>,
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
        Box::pin(endpoint.connect_with_connector(self.connector()))
    }

    fn connect_lazily(&self, endpoint: &Endpoint) -> Channel {
        endpoint.connect_with_connector_lazy(self.connector())
    }

    fn local_address<'a>(&'a self, _: &'a str) -> BoxFuture<'a, String> {
        Box::pin(std::future::ready(String::new()))
    }

    fn boot_millis(&self) -> u64 {
        self.world.millis()
    }

    fn runtimes<'a>(&'a self, _: &'a Path, _: Option<&'a str>, _: Option<Owner>) -> BoxFuture<'a, Probed> {
        Box::pin(std::future::ready(Probed::default()))
    }

    fn sweep<'a>(&'a self, _: &'a Path, _: Option<&'a str>) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
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
