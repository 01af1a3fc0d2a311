//! HTTP clients for the other servers of the cluster.
//!
//! A server proves [its key](crate::peers) over TLS, also if it has a certificate for clients: the key in its row needs no
//! authority, and no host name. There are two exceptions: a server behind a proxy that terminates TLS is authenticated by the
//! proxy's certificate, and a server of an older release without keys is reached over plain HTTP, which is logged.
//!
//! An address with `https` does not say whether the server or a proxy terminates TLS. All servers of a cluster do it in
//! the same way, so this server's own settings decide ([`HttpsEnd`]).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::ServerId;
use reqwest::Client;
use rustls::ClientConfig;
use store::cluster::{Fingerprint, ServerRecord};

use crate::config::{ServerConfig, StoreConfig};
use crate::peers::Identity;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Servers with their own key to which connections are kept.
const KEYS_MAX: usize = 16;

/// What terminates the TLS of the servers whose address has `https`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HttpsEnd {
    /// The servers themselves.
    Server,
    /// Proxies in front of them.
    Proxy,
}

impl HttpsEnd {
    /// Returns what these settings say about the cluster. There are no proxies between the servers of a Raft cluster.
    pub(crate) fn of(config: &ServerConfig) -> Self {
        let by_servers = config.tls.is_some() || matches!(config.store, StoreConfig::Raft(_));
        if by_servers { Self::Server } else { Self::Proxy }
    }
}

/// Clients for the servers of a cluster. Each keeps its connections.
pub(crate) struct ServerClients {
    https_end: HttpsEnd,
    /// For servers that do not prove a key: behind a proxy, or of an older release.
    open: Client,
    /// For the servers with these keys, the least recent one first.
    keyed: Mutex<Vec<(Fingerprint, Client)>>,
    /// Last server of an older release, which was logged.
    warned: Mutex<Option<ServerId>>,
}

/// How a server is reached.
#[derive(Debug, PartialEq, Eq)]
enum Transport {
    /// TLS to the server, which proves its key.
    Keyed(Fingerprint, String),
    /// TLS to a proxy in front of the server.
    Proxied,
    /// Plain HTTP, because the server has no key.
    Plain,
}

impl Transport {
    fn to(server: &ServerRecord, url: &str, https_end: HttpsEnd) -> Self {
        match (url.strip_prefix("http://"), server.fingerprint, https_end) {
            (None, Some(fingerprint), HttpsEnd::Server) => Self::Keyed(fingerprint, url.to_owned()),
            (None, _, _) => Self::Proxied,
            (Some(place), Some(fingerprint), _) => Self::Keyed(fingerprint, format!("https://{place}")),
            (Some(_), None, _) => Self::Plain,
        }
    }
}

impl ServerClients {
    pub(crate) fn new(https_end: HttpsEnd) -> Self {
        // Another part of the process may have installed the same provider.
        let _chosen = rustls::crypto::ring::default_provider().install_default();
        Self { https_end, open: client(None), keyed: Mutex::default(), warned: Mutex::default() }
    }

    /// Returns the client for a server, and the URL to use. `me` is the key of this server.
    pub(crate) fn client_for(&self, me: &Identity, server: &ServerRecord) -> (Client, String) {
        let url = server.url.as_deref().unwrap_or_default();
        match Transport::to(server, url, self.https_end) {
            Transport::Keyed(fingerprint, url) => (self.keyed(me, fingerprint), url),
            Transport::Proxied => (self.open.clone(), url.to_owned()),
            Transport::Plain => {
                if lock(&self.warned).replace(server.id) != Some(server.id) {
                    let (server, version) = (&server.name, &server.version);
                    tracing::warn!(
                        server,
                        version,
                        url,
                        "sending requests to a server without a key: upgrade that server"
                    );
                }
                (self.open.clone(), url.to_owned())
            }
        }
    }

    fn keyed(&self, me: &Identity, fingerprint: Fingerprint) -> Client {
        let mut keyed = lock(&self.keyed);
        let known = keyed.iter().position(|(known, _)| *known == fingerprint);
        let entry = match known {
            Some(position) => keyed.remove(position),
            None => (fingerprint, client(Some(me.client_config(fingerprint)))),
        };
        if keyed.len() >= KEYS_MAX {
            keyed.remove(0);
        }
        let client = entry.1.clone();
        keyed.push(entry);
        client
    }
}

/// Creates a client with these TLS settings, or with the certificates of the system.
fn client(tls: Option<ClientConfig>) -> Client {
    let builder = Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .http1_only()
        // Servers connect directly, whatever proxy the environment names.
        .no_proxy();
    let builder = match tls {
        Some(tls) => builder.tls_backend_preconfigured(tls).https_only(true),
        None => builder,
    };
    builder.build().expect("these settings are valid, and a TLS provider is installed")
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(fingerprint: Option<Fingerprint>) -> ServerRecord {
        ServerRecord {
            id: ServerId::from_bits(7 << 80),
            name: "other".into(),
            url: None,
            version: "1".into(),
            started_at: model::Timestamp::default(),
            fingerprint,
        }
    }

    /// D8. During a rolling upgrade, some servers have no key.
    #[test]
    fn a_server_with_a_key_is_reached_over_its_own_tls() {
        let key = Fingerprint([3; 32]);
        for end in [HttpsEnd::Server, HttpsEnd::Proxy] {
            let to = |fingerprint| Transport::to(&server(fingerprint), "http://a:7070", end);
            assert_eq!(to(Some(key)), Transport::Keyed(key, "https://a:7070".into()));
            assert_eq!(to(None), Transport::Plain);
        }
        let to = |end| Transport::to(&server(Some(key)), "https://a.example:7070", end);
        assert_eq!(to(HttpsEnd::Proxy), Transport::Proxied);
        assert_eq!(to(HttpsEnd::Server), Transport::Keyed(key, "https://a.example:7070".into()));
    }

    #[test]
    fn the_settings_of_a_server_say_what_terminates_tls_in_its_cluster() {
        let mut config = ServerConfig::new("data");
        assert_eq!(HttpsEnd::of(&config), HttpsEnd::Proxy);
        config.store = StoreConfig::Raft(crate::config::RaftConfig::default());
        assert_eq!(HttpsEnd::of(&config), HttpsEnd::Server, "no proxy is between servers of a Raft cluster");
        config.store = StoreConfig::Embedded;
        config.tls = Some(crate::config::TlsConfig { cert_file: "c".into(), key_file: "k".into() });
        assert_eq!(HttpsEnd::of(&config), HttpsEnd::Server);
    }

    #[test]
    fn clients_of_the_most_recent_servers_are_kept() {
        let (clients, me) = (ServerClients::new(HttpsEnd::Proxy), Identity::generate());
        let ask = |number: u8| {
            let server =
                ServerRecord { url: Some("http://a:1".into()), ..server(Some(Fingerprint([number; 32]))) };
            clients.client_for(&me, &server);
        };
        (0..20).for_each(ask);
        ask(5);
        ask(19);
        let kept: Vec<u8> = lock(&clients.keyed).iter().map(|(key, _)| key.0[0]).collect();
        assert_eq!(kept.len(), KEYS_MAX);
        assert_eq!(kept[KEYS_MAX - 2..], [5, 19]);
    }
}
