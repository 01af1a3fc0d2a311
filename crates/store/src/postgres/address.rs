//! Where the database is and how a session with it is opened.
//!
//! A URL as libpq takes it. Of its parameters `sslmode`, `sslrootcert` and `prepared_statements` are
//! read here, the rest by the driver. The password is in nothing that can be shown.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::Password;
use super::connection::drive;
use super::error::{Failure, describe};
use super::tls::{self, Verify};
use crate::StoreError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long data that was sent may stay unconfirmed before the connection counts as dead.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);
const KEEPALIVES_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVES_INTERVAL: Duration = Duration::from_secs(3);
const KEEPALIVES_RETRIES: u32 = 3;

/// A database and how it is reached.
pub(super) struct Address {
    config: Config,
    tls: Option<MakeRustlsConnect>,
    /// Whether statements are prepared once in a session. Off behind a pooler that lends sessions by
    /// the transaction and does not know of prepared statements (PgBouncer before 1.21).
    pub(super) prepares: bool,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Host, port and database.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = match self.config.get_hosts().first() {
            Some(Host::Tcp(name)) => name.clone(),
            Some(Host::Unix(path)) => path.display().to_string(),
            None => "localhost".to_owned(),
        };
        let port = self.config.get_ports().first().copied().unwrap_or(5432);
        write!(f, "{host}:{port}/{}", self.config.get_dbname().unwrap_or_default())
    }
}

fn wrong(reason: impl fmt::Display) -> StoreError {
    StoreError::Unavailable { source: format!("the address of the database is wrong: {reason}").into() }
}

impl Address {
    /// # Errors
    /// [`StoreError::Unavailable`] that names the parameter and never the URL: it may hold a password.
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(wrong("expected `postgres://USER@HOST:PORT/DATABASE`"));
        }
        let (base, parameters) = url.split_once('?').unwrap_or((url, ""));
        let (mut mode, mut root, mut prepares, mut rest) = ("prefer".to_owned(), None, true, Vec::new());
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("sslmode", value)) => value.clone_into(&mut mode),
                Some(("sslrootcert", value)) => root = Some(decode_percent(value)?),
                Some(("prepared_statements", "true")) => prepares = true,
                Some(("prepared_statements", "false")) => prepares = false,
                Some(("prepared_statements", _)) => {
                    return Err(wrong("expected `prepared_statements` to be `true` or `false`"));
                }
                _ => rest.push(parameter),
            }
        }
        let url = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
        let mut config: Config = url.parse().map_err(|error| wrong(describe(&error)))?;
        let (ssl_mode, verify) = match (mode.as_str(), &root) {
            ("disable", _) => (SslMode::Disable, None),
            ("allow" | "prefer", _) => (SslMode::Prefer, Some(Verify::Nothing)),
            // As libpq: a root that was named is meant to be used.
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
        config.ssl_mode(ssl_mode);
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
        Ok(Self { config, tls, prepares })
    }

    /// The same with a password, unless it has one.
    pub(super) fn with_password(mut self, password: Option<&Password>) -> Self {
        if let (Some(password), None) = (password, self.config.get_password()) {
            self.config.password(&password.0);
        }
        self
    }

    /// A new session; `warned` is set when the server warns in it.
    pub(super) async fn connect(&self, warned: &Arc<AtomicBool>) -> Result<Client, Failure> {
        let failed =
            |error: tokio_postgres::Error| Failure::Unreachable(format!("{self}: {}", describe(&error)));
        let warned = Arc::clone(warned);
        let connecting = async {
            match &self.tls {
                Some(tls) => {
                    let (client, connection) = self.config.connect(tls.clone()).await?;
                    tokio::spawn(drive(connection, warned));
                    Ok(client)
                }
                None => {
                    let (client, connection) = self.config.connect(NoTls).await?;
                    tokio::spawn(drive(connection, warned));
                    Ok(client)
                }
            }
        };
        // The driver's own limit is for each address of the host, and ends before the server's greeting.
        let silent = || Failure::Unreachable(format!("{self}: no answer within {CONNECT_TIMEOUT:?}"));
        tokio::time::timeout(CONNECT_TIMEOUT * 2, connecting).await.map_err(|_| silent())?.map_err(failed)
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
            _ => return Err(wrong("expected two hexadecimal digits behind each `%`")),
        }
    }
    String::from_utf8(bytes).map_err(|_| wrong("expected UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H2. Wherever it stands, and whatever is wrong with the rest.
    #[test]
    fn a_password_is_in_nothing_that_can_be_shown() {
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

    #[test]
    fn an_address_is_shown_by_its_host_port_and_database() {
        let shown = |url: &str| Address::parse(url).unwrap().to_string();
        assert_eq!(shown("postgres://me@db.example:6432/belfry?sslmode=disable"), "db.example:6432/belfry");
        assert_eq!(shown("postgresql://me@db.example/belfry?sslmode=disable"), "db.example:5432/belfry");
    }

    #[test]
    fn only_what_is_ours_is_taken_out_of_the_address() {
        let url = "postgres://me@h/d?prepared_statements=false&application_name=x&sslmode=disable&connect_timeout=2";
        let address = Address::parse(url).unwrap();
        assert!(!address.prepares);
        assert_eq!(address.config.get_application_name(), Some("x"));
        assert_eq!(address.config.get_connect_timeout(), Some(&Duration::from_secs(2)));
    }
}
