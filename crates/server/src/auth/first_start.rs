//! The first tokens of a server: no default password, and nothing to set up by hand.
//!
//! Where the store has no admin token, one is made and written to `admin-token` in the data folder,
//! readable by its owner alone; the binary prints it once. Likewise `worker-token` for the workers. Of
//! several servers that meet an empty store together one makes them.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use store::query::TokenKind;
use store::{Store, StoreError};

use super::{Tokens, token};

/// The file of the first admin token, within the data folder.
pub const ADMIN_TOKEN_FILE: &str = "admin-token";
/// The file of the first worker token, within the data folder.
pub const WORKER_TOKEN_FILE: &str = "worker-token";

/// How often, and how many times, a server looks for the token that another one makes.
const OTHERS_LOOK: Duration = Duration::from_millis(100);
const OTHERS_LOOKS: u32 = 30;

/// What a start found or made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstStart {
    /// The admin token, if this start made it; to be shown to the operator once.
    pub admin_token: Option<String>,
    /// Where the first admin token was written.
    pub admin_token_file: PathBuf,
    /// Where the first worker token was written.
    pub worker_token_file: PathBuf,
}

/// Why the first tokens could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FirstStartError {
    /// The file could not be written.
    #[error("cannot write the first {kind} token to `{}`", path.display())]
    Write {
        /// Which token.
        kind: &'static str,
        /// Where.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The store did not keep it.
    #[error("cannot keep the first {kind} token")]
    Store {
        /// Which token.
        kind: &'static str,
        /// Why not.
        #[source]
        source: StoreError,
    },
}

/// Makes the first admin token and the first worker token, where there is none of their kind.
///
/// # Errors
/// [`FirstStartError`]; calling again is safe.
pub async fn first_start(
    tokens: &Tokens,
    store: &dyn Store,
    data_dir: &Path,
) -> Result<FirstStart, FirstStartError> {
    let admin_token_file = data_dir.join(ADMIN_TOKEN_FILE);
    let worker_token_file = data_dir.join(WORKER_TOKEN_FILE);
    let admin_token = ensure(tokens, store, TokenKind::Admin, "admin", &admin_token_file).await?;
    ensure(tokens, store, TokenKind::Worker, "worker", &worker_token_file).await?;
    Ok(FirstStart { admin_token, admin_token_file, worker_token_file })
}

async fn ensure(
    tokens: &Tokens,
    store: &dyn Store,
    kind: TokenKind,
    name: &str,
    path: &Path,
) -> Result<Option<String>, FirstStartError> {
    if tokens.any(kind) {
        return Ok(None);
    }
    let word = token::kind_word(kind);
    let kept = |source| FirstStartError::Store { kind: word, source };
    if made_elsewhere(tokens, store, kind).await.map_err(kept)? {
        return Ok(None);
    }
    let text = token::generate(kind);
    // The file comes first: a crash in between leaves a file that the next start replaces, and not
    // a token that nobody has ever seen.
    write_secret(path, format!("{text}\n").as_bytes()).map_err(|source| FirstStartError::Write {
        kind: word,
        path: path.to_owned(),
        source,
    })?;
    tokens.register(&text, name).await.map_err(kept)?;
    Ok(Some(text))
}

/// Whether another server makes this token at this very time, and then waits until it has.
async fn made_elsewhere(tokens: &Tokens, store: &dyn Store, kind: TokenKind) -> Result<bool, StoreError> {
    let mine: [u8; 32] = rand::random();
    let claim = format!("first-{}-token", token::kind_word(kind));
    if store.secret(&claim, &mine).await? == mine {
        return Ok(false);
    }
    for _ in 0..OTHERS_LOOKS {
        tokens.reload().await?;
        if tokens.any(kind) {
            return Ok(true);
        }
        tokio::time::sleep(OTHERS_LOOK).await;
    }
    // Whoever wanted to make it did not live to do so.
    Ok(false)
}

/// Writes a file that only its owner may read, whole or not at all.
pub(crate) fn write_secret(path: &Path, secret: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&temporary)?;
    file.write_all(secret)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_file_is_for_its_owner_alone_and_replaced_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(ADMIN_TOKEN_FILE);
        write_secret(&path, b"one\n").unwrap();
        write_secret(&path, b"two\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        #[cfg(unix)]
        {
            let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
            assert_eq!(mode & 0o777, 0o600);
        }
    }
}
