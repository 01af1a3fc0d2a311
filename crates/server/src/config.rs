//! The settings of a server, and what of them is refused.
//!
//! Every setting has a default that is safe: loopback only, local folders, bounded sizes. The
//! binary reads files and variables into a [`ServerConfig`]; nothing here reads either.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use model::Duration;
use model::limits::BATCH_BODY_BYTES_MAX;
pub use store::postgres::Password;

/// The port where a server listens unless told otherwise.
pub const PORT: u16 = 7070;

/// The settings of a server.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Where everything of this server lives: rows, live logs, tokens; made if it is missing.
    pub data_dir: PathBuf,
    /// Where the rows are.
    pub store: StoreConfig,
    /// Where it listens, for people, programs and workers alike. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// Who can reach `listen`, and what protects it there.
    pub exposure: Exposure,
    /// Names, beside those of loopback, under which requests may ask for this server (`Host`).
    pub host_names: Vec<String>,
    /// Where logs and artifacts are kept.
    pub objects: ObjectsConfig,
    /// The settings of the engine. A seed of 0 is replaced by a drawn one.
    pub engine: engine::Config,
    /// Into how many shards a new store divides the job space; an existing one keeps its number.
    pub shards: u16,
    /// What this server is called, for people.
    pub name: String,
    /// Where the other servers and the workers reach this one; by default the address that it listens
    /// on, where that is one.
    pub advertise_url: Option<String>,
    /// How long the ownership of a shard lasts without a renewal; see [`ServerConfig::shard_lease`].
    pub shard_lease: Option<Duration>,
    /// Whether this server follows the rows while another one owns the shards, so that it can take over at once.
    /// It then needs as much memory as the owner.
    pub warm_standby: bool,
    /// How long events are kept for watchers to resume.
    pub event_retention: Duration,
    /// How long the lines of fire ledgers, and backfills that ended, are kept.
    pub ledger_retention: Duration,
    /// The largest artifact.
    pub artifact_bytes_max: u64,
    /// How long versions of artifacts are kept that are not the newest of their name; without end if absent.
    pub artifact_retention: Option<Duration>,
    /// How long a shutdown waits for open requests before it cuts them off.
    pub shutdown_grace: Duration,
    /// How often ended jobs are looked through for what retention may delete.
    pub housekeeping_interval: Duration,
    /// Limits on the requests of all clients and of each.
    pub limits: LimitsConfig,
}

/// Limits on the requests of all clients and of each; a client is a token at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Maximum of concurrent requests, for reads, changes, slow bodies and forwarded requests each.
    pub requests: usize,
    /// Maximum of concurrent requests of one client, if lower than its share: as many places as are free.
    pub client_requests: Option<usize>,
    /// Maximum of open event streams.
    pub streams: usize,
    /// Maximum of open event streams of one client, if lower than its share.
    pub client_streams: Option<usize>,
    /// Maximum of bytes of request bodies in memory, in sum; uploads of artifacts are not held in memory.
    pub body_bytes: usize,
    /// Maximum of jobs that one client may submit per second, averaged over a second; unlimited if absent.
    pub client_job_rate: Option<u64>,
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
        }
    }
}

/// Who can reach the listener, and what protects it there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exposure {
    /// This machine only; another address to listen on is refused.
    #[default]
    Loopback,
    /// A proxy in front of it ends TLS and is the only one that reaches it.
    BehindProxy,
    /// Anyone on the network, without TLS. Tokens and data can be read on the way.
    Insecure,
}

/// Where the rows are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum StoreConfig {
    /// A file in the data folder, for one server.
    #[default]
    Embedded,
    /// A PostgreSQL database, which several servers may share.
    Postgres(PostgresConfig),
}

/// A PostgreSQL database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresConfig {
    /// `postgres://USER@HOST:PORT/DATABASE`, with `sslmode` and the like as parameters.
    pub url: String,
    /// The user's password, where the database asks for one.
    pub password: Option<Password>,
    /// How many queries of the API run at the same time, each in a session of its own.
    pub sessions: usize,
    /// Takes a database that may lose what it has acknowledged.
    pub allow_unsafe: bool,
    /// Refuses a database whose commits wait for no standby.
    pub require_sync_standby: bool,
}

/// Where logs and artifacts are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectsConfig {
    /// A folder; `objects` in the data folder where absent.
    Local(Option<PathBuf>),
    /// A bucket of S3 or of anything that speaks its protocol. Credentials come from the usual
    /// variables (`AWS_ACCESS_KEY_ID`, …) or the machine's role, never from here.
    S3(S3Config),
}

/// A bucket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct S3Config {
    /// `s3://BUCKET/PREFIX`; the prefix may be missing.
    pub url: String,
    /// Another service than Amazon's.
    pub endpoint: Option<String>,
    /// The bucket's region, where the variables do not say it.
    pub region: Option<String>,
}

/// Why settings were refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// It would listen where others can reach it, and nobody said that this is meant.
    #[error(
        "refusing to listen on {listen}: it can be reached from other machines, and this server does not speak TLS"
    )]
    Exposed {
        /// The address.
        listen: SocketAddr,
    },
    /// A bound is zero or makes no sense with another.
    #[error("invalid setting `{name}`: {reason}")]
    Invalid {
        /// Which setting.
        name: &'static str,
        /// What was found and what was expected.
        reason: String,
    },
}

impl ConfigError {
    /// What the operator can do next.
    pub fn help(&self) -> &'static str {
        match self {
            Self::Exposed { .. } => {
                "listen on a loopback address; or put a proxy that ends TLS in front and say `behind_proxy`"
            }
            Self::Invalid { .. } => "correct the setting; `belfry config show` prints all of them",
        }
    }
}

impl ServerConfig {
    /// Every default, with everything below `data_dir`.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            store: StoreConfig::Embedded,
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT),
            exposure: Exposure::default(),
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
            artifact_bytes_max: 1 << 30,
            artifact_retention: None,
            shutdown_grace: Duration::from_secs(5),
            housekeeping_interval: Duration::from_secs(30),
            limits: LimitsConfig::default(),
        }
    }

    /// Refuses what is unsafe or cannot work.
    ///
    /// # Errors
    /// [`ConfigError`], naming the setting.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.exposure == Exposure::Loopback && !self.listen.ip().is_loopback() {
            return Err(ConfigError::Exposed { listen: self.listen });
        }
        let invalid = |name, reason: &str| Err(ConfigError::Invalid { name, reason: reason.to_owned() });
        if self.shards == 0 {
            return invalid("shards", "is zero: expected at least 1");
        }
        if self.shard_lease() < Duration::from_secs(1) {
            return invalid("shard_lease", "is too short: expected at least 1s");
        }
        if self.shard_lease() > store::LEASE_MAX {
            return invalid("shard_lease", "is too long: expected at most 1m");
        }
        if self.engine.heartbeat_interval == Duration::ZERO {
            return invalid("heartbeat_interval", "is zero");
        }
        if self.engine.lease <= self.engine.heartbeat_interval {
            return invalid("lease", "is not longer than `heartbeat_interval`: every worker would be lost");
        }
        if self.artifact_bytes_max == 0 {
            return invalid("artifact_bytes_max", "is zero");
        }
        let LimitsConfig { requests, client_requests, streams, client_streams, body_bytes, client_job_rate } =
            self.limits;
        if body_bytes < BATCH_BODY_BYTES_MAX {
            return invalid("request_bytes_max", "is lower than 8MiB, the largest request body");
        }
        for (name, limit) in [
            ("requests_max", Some(requests as u64)),
            ("client_requests_max", client_requests.map(|limit| limit as u64)),
            ("streams_max", Some(streams as u64)),
            ("client_streams_max", client_streams.map(|limit| limit as u64)),
            ("client_job_rate", client_job_rate),
        ] {
            if limit == Some(0) {
                return invalid(name, "is zero: expected at least 1");
            }
        }
        if let ObjectsConfig::S3(s3) = &self.objects
            && !s3.url.starts_with("s3://")
        {
            return invalid("objects.url", "is no bucket: expected `s3://BUCKET/PREFIX`");
        }
        Ok(())
    }

    /// How long the ownership of a shard lasts without a renewal.
    ///
    /// It bounds how long nobody decides after a server was killed. The embedded store has one server,
    /// which takes it back at once, so there it is long and seldom renewed.
    pub fn shard_lease(&self) -> Duration {
        let by_store = match self.store {
            StoreConfig::Embedded => Duration::from_secs(10),
            StoreConfig::Postgres(_) => Duration::from_millis(2_500),
        };
        self.shard_lease.unwrap_or(by_store)
    }

    /// Where the others reach this server if it listens at `addr`.
    pub fn url_at(&self, addr: SocketAddr) -> Option<String> {
        let by_address = (!addr.ip().is_unspecified()).then(|| format!("http://{addr}"));
        self.advertise_url.clone().or(by_address)
    }

    /// The file of the embedded store.
    pub fn store_path(&self) -> PathBuf {
        self.data_dir.join("belfry.db")
    }

    /// The folder of logs that are still written.
    pub fn live_logs_dir(&self) -> PathBuf {
        self.data_dir.join("logs")
    }

    /// The folder of uploads whose hash is not known yet.
    pub fn uploads_dir(&self) -> PathBuf {
        self.data_dir.join("uploads")
    }

    /// The folder of the local objects, unless they are elsewhere.
    pub fn objects_dir(&self) -> Option<PathBuf> {
        match &self.objects {
            ObjectsConfig::Local(Some(dir)) => Some(dir.clone()),
            ObjectsConfig::Local(None) => Some(self.data_dir.join("objects")),
            ObjectsConfig::S3(_) => None,
        }
    }

    /// The file with the first admin's token.
    pub fn admin_token_path(&self) -> PathBuf {
        self.data_dir.join("admin-token")
    }

    /// The file with the token of this server's workers.
    pub fn worker_token_path(&self) -> PathBuf {
        self.data_dir.join("worker-token")
    }
}

/// Makes a folder that only its owner can look into; one that exists keeps its rights.
pub(crate) fn make_private_dir(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
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
    fn the_defaults_are_fine_and_reach_no_further_than_this_machine() {
        assert_eq!(problem(|_| {}), "fine");
        assert!(ServerConfig::new("data").listen.ip().is_loopback());
    }

    /// Section 4.1 of the reliability page: an open port without protection is never a default.
    #[test]
    fn listening_to_the_network_needs_a_word_that_says_so() {
        let open: SocketAddr = "0.0.0.0:7070".parse().unwrap();
        insta::assert_snapshot!(problem(|c| c.listen = open), @"refusing to listen on 0.0.0.0:7070: it can be reached from other machines, and this server does not speak TLS");
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

    #[test]
    fn bounds_that_cannot_work_are_named() {
        assert!(problem(|c| c.shards = 0).contains("`shards`"));
        assert!(problem(|c| c.engine.lease = c.engine.heartbeat_interval).contains("`lease`"));
        assert!(problem(|c| c.artifact_bytes_max = 0).contains("`artifact_bytes_max`"));
        assert!(
            problem(
                |c| c.objects = ObjectsConfig::S3(S3Config { url: "http://x".into(), ..S3Config::default() })
            )
            .contains("`objects.url`")
        );
    }
}
