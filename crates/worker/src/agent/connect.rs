//! Connections to the servers, and the backoff between attempts.
//!
//! - [`Servers`]: the known servers, which `server_rotation` tries in turn: those of the configuration, and
//!   those that a server has reported ([`Servers::learn`]).
//! - [`Server`]: address and credentials of one server; opens connections through the [`Machine`], which the
//!   simulator replaces.
//! - [`Backoff`]: delays that double and are half random.
//!
//! # Invariants
//! - A reported server gets the worker's token only if a configured server is of the same kind: with or
//!   without TLS, and on this machine or on another one.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use proto::v1::worker_client::WorkerClient;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Uri};
use tonic::{Request, Status};

use super::AgentError;
use super::machine::Machine;
use crate::config::AgentConfig;

const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Interval of keep-alive pings; a connection without an answer for [`KEEP_ALIVE_ANSWER`] is closed.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
const KEEP_ALIVE_ANSWER: Duration = Duration::from_secs(10);
/// Maximum message size in bytes; a batch of assignments with large specs fits.
const MESSAGE_MAX: usize = 16 << 20;
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// Maximum backoff if there are several servers, because another one may take over at any time.
const BACKOFF_MAX_OF_SEVERAL: Duration = Duration::from_millis(500);

/// A client that sends its token with each call.
pub(super) type Client = WorkerClient<InterceptedService<Channel, Bearer>>;

/// Adds the token to each call.
#[derive(Debug, Clone)]
pub(super) struct Bearer(MetadataValue<Ascii>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("authorization", self.0.clone());
        Ok(request)
    }
}

/// Address and credentials of a server.
#[derive(Debug, Clone)]
pub(super) struct Server {
    pub(super) url: Arc<str>,
    endpoint: Endpoint,
    machine: Arc<dyn Machine>,
    bearer: Bearer,
}

impl Server {
    /// Opens a new connection.
    pub(super) async fn connect(&self) -> Result<Client, tonic::transport::Error> {
        Ok(self.client(self.machine.connect(&self.endpoint).await?))
    }

    /// Returns a new connection that is opened, and reopened, on use.
    pub(super) fn connect_lazily(&self) -> Client {
        self.client(self.machine.connect_lazily(&self.endpoint))
    }

    fn client(&self, channel: Channel) -> Client {
        WorkerClient::with_interceptor(channel, self.bearer.clone())
            .max_decoding_message_size(MESSAGE_MAX)
            .max_encoding_message_size(MESSAGE_MAX)
    }
}

/// Maximum number of known servers.
const SERVERS_MAX: usize = 64;

/// The known servers: those of the configuration, and those that servers have reported.
#[derive(Debug)]
pub(super) struct Servers {
    config: Arc<AgentConfig>,
    machine: Arc<dyn Machine>,
    bearer: Bearer,
    known_servers: Mutex<Vec<Server>>,
}

impl Servers {
    /// Validates a configuration and starts with its servers.
    pub(super) fn new(config: Arc<AgentConfig>, machine: Arc<dyn Machine>) -> Result<Self, AgentError> {
        let (bearer, known) = configured(&config, &machine)?;
        Ok(Self { config, machine, bearer, known_servers: Mutex::new(known) })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Server>> {
        self.known_servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of known servers, at least 1.
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Returns the server with this index modulo the number of servers.
    pub(super) fn at(&self, turn: usize) -> Option<Server> {
        let known = self.lock();
        known.get(turn.checked_rem(known.len())?).cloned()
    }

    /// Returns the index of the server with this address.
    pub(super) fn index_of(&self, url: &str) -> Option<usize> {
        self.lock().iter().position(|server| &*server.url == url)
    }

    /// Adds servers, if the worker may trust them with its token like those of its configuration. An address without
    /// TLS is added only if a configured address has no TLS, and a loopback address only if a configured address is
    /// one.
    pub(super) fn learn(&self, urls: &[String]) {
        let fits = |url: &str| {
            let same_kind = |known: &String| {
                known.starts_with("https:") == url.starts_with("https:")
                    && is_loopback(known) == is_loopback(url)
            };
            self.config.servers.iter().any(same_kind)
        };
        for url in urls.iter().map(|url| url.trim_end_matches('/')).filter(|url| fits(url)) {
            let mut known = self.lock();
            if known.len() < SERVERS_MAX
                && !known.iter().any(|server| server.url.trim_end_matches('/') == url)
                && let Ok(server) = server(&self.config, &self.machine, url, self.bearer.clone())
            {
                tracing::info!(server = url, "discovered another server");
                known.push(server);
            }
        }
    }
}

/// Returns whether the host of an address is the local machine.
fn is_loopback(url: &str) -> bool {
    let host = url.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned)).unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Returns the token and the servers of a configuration.
fn configured(config: &AgentConfig, machine: &Arc<dyn Machine>) -> Result<(Bearer, Vec<Server>), AgentError> {
    if config.servers.is_empty() {
        return Err(AgentError::NoServer);
    }
    let mut token: MetadataValue<Ascii> =
        format!("Bearer {}", config.token).parse().map_err(|_| AgentError::Token)?;
    token.set_sensitive(true);
    let bearer = Bearer(token);
    let servers = config.servers.iter().map(|url| server(config, machine, url, bearer.clone()));
    Ok((bearer.clone(), servers.collect::<Result<_, _>>()?))
}

fn server(
    config: &AgentConfig,
    machine: &Arc<dyn Machine>,
    url: &str,
    bearer: Bearer,
) -> Result<Server, AgentError> {
    let failed = |source| AgentError::Server { url: url.to_owned(), source };
    let mut endpoint = Endpoint::from_shared(url.to_owned())
        .map_err(failed)?
        .connect_timeout(CONNECT_MAX)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_ANSWER)
        .keep_alive_while_idle(true)
        .tcp_nodelay(true);
    if url.starts_with("https:") {
        let tls = match &config.tls_ca_pem {
            Some(pem) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)),
            None => ClientTlsConfig::new().with_native_roots(),
        };
        endpoint = endpoint.tls_config(tls).map_err(failed)?;
    }
    Ok(Server { url: url.into(), endpoint, machine: Arc::clone(machine), bearer })
}

/// Exponential backoff between attempts. Each delay is twice the last one, and half of it is random, so that workers
/// that lost the same server do not reconnect together.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
    max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: BACKOFF_FIRST, max: BACKOFF_MAX }
    }
}

impl Backoff {
    /// Returns a backoff for a worker with this number of known servers.
    pub(super) fn among(servers: usize) -> Self {
        let max = if servers > 1 { BACKOFF_MAX_OF_SEVERAL } else { BACKOFF_MAX };
        Self { next: BACKOFF_FIRST, max }
    }

    /// Returns the current delay, with `entropy` as the random part, and doubles the next one.
    fn next_delay(&mut self, entropy: u64) -> Duration {
        let whole = self.next;
        self.next = (whole * 2).min(self.max);
        let half = whole / 2;
        half + half.mul_f64((entropy % 1_000) as f64 / 1_000.0)
    }

    /// Returns the next delay.
    pub(super) fn pause(&mut self) -> Duration {
        self.next_delay(random_bits())
    }

    pub(super) async fn wait(&mut self) {
        tokio::time::sleep(self.pause()).await;
    }
}

/// Returns a number that differs between workers and between calls. It need not be unpredictable.
fn random_bits() -> u64 {
    RandomState::new().hash_one(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::machine::Host;

    #[test]
    fn delays_double_up_to_five_seconds_with_at_most_half_jitter() {
        let mut backoff = Backoff::default();
        let (shortest, longest): (Vec<_>, Vec<_>) = (0..8)
            .map(|_| {
                let next = backoff.next;
                (Backoff { next, ..Backoff::default() }.next_delay(0), backoff.next_delay(999))
            })
            .unzip();
        assert_eq!(shortest[0], Duration::from_millis(50));
        assert_eq!(shortest[7], Duration::from_millis(2_500));
        assert!(longest[7] > Duration::from_millis(4_900) && longest[7] <= BACKOFF_MAX);
    }

    #[test]
    fn an_invalid_configuration_is_refused() {
        let config = |server: &str, token: &str| AgentConfig::new("/x", server, token);
        let configured = |config: &AgentConfig| configured(config, &(Arc::new(Host) as Arc<dyn Machine>));
        assert!(configured(&config("http://localhost:1", "secret")).is_ok());
        assert!(matches!(configured(&config("http://local host", "t")), Err(AgentError::Server { .. })));
        assert!(matches!(configured(&config("http://localhost:1", "a\nb")), Err(AgentError::Token)));
        let mut none = config("", "t");
        none.servers.clear();
        assert!(matches!(configured(&none), Err(AgentError::NoServer)));
    }

    /// D6, H2. An attacker who controls the responses of a server must not redirect the worker's token.
    #[tokio::test]
    async fn only_servers_of_the_configured_kind_are_added() {
        let learned = |known: &str, named: &[&str]| {
            let config = Arc::new(AgentConfig::new("/x", known, "t"));
            let servers = Servers::new(config, Arc::new(Host)).unwrap();
            servers.learn(&named.iter().map(|url| (*url).to_owned()).collect::<Vec<_>>());
            (0..servers.count()).map(|turn| servers.at(turn).unwrap().url.to_string()).collect::<Vec<_>>()
        };
        let near =
            ["http://127.0.0.1:1/", "http://localhost:2", "http://10.0.0.1:3", "https://127.0.0.1:4", "no"];
        assert_eq!(learned("http://127.0.0.1:1", &near), ["http://127.0.0.1:1", "http://localhost:2"]);
        let far = ["http://b.example", "https://c.example", "https://localhost"];
        assert_eq!(learned("https://a.example", &far), ["https://a.example", "https://c.example"]);
    }
}
