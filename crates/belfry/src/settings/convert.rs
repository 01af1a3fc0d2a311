//! Conversion of settings into the configuration of a server or a worker.
//!
//! The commands call [`Settings::server`] and [`Settings::worker`]; `belfry dev` builds its own worker
//! configuration and calls [`Settings::apply_to_worker`]. The typed getters return `None` for a setting
//! without a value, which keeps the default of the configuration.
//!
//! Checks that need several settings are here or in `ServerConfig::check`; checks of single values are in
//! `value`. Passwords and tokens are read here, from files or `PGPASSWORD`; a password in a URL is refused.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::{Path, PathBuf};

use model::spec::Volume;
use model::{Bytes, Duration, Millicores};
use server::ServerConfig;
use server::config::{
    ClientSecret, Exposure, ObjectsConfig, OidcConfig, Password, PostgresConfig, RaftConfig, S3Config,
    StoreConfig, TlsConfig,
};
use server::networks::{Network, Networks};
use worker::{AgentConfig, PortRange, PortRangeError};

use super::{Origin, Settings, Value};
use crate::failure::{Exit, Failure};

macro_rules! typed {
    ($($(#[$doc:meta])* $name:ident: $variant:ident -> $type:ty;)*) => {
        impl Settings {$(
            $(#[$doc])*
            pub(crate) fn $name(&self, key: &str) -> Option<$type> {
                match self.value(key)? {
                    Value::$variant(value) => Some(value.clone()),
                    other => unreachable!("setting {key} has the wrong kind: {other:?}"),
                }
            }
        )*}
    };
}

typed! {
    /// Returns a text setting.
    text: Text -> String;
    /// Returns a path setting.
    path: Path -> PathBuf;
    /// Returns an address setting.
    address: Address -> SocketAddr;
    /// Returns a duration setting.
    duration: Duration -> Duration;
    /// Returns a size setting.
    bytes: Bytes -> Bytes;
    /// Returns a CPU setting.
    cpu: Cpu -> Millicores;
    /// Returns a count setting.
    count: Count -> u64;
    /// Returns a list setting.
    list: List -> Vec<String>;
}

impl Settings {
    /// Whether a boolean setting is `true`.
    pub(crate) fn is_set(&self, key: &str) -> bool {
        matches!(self.value(key), Some(Value::Flag(true)))
    }

    /// Returns the configuration of a server.
    ///
    /// # Errors
    /// If settings exclude each other or are out of range.
    pub(crate) fn server(&self) -> Result<ServerConfig, Failure> {
        let mut config = ServerConfig::new(self.path("server.data_dir").unwrap_or_default());
        config.exposure = match (self.is_set("server.behind_proxy"), self.is_set("server.insecure")) {
            (true, true) => {
                return Err(Failure::usage(
                    "`server.behind_proxy` and `server.insecure` cannot be set together",
                ));
            }
            (true, false) => Exposure::BehindProxy,
            (false, true) => Exposure::Insecure,
            (false, false) => Exposure::Loopback,
        };
        config.tls = self.tls()?;
        config.store = self.store()?;
        config.objects = self.objects()?;
        config.shards = self.count_as("server.shards")?.unwrap_or(config.shards);
        set(&mut config.listen, self.address("server.listen"));
        set(&mut config.host_names, self.list("server.host_names"));
        set(&mut config.name, self.text("server.name"));
        config.shard_lease = self.duration("server.shard_lease");
        config.warm_standby = self.is_set("server.warm_standby");
        config.advertise_url = self.url("server.advertise_url")?;
        set(&mut config.audit_retention, self.duration("server.audit_retention"));
        config.audit_submissions = self.is_set("server.audit_submissions");
        set(&mut config.event_retention, self.duration("server.event_retention"));
        set(&mut config.ledger_retention, self.duration("server.ledger_retention"));
        set(&mut config.artifact_bytes_max, self.bytes("server.artifact_size_max").map(|b| b.0));
        if let Some(rate) = self.bytes("server.copy_rate") {
            config.copy_rate = NonZeroU64::new(rate.0).ok_or_else(|| {
                Failure::usage(
                    "invalid setting `server.copy_rate`: expected at least 1 byte per second but got 0",
                )
            })?;
        }
        set(&mut config.shutdown_grace, self.duration("server.shutdown_grace"));
        set(&mut config.housekeeping_interval, self.duration("server.housekeeping_interval"));
        config.artifact_retention = self.duration("server.artifact_retention");
        let limits = &mut config.limits;
        set(&mut limits.requests, self.count_as("server.requests_max")?);
        limits.client_requests = self.count_as("server.client_requests_max")?;
        set(&mut limits.streams, self.count_as("server.streams_max")?);
        limits.client_streams = self.count_as("server.client_streams_max")?;
        if let Some(bytes) = self.bytes("server.request_bytes_max") {
            limits.body_bytes = usize::try_from(bytes.0).unwrap_or(usize::MAX);
        }
        limits.client_job_rate = self.count("server.client_job_rate");
        if let Some(rate) = self.count_as::<u32>("server.submit_rate")? {
            limits.submit_rate = NonZeroU32::new(rate);
        }
        config.public_url = self.url("server.public_url")?;
        config.private_networks = self.private_networks()?;
        config.secret_key_file = self.path("server.secret_key_file");
        config.oidc = self.oidc()?;
        set(&mut config.engine.heartbeat_interval, self.duration("server.heartbeat_interval"));
        set(&mut config.engine.lease, self.duration("server.lease"));
        set(&mut config.engine.result_wait, self.duration("server.result_wait"));
        set(&mut config.engine.retention, self.duration("server.retention"));
        set(&mut config.engine.key_retention, self.duration("server.key_retention"));
        config
            .check()
            .map_err(|error| Failure::message(Exit::Usage, error.to_string()).help(error.help()))?;
        Ok(config)
    }

    /// Returns the files of the TLS certificate of the server.
    ///
    /// # Errors
    /// If only one of the two files is set.
    fn tls(&self) -> Result<Option<TlsConfig>, Failure> {
        let alone = |one: &str, other: &str| {
            Err(Failure::usage(format!("`{one}` is set without `{other}`"))
                .help("TLS needs both files: the certificate and its private key"))
        };
        match (self.path("server.tls_cert_file"), self.path("server.tls_key_file")) {
            (Some(cert_file), Some(key_file)) => Ok(Some(TlsConfig { cert_file, key_file })),
            (None, None) => Ok(None),
            (Some(_), None) => alone("server.tls_cert_file", "server.tls_key_file"),
            (None, Some(_)) => alone("server.tls_key_file", "server.tls_cert_file"),
        }
    }

    /// Returns the OpenID provider.
    ///
    /// # Errors
    /// If the file with the client secret cannot be read, or settings of a provider are set without its issuer.
    fn oidc(&self) -> Result<Option<OidcConfig>, Failure> {
        let Some(issuer) = self.text("server.oidc_issuer") else {
            return match self.text("server.oidc_client_id") {
                Some(_) => Err(Failure::usage("`server.oidc_client_id` is set without `server.oidc_issuer`")),
                None => Ok(None),
            };
        };
        let client_id = self.text("server.oidc_client_id").unwrap_or_default();
        let mut oidc = OidcConfig::new(issuer, client_id);
        if let Some(file) = self.path("server.oidc_client_secret_file") {
            oidc.client_secret = Some(ClientSecret::new(read_secret("client secret", &file)?));
        }
        set(&mut oidc.name, self.text("server.oidc_name"));
        set(&mut oidc.scopes, self.list("server.oidc_scopes"));
        set(&mut oidc.user_claim, self.text("server.oidc_user_claim"));
        set(&mut oidc.groups_claim, self.text("server.oidc_groups_claim"));
        oidc.create_accounts = self.is_set("server.oidc_create_accounts");
        set(&mut oidc.allowed_groups, self.list("server.oidc_allowed_groups"));
        Ok(Some(oidc))
    }

    /// Returns the private networks that the server may send requests to.
    ///
    /// # Errors
    /// If an entry is not a network.
    pub(crate) fn private_networks(&self) -> Result<Networks, Failure> {
        let networks = self.list("server.private_networks").unwrap_or_default();
        let networks = networks.iter().map(|text| text.parse::<Network>());
        networks
            .collect::<Result<_, _>>()
            .map_err(|error| Failure::usage(format!("invalid setting `server.private_networks`: {error}")))
    }

    fn url(&self, key: &str) -> Result<Option<String>, Failure> {
        let Some(url) = self.text(key) else { return Ok(None) };
        if !url.starts_with("http://") && !url.starts_with("https://") {
            let detail = format!("invalid setting `{key}`: `{url}` is not a server URL");
            return Err(Failure::usage(detail).help("expected `http://HOST:PORT` or `https://HOST:PORT`"));
        }
        Ok(Some(url.trim_end_matches('/').to_owned()))
    }

    /// Returns the store configuration: embedded, Raft, or a PostgreSQL database.
    ///
    /// # Errors
    /// If the URL is invalid or contains a password, or the password file cannot be read.
    pub(crate) fn store(&self) -> Result<StoreConfig, Failure> {
        let Some(url) = self.text("server.store") else { return Ok(StoreConfig::Embedded) };
        if url == "raft" {
            return Ok(StoreConfig::Raft(RaftConfig {
                bootstrap: None,
                join: self.list("server.raft_join").unwrap_or_default(),
                join_token_file: self.path("server.raft_join_token_file"),
            }));
        }
        let named = match self.origin("server.store") {
            Some(Origin::Flag(flag)) => flag,
            _ => "server.store",
        };
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            let detail = format!("`{named}` is neither `raft` nor a database URL");
            return Err(
                Failure::usage(detail).help("expected `raft` or `postgres://USER@HOST:PORT/DATABASE`")
            );
        }
        let (before_at, _) = url.split_once('@').unwrap_or_default();
        if before_at.split_once("://").is_some_and(|(_, user)| user.contains(':'))
            || url.contains("password=")
        {
            // A password in the URL would be visible in files, process lists and `belfry config show`.
            return Err(Failure::usage(format!("`{named}` contains a password"))
                .help("remove it, and name a file in `server.store_password_file` or set $PGPASSWORD"));
        }
        let password = match self.path("server.store_password_file") {
            Some(file) => Some(read_secret("password", &file)?),
            None => std::env::var("PGPASSWORD").ok().filter(|password| !password.is_empty()),
        };
        Ok(StoreConfig::Postgres(PostgresConfig {
            url,
            password: password.map(Password::new),
            sessions: self.count_as("server.store_sessions")?.unwrap_or(4),
            allow_unsafe: self.is_set("server.store_allow_unsafe"),
            require_sync_standby: self.is_set("server.store_require_sync_standby"),
        }))
    }

    fn objects(&self) -> Result<ObjectsConfig, Failure> {
        let (dir, url) = (self.path("server.objects_dir"), self.text("server.objects_url"));
        match (dir, url) {
            (Some(_), Some(_)) => {
                Err(Failure::usage("`server.objects_dir` and `server.objects_url` cannot be set together"))
            }
            (dir, None) => Ok(ObjectsConfig::Local(dir)),
            (None, Some(url)) => Ok(ObjectsConfig::S3(S3Config {
                url,
                endpoint: self.text("server.s3_endpoint"),
                region: self.text("server.s3_region"),
            })),
        }
    }

    /// Returns the configuration of a worker.
    ///
    /// # Errors
    /// If the server or the token is not configured, or a file cannot be read.
    pub(crate) fn worker(&self) -> Result<AgentConfig, Failure> {
        let servers = self.list("worker.servers").filter(|servers| !servers.is_empty());
        let Some(servers) = servers else {
            return Err(Failure::usage("no server is configured")
                .help("set `--server http://HOST:PORT` (the setting `worker.servers`)"));
        };
        let Some(token_file) = self.path("worker.token_file") else {
            return Err(Failure::usage("no token is configured").help(
                "set `--token-file FILE` (the setting `worker.token_file`); the server writes the worker token to `worker-token` in its data directory",
            ));
        };
        let token = crate::connect::read_token(&token_file)?;
        let hidden = std::path::absolute(&token_file).unwrap_or(token_file);
        let dir = self.path("worker.dir").unwrap_or_default();
        let mut config = AgentConfig::new(dir, servers[0].clone(), token);
        config.servers = servers;
        if let Some(path) = self.path("worker.ca_file") {
            let pem = std::fs::read(&path)
                .map_err(|e| Failure::usage(format!("cannot read `{}`: {e}", path.display())))?;
            config.tls_ca_pem = Some(pem);
        }
        self.apply_to_worker(&mut config)?;
        config.hidden_paths = vec![hidden];
        Ok(config)
    }

    /// Applies the settings that do not depend on the server; `belfry dev` uses them too.
    pub(crate) fn apply_to_worker(&self, config: &mut AgentConfig) -> Result<(), Failure> {
        if let Some(Value::Map(labels)) = self.value("worker.labels") {
            config.labels.clone_from(labels);
        }
        if let Some(Value::Counts(resources)) = self.value("worker.resources") {
            config.capacity.custom.clone_from(resources);
        }
        set(&mut config.name, self.text("worker.name"));
        set(&mut config.capacity.cpu, self.cpu("worker.cpu"));
        set(&mut config.capacity.memory, self.bytes("worker.memory"));
        config.capacity.slots = self.count_as("worker.slots")?.unwrap_or(config.capacity.slots);
        config.port_range = self.port_range("worker.port_range")?.unwrap_or(config.port_range);
        if let Some(Value::Map(volumes)) = self.value("worker.volumes") {
            let (count, max) = (volumes.len(), model::limits::WORKER_VOLUMES_MAX);
            if count > max {
                let detail = format!("{count} volumes are too many: expected at most {max}");
                return Err(Failure::usage(format!("invalid setting `worker.volumes`: {detail}")));
            }
            config.volumes = volumes.iter().map(volume).collect::<Result<_, _>>()?;
        }
        config.container_engine = self.text("worker.container_engine");
        config.sandbox_paths = self.sandbox_paths()?;
        config.address = self.text("worker.address");
        config.task_user = self.text("worker.task_user");
        config.allow_root_tasks = self.is_set("worker.allow_root_tasks");
        set(&mut config.orphan_limit, self.duration("worker.orphan_limit"));
        set(&mut config.idle_exit, self.duration("worker.idle_exit"));
        set(&mut config.cache_bytes_max, self.bytes("worker.cache_size_max").map(|b| b.0));
        Ok(())
    }

    fn sandbox_paths(&self) -> Result<Vec<PathBuf>, Failure> {
        let paths = self.list("worker.sandbox_paths").unwrap_or_default().into_iter().map(|path| {
            if path.starts_with('/') {
                return Ok(path.into());
            }
            let problem = format!("`{path}` is not an absolute path");
            Err(Failure::usage(format!("invalid setting `worker.sandbox_paths`: {problem}")))
        });
        paths.collect()
    }

    fn port_range(&self, key: &str) -> Result<Option<PortRange>, Failure> {
        let range = self.text(key).map(|text| text.parse());
        range
            .transpose()
            .map_err(|error: PortRangeError| Failure::usage(format!("invalid setting `{key}`: {error}")))
    }

    fn count_as<T: TryFrom<u64>>(&self, key: &str) -> Result<Option<T>, Failure> {
        let count = self.count(key);
        count
            .map(|n| {
                T::try_from(n)
                    .map_err(|_| Failure::usage(format!("invalid setting `{key}`: `{n}` is too large")))
            })
            .transpose()
    }
}

/// Checks the name and the path of a volume of the worker.
fn volume((name, path): (&String, &String)) -> Result<(String, PathBuf), Failure> {
    let invalid = |what: String| Failure::usage(format!("invalid setting `worker.volumes`: {what}"));
    if !Volume::is_name(name) {
        return Err(invalid(format!(
            "`{name}` is not a name of a volume: expected 1 to 63 lower-case letters, digits or `-`, starting with a letter"
        )));
    }
    let path = PathBuf::from(path);
    if !path.is_absolute() {
        return Err(invalid(format!("`{}` of volume `{name}` is not an absolute path", path.display())));
    }
    Ok((name.clone(), path))
}

/// Reads a file with one secret; `what` names it.
fn read_secret(what: &str, file: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        Failure::usage(format!("cannot read the {what} in `{}`: {error}", file.display()))
    })?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

fn set<T>(slot: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *slot = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Sources;

    fn settings(variables: &[(&str, &str)]) -> Settings {
        let variables = variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Settings::load(&Sources { variables, ..Sources::default() }).unwrap()
    }

    #[test]
    fn defaults_are_those_of_the_server_and_the_worker() {
        let (ours, theirs) = (settings(&[]).server().unwrap(), ServerConfig::new("/var/lib/belfry"));
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
        let mut agent = AgentConfig::new("d", "http://x", "t");
        let theirs = format!("{agent:?}");
        settings(&[]).apply_to_worker(&mut agent).unwrap();
        assert_eq!(format!("{agent:?}"), theirs);
    }

    #[test]
    fn every_setting_of_a_server_changes_something() {
        let plain = format!("{:?}", settings(&[]).server().unwrap());
        for (variable, value) in [
            ("DATA_DIR", "/d"),
            ("LISTEN", "127.0.0.1:1"),
            ("BEHIND_PROXY", "true"),
            ("INSECURE", "yes"),
            ("HOST_NAMES", "a,b"),
            ("OBJECTS_DIR", "/o"),
            ("OBJECTS_URL", "s3://b/p"),
            ("NAME", "n"),
            ("SHARDS", "4"),
            ("SHARD_LEASE", "20s"),
            ("HEARTBEAT_INTERVAL", "1s"),
            ("LEASE", "20s"),
            ("STORE", "postgres://belfry@localhost/belfry"),
            ("RETENTION", "1d"),
            ("KEY_RETENTION", "1d"),
            ("EVENT_RETENTION", "1d"),
            ("ARTIFACT_SIZE_MAX", "1MiB"),
            ("ARTIFACT_RETENTION", "1d"),
            ("SHUTDOWN_GRACE", "1s"),
            ("HOUSEKEEPING_INTERVAL", "1s"),
            ("REQUESTS_MAX", "1"),
            ("CLIENT_REQUESTS_MAX", "1"),
            ("STREAMS_MAX", "1"),
            ("CLIENT_STREAMS_MAX", "1"),
            ("CLIENT_JOB_RATE", "1"),
        ] {
            let changed = settings(&[(&format!("BELFRY_SERVER__{variable}"), value)]).server().unwrap();
            assert_ne!(format!("{changed:?}"), plain, "{variable}");
        }
    }

    #[test]
    fn settings_that_exclude_each_other_are_refused() {
        let server = |variables: &[(&str, &str)]| settings(variables).server().unwrap_err().render(false);
        let both = [("BELFRY_SERVER__BEHIND_PROXY", "true"), ("BELFRY_SERVER__INSECURE", "true")];
        assert!(server(&both).contains("cannot be set together"));
        let both = [("BELFRY_SERVER__OBJECTS_DIR", "/o"), ("BELFRY_SERVER__OBJECTS_URL", "s3://b")];
        assert!(server(&both).contains("cannot be set together"));
        assert!(server(&[("BELFRY_SERVER__LISTEN", "0.0.0.0:7070")]).contains("refusing to listen"));
        assert!(server(&[("BELFRY_SERVER__SHARDS", "70000")]).contains("too large"));
        assert!(
            server(&[("BELFRY_SERVER__CLIENT_REQUESTS_MAX", "0")]).contains("`server.client_requests_max`")
        );
        assert!(
            server(&[("BELFRY_SERVER__STORE", "mysql://x")]).contains("neither `raft` nor a database URL")
        );
    }

    #[test]
    fn a_certificate_and_its_key_are_set_together() {
        let certificate = ("BELFRY_SERVER__TLS_CERT_FILE", "/tls/server.pem");
        let key = ("BELFRY_SERVER__TLS_KEY_FILE", "/tls/server-key.pem");
        let listen = ("BELFRY_SERVER__LISTEN", "0.0.0.0:7070");
        let config = settings(&[certificate, key, listen]).server().unwrap();
        let files = TlsConfig { cert_file: "/tls/server.pem".into(), key_file: "/tls/server-key.pem".into() };
        assert_eq!(config.tls, Some(files));
        for (set, missing) in [(certificate, "server.tls_key_file"), (key, "server.tls_cert_file")] {
            let refused = settings(&[set]).server().unwrap_err().render(false);
            assert!(refused.contains(&format!("without `{missing}`")), "{refused}");
        }
    }

    #[test]
    fn a_server_joins_the_raft_cluster_of_its_settings() {
        let config = settings(&[
            ("BELFRY_SERVER__STORE", "raft"),
            ("BELFRY_SERVER__RAFT_JOIN", "a:7070,b:7070"),
            ("BELFRY_SERVER__RAFT_JOIN_TOKEN_FILE", "/etc/belfry/join-token"),
        ]);
        let StoreConfig::Raft(raft) = config.server().unwrap().store else { panic!() };
        assert_eq!(raft.join, ["a:7070", "b:7070"]);
        assert!(raft.bootstrap.is_none() && raft.join_token_file.is_some());
    }

    #[test]
    fn a_password_in_a_database_url_is_refused() {
        for address in ["postgres://me:hunter2@db/belfry", "postgres://db/belfry?user=me&password=hunter2"] {
            let refused = settings(&[("BELFRY_SERVER__STORE", address)]).server().unwrap_err().render(false);
            assert!(refused.contains("store_password_file") && !refused.contains("hunter2"), "{refused}");
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        std::fs::write(&file, "hunter2\n").unwrap();
        let address = ("BELFRY_SERVER__STORE", "postgres://me@db/belfry");
        let named = ("BELFRY_SERVER__STORE_PASSWORD_FILE", file.to_str().unwrap());
        let config = settings(&[address, named]).server().unwrap();
        let StoreConfig::Postgres(database) = &config.store else { panic!("{config:?}") };
        assert_eq!(database.password, Some(Password::new("hunter2")));
        assert!(!format!("{config:?}").contains("hunter2"));
    }

    #[test]
    fn an_openid_provider_has_its_settings_and_the_secret_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("client-secret");
        std::fs::write(&file, "hunter2\n").unwrap();
        let url = ("BELFRY_SERVER__PUBLIC_URL", "https://belfry.example");
        let issuer = ("BELFRY_SERVER__OIDC_ISSUER", "https://id.example/");
        let client = ("BELFRY_SERVER__OIDC_CLIENT_ID", "belfry");
        let defaults = settings(&[url, issuer, client]).server().unwrap().oidc.unwrap();
        assert_eq!(defaults, OidcConfig::new("https://id.example/", "belfry"));
        let config = settings(&[
            url,
            issuer,
            client,
            ("BELFRY_SERVER__OIDC_CLIENT_SECRET_FILE", file.to_str().unwrap()),
            ("BELFRY_SERVER__OIDC_NAME", "Example"),
            ("BELFRY_SERVER__OIDC_SCOPES", "openid,groups"),
            ("BELFRY_SERVER__OIDC_USER_CLAIM", "preferred_username"),
            ("BELFRY_SERVER__OIDC_GROUPS_CLAIM", "roles"),
            ("BELFRY_SERVER__OIDC_CREATE_ACCOUNTS", "true"),
            ("BELFRY_SERVER__OIDC_ALLOWED_GROUPS", "devs,ops"),
        ]);
        let oidc = config.server().unwrap().oidc.unwrap();
        assert_eq!(oidc.client_secret, Some(ClientSecret::new("hunter2")));
        assert_eq!(
            (oidc.scopes, oidc.allowed_groups),
            (vec!["openid".to_owned(), "groups".into()], vec!["devs".to_owned(), "ops".into()])
        );
        assert_eq!(
            (&*oidc.name, &*oidc.user_claim, &*oidc.groups_claim),
            ("Example", "preferred_username", "roles")
        );
        assert!(oidc.create_accounts);
        let refused = |variables: &[(&str, &str)]| settings(variables).server().unwrap_err().render(false);
        assert!(refused(&[url, client]).contains("without `server.oidc_issuer`"));
        assert!(refused(&[url, issuer]).contains("`server.oidc_client_id`"));
        assert!(refused(&[issuer, client]).contains("`server.public_url`"));
    }

    #[test]
    fn a_worker_has_the_ports_and_the_address_of_its_settings() {
        let mut agent = AgentConfig::new("d", "http://x", "t");
        let variables =
            [("BELFRY_WORKER__PORT_RANGE", "26000-26099"), ("BELFRY_WORKER__ADDRESS", "worker.example")];
        settings(&variables).apply_to_worker(&mut agent).unwrap();
        assert_eq!((agent.port_range.first(), agent.port_range.last()), (26_000, 26_099));
        assert_eq!(agent.address.as_deref(), Some("worker.example"));
    }

    #[test]
    fn a_worker_needs_a_server_and_a_token() {
        let worker = |variables: &[(&str, &str)]| settings(variables).worker().unwrap_err().render(false);
        assert!(worker(&[]).contains("no server is configured"));
        assert!(worker(&[("BELFRY_WORKER__SERVERS", "http://x")]).contains("no token is configured"));
    }
}
