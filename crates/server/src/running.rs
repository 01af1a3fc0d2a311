//! Start and shutdown of a server.
//!
//! A start opens the store and the objects, creates the first tokens, spawns the driver and listens. It does not wait
//! until the shards are loaded, so that health checks are answered meanwhile.
//!
//! A shutdown has the opposite order: it announces itself to the other servers, refuses new requests, commits and
//! answers the requests in the inbox, ends streams, and releases the leases.
//!
//! Called by `belfry server`, by tests and by simulations, which pass their own [`Environment`].

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use store::postgres::PostgresStore;
use store::sqlite::SqliteStore;
use store::{Store, StoreError};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::alerts::AlertService;
use crate::audit::AuditLog;
use crate::auth::first_start::{ADMIN_TOKEN_FILE, WORKER_TOKEN_FILE};
use crate::auth::{AccessControl, FirstStartError, Keys, first_start};
use crate::between_servers::objects::HttpServers;
use crate::between_servers::secret_key::SecretKeyError;
use crate::between_servers::{Requests, secret_key};
use crate::clock::{self, Clock};
use crate::config::{ConfigError, Exposure, PostgresConfig, RaftConfig, ServerConfig, StoreConfig};
use crate::listener::{self, Door, Ends, Listener, Routers, Secured};
use crate::members::Members;
use crate::metrics::Metrics;
use crate::node::{DriverHandle, Fatal, Node, NodeConfig, Readiness};
use crate::objects::copies::servers::Servers;
use crate::objects::{ObjectError, Objects};
use crate::peers::Identity;
use crate::private_files::make_private_dir;
use crate::raft_member::{self, RaftMember, RaftMemberError};
use crate::seal::{SealError, Sealer};
use crate::server_clients::HttpsEnd;
use crate::services::Services;
use crate::tls::{ClientTls, TlsError};

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A setting is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The data folder could not be created.
    #[error("cannot create the data folder `{}`", path.display())]
    DataDir {
        /// Path of the data folder.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The store could not be opened.
    #[error("cannot open the store")]
    Store(#[from] StoreError),
    /// The object store could not be opened.
    #[error("cannot open the object store")]
    Objects(#[from] ObjectError),
    /// The first tokens could not be created.
    #[error(transparent)]
    Tokens(#[from] FirstStartError),
    /// The key that encrypts secrets could not be read.
    #[error(transparent)]
    SecretKey(#[from] SealError),
    /// The key that encrypts secrets was not received from another server.
    #[error(transparent)]
    NoSecretKey(#[from] SecretKeyError),
    /// The TLS certificate of the server, or its key, could not be used.
    #[error("cannot use the TLS certificate")]
    Tls(#[from] TlsError),
    /// The listening address is not available.
    #[error("cannot listen on {listen}")]
    Listen {
        /// Listening address.
        listen: SocketAddr,
        /// Error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The Raft store could not be opened, or the server is no member of a cluster.
    #[error(transparent)]
    RaftMember(#[from] RaftMemberError),
    /// The operating system could not create a thread.
    #[error("cannot start the engine's thread")]
    Thread(#[source] std::io::Error),
}

impl StartError {
    /// Returns the next step for the operator.
    pub fn help(&self) -> &'static str {
        match self {
            Self::Config(error) => error.help(),
            Self::DataDir { .. } => "choose a folder that the server's user can write to",
            Self::Store(error) => error.help(),
            Self::Objects(error) => error.help(),
            Self::Tokens(_) => "check that the data folder has free space and belongs to the server's user",
            Self::SecretKey(error) => error.help(),
            Self::NoSecretKey(error) => error.help(),
            Self::Tls(error) => error.help(),
            Self::Listen { .. } => "stop the process that listens there, or choose another port",
            Self::RaftMember(error) => error.help(),
            Self::Thread(_) => "raise the limit of threads",
        }
    }
}

/// A running server. Dropping it stops nothing: call [`Running::shutdown`].
pub struct Running {
    /// Listening address, with the actual port even if port 0 was configured.
    pub addr: SocketAddr,
    /// Token of the first admin, if this start created it. Shown once.
    pub first_admin_token: Option<String>,
    /// File with the token of the first admin.
    pub admin_token_path: PathBuf,
    /// File with the token of this server's workers.
    pub worker_token_path: PathBuf,
    /// Handle to the engine.
    pub node: Node,
    /// Handles shared by all parts of the server.
    pub services: Services,
    driver: DriverHandle,
    tasks: TaskTracker,
    listening: Listening,
    stop_tasks: CancellationToken,
}

/// Starts a server over the store of its settings.
///
/// # Errors
/// [`StartError`]; nothing keeps running.
pub async fn start(config: ServerConfig) -> Result<Running, StartError> {
    config.check()?;
    let source = |source| StartError::DataDir { path: config.data_dir.clone(), source };
    make_private_dir(&config.data_dir).map_err(source)?;
    let store = match &config.store {
        StoreConfig::Embedded => open_embedded(&config).await?,
        StoreConfig::Postgres(database) => open_postgres(&config, database).await?,
        StoreConfig::Raft(raft) => {
            let raft = raft.clone();
            return start_member(config, raft).await;
        }
    };
    start_with(config, store).await
}

/// Starts a member of a Raft cluster. It listens before it can read its store, because the servers elect a leader over the
/// same port.
async fn start_member(config: ServerConfig, raft: RaftConfig) -> Result<Running, StartError> {
    let tls = ClientTls::load(&config)?;
    let prepared = raft_member::prepare(&config, &raft)?;
    let (listener, addr) = bind(config.listen).await?;
    let identity = Arc::clone(&prepared.identity);
    let listening = Listening::new(&config, identity, tls, Keep::UntilTheEnd);
    listening.serve(listener, config.shutdown_grace.to_std());
    let address = config.raft_address_at(addr);
    tracing::info!(%addr, "listening for the other servers of the cluster");
    let member =
        match prepared.open(&config, &raft, address, |member| listening.door.add_member(member)).await {
            Ok(member) => member,
            Err(error) => {
                listening.end().await;
                return Err(error.into());
            }
        };
    let site =
        Site { store: member.store(), addr, clock: clock::of_process(), engine: EngineThread::Dedicated };
    match assemble(config, site, listening.clone(), Some(Arc::clone(&member))).await {
        Ok(running) => Ok(running),
        Err(error) => {
            member.shutdown().await;
            listening.end().await;
            Err(error)
        }
    }
}

async fn bind(listen: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |source| StartError::Listen { listen, source };
    let listener = TcpListener::bind(listen).await.map_err(failed)?;
    let addr = listener.local_addr().map_err(failed)?;
    Ok((listener, addr))
}

async fn open_embedded(config: &ServerConfig) -> Result<Arc<dyn Store>, StartError> {
    let options = store::sqlite::Options { shards: config.shards, ..Default::default() };
    let path = config.store_path();
    if config.raft_dir().exists() {
        return Err(RaftMemberError::NotEmbedded { path: config.data_dir.clone() }.into());
    }
    if std::fs::metadata(&path).map_or(0, |meta| meta.len()) == 0
        && let Some(trace) = evidence_of_store(config)
    {
        return Err(StoreError::Missing { path, trace }.into());
    }
    let opened = tokio::task::spawn_blocking(move || SqliteStore::open(&path, options)).await;
    Ok(Arc::new(opened.map_err(|error| StartError::Thread(std::io::Error::other(error)))??))
}

/// Returns a file that proves an earlier store in this data folder: a token, or a complete log or artifact.
fn evidence_of_store(config: &ServerConfig) -> Option<PathBuf> {
    let tokens = [ADMIN_TOKEN_FILE, WORKER_TOKEN_FILE].map(|name| config.data_dir.join(name));
    let objects = Some(config.data_dir.join("objects")).filter(|objects| contains_file(objects));
    tokens.into_iter().find(|token| token.exists()).or(objects)
}

fn contains_file(folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| entry.path().is_file() || contains_file(&entry.path()))
}

async fn open_postgres(
    config: &ServerConfig,
    database: &PostgresConfig,
) -> Result<Arc<dyn Store>, StartError> {
    let options = store::postgres::Options {
        shards: config.shards,
        readers: database.sessions,
        allow_unsafe: database.allow_unsafe,
        require_sync_standby: database.require_sync_standby,
        password: database.password.clone(),
        ..Default::default()
    };
    Ok(Arc::new(PostgresStore::open(&database.url, options).await?))
}

/// Starts a server over any store.
///
/// # Errors
/// [`StartError`]; nothing keeps running.
pub async fn start_with(config: ServerConfig, store: Arc<dyn Store>) -> Result<Running, StartError> {
    config.check()?;
    let (listener, addr) = bind(config.listen).await?;
    let clock = clock::of_process();
    start_at(config, Environment { store, listener, addr, clock, engine: EngineThread::Dedicated }).await
}

/// Environment of a server: of the machine, or simulated.
pub struct Environment<L> {
    /// Store of the rows.
    pub store: Arc<dyn Store>,
    /// Source of connections, instead of [`ServerConfig::listen`].
    pub listener: L,
    /// Address of the listener.
    pub addr: SocketAddr,
    /// Clocks of the engine.
    pub clock: Arc<dyn Clock>,
    /// Thread of the engine.
    pub engine: EngineThread,
}

/// Thread on which an engine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineThread {
    /// Its own thread, so that no other task delays it.
    Dedicated,
    /// The runtime of the caller; see [`Driver::spawn_here`](crate::node::Driver::spawn_here).
    Shared,
}

/// Starts a server in the given environment.
///
/// # Errors
/// [`StartError`]; nothing keeps running.
pub async fn start_at<L: Listener>(
    config: ServerConfig,
    site: Environment<L>,
) -> Result<Running, StartError> {
    config.check()?;
    let Environment { store, listener, addr, clock, engine } = site;
    let tls = ClientTls::load(&config)?;
    let identity = Arc::new(Identity::generate());
    let listening = Listening::new(&config, identity, tls, Keep::UntilTheRequestsEnd);
    let grace = config.shutdown_grace.to_std();
    let running = assemble(config, Site { store, addr, clock, engine }, listening, None).await?;
    running.listening.serve(listener, grace);
    Ok(running)
}

/// What a server is assembled over.
struct Site {
    store: Arc<dyn Store>,
    addr: SocketAddr,
    clock: Arc<dyn Clock>,
    engine: EngineThread,
}

/// Starts all parts of a server, and opens the door to them.
async fn assemble(
    config: ServerConfig,
    site: Site,
    listening: Listening,
    raft_member: Option<Arc<RaftMember>>,
) -> Result<Running, StartError> {
    let Site { store, addr, clock, engine } = site;
    let source = |source| StartError::DataDir { path: config.data_dir.clone(), source };
    make_private_dir(&config.data_dir).map_err(source)?;
    let access = Arc::new(AccessControl::load(Arc::clone(&store)).await?);
    let keys = Keys::load(store.as_ref()).await?;
    let first = first_start(&access, store.as_ref(), &config.data_dir).await?;
    let metrics = Metrics::new();
    let tls = listening.door.tls().cloned();
    if let Some(tls) = &tls {
        metrics.register(|registry| tls.register(registry));
    }
    let url = config.url_at(addr);
    let identity = Arc::clone(listening.door.identity());
    let members = Members::with_clock(Arc::clone(&clock), Arc::clone(&store), &config, url, identity);
    let hands_on = engine == EngineThread::Dedicated;
    let requests = Arc::new(Requests::new(members.clone(), keys.forwards, HttpsEnd::of(&config)));
    let is_shared = hands_on && config.store != StoreConfig::Embedded;
    let servers = is_shared.then(|| -> Arc<dyn Servers> {
        Arc::new(HttpServers::new(Arc::clone(&requests), raft_member.clone()))
    });
    let objects = Objects::open(&config, Arc::clone(&store), servers)?;
    let mut settings = NodeConfig::new(&config, members.clone(), metrics.clone());
    settings.clock = clock;
    let audit = AuditLog::new(Arc::clone(&store), &config.name);
    if first.admin_token.is_some() {
        audit.add(audit.system_entry("create_first_tokens"));
    }
    let key_file = config.secret_key_path();
    if is_shared && !key_file.exists() {
        secret_key::receive(&requests, &key_file).await?;
    }
    let sealer = Sealer::open(&key_file)?;
    let alerts = AlertService::new(
        Arc::clone(&store),
        sealer,
        config.private_networks.clone(),
        config.public_url.clone(),
    );
    let (node, driver) = Node::new(store, settings);
    let config = Arc::new(config);
    let services = Services {
        node,
        objects,
        members,
        raft_member,
        access,
        alerts,
        audit,
        keys,
        usage: Arc::default(),
        metrics,
        config,
        addr,
        forwards_to_leader: hands_on,
        requests,
        tls,
        secret_keys: Arc::default(),
    };
    let driver = match engine {
        EngineThread::Dedicated => driver.spawn().map_err(StartError::Thread)?,
        EngineThread::Shared => driver.spawn_here(),
    };
    Ok(Running::run(services, driver, listening, first))
}

impl Running {
    fn run(
        services: Services,
        driver: DriverHandle,
        listening: Listening,
        first: crate::auth::FirstStart,
    ) -> Self {
        let running = Self {
            addr: services.addr,
            first_admin_token: first.admin_token,
            admin_token_path: first.admin_token_file,
            worker_token_path: first.worker_token_file,
            node: services.node.clone(),
            driver,
            tasks: TaskTracker::new(),
            listening,
            stop_tasks: CancellationToken::new(),
            services,
        };
        running.spawn_tasks();
        running
    }

    fn spawn_tasks(&self) {
        let services = &self.services;
        let app = crate::api::router(services.clone()).merge(crate::grpc::router(services.clone()));
        let (alerts, copies) = (Arc::clone(&services.alerts), services.objects.copies.clone());
        let app = app.merge(crate::between_servers::router(alerts, copies, services.keys.forwards));
        let apps = Routers { main: app, unauthenticated_peers: crate::api::unauthenticated_peers() };
        let (members, access) = (services.members.clone(), Arc::clone(&services.access));
        self.listening.door.open(apps, members.clone());
        self.spawn_until_stop(async move { members.run().await });
        self.spawn_until_stop(async move { access.run().await });
        self.spawn_until_stop(Arc::clone(&services.audit).run());
        self.spawn_until_stop(crate::housekeeping::run(services.clone()));
        self.spawn_until_stop(crate::statistics::run(services.clone()));
        self.spawn_until_stop(crate::alert_feed::run(services.clone()));
        self.spawn_until_stop(Arc::clone(&services.alerts).record_pings());
        self.spawn_until_stop(crate::service_metrics::run(services.clone()));
        let logs = services.objects.logs.clone();
        self.spawn_until_stop(async move { logs.upload().await });
        self.spawn_until_stop(watch_leadership(services.clone()));
        if let Some(copies) = services.objects.copies.clone() {
            self.spawn_until_stop(async move { copies.run().await });
        }
        if services.forwards_to_leader && services.config.store != StoreConfig::Embedded {
            let services = services.clone();
            self.spawn_until_stop(async move {
                services.secret_keys.run(&services.requests, services.alerts.sealer()).await;
            });
        }
        tracing::info!(addr = %self.addr, "listening");
    }

    fn spawn_until_stop(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop_tasks.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = work => {}
                () = stop.cancelled() => {}
            }
        });
    }

    /// Completes when the server cannot continue, because the store cannot be trusted. The process must then exit with
    /// an error, and its supervisor restarts it.
    pub async fn failed(&self) -> Fatal {
        let Some(member) = &self.services.raft_member else { return self.driver.failed().await };
        tokio::select! {
            fatal = member.failed() => fatal,
            fatal = self.driver.failed() => fatal,
        }
    }

    /// Shuts down: refuses new requests, commits and answers accepted ones, and releases the leases.
    ///
    /// # Errors
    /// [`Fatal`] if the store failed before everything was committed.
    pub async fn shutdown(self) -> Result<(), Fatal> {
        self.services.members.announce_shutdown().await;
        self.node.stop();
        let ended = self.driver.join().await;
        // Streams have ended with their sessions; open requests have the grace period to finish.
        self.listening.end_requests().await;
        self.stop_tasks.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.services.audit.close().await;
        self.services.members.remove_from_cluster().await;
        if let Some(member) = &self.services.raft_member {
            member.shutdown().await;
        }
        self.listening.end().await;
        ended
    }
}

/// The listener of a server.
#[derive(Clone)]
struct Listening {
    door: Arc<Door>,
    ends: Ends,
    tasks: TaskTracker,
}

/// How long a listener accepts connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keep {
    /// Until requests end.
    UntilTheRequestsEnd,
    /// Until everything has ended: the other members of the Raft cluster need this one.
    UntilTheEnd,
}

impl Listening {
    fn new(config: &ServerConfig, identity: Arc<Identity>, tls: Option<Arc<ClientTls>>, keep: Keep) -> Self {
        let requests = CancellationToken::new();
        let connections = match keep {
            Keep::UntilTheRequestsEnd => requests.clone(),
            Keep::UntilTheEnd => CancellationToken::new(),
        };
        let secured = tls.map(|tls| Secured {
            tls,
            // `insecure` permits both, while clients and workers move to `https`.
            plain_from_network: (config.exposure != Exposure::Insecure).then(crate::api::tls_required),
        });
        let door = Arc::new(Door::new(identity, crate::api::while_starting(), secured));
        let ends = Ends { requests, requests_ended: CancellationToken::new(), connections };
        Self { door, ends, tasks: TaskTracker::new() }
    }

    fn serve(&self, listener: impl Listener, grace: std::time::Duration) {
        self.tasks.spawn(listener::serve(listener, Arc::clone(&self.door), self.ends.clone(), grace));
        if let Some(tls) = self.door.tls() {
            let (watch, ends) = (Arc::clone(tls).watch(), self.ends.connections.clone());
            self.tasks.spawn(async move { ends.run_until_cancelled(watch).await });
        }
    }

    /// Refuses new requests, and waits until the open ones have ended or their grace is over.
    async fn end_requests(&self) {
        self.ends.requests.cancel();
        self.ends.requests_ended.cancelled().await;
    }

    /// Closes everything.
    async fn end(&self) {
        self.ends.requests.cancel();
        self.ends.connections.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Reacts to each gain and loss of leadership.
async fn watch_leadership(services: Services) {
    loop {
        services.node.wait_ready(|readiness| matches!(readiness, Readiness::Ready | Readiness::Full)).await;
        services.members.leadership_changed();
        services.node.leadership_ended().await;
        services.members.leadership_changed();
        services.objects.logs.clear_cache();
    }
}
