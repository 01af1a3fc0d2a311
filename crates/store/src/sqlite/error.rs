//! Translation of SQLite errors into store errors.
//!
//! The decisive question is what is on the disk. `SQLITE_FULL` has changed nothing. After an I/O error while writing or
//! syncing, the disk cannot be trusted, and this process never writes to the file again: after a failed fsync the
//! system may have dropped the pages, and may report the next fsync as a success (PostgreSQL's "fsyncgate", 2018).

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use model::{Duration, ShardId};
use rusqlite::{ErrorCode, ffi};

use crate::StoreError;
use crate::codec::DecodeError;

/// Error of an operation inside a transaction.
#[derive(Debug)]
pub(super) enum Failure {
    /// A lease is no longer valid; the operation changed nothing.
    Fenced(ShardId),
    /// Error of SQLite.
    Sqlite(rusqlite::Error),
    /// The data, or the request, breaks an invariant.
    Broken(String),
    /// Error that is already a store error.
    Store(StoreError),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<DecodeError> for Failure {
    fn from(damage: DecodeError) -> Self {
        Self::Broken(damage.to_string())
    }
}

/// Phase of the operation in which the error occurred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// A query; an interrupted one exceeded `limit`.
    Query { limit: Duration },
    /// A change inside a transaction, which is rolled back.
    Change,
    /// The commit, whose outcome may be unknown.
    Commit,
}

impl Failure {
    /// Converts the failure into a store error; `path` is the affected file.
    pub(super) fn into_store_error(self, phase: Phase, path: &Path) -> StoreError {
        match self {
            Self::Fenced(shard) => StoreError::Fenced { shard },
            Self::Store(error) => error,
            Self::Broken(reason) => StoreError::Fatal { reason: format!("`{}`: {reason}", path.display()) },
            Self::Sqlite(error) => classify(error, phase, path),
        }
    }
}

fn classify(error: rusqlite::Error, phase: Phase, path: &Path) -> StoreError {
    let fatal = |error: rusqlite::Error| StoreError::Fatal {
        reason: format!("`{}`: {}", path.display(), describe(&error)),
    };
    let Some(&ffi::Error { code, extended_code }) = error.sqlite_error() else {
        return fatal(error);
    };
    match code {
        ErrorCode::DiskFull => StoreError::Full,
        ErrorCode::OperationInterrupted => match phase {
            Phase::Query { limit } => StoreError::TooSlow { limit },
            Phase::Change | Phase::Commit => StoreError::Unavailable { source: error.into() },
        },
        // The WAL index is memory shared with readers, not data. It cannot grow on a full volume. The frames of the
        // commit may then already be in the WAL, and a restart would find them.
        ErrorCode::SystemIoFailure if is_shared_memory(extended_code) => match phase {
            Phase::Commit => StoreError::OutcomeUnknown { source: error.into() },
            Phase::Query { .. } | Phase::Change => StoreError::Unavailable { source: error.into() },
        },
        ErrorCode::SystemIoFailure if extended_code == ffi::SQLITE_IOERR_NOMEM => {
            StoreError::Unavailable { source: error.into() }
        }
        ErrorCode::DatabaseBusy
        | ErrorCode::DatabaseLocked
        | ErrorCode::OutOfMemory
        | ErrorCode::CannotOpen
        | ErrorCode::FileLockingProtocolFailed => StoreError::Unavailable { source: error.into() },
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::SystemIoFailure => fatal(error),
        // An invalid query harms nothing else; an invalid change must stop the store.
        _ => match phase {
            Phase::Query { .. } => StoreError::Unavailable { source: error.into() },
            Phase::Change | Phase::Commit => fatal(error),
        },
    }
}

fn is_shared_memory(extended_code: i32) -> bool {
    matches!(
        extended_code,
        ffi::SQLITE_IOERR_SHMOPEN
            | ffi::SQLITE_IOERR_SHMSIZE
            | ffi::SQLITE_IOERR_SHMLOCK
            | ffi::SQLITE_IOERR_SHMMAP
    )
}

fn describe(error: &rusqlite::Error) -> String {
    match error.sqlite_error() {
        Some(sqlite) => format!("{error} (SQLite code {})", sqlite.extended_code),
        None => error.to_string(),
    }
}

/// Records for every thread of the store that the file can no longer be trusted.
#[derive(Debug, Clone)]
pub(super) struct FatalState {
    pub(super) path: Arc<PathBuf>,
    lost: Arc<OnceLock<String>>,
}

impl FatalState {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: Arc::new(path.to_owned()), lost: Arc::default() }
    }

    /// # Errors
    /// [`StoreError::Fatal`] with the first reason, if the file is no longer trusted.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match self.lost.get() {
            None => Ok(()),
            Some(reason) => Err(StoreError::Fatal { reason: reason.clone() }),
        }
    }

    /// Converts a failure into a store error, and records it if it is fatal.
    pub(super) fn judge(&self, failure: Failure, phase: Phase) -> StoreError {
        let error = failure.into_store_error(phase, &self.path);
        if let StoreError::Fatal { reason } = &error
            && self.lost.set(reason.clone()).is_ok()
        {
            tracing::error!(error = reason, "the store can no longer be trusted");
        }
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(code: i32, phase: Phase) -> StoreError {
        let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
        Failure::from(error).into_store_error(phase, Path::new("x.db"))
    }

    /// F7, F8, F9, F13.
    #[test]
    fn each_sqlite_error_maps_to_a_store_error() {
        use StoreError::{Fatal, Full, OutcomeUnknown, TooSlow, Unavailable};
        let query = Phase::Query { limit: Duration::from_secs(5) };
        assert!(matches!(judged(ffi::SQLITE_FULL, Phase::Commit), Full));
        assert!(matches!(judged(ffi::SQLITE_FULL, Phase::Change), Full));
        for code in [ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_IOERR_DIR_FSYNC] {
            assert!(matches!(judged(code, Phase::Commit), Fatal { .. }), "{code}");
        }
        assert!(matches!(judged(ffi::SQLITE_IOERR_SHMSIZE, Phase::Commit), OutcomeUnknown { .. }));
        assert!(matches!(judged(ffi::SQLITE_IOERR_SHMSIZE, Phase::Change), Unavailable { .. }));
        assert!(matches!(judged(ffi::SQLITE_CORRUPT, query), Fatal { .. }));
        assert!(matches!(judged(ffi::SQLITE_NOTADB, query), Fatal { .. }));
        assert!(matches!(judged(ffi::SQLITE_CONSTRAINT_PRIMARYKEY, Phase::Change), Fatal { .. }));
        assert!(matches!(judged(ffi::SQLITE_BUSY, Phase::Commit), Unavailable { .. }));
        assert!(matches!(judged(ffi::SQLITE_INTERRUPT, query), TooSlow { .. }));
    }

    #[test]
    fn a_fatal_error_keeps_its_first_reason() {
        let trust = FatalState::new(Path::new("x.db"));
        assert!(trust.check().is_ok());
        trust.judge(Failure::Broken("first".into()), Phase::Change);
        trust.judge(Failure::Broken("second".into()), Phase::Change);
        let Err(StoreError::Fatal { reason }) = trust.check() else { panic!("it is trusted again") };
        assert_eq!(reason, "`x.db`: first");
    }
}
