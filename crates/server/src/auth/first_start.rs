//! First tokens of a server: no default password, and no manual setup.
//!
//! If no usable token can administrate everything, an admin token is created and written to `admin-token` in the data
//! folder, readable by its owner only; the binary prints it once. If there is no usable worker token, `worker-token` is
//! created in the same way. If several servers start with an empty store, one of them creates the tokens.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use access::{Bearer, Change, Identity, IdentityKind};
use store::{Store, StoreError};

use super::{AccessControl, ChangeError, token};
use crate::private_files::write_secret;

/// Name of the file of the first admin token, in the data folder.
pub const ADMIN_TOKEN_FILE: &str = "admin-token";
/// Name of the file of the first worker token, in the data folder.
pub const WORKER_TOKEN_FILE: &str = "worker-token";

/// Interval and number of checks for a token that another server creates.
const TOKEN_POLL_INTERVAL: Duration = Duration::from_millis(100);
const TOKEN_POLLS_MAX: u32 = 30;

/// Tokens that a start created, and their files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstStart {
    /// Admin token, if this start created it; shown to the operator once.
    pub admin_token: Option<String>,
    /// Path of the first admin token's file.
    pub admin_token_file: PathBuf,
    /// Path of the first worker token's file.
    pub worker_token_file: PathBuf,
}

/// Why the first tokens could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FirstStartError {
    /// The file could not be written.
    #[error("cannot write the first {kind} token to `{}`", path.display())]
    Write {
        /// Kind of the token.
        kind: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// No token of the kind is usable, but entries of access control cannot be read, perhaps that token.
    #[error(
        "no usable {kind} token exists, and some tokens or roles cannot be read: they are damaged, or a newer version \
         wrote them"
    )]
    Unreadable {
        /// Kind of the token.
        kind: &'static str,
    },
    /// The token could not be stored.
    #[error("cannot store the first {kind} token")]
    Store {
        /// Kind of the token.
        kind: &'static str,
        /// Error of the store.
        #[source]
        source: ChangeError,
    },
}

/// Creates the first admin token and the first worker token, unless a token of the kind exists.
///
/// # Errors
/// [`FirstStartError`]; calling again is safe.
pub async fn first_start(
    control: &AccessControl,
    store: &dyn Store,
    data_dir: &Path,
) -> Result<FirstStart, FirstStartError> {
    let admin_token_file = data_dir.join(ADMIN_TOKEN_FILE);
    let worker_token_file = data_dir.join(WORKER_TOKEN_FILE);
    let admin_token = ensure(control, store, IdentityKind::Admin, "admin", &admin_token_file).await?;
    ensure(control, store, IdentityKind::Worker, "worker", &worker_token_file).await?;
    Ok(FirstStart { admin_token, admin_token_file, worker_token_file })
}

async fn ensure(
    control: &AccessControl,
    store: &dyn Store,
    kind: IdentityKind,
    name: &str,
    path: &Path,
) -> Result<Option<String>, FirstStartError> {
    if control.has_bearer(kind) {
        return Ok(None);
    }
    if control.read(access::Directory::has_unreadable) {
        return Err(FirstStartError::Unreadable { kind: token::kind_name(kind) });
    }
    let word = token::kind_name(kind);
    let failed = |source| FirstStartError::Store { kind: word, source };
    if is_created_elsewhere(control, store, kind).await.map_err(|error| failed(error.into()))? {
        return Ok(None);
    }
    let text = token::generate(kind);
    // The file comes first: a crash in between leaves a file that the next start replaces, not a token that no user has
    // seen.
    write_secret(path, format!("{text}\n").as_bytes()).map_err(|source| FirstStartError::Write {
        kind: word,
        path: path.to_owned(),
        source,
    })?;
    let parsed = token::parse(&text).expect("the text was generated, so it is well formed");
    let change = Change::CreateToken {
        id: parsed.id.to_owned(),
        hash: parsed.hash().into(),
        bearer: if kind == IdentityKind::Worker {
            Bearer::Worker(name.into())
        } else {
            Bearer::Admin(name.into())
        },
        description: Some("created at the first start".to_owned()),
        scope: None,
        expires_at: None,
    };
    control.change(&Identity::admin("system"), &change).await.map_err(failed)?;
    Ok(Some(text))
}

/// Returns whether another server is creating this token; waits until it exists.
async fn is_created_elsewhere(
    control: &AccessControl,
    store: &dyn Store,
    kind: IdentityKind,
) -> Result<bool, StoreError> {
    let mine: [u8; 32] = rand::random();
    let claim = format!("first-{}-token", token::kind_name(kind));
    if store.secret(&claim, &mine).await? == mine {
        return Ok(false);
    }
    for _ in 0..TOKEN_POLLS_MAX {
        control.refresh().await?;
        if control.has_bearer(kind) {
            return Ok(true);
        }
        tokio::time::sleep(TOKEN_POLL_INTERVAL).await;
    }
    // The other server stopped before it created the token.
    Ok(false)
}
