//! The key that encrypts secrets in the store: all servers of a cluster need the same one.
//!
//! The first server creates the key. A server without the file gets it from a server that started earlier. A server that
//! lacks the key with which another one encrypts is reported: in the log, and by `/readyz?verbose`.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use model::ServerId;
use model::error_chain::Chain;
use store::StoreError;
use tokio::time::Instant;

use super::{RequestError, Requests};
use crate::alerts::AlertService;
use crate::private_files::write_secret;
use crate::seal::Sealer;

const KEY: &str = "/internal/secret-key";
const ID: &str = "/internal/secret-key/id";
/// Longest wait of a start for the key of another server.
const START_PATIENCE: Duration = Duration::from_secs(60);
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// Interval at which the keys of new servers are compared.
const COMPARE_EVERY: Duration = Duration::from_secs(10);

/// Why a server without the key did not get it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretKeyError {
    /// No other server gave the key.
    #[error("cannot get the secret key of the cluster from another server")]
    NotReceived(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The key could not be stored.
    #[error("cannot write the secret key to `{}`", path.display())]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// Error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The store could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl SecretKeyError {
    /// Returns the next step for the operator.
    pub fn help(&self) -> &'static str {
        match self {
            Self::NotReceived(_) => {
                "check that the servers reach each other, or copy the file `secret.key` of another server into the data \
                 directory of this one"
            }
            Self::File { .. } => "check that the server's user can write the folder of the file",
            Self::Store(error) => error.help(),
        }
    }
}

/// Gets the key from a server that started earlier, if there is one, and writes it to a file that does not exist.
///
/// # Errors
/// See [`SecretKeyError`]. Servers of an older release do not give the key; then there is no error and no file.
pub(crate) async fn receive(requests: &Requests, file: &Path) -> Result<(), SecretKeyError> {
    let give_up = Instant::now() + START_PATIENCE;
    loop {
        // The others accept requests of servers that are announced.
        requests.members.announce_and_read().await?;
        let me = requests.members.me().id;
        let earlier: Vec<_> = requests.others().into_iter().filter(|server| server.id < me).collect();
        let mut failure = None;
        for server in &earlier {
            match requests.read::<String>("get the secret key of", server, KEY).await {
                Ok(Some(key)) => {
                    let written = write_secret(file, key.as_bytes());
                    written.map_err(|source| SecretKeyError::File { path: file.to_owned(), source })?;
                    tracing::info!(server = server.name, "got the secret key of the cluster");
                    return Ok(());
                }
                Ok(None) | Err(RequestError::NotServed { .. }) => {}
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            None => return Ok(()),
            Some(error) if Instant::now() >= give_up => {
                return Err(SecretKeyError::NotReceived(error.into()));
            }
            Some(error) => {
                tracing::debug!(error = %Chain(&error), "waiting for the secret key of the cluster")
            }
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// Servers whose secrets this one cannot decrypt.
#[derive(Default)]
pub(crate) struct KeyComparison {
    /// Name of each other server, and whether this one has its key.
    known: Mutex<HashMap<ServerId, (String, bool)>>,
}

impl KeyComparison {
    /// Returns the problem, if a server has another key.
    pub(crate) fn trouble(&self) -> Option<String> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (server, _) = known.values().find(|(_, is_known)| !is_known)?;
        Some(format!(
            "server `{server}` encrypts secrets with a key that this server does not have: give all servers the same file \
             `secret.key`"
        ))
    }

    /// Compares the keys of all servers with those of this one, until the future is dropped.
    pub(crate) async fn run(&self, requests: &Requests, sealer: &Sealer) {
        loop {
            let others = requests.others();
            let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
            lock().retain(|id, _| others.iter().any(|server| server.id == *id));
            for server in &others {
                if lock().contains_key(&server.id) {
                    continue;
                }
                // A server that does not answer is asked again.
                let Ok(Some(id)) = requests.read::<String>("get the secret key of", server, ID).await else {
                    continue;
                };
                let is_known = sealer.knows(&id);
                if !is_known {
                    tracing::warn!(
                        server = server.name,
                        "another server encrypts secrets with a key that this server does not have: give all servers the same \
                         file `secret.key`"
                    );
                }
                lock().insert(server.id, (server.name.clone(), is_known));
            }
            tokio::time::sleep(COMPARE_EVERY).await;
        }
    }
}

/// Returns the routes for the key.
pub(super) fn router(alerts: Arc<AlertService>) -> Router {
    Router::new().route(KEY, get(give)).route(ID, get(give_id)).with_state(alerts)
}

async fn give(State(alerts): State<Arc<AlertService>>) -> Json<String> {
    Json(alerts.sealer().file_text())
}

async fn give_id(State(alerts): State<Arc<AlertService>>) -> Json<String> {
    Json(alerts.sealer().key_id().to_owned())
}
