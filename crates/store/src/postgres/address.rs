//! The address of the database, and the opening of sessions.
//!
//! The address is a URL like that of libpq. This module reads its parameters `sslmode`, `sslrootcert`,
//! `target_session_attrs` and `prepared_statements`; the driver reads the others. No output contains the password.
//!
//! # Several hosts
//! For a database with failover, the URL names all hosts that may be the primary. A session is opened with the host
//! that accepts writes. The host that last did so is tried first; the next one is tried as soon as a host refuses, or
//! does not answer within [`PATIENCE`]. So an unreachable machine costs no connect timeout.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::Password;
use super::connection::drive;
use super::error::{Failure, describe};
use super::tls::{self, Verify};
use crate::StoreError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time without an answer after which the next host is tried as well.
const PATIENCE: Duration = Duration::from_millis(250);
/// Time that sent data may stay unacknowledged before the connection counts as dead.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);
const KEEPALIVES_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVES_INTERVAL: Duration = Duration::from_secs(3);
const KEEPALIVES_RETRIES: u32 = 3;

/// Address of a database.
pub(super) struct Address {
    /// One configuration for each host, in the order of the URL.
    hosts: Vec<Config>,
    /// Index of the host that last accepted writes.
    last: AtomicUsize,
    tls: Option<MakeRustlsConnect>,
    /// Whether statements are prepared once in each session. Off for a pooler in transaction mode without support for
    /// prepared statements (PgBouncer before 1.21).
    pub(super) prepares: bool,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Shows the hosts with their ports, and the database name.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<_> = self.hosts.iter().map(host_and_port).collect();
        let database = self.hosts.first().and_then(Config::get_dbname).unwrap_or_default();
        write!(f, "{}/{database}", hosts.join(","))
    }
}

fn host_and_port(config: &Config) -> String {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        Some(Host::Unix(path)) => path.display().to_string(),
        None => "localhost".to_owned(),
    };
    format!("{host}:{}", config.get_ports().first().copied().unwrap_or(5432))
}

/// Returns a URL for each host of the address.
fn one_by_one(base: &str) -> Vec<String> {
    let (scheme, rest) = base.split_once("://").unwrap_or(("", base));
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let (user, hosts) = match authority.split_once('@') {
        Some((user, hosts)) => (format!("{user}@"), hosts),
        None => (String::new(), authority),
    };
    hosts.split(',').map(|host| format!("{scheme}://{user}{host}{path}")).collect()
}

fn wrong(reason: impl fmt::Display) -> StoreError {
    StoreError::Unavailable { source: format!("invalid database URL: {reason}").into() }
}

impl Address {
    /// # Errors
    /// [`StoreError::Unavailable`] that names the parameter but never the URL, which may contain a password.
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(wrong("expected `postgres://USER@HOST:PORT/DATABASE`"));
        }
        let (base, parameters) = url.split_once('?').unwrap_or((url, ""));
        let (mut mode, mut root, mut prepares, mut rest) = ("prefer".to_owned(), None, true, Vec::new());
        let mut wanted = None;
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("sslmode", value)) => value.clone_into(&mut mode),
                Some(("sslrootcert", value)) => root = Some(decode_percent(value)?),
                Some(("prepared_statements", "true")) => prepares = true,
                Some(("prepared_statements", "false")) => prepares = false,
                Some(("prepared_statements", _)) => {
                    return Err(wrong("expected `prepared_statements` to be `true` or `false`"));
                }
                Some(("target_session_attrs", "any")) => wanted = Some(TargetSessionAttrs::Any),
                Some(("target_session_attrs", "read-write" | "primary")) => {
                    wanted = Some(TargetSessionAttrs::ReadWrite);
                }
                Some(("target_session_attrs", _)) => {
                    return Err(wrong("expected `target_session_attrs` to be `read-write` or `any`"));
                }
                _ => rest.push(parameter),
            }
        }
        let rest = if rest.is_empty() { String::new() } else { format!("?{}", rest.join("&")) };
        let urls = one_by_one(base);
        let (ssl_mode, verify) = match (mode.as_str(), &root) {
            ("disable", _) => (SslMode::Disable, None),
            ("allow" | "prefer", _) => (SslMode::Prefer, Some(Verify::Nothing)),
            // As in libpq: a given root certificate is always used.
            ("require", None) => (SslMode::Require, Some(Verify::Nothing)),
            ("require" | "verify-ca", _) => (SslMode::Require, Some(Verify::Chain)),
            ("verify-full", _) => (SslMode::Require, Some(Verify::ChainAndName)),
            (other, _) => {
                return Err(wrong(format!(
                    "`sslmode` is `{other}`, expected `disable`, `prefer`, `require`, `verify-ca` or `verify-full`"
                )));
            }
        };
        let tls = verify
            .map(|verify| tls::client(verify, root.as_deref()))
            .transpose()
            .map_err(wrong)?
            .map(MakeRustlsConnect::new);
        // A single host that refuses writes is refused later, with a better reason.
        let several = urls.len() > 1;
        let wanted =
            wanted.unwrap_or(if several { TargetSessionAttrs::ReadWrite } else { TargetSessionAttrs::Any });
        let mut hosts = Vec::new();
        for url in urls {
            let mut config: Config =
                format!("{url}{rest}").parse().map_err(|error| wrong(describe(&error)))?;
            config.ssl_mode(ssl_mode);
            config.target_session_attrs(wanted);
            config.tcp_user_timeout(TCP_USER_TIMEOUT);
            config.keepalives(true);
            config.keepalives_idle(KEEPALIVES_IDLE);
            config.keepalives_interval(KEEPALIVES_INTERVAL);
            config.keepalives_retries(KEEPALIVES_RETRIES);
            if config.get_connect_timeout().is_none() {
                config.connect_timeout(CONNECT_TIMEOUT);
            }
            if config.get_application_name().is_none() {
                config.application_name("belfry");
            }
            hosts.push(config);
        }
        Ok(Self { hosts, last: AtomicUsize::new(0), tls, prepares })
    }

    /// Sets the password, unless the URL has one.
    pub(super) fn with_password(mut self, password: Option<&Password>) -> Self {
        for config in &mut self.hosts {
            if let (Some(password), None) = (password, config.get_password()) {
                config.password(&password.0);
            }
        }
        self
    }

    /// Opens a session with a host that accepts writes; `warned` is set when the server sends a warning in it.
    pub(super) async fn connect(&self, warned: &Arc<AtomicBool>) -> Result<Client, Failure> {
        let count = self.hosts.len();
        let first = self.last.load(Ordering::Relaxed);
        let mut waiting = (0..count).map(|n| (first + n) % count);
        let mut asked = FuturesUnordered::new();
        let mut reasons = Vec::new();
        loop {
            if let Some(host) = waiting.next() {
                asked.push(async move { (host, self.connect_to(&self.hosts[host], warned).await) });
            }
            let all_asked = waiting.len() == 0;
            tokio::select! {
                answer = asked.next() => match answer {
                    Some((host, Ok(client))) => {
                        self.last.store(host, Ordering::Relaxed);
                        return Ok(client);
                    }
                    Some((_, Err(reason))) => reasons.push(reason),
                    None => return Err(Failure::Unreachable(reasons.join("; "))),
                },
                () = tokio::time::sleep(PATIENCE), if !all_asked => {}
            }
        }
    }

    /// # Errors
    /// The reason as text, preceded by the host.
    async fn connect_to(&self, host: &Config, warned: &Arc<AtomicBool>) -> Result<Client, String> {
        let warned = Arc::clone(warned);
        let connecting = async {
            match &self.tls {
                Some(tls) => {
                    let (client, connection) = host.connect(tls.clone()).await?;
                    tokio::spawn(drive(connection, warned));
                    Ok(client)
                }
                None => {
                    let (client, connection) = host.connect(NoTls).await?;
                    tokio::spawn(drive(connection, warned));
                    Ok(client)
                }
            }
        };
        // The driver's own limit applies to each IP address of the host, and ends before the server's greeting.
        let reason = match tokio::time::timeout(CONNECT_TIMEOUT * 2, connecting).await {
            Ok(Ok(client)) => return Ok(client),
            Ok(Err(error)) => describe(&error),
            Err(_elapsed) => format!("no answer within {CONNECT_TIMEOUT:?}"),
        };
        let database = host.get_dbname().unwrap_or_default();
        Err(format!("{}/{database}: {reason}", host_and_port(host)))
    }
}

fn decode_percent(text: &str) -> Result<String, StoreError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next(), rest.next()].map(|digit| digit.and_then(|d| char::from(d).to_digit(16)));
        match digits {
            [Some(high), Some(low)] => bytes.push((high * 16 + low) as u8),
            _ => return Err(wrong("expected two hexadecimal digits after each `%`")),
        }
    }
    String::from_utf8(bytes).map_err(|_| wrong("expected UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H2. Wherever it is in the URL, and whatever else is invalid.
    #[test]
    fn no_output_contains_the_password() {
        for url in [
            "postgres://me:hunter2@db.example:6432/belfry?sslmode=disable",
            "postgres://me@db.example/belfry?password=hunter2&sslmode=disable",
        ] {
            let address = Address::parse(url).unwrap();
            assert!(!format!("{address:?} {address}").contains("hunter2"), "{address:?}");
        }
        for url in [
            "postgres://me:hunter2@db.example/belfry?sslmode=perhaps",
            "postgres://me:hunter2@db.example:port/belfry",
            "postgres://me:hunter2@db.example/belfry?sslmode=verify-ca&sslrootcert=/nowhere",
            "mysql://me:hunter2@db.example/belfry",
            "postgres://me:hunter2@db.example/belfry?nonsense=1",
        ] {
            let error = Address::parse(url).unwrap_err();
            assert!(!format!("{error:?} {error}").contains("hunter2"), "{error:?}");
        }
    }

    /// An unreachable database is given up within seconds, whatever the kernel's timeout.
    #[test]
    fn every_connection_times_out_on_a_silent_host() {
        let address = Address::parse("postgres://me@a.example,b.example/belfry?sslmode=disable").unwrap();
        assert_eq!(address.hosts.len(), 2);
        for config in &address.hosts {
            assert_eq!(config.get_tcp_user_timeout(), Some(&TCP_USER_TIMEOUT));
            assert!(config.get_keepalives());
            assert_eq!(config.get_keepalives_idle(), KEEPALIVES_IDLE);
            assert_eq!(config.get_connect_timeout(), Some(&CONNECT_TIMEOUT));
        }
    }

    #[test]
    fn an_address_is_shown_by_its_host_port_and_database() {
        let shown = |url: &str| Address::parse(url).unwrap().to_string();
        assert_eq!(shown("postgres://me@db.example:6432/belfry?sslmode=disable"), "db.example:6432/belfry");
        assert_eq!(shown("postgresql://me@db.example/belfry?sslmode=disable"), "db.example:5432/belfry");
    }

    #[test]
    fn only_belfry_parameters_are_removed_from_the_url() {
        let url = "postgres://me@h/d?prepared_statements=false&application_name=x&sslmode=disable&connect_timeout=2";
        let address = Address::parse(url).unwrap();
        assert!(!address.prepares);
        assert_eq!(address.hosts[0].get_application_name(), Some("x"));
        assert_eq!(address.hosts[0].get_connect_timeout(), Some(&Duration::from_secs(2)));
    }

    /// D7. Each host has its own configuration, with all parameters of the URL.
    #[test]
    fn each_of_several_hosts_must_accept_writes() {
        let url = "postgres://me:hunter2@one:5433,two,three:5435/belfry?sslmode=disable&connect_timeout=2";
        let address = Address::parse(url).unwrap();
        assert_eq!(address.to_string(), "one:5433,two:5432,three:5435/belfry");
        for host in &address.hosts {
            assert_eq!(host.get_user(), Some("me"));
            assert_eq!(host.get_connect_timeout(), Some(&Duration::from_secs(2)));
            assert_eq!(host.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        }
        let wanted = |url: &str| Address::parse(url).unwrap().hosts[0].get_target_session_attrs();
        assert_eq!(wanted("postgres://one/d?sslmode=disable"), TargetSessionAttrs::Any);
        for value in ["read-write", "primary"] {
            let url = format!("postgres://one/d?sslmode=disable&target_session_attrs={value}");
            assert_eq!(wanted(&url), TargetSessionAttrs::ReadWrite);
        }
        Address::parse("postgres://one/d?target_session_attrs=read-only").unwrap_err();
    }

    /// D7. The error contains the answer of each host, and not the password.
    #[tokio::test]
    async fn the_error_names_each_host_with_its_reason() {
        let listeners = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        let [one, two] = listeners.map(|listener| listener.local_addr().unwrap().to_string());
        let url = format!("postgres://me:hunter2@{one},{two}/belfry?sslmode=disable");
        let address = Address::parse(&url).unwrap();
        let Err(Failure::Unreachable(reason)) = address.connect(&Arc::default()).await else { panic!() };
        for host in [one, two] {
            assert!(reason.contains(&format!("{host}/belfry: ")), "{reason}");
        }
        assert!(!reason.contains("hunter2"), "{reason}");
    }
}
