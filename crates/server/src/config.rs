//! Settings of a server, and their validation.
//!
//! Every setting has a safe default: loopback only, local folders, bounded sizes. The binary reads files and
//! environment variables into a [`ServerConfig`]; this module reads neither.
//!
//! - [`ServerConfig`]: all settings; [`ServerConfig::check`] validates them once, at the start.
//! - [`LimitsConfig`], [`StoreConfig`], [`ObjectsConfig`]: their groups.
//! - The paths below the data folder are methods of [`ServerConfig`], so that no other module composes them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;

use model::Duration;
use model::limits::BATCH_BODY_BYTES_MAX;
pub use store::postgres::Password;

use crate::networks::Networks;

/// Default port of a server.
pub const PORT: u16 = 7070;

/// The settings of a server.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Folder of all data of this server: the embedded store, live logs, tokens. Created if missing.
    pub data_dir: PathBuf,
    /// Store of the rows.
    pub store: StoreConfig,
    /// Listening address for users, programs and workers. Port 0 selects a free port.
    pub listen: SocketAddr,
    /// Networks that can reach `listen`, and their protection.
    pub exposure: Exposure,
    /// Files of the certificate with which this server terminates TLS itself; no TLS for clients if `None`.
    pub tls: Option<TlsConfig>,
    /// Accepted values of the header `Host`, in addition to the loopback names.
    pub host_names: Vec<String>,
    /// Storage of logs and artifacts.
    pub objects: ObjectsConfig,
    /// Settings of the engine. A seed of 0 is replaced by a random seed.
    pub engine: engine::Config,
    /// Number of shards of a new store; an existing store keeps its number.
    pub shards: u16,
    /// Display name of this server.
    pub name: String,
    /// URL of this server for other servers and for workers [default: the listening address, if it is a single
    /// address].
    pub advertise_url: Option<String>,
    /// Duration of a shard lease without a renewal; see [`ServerConfig::shard_lease`] for its default.
    pub shard_lease: Option<Duration>,
    /// Whether this server follows the live rows while it is a standby, so that it can take over at once. It then needs
    /// as much memory as the leader.
    pub warm_standby: bool,
    /// Retention of events, for watchers that resume.
    pub event_retention: Duration,
    /// Retention of entries of ledgers, and of ended backfills.
    pub ledger_retention: Duration,
    /// Retention of entries of the audit log.
    pub audit_retention: Duration,
    /// Whether submissions of jobs and starts of runs make entries in the audit log.
    pub audit_submissions: bool,
    /// Largest artifact, in bytes.
    pub artifact_bytes_max: u64,
    /// Bytes per second of a copy for another server: of the store of a Raft cluster, and of logs and artifacts.
    pub copy_rate: NonZeroU64,
    /// Retention of artifact versions that are not the newest of their name; unlimited if `None`.
    pub artifact_retention: Option<Duration>,
    /// Longest wait of a shutdown for open requests.
    pub shutdown_grace: Duration,
    /// Interval of searching expired jobs, runs and artifacts.
    pub housekeeping_interval: Duration,
    /// Limits on the requests of all clients and of each.
    pub limits: LimitsConfig,
    /// URL of the dashboard, for links in notifications.
    pub public_url: Option<String>,
    /// Private networks that notifications may be sent to, in addition to public addresses.
    pub private_networks: Networks,
    /// File with the key that encrypts secrets; see [`ServerConfig::secret_key_path`] for its default.
    pub secret_key_file: Option<PathBuf>,
    /// OpenID provider at which people log in.
    pub oidc: Option<OidcConfig>,
}

/// OpenID provider at which people log in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OidcConfig {
    /// URL of the provider, exactly as its metadata names it.
    pub issuer: String,
    /// Identifier of this client at the provider.
    pub client_id: String,
    /// Secret of this client; none for a public client.
    pub client_secret: Option<ClientSecret>,
    /// Requested scopes.
    pub scopes: Vec<String>,
    /// Claim with the name of a new account.
    pub user_claim: String,
    /// Claim with the groups of a person.
    pub groups_claim: String,
    /// Display name of the provider.
    pub name: String,
    /// Whether an unknown person gets a new account. It has no role of its own.
    pub create_accounts: bool,
    /// Groups that may log in; all persons if empty.
    pub allowed_groups: Vec<String>,
}

/// Secret of a client at an OpenID provider. `Debug` does not print it.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientSecret(String);

impl ClientSecret {
    /// Wraps a secret.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the secret, for a request to the provider.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for ClientSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientSecret(…)")
    }
}

impl OidcConfig {
    /// Returns a provider with the default settings.
    pub fn new(issuer: impl Into<String>, client_id: impl Into<String>) -> Self {
        Self {
            issuer: issuer.into(),
            client_id: client_id.into(),
            client_secret: None,
            scopes: ["openid", "profile", "email"].map(str::to_owned).to_vec(),
            user_claim: "email".to_owned(),
            groups_claim: "groups".to_owned(),
            name: "OpenID".to_owned(),
            create_accounts: false,
            allowed_groups: Vec::new(),
        }
    }

    /// Validates the settings; returns the invalid one and the reason.
    fn check(&self, public_url: Option<&str>) -> Result<(), (&'static str, String)> {
        let url = reqwest::Url::parse(&self.issuer)
            .map_err(|_| ("server.oidc_issuer", format!("`{}` is not a URL", self.issuer)))?;
        if !(url.scheme() == "https" || url.scheme() == "http" && is_loopback(&url)) {
            let reason = format!("`{}` does not use HTTPS: tokens could be forged in transit", self.issuer);
            return Err(("server.oidc_issuer", reason));
        }
        if url.query().is_some() || url.fragment().is_some() {
            let reason = format!("`{}` has a query or a fragment", self.issuer);
            return Err(("server.oidc_issuer", reason));
        }
        if self.client_id.is_empty() {
            return Err(("server.oidc_client_id", "is required with `server.oidc_issuer`".to_owned()));
        }
        if !self.scopes.iter().any(|scope| scope == "openid") {
            return Err(("server.oidc_scopes", "expected `openid` among the scopes".to_owned()));
        }
        if public_url.is_none() {
            let reason = "is required with `server.oidc_issuer`: the provider returns the browser to it";
            return Err(("server.public_url", reason.to_owned()));
        }
        Ok(())
    }
}

/// Returns whether the host of a URL is this machine.
fn is_loopback(url: &reqwest::Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Limits on the requests of all clients and of each; a client is a token at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Maximum of concurrent requests, separately for reads, changes, slow bodies and forwarded requests.
    pub requests: usize,
    /// Maximum of concurrent requests of one client, if lower than its share, which is the number of free places.
    pub client_requests: Option<usize>,
    /// Maximum of open event streams.
    pub streams: usize,
    /// Maximum of open event streams of one client, if lower than its share.
    pub client_streams: Option<usize>,
    /// Maximum total of request bodies in memory, in bytes; uploads of artifacts are not held in memory.
    pub body_bytes: usize,
    /// Maximum of jobs that one client may submit per second, averaged over a second; unlimited if `None`.
    pub client_job_rate: Option<u64>,
    /// Maximum of jobs that the account of a person may submit per minute, unless the account has its own limit;
    /// unlimited if `None`.
    pub submit_rate: Option<NonZeroU32>,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            requests: 4_096,
            client_requests: None,
            streams: 4_096,
            client_streams: None,
            body_bytes: 256 * 1024 * 1024,
            client_job_rate: None,
            submit_rate: NonZeroU32::new(1_000),
        }
    }
}

/// Networks that can reach the listener, and their protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exposure {
    /// Without [`TlsConfig`], only this machine: any other listening address is refused. With it, any network.
    #[default]
    Loopback,
    /// Any network, through a proxy that terminates TLS; only the proxy can reach the listener.
    BehindProxy,
    /// Any network, also without TLS. Tokens and data can be read in transit.
    Insecure,
}

/// Files of the certificate of this server. They are read again when they change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsConfig {
    /// File with the certificate of this server, followed by those of intermediate authorities (PEM).
    pub cert_file: PathBuf,
    /// File with the private key of the certificate (PEM).
    pub key_file: PathBuf,
}

/// Store of the rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum StoreConfig {
    /// SQLite database in the data folder, for one server.
    #[default]
    Embedded,
    /// PostgreSQL database, which several servers may share.
    Postgres(PostgresConfig),
    /// A Raft cluster: each server has all rows in its data folder, and the servers elect a leader.
    Raft(RaftConfig),
}

/// Rows of a new Raft cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bootstrap {
    /// None.
    Empty,
    /// Those of a backup, or of the data folder of a server that has stopped; see [`raft::store::restore`].
    From(PathBuf),
}

/// How a server becomes a member of a Raft cluster. A server that is a member already needs none of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RaftConfig {
    /// The new cluster that this server creates, if it does. Refused in a data folder that belongs to one.
    pub bootstrap: Option<Bootstrap>,
    /// `HOST:PORT` of servers of the cluster to join.
    pub join: Vec<String>,
    /// File with the join token of the cluster, which its first server writes to [`ServerConfig::join_token_path`].
    pub join_token_file: Option<PathBuf>,
}

/// Connection to a PostgreSQL database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresConfig {
    /// `postgres://USER@HOST:PORT/DATABASE`, with parameters such as `sslmode`.
    pub url: String,
    /// Password of the user, if the database requires one.
    pub password: Option<Password>,
    /// Number of sessions for queries of the API, which is the maximum of concurrent queries.
    pub sessions: usize,
    /// Accepts a database that may lose acknowledged commits.
    pub allow_unsafe: bool,
    /// Refuses a database whose commits do not wait for a standby.
    pub require_sync_standby: bool,
}

/// Storage of logs and artifacts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectsConfig {
    /// A local folder [default: `objects` in the data folder].
    Local(Option<PathBuf>),
    /// A bucket of S3 or of a compatible service. Credentials come from the usual environment variables
    /// (`AWS_ACCESS_KEY_ID`, …) or from the machine's role, never from these settings.
    S3(S3Config),
}

/// An S3 bucket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct S3Config {
    /// `s3://BUCKET/PREFIX`; the prefix is optional.
    pub url: String,
    /// URL of a compatible service [default: Amazon S3].
    pub endpoint: Option<String>,
    /// Region of the bucket [default: from the environment variables].
    pub region: Option<String>,
}

/// A setting that was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The listening address is reachable from other machines, and no setting permits this.
    #[error(
        "refusing to listen on {listen}: it can be reached from other machines, and the server has no TLS certificate"
    )]
    Exposed {
        /// The listening address.
        listen: SocketAddr,
    },
    /// A value is out of its range, or contradicts another setting.
    #[error("invalid setting `{name}`: {reason}")]
    Invalid {
        /// Key of the setting, such as `server.lease`.
        name: &'static str,
        /// Actual and expected value.
        reason: String,
    },
}

impl ConfigError {
    /// Returns the next step for the operator.
    pub fn help(&self) -> &'static str {
        match self {
            Self::Exposed { .. } => {
                "listen on a loopback address; or set `server.tls_cert_file` and `server.tls_key_file` (`belfry tls create` \
                 creates the files); or put a proxy that terminates TLS in front, and set `server.behind_proxy`"
            }
            Self::Invalid { .. } => "correct the setting; `belfry config show` prints all of them",
        }
    }
}

impl ServerConfig {
    /// Returns the default settings, with all data below `data_dir`.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            store: StoreConfig::Embedded,
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT),
            exposure: Exposure::default(),
            tls: None,
            host_names: Vec::new(),
            objects: ObjectsConfig::Local(None),
            engine: engine::Config::default(),
            shards: 16,
            name: "server".to_owned(),
            advertise_url: None,
            shard_lease: None,
            warm_standby: true,
            event_retention: Duration::from_hours(24 * 7),
            ledger_retention: Duration::from_hours(24 * 90),
            audit_retention: Duration::from_hours(24 * 400),
            audit_submissions: false,
            artifact_bytes_max: 1 << 30,
            copy_rate: raft::machine::COPY_RATE,
            artifact_retention: None,
            shutdown_grace: Duration::from_secs(5),
            housekeeping_interval: Duration::from_secs(30),
            limits: LimitsConfig::default(),
            public_url: None,
            private_networks: Networks::default(),
            secret_key_file: None,
            oidc: None,
        }
    }

    /// Whether browsers reach this server over HTTPS: it terminates TLS itself, or a proxy in front does.
    pub fn is_https(&self) -> bool {
        self.tls.is_some() || self.exposure == Exposure::BehindProxy
    }

    /// Returns the file with the key that encrypts secrets.
    pub fn secret_key_path(&self) -> PathBuf {
        self.secret_key_file.clone().unwrap_or_else(|| self.data_dir.join("secret.key"))
    }

    /// Validates the settings.
    ///
    /// # Errors
    /// The first [`ConfigError`], which names the setting.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.exposure == Exposure::Loopback && self.tls.is_none() && !self.listen.ip().is_loopback() {
            return Err(ConfigError::Exposed { listen: self.listen });
        }
        let invalid = |name, reason: String| Err(ConfigError::Invalid { name, reason });
        let zero = || "expected at least 1 but got 0".to_owned();
        if self.shards == 0 {
            return invalid("server.shards", zero());
        }
        let shard_lease = self.shard_lease();
        if !(Duration::from_secs(1)..=store::LEASE_MAX).contains(&shard_lease) {
            let reason = format!("expected 1s to {} but got {shard_lease}", store::LEASE_MAX);
            return invalid("server.shard_lease", reason);
        }
        if let StoreConfig::Raft(_) = self.store {
            self.check_raft(shard_lease)?;
        }
        let (lease, interval) = (self.engine.lease, self.engine.heartbeat_interval);
        if interval == Duration::ZERO {
            return invalid("server.heartbeat_interval", "expected a positive duration but got 0".to_owned());
        }
        if lease <= interval {
            let reason =
                format!("expected more than `server.heartbeat_interval` ({interval}) but got {lease}");
            return invalid("server.lease", reason);
        }
        if self.artifact_bytes_max == 0 {
            return invalid("server.artifact_size_max", zero());
        }
        let LimitsConfig {
            requests,
            client_requests,
            streams,
            client_streams,
            body_bytes,
            client_job_rate,
            submit_rate: _,
        } = self.limits;
        if body_bytes < BATCH_BODY_BYTES_MAX {
            let reason = format!(
                "expected at least {BATCH_BODY_BYTES_MAX} bytes, the largest request body, but got {body_bytes}"
            );
            return invalid("server.request_bytes_max", reason);
        }
        for (name, limit) in [
            ("server.requests_max", Some(requests as u64)),
            ("server.client_requests_max", client_requests.map(|limit| limit as u64)),
            ("server.streams_max", Some(streams as u64)),
            ("server.client_streams_max", client_streams.map(|limit| limit as u64)),
            ("server.client_job_rate", client_job_rate),
        ] {
            if limit == Some(0) {
                return invalid(name, zero());
            }
        }
        if let ObjectsConfig::S3(s3) = &self.objects
            && !s3.url.starts_with("s3://")
        {
            let reason = format!("expected `s3://BUCKET/PREFIX` but got `{}`", s3.url);
            return invalid("server.objects_url", reason);
        }
        match self.oidc.as_ref().map(|oidc| oidc.check(self.public_url.as_deref())) {
            Some(Err((name, reason))) => invalid(name, reason),
            _ => Ok(()),
        }
    }

    /// Returns the duration of a shard lease without a renewal [default: 10s for the embedded store, 2.5s for
    /// PostgreSQL, 1s for Raft].
    ///
    /// It bounds the time without a leader after a crash. The embedded store has only one server, which can reacquire
    /// its lease at once, so its lease is long and seldom renewed.
    pub fn shard_lease(&self) -> Duration {
        let by_store = match self.store {
            StoreConfig::Embedded => Duration::from_secs(10),
            StoreConfig::Postgres(_) => Duration::from_millis(2_500),
            StoreConfig::Raft(_) => Duration::from(raft::timing::LEASE),
        };
        self.shard_lease.unwrap_or(by_store)
    }

    fn check_raft(&self, shard_lease: Duration) -> Result<(), ConfigError> {
        let invalid = |name, reason: String| Err(ConfigError::Invalid { name, reason });
        let lease = Duration::from(raft::timing::LEASE);
        if shard_lease != lease {
            // A voter elects another leader after this time, whatever the old one believes.
            let reason = format!("servers of a Raft cluster use {lease}, but got {shard_lease}");
            return invalid("server.shard_lease", reason);
        }
        if self.advertise_url.is_none() && self.listen.ip().is_unspecified() {
            let reason = format!(
                "the other servers of the cluster cannot reach `{}`: set the address of this machine, as `{}://HOST:PORT`",
                self.listen,
                self.scheme()
            );
            return invalid("server.advertise_url", reason);
        }
        match &self.advertise_url {
            Some(url) if self.tls.is_none() && !url.starts_with("http://") => {
                let reason = format!(
                    "the other servers of the cluster connect directly, not through a proxy: expected `http://HOST:PORT`, but got `{url}`"
                );
                invalid("server.advertise_url", reason)
            }
            _ => Ok(()),
        }
    }

    /// Returns the URL of this server for other servers and workers, if it listens at `addr`.
    pub fn url_at(&self, addr: SocketAddr) -> Option<String> {
        let by_address = (!addr.ip().is_unspecified()).then(|| format!("{}://{addr}", self.scheme()));
        self.advertise_url.clone().or(by_address)
    }

    /// Returns `HOST:PORT` of this server for the other members of a Raft cluster, which connect without HTTP.
    pub(crate) fn raft_address_at(&self, addr: SocketAddr) -> String {
        let url = self.url_at(addr).unwrap_or_default();
        let (scheme, place) = url.split_once("://").unwrap_or(("http", &url));
        let place = place.trim_end_matches('/');
        let has_port = place.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let default = if scheme == "https" { 443 } else { 80 };
        if has_port { place.to_owned() } else { format!("{place}:{default}") }
    }

    fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Returns the path of the embedded store.
    pub fn store_path(&self) -> PathBuf {
        self.data_dir.join("belfry.db")
    }

    /// Returns the folder of the Raft store.
    pub fn raft_dir(&self) -> PathBuf {
        self.data_dir.join("raft")
    }

    /// Returns the file with the token with which other servers join the cluster of this one.
    pub fn join_token_path(&self) -> PathBuf {
        self.data_dir.join("join-token")
    }

    /// Returns the folder of logs that are still being written.
    pub fn live_logs_dir(&self) -> PathBuf {
        self.data_dir.join("logs")
    }

    /// Returns the folder of uploads whose hash is not known yet.
    pub fn uploads_dir(&self) -> PathBuf {
        self.data_dir.join("uploads")
    }

    /// Returns the folder of local objects; `None` if objects are in S3.
    pub fn objects_dir(&self) -> Option<PathBuf> {
        match &self.objects {
            ObjectsConfig::Local(Some(dir)) => Some(dir.clone()),
            ObjectsConfig::Local(None) => Some(self.data_dir.join("objects")),
            ObjectsConfig::S3(_) => None,
        }
    }

    /// Returns the path of the file with the first admin's token.
    pub fn admin_token_path(&self) -> PathBuf {
        self.data_dir.join("admin-token")
    }

    /// Returns the path of the file with the token of this server's workers.
    pub fn worker_token_path(&self) -> PathBuf {
        self.data_dir.join("worker-token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(change: impl FnOnce(&mut ServerConfig)) -> String {
        let mut config = ServerConfig::new("data");
        change(&mut config);
        config.check().map_or_else(|error| error.to_string(), |()| "fine".to_owned())
    }

    #[test]
    fn the_defaults_are_valid_and_listen_on_loopback() {
        assert_eq!(problem(|_| {}), "fine");
        assert!(ServerConfig::new("data").listen.ip().is_loopback());
    }

    /// Section 4.1 of the reliability page: an unprotected open port is never a default.
    #[test]
    fn a_public_address_requires_an_exposure_setting() {
        let open: SocketAddr = "0.0.0.0:7070".parse().unwrap();
        insta::assert_snapshot!(problem(|c| c.listen = open), @"refusing to listen on 0.0.0.0:7070: it can be reached from other machines, and the server has no TLS certificate");
        for exposure in [Exposure::BehindProxy, Exposure::Insecure] {
            assert_eq!(
                problem(|c| {
                    c.listen = open;
                    c.exposure = exposure;
                }),
                "fine"
            );
        }
    }

    fn tls() -> Option<TlsConfig> {
        Some(TlsConfig { cert_file: "server.pem".into(), key_file: "server-key.pem".into() })
    }

    #[test]
    fn a_server_with_a_certificate_listens_on_any_address() {
        let open: SocketAddr = "0.0.0.0:7070".parse().unwrap();
        let secured = |config: &mut ServerConfig| {
            config.listen = open;
            config.tls = tls();
        };
        assert_eq!(problem(secured), "fine");
        for exposure in [Exposure::BehindProxy, Exposure::Insecure] {
            assert_eq!(
                problem(|c| {
                    secured(c);
                    c.exposure = exposure;
                }),
                "fine"
            );
        }
    }

    #[test]
    fn a_server_with_a_certificate_advertises_https() {
        let mut config = ServerConfig::new("data");
        let at: SocketAddr = "10.0.0.1:7070".parse().unwrap();
        assert_eq!(config.url_at(at).as_deref(), Some("http://10.0.0.1:7070"));
        assert_eq!(config.raft_address_at(at), "10.0.0.1:7070");
        config.tls = tls();
        assert_eq!(config.url_at(at).as_deref(), Some("https://10.0.0.1:7070"));
        assert_eq!(config.raft_address_at(at), "10.0.0.1:7070");
        for (url, address) in [
            ("https://a.example:7070", "a.example:7070"),
            ("https://a.example", "a.example:443"),
            ("https://[fd00::1]:7070", "[fd00::1]:7070"),
            ("https://[fd00::1]", "[fd00::1]:443"),
        ] {
            config.advertise_url = Some(url.into());
            assert_eq!(config.raft_address_at(at), address);
        }
    }

    #[test]
    fn servers_of_a_raft_cluster_need_a_direct_address_and_their_lease() {
        let raft = |change: fn(&mut ServerConfig)| {
            problem(|config| {
                config.store = StoreConfig::Raft(RaftConfig::default());
                change(config);
            })
        };
        assert_eq!(raft(|_| {}), "fine");
        assert!(raft(|c| c.shard_lease = Some(Duration::from_secs(2))).contains("`server.shard_lease`"));
        assert!(
            raft(|c| c.advertise_url = Some("https://proxy".into())).contains("not through a proxy"),
            "a proxy would end the TLS of the servers"
        );
        let own_tls = |config: &mut ServerConfig| {
            config.tls = tls();
            config.advertise_url = Some("https://a.example:7070".into());
        };
        assert_eq!(raft(own_tls), "fine", "the server itself terminates this TLS");
        let anywhere = |config: &mut ServerConfig| {
            config.exposure = Exposure::Insecure;
            config.listen = "0.0.0.0:7070".parse().unwrap();
        };
        assert!(raft(anywhere).contains("`server.advertise_url`"));
    }

    #[test]
    fn an_openid_provider_needs_https_and_the_url_of_the_dashboard() {
        let with = |issuer: &str, change: fn(&mut OidcConfig)| {
            problem(|c| {
                c.public_url = Some("https://belfry.example".into());
                let mut oidc = OidcConfig::new(issuer, "belfry");
                change(&mut oidc);
                c.oidc = Some(oidc);
            })
        };
        for issuer in ["https://id.example/realms/x", "http://127.0.0.1:9000", "http://localhost:9000"] {
            assert_eq!(with(issuer, |_| {}), "fine", "{issuer}");
        }
        for issuer in ["id.example", "http://id.example", "ftp://id.example", "https://id.example?x=1"] {
            assert!(with(issuer, |_| {}).contains("`server.oidc_issuer`"), "{issuer}");
        }
        let issuer = "https://id.example";
        assert!(with(issuer, |oidc| oidc.client_id.clear()).contains("`server.oidc_client_id`"));
        assert!(with(issuer, |oidc| oidc.scopes.clear()).contains("`server.oidc_scopes`"));
        let without_url = problem(|c| c.oidc = Some(OidcConfig::new(issuer, "belfry")));
        assert!(without_url.contains("`server.public_url`"), "{without_url}");
    }

    #[test]
    fn invalid_settings_are_named() {
        assert!(problem(|c| c.shards = 0).contains("`server.shards`"));
        assert!(problem(|c| c.engine.lease = c.engine.heartbeat_interval).contains("`server.lease`"));
        assert!(problem(|c| c.artifact_bytes_max = 0).contains("`server.artifact_size_max`"));
        assert!(
            problem(
                |c| c.objects = ObjectsConfig::S3(S3Config { url: "http://x".into(), ..S3Config::default() })
            )
            .contains("`server.objects_url`")
        );
    }
}
