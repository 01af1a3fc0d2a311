//! Connections to servers, and how long to wait before the next try.

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
/// A connection that answers no ping for this long is dead.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
const KEEP_ALIVE_ANSWER: Duration = Duration::from_secs(10);
/// The largest message that is accepted: a batch of assignments with large specs.
const MESSAGE_MAX: usize = 16 << 20;
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// The same where another server may take over at any moment.
const BACKOFF_MAX_OF_SEVERAL: Duration = Duration::from_millis(500);

/// A client that shows its token with each call.
pub(super) type Client = WorkerClient<InterceptedService<Channel, Bearer>>;

/// Shows a token.
#[derive(Debug, Clone)]
pub(super) struct Bearer(MetadataValue<Ascii>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("authorization", self.0.clone());
        Ok(request)
    }
}

/// A server that can be connected to.
#[derive(Debug, Clone)]
pub(super) struct Server {
    pub(super) url: Arc<str>,
    endpoint: Endpoint,
    machine: Arc<dyn Machine>,
    bearer: Bearer,
}

impl Server {
    /// A connection of its own.
    pub(super) async fn connect(&self) -> Result<Client, tonic::transport::Error> {
        Ok(self.client(self.machine.connect(&self.endpoint).await?))
    }

    /// A connection of its own that is made, and made again, when it is used.
    pub(super) fn connect_lazily(&self) -> Client {
        self.client(self.machine.connect_lazily(&self.endpoint))
    }

    fn client(&self, channel: Channel) -> Client {
        WorkerClient::with_interceptor(channel, self.bearer.clone())
            .max_decoding_message_size(MESSAGE_MAX)
            .max_encoding_message_size(MESSAGE_MAX)
    }
}

/// The most servers that are remembered.
const SERVERS_MAX: usize = 64;

/// The servers that are known: those of the configuration, and those that they name.
#[derive(Debug)]
pub(super) struct Servers {
    config: Arc<AgentConfig>,
    machine: Arc<dyn Machine>,
    bearer: Bearer,
    known: Mutex<Vec<Server>>,
}

impl Servers {
    /// Those of a configuration.
    pub(super) fn new(config: Arc<AgentConfig>, machine: Arc<dyn Machine>) -> Result<Self, AgentError> {
        let (bearer, known) = configured(&config, &machine)?;
        Ok(Self { config, machine, bearer, known: Mutex::new(known) })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Server>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    /// The one whose turn it is, round and round.
    pub(super) fn at(&self, turn: usize) -> Option<Server> {
        let known = self.lock();
        known.get(turn.checked_rem(known.len())?).cloned()
    }

    /// The turn of the server at this address.
    pub(super) fn turn_of(&self, url: &str) -> Option<usize> {
        self.lock().iter().position(|server| &*server.url == url)
    }

    /// Remembers more servers, if the worker may trust them with its token as it does those of its
    /// configuration: an address without TLS is not learned where all others have it, nor one of the
    /// own machine where the others are elsewhere.
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

/// Whether an address is one of the machine itself.
fn is_loopback(url: &str) -> bool {
    let host = url.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned)).unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// The servers of a configuration, and what is shown to them.
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

/// Waits between tries: twice as long each time, half of it by chance, so that workers that lost
/// one server together do not come back together.
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
    /// Between tries at one of so many servers.
    pub(super) fn among(servers: usize) -> Self {
        let max = if servers > 1 { BACKOFF_MAX_OF_SEVERAL } else { BACKOFF_MAX };
        Self { next: BACKOFF_FIRST, max }
    }

    /// How long to wait this time.
    fn draw(&mut self, entropy: u64) -> Duration {
        let whole = self.next;
        self.next = (whole * 2).min(self.max);
        let half = whole / 2;
        half + half.mul_f64((entropy % 1_000) as f64 / 1_000.0)
    }

    /// The length of the next wait.
    pub(super) fn pause(&mut self) -> Duration {
        self.draw(spread())
    }

    pub(super) async fn wait(&mut self) {
        tokio::time::sleep(self.pause()).await;
    }
}

/// A number that differs between workers, and from one time to the next. Nobody must be unable to guess it.
fn spread() -> u64 {
    RandomState::new().hash_one(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::machine::Host;

    #[test]
    fn waits_double_up_to_five_seconds_and_are_never_less_than_half_of_that() {
        let mut backoff = Backoff::default();
        let (shortest, longest): (Vec<_>, Vec<_>) = (0..8)
            .map(|_| {
                let next = backoff.next;
                (Backoff { next, ..Backoff::default() }.draw(0), backoff.draw(999))
            })
            .unzip();
        assert_eq!(shortest[0], Duration::from_millis(50));
        assert_eq!(shortest[7], Duration::from_millis(2_500));
        assert!(longest[7] > Duration::from_millis(4_900) && longest[7] <= BACKOFF_MAX);
    }

    #[test]
    fn a_configuration_that_cannot_work_is_refused_by_name() {
        let config = |server: &str, token: &str| AgentConfig::new("/x", server, token);
        let configured = |config: &AgentConfig| configured(config, &(Arc::new(Host) as Arc<dyn Machine>));
        assert!(configured(&config("http://localhost:1", "secret")).is_ok());
        assert!(matches!(configured(&config("http://local host", "t")), Err(AgentError::Server { .. })));
        assert!(matches!(configured(&config("http://localhost:1", "a\nb")), Err(AgentError::Token)));
        let mut none = config("", "t");
        none.servers.clear();
        assert!(matches!(configured(&none), Err(AgentError::NoServer)));
    }

    /// D6, H2. Who can read what a server says must not lead a worker's token elsewhere.
    #[tokio::test]
    async fn only_servers_like_those_of_the_configuration_are_learned() {
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
