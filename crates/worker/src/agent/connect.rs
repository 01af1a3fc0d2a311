//! Connections to servers, and how long to wait before the next try.

use std::sync::Arc;
use std::time::Duration;

use proto::v1::worker_client::WorkerClient;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Request, Status};

use super::AgentError;
use crate::clock::entropy;
use crate::config::AgentConfig;

const CONNECT_MAX: Duration = Duration::from_secs(5);
/// A connection that answers no ping for this long is dead.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
const KEEP_ALIVE_ANSWER: Duration = Duration::from_secs(10);
/// The largest message that is accepted: a batch of assignments with large specs.
const MESSAGE_MAX: usize = 16 << 20;
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

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
    bearer: Bearer,
}

impl Server {
    /// A connection of its own.
    pub(super) async fn connect(&self) -> Result<Client, tonic::transport::Error> {
        Ok(self.client(self.endpoint.connect().await?))
    }

    /// A connection of its own that is made, and made again, when it is used.
    pub(super) fn connect_lazily(&self) -> Client {
        self.client(self.endpoint.connect_lazy())
    }

    fn client(&self, channel: Channel) -> Client {
        WorkerClient::with_interceptor(channel, self.bearer.clone())
            .max_decoding_message_size(MESSAGE_MAX)
            .max_encoding_message_size(MESSAGE_MAX)
    }
}

/// The servers of a configuration.
pub(super) fn servers(config: &AgentConfig) -> Result<Arc<[Server]>, AgentError> {
    if config.servers.is_empty() {
        return Err(AgentError::NoServer);
    }
    let mut token: MetadataValue<Ascii> =
        format!("Bearer {}", config.token).parse().map_err(|_| AgentError::Token)?;
    token.set_sensitive(true);
    config.servers.iter().map(|url| server(config, url, Bearer(token.clone()))).collect()
}

fn server(config: &AgentConfig, url: &str, bearer: Bearer) -> Result<Server, AgentError> {
    let failed = |source| AgentError::Server { url: url.to_owned(), source };
    let mut endpoint = Endpoint::from_shared(url.to_owned())
        .map_err(failed)?
        .connect_timeout(CONNECT_MAX)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_ANSWER)
        .keep_alive_while_idle(true)
        .tcp_nodelay(true);
    if url.starts_with("https:") {
        let mut tls = ClientTlsConfig::new();
        if let Some(pem) = &config.tls_ca_pem {
            tls = tls.ca_certificate(Certificate::from_pem(pem));
        }
        endpoint = endpoint.tls_config(tls).map_err(failed)?;
    }
    Ok(Server { url: url.into(), endpoint, bearer })
}

/// Waits between tries: twice as long each time, half of it by chance, so that workers that lost
/// one server together do not come back together.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: BACKOFF_FIRST }
    }
}

impl Backoff {
    /// How long to wait this time.
    fn draw(&mut self, entropy: u64) -> Duration {
        let whole = self.next;
        self.next = (whole * 2).min(BACKOFF_MAX);
        let half = whole / 2;
        half + half.mul_f64((entropy % 1_000) as f64 / 1_000.0)
    }

    pub(super) async fn wait(&mut self) {
        // Without entropy the wait is merely less random.
        let wait = self.draw(entropy().unwrap_or(500));
        tokio::time::sleep(wait).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_five_seconds_and_are_never_less_than_half_of_that() {
        let mut backoff = Backoff::default();
        let (shortest, longest): (Vec<_>, Vec<_>) = (0..8)
            .map(|_| {
                let next = backoff.next;
                (Backoff { next }.draw(0), backoff.draw(999))
            })
            .unzip();
        assert_eq!(shortest[0], Duration::from_millis(50));
        assert_eq!(shortest[7], Duration::from_millis(2_500));
        assert!(longest[7] > Duration::from_millis(4_900) && longest[7] <= BACKOFF_MAX);
    }

    #[test]
    fn a_configuration_that_cannot_work_is_refused_by_name() {
        let config = |server: &str, token: &str| AgentConfig::new("/x", server, token);
        assert!(servers(&config("http://localhost:1", "secret")).is_ok());
        assert!(matches!(servers(&config("http://local host", "t")), Err(AgentError::Server { .. })));
        assert!(matches!(servers(&config("http://localhost:1", "a\nb")), Err(AgentError::Token)));
        let mut none = config("", "t");
        none.servers.clear();
        assert!(matches!(servers(&none), Err(AgentError::NoServer)));
    }
}
